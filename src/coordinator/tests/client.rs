//! A client of a group, as far as the simulator needs one.

use super::sim::metadata;
use crate::coordinator::{GroupRequest, GroupResponse, Ticket};
use crate::protocol::messages::*;
use crate::protocol::{ErrorCode, Str};
use crate::runtime::sim::SimRng;
use bytes::Bytes;

/// What a client is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Join,
    Sync,
    Stable,
    /// It hangs, or is gone for good: until [`Client::wakes`].
    Asleep,
    /// Another has taken its instance id: it ended.
    Fenced,
}

#[derive(Debug)]
pub struct Client {
    pub group: Str,
    pub instance: Option<Str>,
    pub work: Work,
    pub generation: i32,
    pub is_leader: bool,
    pub waits_for: Option<Ticket>,
    /// A call that it does not wait for any more; the world takes it.
    pub gives_up: Option<Ticket>,
    index: usize,
    member: Str,
    api_version: i16,
    protocols: Vec<&'static str>,
    /// The instances or ids of the members that it leads.
    led: Vec<(Str, Str)>,
    protocol: Option<Str>,
    syncs: u32,
    skips: bool,
}

impl Client {
    pub fn new(rng: &SimRng, index: usize, groups: &[&'static str]) -> Client {
        let is_static = rng.one_in(2);
        Client {
            group: Str::from_static(groups[rng.below(groups.len() as u64) as usize]),
            // Two may have the same by mistake.
            instance: is_static.then(|| Str::from(format!("instance-{}", index / 2))),
            work: Work::Join,
            generation: -1,
            is_leader: false,
            waits_for: None,
            gives_up: None,
            index,
            member: Str::default(),
            api_version: match is_static {
                true => 8 + rng.below(2) as i16,
                false => rng.below(10) as i16,
            },
            protocols: match rng.below(3) {
                0 => vec!["range"],
                1 => vec!["range", "sticky"],
                _ => vec!["sticky", "range"],
            },
            led: Vec::new(),
            protocol: None,
            syncs: 0,
            skips: false,
        }
    }

    /// By what a leader knows it.
    pub fn name(&self) -> Str {
        self.instance.clone().unwrap_or_else(|| self.member.clone())
    }

    pub fn wakes(&mut self) {
        if self.work == Work::Asleep {
            self.work = Work::Join;
        }
    }

    pub fn coordinator_restarted(&mut self) {
        if self.waits_for.take().is_some() && self.work != Work::Asleep {
            self.work = Work::Join;
        }
        self.gives_up = None;
    }

    /// What it asks next. `is_eager`: it does only what a healthy client does.
    pub fn act(&mut self, rng: &SimRng, is_eager: bool) -> Option<(i16, GroupRequest)> {
        if self.work == Work::Fenced {
            return None;
        }
        if !is_eager && rng.one_in(12) {
            return self.misbehave(rng);
        }
        if self.waits_for.is_some() {
            return None;
        }
        match self.work {
            Work::Join => Some((self.api_version, GroupRequest::Join(self.join()))),
            Work::Sync => Some(self.sync()),
            Work::Stable if is_eager || rng.one_in(2) => Some((4, self.heartbeat())),
            Work::Stable => Some((9, self.commit(rng))),
            Work::Asleep if rng.one_in(5) => {
                self.work = Work::Join;
                None
            }
            Work::Asleep | Work::Fenced => None,
        }
    }

    fn misbehave(&mut self, rng: &SimRng) -> Option<(i16, GroupRequest)> {
        match rng.below(6) {
            // It is started anew, with nothing in its way.
            0 if self.instance.is_some() && self.work == Work::Stable => self.forget(),
            // Its connection breaks.
            0 | 1 => {
                self.gives_up = self.waits_for.take();
                self.work = Work::Join;
            }
            // It hangs.
            2 => {
                self.gives_up = self.waits_for.take();
                self.work = Work::Asleep;
            }
            // It is started anew.
            3 => {
                self.gives_up = self.waits_for.take();
                self.forget();
            }
            4 if self.waits_for.is_none() => {
                self.protocols.reverse();
                self.work = Work::Join;
            }
            5 if self.waits_for.is_none() => {
                let member_id = match (rng.one_in(2), &self.instance) {
                    (true, Some(_)) => Str::default(),
                    _ => self.member.clone(),
                };
                let request = LeaveGroupRequest {
                    group_id: self.group.clone(),
                    members: vec![MemberIdentity {
                        member_id,
                        group_instance_id: self.instance.clone(),
                        reason: None,
                    }],
                    ..Default::default()
                };
                self.work = Work::Asleep;
                return Some((5, GroupRequest::Leave(request)));
            }
            _ => {}
        }
        None
    }

    fn forget(&mut self) {
        self.member = Str::default();
        self.generation = -1;
        self.is_leader = false;
        self.work = Work::Join;
    }

    fn join(&self) -> JoinGroupRequest {
        let name = format!("{}", self.index);
        let protocols = self
            .protocols
            .iter()
            .map(|protocol| JoinGroupRequestProtocol {
                name: Str::from_static(protocol),
                metadata: metadata(&name),
            });
        JoinGroupRequest {
            group_id: self.group.clone(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 30_000,
            member_id: self.member.clone(),
            group_instance_id: self.instance.clone(),
            protocol_type: "consumer".into(),
            protocols: protocols.collect(),
            reason: None,
        }
    }

    fn sync(&mut self) -> (i16, GroupRequest) {
        self.syncs += 1;
        let to = |(member, name): &(Str, Str)| SyncGroupRequestAssignment {
            member_id: member.clone(),
            // For whom, by whom, and which.
            assignment: Bytes::from(format!(
                "{name}:{}:{}:{}",
                self.index, self.generation, self.syncs
            )),
        };
        let gives = self.is_leader && !self.skips;
        let assignments = match gives {
            true => self.led.iter().map(to).collect(),
            false => Vec::new(),
        };
        let request = SyncGroupRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.member.clone(),
            group_instance_id: self.instance.clone(),
            protocol_type: Some("consumer".into()),
            protocol_name: self.protocol.clone(),
            assignments,
        };
        (5, GroupRequest::Sync(request))
    }

    fn heartbeat(&self) -> GroupRequest {
        GroupRequest::Heartbeat(HeartbeatRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.member.clone(),
            group_instance_id: self.instance.clone(),
        })
    }

