//! DescribeGroups and ListGroups.

use super::{Group, State};
use crate::coordinator::effects::{Committed, GroupOverview};
use crate::protocol::messages::DescribedGroup;
use crate::protocol::{ErrorCode, Str};

impl Group {
    /// The group as DescribeGroups shows it; the metadata of its members and the protocol
    /// only while it is stable.
    pub fn described(&self) -> DescribedGroup {
        let is_stable = self.state == State::Stable;
        let protocol = self.protocol.as_ref().filter(|_| is_stable);
        let members = self.members.values();
        DescribedGroup {
            group_id: self.id.clone(),
            group_state: Str::from_static(self.state.name()),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol_data: protocol.cloned().unwrap_or_default(),
            members: members.map(|member| member.described(protocol)).collect(),
            ..Default::default()
        }
    }

    pub fn overview(&self) -> GroupOverview {
        GroupOverview {
            group_id: self.id.clone(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            state: self.state.name(),
            group_type: "classic",
        }
    }

    pub fn committed(&self) -> impl Iterator<Item = Committed<'_>> + '_ {
        self.offsets
            .iter()
            .map(|(topic, partition, committed)| Committed {
                group: &self.id,
                topic,
                partition,
                offset: committed.offset,
            })
    }
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::Preparing(_) => "PreparingRebalance",
            State::Completing => "CompletingRebalance",
            State::Stable => "Stable",
            State::Dead => "Dead",
        }
    }
}

/// A group that is not there: dead, and from version 6 on an error (KIP-1043).
pub(in crate::coordinator) fn described_dead(api_version: i16, group: &Str) -> DescribedGroup {
    let mut dead = DescribedGroup {
        group_id: group.clone(),
        group_state: Str::from_static(State::Dead.name()),
        ..Default::default()
    };
    if api_version >= NOT_FOUND_FROM {
        dead.error_code = ErrorCode::GroupIdNotFound.code();
        dead.error_message = Some(Str::from(format!("Group {group} not found.")));
    }
    dead
}

const NOT_FOUND_FROM: i16 = 6;
