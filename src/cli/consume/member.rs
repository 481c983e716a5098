//! A member of a consumer group, by the classic protocol with the range assignor, so that it shares a group with any
//! other consumer that offers `range` (Java's, librdkafka's).
//!
//! What it is not: it reads no records. The caller gives heartbeats, commits before it joins again, and reads what is
//! assigned.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::client::{
    assign_ranges, ClientError, Cluster, ConsumerAssignment, ConsumerSubscription, GroupClient,
    Membership, PartitionKey, CONSUMER_PROTOCOL,
};
use crate::protocol::messages::*;
use crate::protocol::{ErrorCode, Str};

/// A member, or one that wants to be.
pub(super) struct Member {
    cluster: Cluster,
    group: GroupClient,
    topics: Vec<Str>,
    membership: Membership,
}

/// What the coordinator says to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pulse {
    /// All is as it was.
    Steady,
    /// Join again; the offsets of the partitions that are given up can still be committed.
    Rebalance,
    /// The membership was lost, and with it the right to commit.
    Lost,
}

impl Pulse {
    /// What an error means to a member; none if it means nothing of the kind.
    pub fn of(error: &ClientError) -> Option<Pulse> {
        match error.code()? {
            ErrorCode::RebalanceInProgress => Some(Pulse::Rebalance),
            ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration => Some(Pulse::Lost),
            _ => None,
        }
    }
}

impl Member {
    pub fn new(cluster: Cluster, group: GroupClient, topics: Vec<Str>) -> Member {
        Member {
            cluster,
            group,
            topics,
            membership: Membership::none(),
        }
    }

    pub fn group(&self) -> &GroupClient {
        &self.group
    }

    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Joins, waits until all members have, and takes its part.
    pub async fn join(&mut self) -> Result<Vec<PartitionKey>, ClientError> {
        loop {
            let joined = self.enter().await?;
            self.membership.generation = joined.generation_id;
            let is_leader = joined.leader == joined.member_id;
            let assignments = match is_leader && !joined.skip_assignment {
                true => self.assign(&joined.members).await?,
                false => Vec::new(),
            };
            match self.sync(&joined, assignments).await {
                Ok(assignment) => return Ok(assignment),
                Err(error) => match Pulse::of(&error) {
                    Some(Pulse::Lost) => self.forget(),
                    Some(_) => {}
                    None => return Err(error),
                },
            }
        }
    }

    /// JoinGroup, until it gives a generation.
    async fn enter(&mut self) -> Result<JoinGroupResponse, ClientError> {
        let subscription = ConsumerSubscription {
            topics: self.topics.clone(),
            ..Default::default()
        };
        let metadata = subscription.to_bytes()?;
        loop {
            let request = JoinGroupRequest {
                group_id: self.group.name().clone(),
                session_timeout_ms: SESSION_TIMEOUT_MS,
                rebalance_timeout_ms: REBALANCE_TIMEOUT_MS,
                member_id: self.membership.member_id.clone(),
                protocol_type: Str::from(CONSUMER_PROTOCOL),
                protocols: vec![JoinGroupRequestProtocol {
                    name: Str::from(RANGE),
                    metadata: metadata.clone(),
                }],
                ..Default::default()
            };
            let joined = self
                .group
                .call(&request, |answer: &JoinGroupResponse| answer.error_code)
                .await?;
            match ErrorCode::from_code(joined.error_code) {
                Some(ErrorCode::MemberIdRequired) => self.membership.member_id = joined.member_id,
                Some(ErrorCode::UnknownMemberId) if !self.membership.member_id.is_empty() => {
                    self.forget()
                }
                _ => {
                    ClientError::check(joined.error_code, None, || {
                        format!("join group {}", self.group.name())
                    })?;
                    self.membership.member_id = joined.member_id.clone();
                    return Ok(joined);
                }
            }
        }
    }

    /// The leader's work.
    async fn assign(
        &self,
        members: &[JoinGroupResponseMember],
    ) -> Result<Vec<SyncGroupRequestAssignment>, ClientError> {
        let mut subscriptions: BTreeMap<Str, BTreeSet<Str>> = BTreeMap::new();
        for member in members {
            // Who cannot say what it wants gets nothing.
            let wanted =
                ConsumerSubscription::of_bytes(member.metadata.clone()).unwrap_or_default();
            subscriptions.insert(
                member.member_id.clone(),
                wanted.topics.into_iter().collect(),
            );
        }
        let topics: BTreeSet<Str> = subscriptions.values().flatten().cloned().collect();
        let topics: Vec<Str> = topics.into_iter().collect();
        let metadata = self.cluster.metadata(Some(&topics), false).await?;
        let count =
            |topic: MetadataResponseTopic| Some((topic.name?, topic.partitions.len() as i32));
        let partitions = metadata.topics.into_iter().filter_map(count).collect();
        let assigned = assign_ranges(&subscriptions, &partitions);
        let assignment = |(member_id, partitions): (Str, Vec<PartitionKey>)| {
            Ok(SyncGroupRequestAssignment {
                member_id,
                assignment: ConsumerAssignment::of(&partitions).to_bytes()?,
            })
        };
        assigned.into_iter().map(assignment).collect()
    }