    fn commit(&self, rng: &SimRng) -> GroupRequest {
        let offset = rng.below(1_000) as i64;
        let mut request = super::harness::committing(&self.member, self.generation, offset);
        request.group_id = self.group.clone();
        request.group_instance_id = self.instance.clone();
        GroupRequest::CommitOffsets(request)
    }

    pub fn answered(&mut self, response: GroupResponse) {
        let code = match &response {
            GroupResponse::Join(joined) => joined.error_code,
            GroupResponse::Sync(synced) => synced.error_code,
            GroupResponse::Heartbeat(answer) => answer.error_code,
            GroupResponse::OffsetsCommitted(answer) => answer.topics[0].partitions[0].error_code,
            _ => return,
        };
        let error = ErrorCode::from_code(code).expect("an error code");
        match (error, response) {
            (ErrorCode::None, GroupResponse::Join(joined)) => {
                let name = |member: &JoinGroupResponseMember| {
                    let id = member.member_id.clone();
                    (id.clone(), member.group_instance_id.clone().unwrap_or(id))
                };
                self.led = joined.members.iter().map(name).collect();
                self.is_leader = joined.leader == joined.member_id;
                self.skips = joined.skip_assignment;
                self.generation = joined.generation_id;
                self.protocol = joined.protocol_name.clone();
                self.member = joined.member_id;
                self.work = Work::Sync;
            }
            (ErrorCode::None, GroupResponse::Sync(_)) => self.work = Work::Stable,
            (ErrorCode::None, _) => {}
            (ErrorCode::FencedInstanceId, _) => self.work = Work::Fenced,
            (ErrorCode::MemberIdRequired, GroupResponse::Join(joined)) => {
                self.member = joined.member_id;
            }
            (ErrorCode::RebalanceInProgress, GroupResponse::OffsetsCommitted(_)) => {}
            (ErrorCode::RebalanceInProgress, _) => self.work = Work::Join,
            (
                ErrorCode::UnknownMemberId
                | ErrorCode::IllegalGeneration
                | ErrorCode::GroupIdNotFound
                | ErrorCode::GroupMaxSizeReached,
                _,
            ) => self.forget(),
            (ErrorCode::CoordinatorNotAvailable | ErrorCode::NotCoordinator, _) => {
                self.work = match self.work {
                    Work::Stable => Work::Stable,
                    _ => Work::Join,
                };
            }
            // After a restart the others are known by the one protocol that was chosen.
            (ErrorCode::InconsistentGroupProtocol, _) => self.protocols = vec!["range", "sticky"],
            (other, response) => panic!("{other:?} in {response:?}"),
        }
    }
}
