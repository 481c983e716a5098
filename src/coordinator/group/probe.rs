//! What tests look at inside a group.

use super::{Group, Preparing, State};
use crate::coordinator::outbox::Deadlines;
use crate::protocol::Str;
use bytes::Bytes;
use std::collections::BTreeMap;

/// All of a group that the log holds.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::coordinator) struct Snapshot {
    pub state: &'static str,
    pub generation: i32,
    pub protocol_type: Option<Str>,
    pub protocol: Option<Str>,
    pub leader: Option<Str>,
    pub members: BTreeMap<Str, Recorded>,
    pub offsets: Vec<(String, i32, i64)>,
}

/// Instance, client, timeouts, metadata and assignment of a member.
type Recorded = (Option<Str>, [Str; 2], [i32; 2], Bytes, Bytes);

impl Group {
    pub fn snapshot(&self) -> Snapshot {
        let protocol = self.protocol.as_ref();
        let members = self.members.values().map(|member| {
            let terms = &member.terms;
            let all = (
                member.instance.clone(),
                [member.client_id.clone(), member.client_host.clone()],
                [terms.session_timeout_ms, terms.rebalance_timeout_ms],
                member.metadata(protocol),
                member.assignment.clone(),
            );
            (member.id.clone(), all)
        });
        let offsets = self.offsets.iter();
        Snapshot {
            state: self.overview().state,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            members: members.collect(),
            offsets: offsets
                .map(|(topic, at, it)| (topic.to_owned(), at, it.offset))
                .collect(),
        }
    }

    /// Panics on a group that contradicts itself.
    pub fn check(&self, deadlines: &Deadlines) {
        let members = || self.members.values();
        let mut knowing: BTreeMap<Str, usize> = BTreeMap::new();
        for protocol in members().flat_map(|member| &member.terms.protocols) {
            *knowing.entry(protocol.name.clone()).or_insert(0) += 1;
        }
        assert_eq!(self.knowing, knowing);
        assert_eq!(
            self.joining,
            members().filter(|it| it.join.is_some()).count()
        );
        assert_eq!(
            self.owing_syncs,
            members().filter(|it| it.owes_sync).count()
        );
        let instances = members().filter_map(|it| Some((it.instance.clone()?, it.id.clone())));
        assert_eq!(self.instances, instances.clone().collect());
        assert_eq!(
            self.instances.len(),
            instances.count(),
            "an instance has two members"
        );
        for (id, member) in &self.members {
            assert_eq!(*id, member.id);
            assert!(!self.pending.contains_key(id), "a member is pending");
            assert!(member.sync.is_none() || self.state == State::Completing);
            let may_join = matches!(self.state, State::Preparing(_) | State::Stable);
            assert!(member.join.is_none() || may_join, "a join is left behind");
        }
        match &self.leader {
            Some(leader) => assert!(self.members.contains_key(leader)),
            None => assert!(self.members.is_empty()),
        }
        match self.state {
            State::Empty | State::Dead => assert!(self.members.is_empty()),
            State::Completing | State::Stable => {
                assert!(!self.members.is_empty());
                let protocol = self.protocol.as_ref().expect("a protocol");
                assert_eq!(self.knowing.get(protocol), Some(&self.members.len()));
            }
            State::Preparing(_) => {}
        }
        let join = match self.state {
            State::Preparing(Preparing { at, .. }) => Some(at),
            _ => None,
        };
        let all = members().map(|member| member.deadline).chain(join);
        let all = all
            .chain(self.pending.values().map(|it| it.deadline))
            .chain(self.sync_deadline);
        if let Some(first) = all.min() {
            let queued = self.queued.expect("it is looked at again");
            assert!(queued <= first, "it is looked at too late");
            assert!(deadlines.has(&self.id, queued));
        }
    }
}