    async fn sync(
        &self,
        joined: &JoinGroupResponse,
        assignments: Vec<SyncGroupRequestAssignment>,
    ) -> Result<Vec<PartitionKey>, ClientError> {
        let request = SyncGroupRequest {
            group_id: self.group.name().clone(),
            generation_id: self.membership.generation,
            member_id: self.membership.member_id.clone(),
            protocol_type: Some(Str::from(CONSUMER_PROTOCOL)),
            protocol_name: joined.protocol_name.clone(),
            assignments,
            ..Default::default()
        };
        let answer = self
            .group
            .call(&request, |answer: &SyncGroupResponse| answer.error_code)
            .await?;
        ClientError::check(answer.error_code, None, || {
            format!("join group {}", self.group.name())
        })?;
        let assignment = ConsumerAssignment::of_bytes(answer.assignment);
        let assignment = assignment.map_err(|error| ClientError::Decode {
            peer: format!("the leader of group {}", self.group.name()),
            error,
        })?;
        Ok(assignment.partitions().collect())
    }

    /// Says that it is alive; to be called every [`HEARTBEAT_PERIOD`].
    pub async fn heartbeat(&mut self) -> Result<Pulse, ClientError> {
        let request = HeartbeatRequest {
            group_id: self.group.name().clone(),
            generation_id: self.membership.generation,
            member_id: self.membership.member_id.clone(),
            ..Default::default()
        };
        let answer = self
            .group
            .call(&request, |answer: &HeartbeatResponse| answer.error_code)
            .await?;
        let checked = ClientError::check(answer.error_code, None, || {
            format!("stay in group {}", self.group.name())
        });
        match checked {
            Ok(()) => Ok(Pulse::Steady),
            Err(error) => Pulse::of(&error).ok_or(error),
        }
    }

    /// The membership was lost: the next join is that of a new member.
    pub fn forget(&mut self) {
        self.membership = Membership::none();
    }

    /// Leaves, so that the others need not wait for the session's end.
    pub async fn leave(&mut self) -> Result<(), ClientError> {
        if self.membership.member_id.is_empty() {
            return Ok(());
        }
        let connection = self.group.connection().await?;
        let by_list = connection.version_of(crate::protocol::ApiKey::LeaveGroup)? >= 3;
        let member_id = std::mem::replace(&mut self.membership, Membership::none()).member_id;
        let identity = MemberIdentity {
            member_id: member_id.clone(),
            reason: Some(Str::from("the consumer ended")),
            ..Default::default()
        };
        let request = LeaveGroupRequest {
            group_id: self.group.name().clone(),
            member_id: if by_list { Str::default() } else { member_id },
            members: if by_list { vec![identity] } else { Vec::new() },
        };
        let answer = self
            .group
            .call(&request, |answer: &LeaveGroupResponse| answer.error_code)
            .await?;
        ClientError::check(answer.error_code, None, || {
            format!("leave group {}", self.group.name())
        })
    }
}

/// The assignor's name.
const RANGE: &str = "range";
const SESSION_TIMEOUT_MS: i32 = 30_000;
/// How long the others wait for one that does not join again.
const REBALANCE_TIMEOUT_MS: i32 = 30_000;
/// The coordinator answers a join only once all members have joined.
pub(super) const ANSWER_TIME_MIN: Duration = Duration::from_secs(35);
/// Time between two signs of life.
pub(super) const HEARTBEAT_PERIOD: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_tell_a_member_what_to_do() {
        let refused = |code: ErrorCode| ClientError::Refused {
            doing: String::new(),
            code: code.code(),
            message: None,
        };
        assert_eq!(
            Pulse::of(&refused(ErrorCode::RebalanceInProgress)),
            Some(Pulse::Rebalance)
        );
        assert_eq!(
            Pulse::of(&refused(ErrorCode::IllegalGeneration)),
            Some(Pulse::Lost)
        );
        assert_eq!(
            Pulse::of(&refused(ErrorCode::UnknownMemberId)),
            Some(Pulse::Lost)
        );
        assert_eq!(
            Pulse::of(&refused(ErrorCode::GroupAuthorizationFailed)),
            None
        );
    }
}
