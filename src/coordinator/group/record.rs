//! A group's metadata on its way to the log and back.

use super::member::{Member, Protocol, Terms};
use super::{AfterAppend, Group, State};
use crate::coordinator::call::Caller;
use crate::coordinator::outbox::Turn;
use crate::coordinator::records::{
    GroupMetadataValue, MemberMetadata, OffsetsRecord, NO_TIMESTAMP,
};
use crate::protocol::{EncodeError, ErrorCode, Str};
use bytes::Bytes;
use std::collections::BTreeMap;

impl Group {
    /// Has the group as it is now, with these assignments, appended.
    pub(super) fn append_metadata(
        &mut self,
        turn: &mut Turn,
        assignments: &BTreeMap<Str, Bytes>,
        after: AfterAppend,
    ) {
        match self.record(assignments) {
            Ok(record) => {
                self.records_under_way += 1;
                turn.append(&self.id, vec![record], after);
            }
            // No name is too long, since every call was checked: only a broken client's
            // could be, and it sees what a failed append means.
            Err(error) => {
                tracing::warn!(group = %self.id, %error, "the group cannot be recorded");
                self.records_under_way += 1;
                self.landed(turn, after, Err(ErrorCode::UnknownServerError));
            }
        }
    }

    fn record(&self, assignments: &BTreeMap<Str, Bytes>) -> Result<OffsetsRecord, EncodeError> {
        let members = self.members.values();
        let members = members.map(|member| MemberMetadata {
            member_id: member.id.clone(),
            group_instance_id: member.instance.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout: member.terms.rebalance_timeout_ms,
            session_timeout: member.terms.session_timeout_ms,
            subscription: member.metadata(self.protocol.as_ref()),
            assignment: assignments.get(&member.id).cloned().unwrap_or_default(),
        });
        let value = GroupMetadataValue {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            current_state_timestamp: self.state_since_ms.unwrap_or(NO_TIMESTAMP),
            members: members.collect(),
        };
        OffsetsRecord::group(&self.id, Some(&value))
    }

    /// Takes the group's metadata, or (`None`) its end, back from the log. Its offsets have
    /// records of their own.
    pub fn replay(&mut self, value: Option<&GroupMetadataValue>) {
        let offsets = std::mem::take(&mut self.offsets);
        let known = |ms: i64| (ms != NO_TIMESTAMP).then_some(ms);
        let since = value.and_then(|value| known(value.current_state_timestamp));
        *self = Group::empty(self.id.clone(), since);
        self.offsets = offsets;
        let Some(value) = value else {
            return;
        };
        let protocol = value.protocol.as_ref().map(Str::detached);
        for recorded in &value.members {
            if self.members.contains_key(&recorded.member_id) {
                continue;
            }
            let mut member = loaded(recorded, protocol.as_ref());
            if member
                .instance
                .as_ref()
                .is_some_and(|it| self.instances.contains_key(it))
            {
                // No record of ours or Kafka's has an instance twice.
                member.instance = None;
            }
            self.add(member, &value.protocol_type);
        }
        if !self.members.is_empty() {
            self.state = State::Stable;
        }
        self.generation = value.generation;
        self.protocol_type = Some(value.protocol_type.detached()).filter(|it| !it.is_empty());
        self.protocol = protocol;
        let leader = value.leader.as_ref();
        let leader = leader.and_then(|leader| self.members.get_key_value(leader));
        if let Some((leader, _)) = leader {
            self.leader = Some(leader.clone());
        }
    }
}

fn loaded(recorded: &MemberMetadata, protocol: Option<&Str>) -> Member {
    let caller = Caller {
        client_id: recorded.client_id.clone(),
        client_host: recorded.client_host.to_string(),
    };
    let terms = Terms {
        session_timeout_ms: recorded.session_timeout,
        rebalance_timeout_ms: match recorded.rebalance_timeout {
            -1 => recorded.session_timeout,
            timeout => timeout,
        },
        protocols: vec![Protocol {
            name: protocol.cloned().unwrap_or_default(),
            metadata: Bytes::copy_from_slice(&recorded.subscription),
        }],
        _memory: None,
    };
    let instance = recorded.group_instance_id.as_ref().map(Str::detached);
    Member {
        assignment: Bytes::copy_from_slice(&recorded.assignment),
        ..Member::new(recorded.member_id.detached(), instance, &caller, terms)
    }
}
