//! One member of a group.

use crate::coordinator::call::{Caller, Ticket};
use crate::protocol::messages::{
    DescribedGroupMember, JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponseMember,
};
use crate::protocol::Str;
use crate::runtime::local::Permit;
use crate::runtime::Mono;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// One member. Nothing in it shares the memory of a frame.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub id: Str,
    /// `group.instance.id`: what makes it a static member (KIP-345).
    pub instance: Option<Str>,
    pub client_id: Str,
    pub client_host: Str,
    pub terms: Terms,
    /// What its leader gave it in this generation.
    pub assignment: Bytes,
    /// Its join that waits for the others.
    pub join: Option<Ticket>,
    /// Its sync that waits for the leader's.
    pub sync: Option<Ticket>,
    /// It has joined and not been told its id yet: it can't send heartbeats.
    pub is_new: bool,
    /// Its sync of this generation has not come yet.
    pub owes_sync: bool,
    /// When it is taken for dead, unless it is heard from or waits for an answer.
    pub deadline: Mono,
}

/// What a member joins with.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub session_timeout_ms: i32,
    pub rebalance_timeout_ms: i32,
    /// In the order of its preference, each name once.
    pub protocols: Vec<Protocol>,
    /// What the member is charged; nothing for one of the log, until it joins again.
    pub _memory: Option<Rc<Permit>>,
}

/// A protocol (for consumers: an assignor) that a member can follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Protocol {
    pub name: Str,
    pub metadata: Bytes,
}

impl Member {
    pub fn new(id: Str, instance: Option<Str>, caller: &Caller, terms: Terms) -> Member {
        Member {
            id,
            instance,
            client_id: caller.client_id.detached(),
            client_host: Str::from(caller.client_host.clone()),
            terms,
            assignment: Bytes::new(),
            join: None,
            sync: None,
            is_new: false,
            owes_sync: false,
            deadline: Mono::default(),
        }
    }

    pub fn session_timeout(&self) -> Duration {
        duration_ms(self.terms.session_timeout_ms.max(1))
    }

    /// What it says of itself under a protocol; empty if it does not know the protocol.
    pub fn metadata(&self, protocol: Option<&Str>) -> Bytes {
        let known = self.terms.protocols.iter();
        let known = known.filter(|known| Some(&known.name) == protocol);
        known
            .map(|known| known.metadata.clone())
            .next()
            .unwrap_or_default()
    }

    /// It is taken to be alive, whatever its deadline says: it waits for us. One that is
    /// new is not, since a client that gave up and joined anew would leave it behind.
    pub fn is_excused(&self) -> bool {
        !self.is_new && (self.join.is_some() || self.sync.is_some())
    }

    pub fn for_leader(&self, protocol: Option<&Str>) -> JoinGroupResponseMember {
        JoinGroupResponseMember {
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            metadata: self.metadata(protocol),
        }
    }

    /// `protocol`: that of a stable group, else the metadata is not shown.
    pub fn described(&self, protocol: Option<&Str>) -> DescribedGroupMember {
        DescribedGroupMember {
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            member_metadata: self.metadata(protocol),
            member_assignment: self.assignment.clone(),
        }
    }
}

impl Terms {
    pub fn of(request: &JoinGroupRequest, api_version: i16, memory: Permit) -> Terms {
        // Version 0 has no rebalance timeout of its own.
        let rebalance_timeout_ms = match api_version {
            0 => request.session_timeout_ms,
            _ => request.rebalance_timeout_ms,
        };
        let mut names = BTreeSet::new();
        let protocols = request.protocols.iter();
        let protocols = protocols.filter(|protocol| names.insert(&*protocol.name));
        Terms {
            session_timeout_ms: request.session_timeout_ms,
            rebalance_timeout_ms,
            protocols: protocols.map(Protocol::of).collect(),
            _memory: Some(Rc::new(memory)),
        }
    }
}

impl Protocol {
    fn of(request: &JoinGroupRequestProtocol) -> Protocol {
        Protocol {
            name: request.name.detached(),
            metadata: Bytes::copy_from_slice(&request.metadata),
        }
    }
}

pub(super) fn duration_ms(ms: i32) -> Duration {
    Duration::from_millis(ms.max(0) as u64)
}
