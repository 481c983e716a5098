//! A coordinator with its clock and its log, for tests.

use crate::coordinator::records::Entry;
use crate::coordinator::{
    Append, Caller, Coordinator, Effects, GroupCall, GroupRequest, GroupResponse, GroupSettings,
    Now, OffsetsRecord, Replayed, Ticket,
};
use crate::protocol::messages::*;
use crate::protocol::{ErrorCode, Str};
use crate::runtime::Mono;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use uuid::Uuid;

pub const GROUP: &str = "group";
pub const SESSION_MS: i32 = 10_000;
pub const REBALANCE_MS: i32 = 60_000;
pub const DELAY: Duration = Duration::from_secs(3);

/// A coordinator, a clock that only [`Bench::pass`] moves, and a log that takes appends at
/// once unless it is told otherwise.
pub struct Bench {
    pub coordinator: Coordinator,
    pub settings: GroupSettings,
    pub now: Now,
    /// What was appended.
    pub log: Vec<OffsetsRecord>,
    /// What fails next appends.
    pub fails: Option<ErrorCode>,
    /// Appends wait for [`Bench::land`].
    pub holds: bool,
    pub held: VecDeque<Append>,
    answers: BTreeMap<Ticket, GroupResponse>,
    next: u64,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(GroupSettings {
            initial_rebalance_delay: DELAY,
            ..Default::default()
        })
    }

    pub fn with(settings: GroupSettings) -> Bench {
        Bench::over(settings, Vec::new())
    }

    /// Over a log that was written before.
    pub fn over(settings: GroupSettings, log: Vec<OffsetsRecord>) -> Bench {
        let mut coordinator = Coordinator::new(0, settings.clone());
        for (offset, record) in log.iter().enumerate() {
            let entry = Entry::decode(record.key.clone(), record.value.clone()).unwrap();
            let record = Replayed::Record {
                offset: offset as i64,
                transaction: None,
                entry,
            };
            coordinator.replay(record).unwrap();
        }
        let mut bench = Bench {
            coordinator,
            settings,
            now: Now {
                mono: Mono(1_000_000_000),
                wall_ms: 1_700_000_000_000,
            },
            log,
            fails: None,
            holds: false,
            held: VecDeque::new(),
            answers: BTreeMap::new(),
            next: 0,
        };
        let effects = bench.coordinator.loaded(bench.now);
        bench.carry_out(effects);
        bench
    }

    pub fn restarted(&self) -> Bench {
        Bench::over(self.settings.clone(), self.log.clone())
    }

    pub fn call(&mut self, api_version: i16, body: GroupRequest) -> Ticket {
        self.next += 1;
        let ticket = Ticket(self.next);
        let call = GroupCall {
            api_version,
            caller: Caller {
                client_id: "client".into(),
                client_host: "/127.0.0.1".to_owned(),
            },
            fresh: Uuid::from_u128(u128::from(self.next)),
            body,
        };
        let effects = self.coordinator.call(ticket, call, self.now);
        self.carry_out(effects);
        ticket
    }

    fn carry_out(&mut self, effects: Effects) {
        for (ticket, response) in effects.answers {
            let before = self.answers.insert(ticket, response);
            assert_eq!(before, None, "{ticket:?} is answered twice");
        }
        self.held.extend(effects.appends);
        if !self.holds {
            self.land_all();
        }
    }

    /// The oldest append that is held ends.
    pub fn land(&mut self) {
        let append = self.held.pop_front().expect("an append");
        let result = match self.fails {
            None => {
                self.log.extend(append.records);
                Ok(())
            }
            Some(error) => Err(error),
        };
        let effects = self.coordinator.appended(append.id, result, self.now);
        self.carry_out(effects);
    }

    pub fn land_all(&mut self) {
        while !self.held.is_empty() {
            self.land();
        }
    }

    /// Time goes by; the coordinator is ticked whenever it asks for it.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now.mono + time;
        loop {
            let next = self.coordinator.next_deadline().filter(|at| *at <= end);
            let at = next.unwrap_or(end).max(self.now.mono);
            self.now.wall_ms += (at - self.now.mono).as_millis() as i64;
            self.now.mono = at;
            if next.is_none() {
                return;
            }
            let effects = self.coordinator.tick(self.now);
            self.carry_out(effects);
        }
    }

    /// Time goes by until the call is answered.
    pub fn pass_until_answered(&mut self, ticket: Ticket) {
        for _ in 0..600 {
            if !self.waits(ticket) {
                return;
            }
            self.pass(Duration::from_secs(1));
        }
        panic!("{ticket:?} is not answered");
    }

    pub fn topics_deleted(&mut self, names: &[&str]) {
        let effects = self.coordinator.topics_deleted(names, self.now);
        self.carry_out(effects);
    }

    pub fn stop(&mut self) {
        let effects = self.coordinator.stop();
        self.carry_out(effects);
    }

    /// The answer to a call; `None`: it waits.
    pub fn answer(&mut self, ticket: Ticket) -> Option<GroupResponse> {
        self.answers.remove(&ticket)
    }

    pub fn waits(&self, ticket: Ticket) -> bool {
        !self.answers.contains_key(&ticket)
    }

    pub fn joined(&mut self, ticket: Ticket) -> JoinGroupResponse {
        match self.answer(ticket) {
            Some(GroupResponse::Join(response)) => response,
            other => panic!("no answer to a join: {other:?}"),
        }
    }

    pub fn synced(&mut self, ticket: Ticket) -> SyncGroupResponse {
        match self.answer(ticket) {
            Some(GroupResponse::Sync(response)) => response,
            other => panic!("no answer to a sync: {other:?}"),
        }
    }

    pub fn join(&mut self, request: JoinGroupRequest) -> Ticket {
        self.call(9, GroupRequest::Join(request))
    }

    pub fn join_as(&mut self, member: &Str) -> Ticket {
        self.join(joining(member))
    }

    /// Gets a member id, and joins with it.
    pub fn join_new(&mut self) -> (Str, Ticket) {
        let asked = self.join(joining(""));
        let answer = self.joined(asked);
        assert_eq!(answer.error_code, ErrorCode::MemberIdRequired.code());
        let ticket = self.join_as(&answer.member_id);
        (answer.member_id, ticket)
    }

    pub fn join_static(&mut self, instance: &str) -> Ticket {
        self.join(JoinGroupRequest {
            group_instance_id: Some(instance.to_owned().into()),
            ..joining("")
        })
    }

    pub fn sync(&mut self, member: &Str, generation: i32, given: &[(&Str, &str)]) -> Ticket {
        self.call(5, GroupRequest::Sync(syncing(member, generation, given)))
    }

    pub fn heartbeat(&mut self, member: &str, generation: i32) -> ErrorCode {
        self.heartbeat_with(HeartbeatRequest {
            group_id: GROUP.into(),
            generation_id: generation,
            member_id: member.to_owned().into(),
            group_instance_id: None,
        })
    }

    pub fn heartbeat_with(&mut self, request: HeartbeatRequest) -> ErrorCode {
        let ticket = self.call(4, GroupRequest::Heartbeat(request));
        match self.answer(ticket) {
            Some(GroupResponse::Heartbeat(answer)) => code(answer.error_code),
            other => panic!("no answer to a heartbeat: {other:?}"),
        }
    }

    pub fn leave(&mut self, members: &[(&str, Option<&str>)]) -> Ticket {
        let members = members.iter().map(|(member, instance)| MemberIdentity {
            member_id: (*member).to_owned().into(),
            group_instance_id: instance.map(|it| it.to_owned().into()),
            reason: None,
        });
        let request = LeaveGroupRequest {
            group_id: GROUP.into(),
            members: members.collect(),
            ..Default::default()
        };
        self.call(5, GroupRequest::Leave(request))
    }

    /// The error of the answer, and those of the members.
    pub fn left(&mut self, ticket: Ticket) -> (ErrorCode, Vec<ErrorCode>) {
        match self.answer(ticket) {
            Some(GroupResponse::Leave(answer)) => {
                let members = answer.members.iter().map(|it| code(it.error_code));
                (code(answer.error_code), members.collect())
            }
            other => panic!("no answer to a leave: {other:?}"),
        }
    }

    pub fn commit(&mut self, member: &str, generation: i32, offset: i64) -> Ticket {
        self.call(
            9,
            GroupRequest::CommitOffsets(committing(member, generation, offset)),
        )
    }

    pub fn committed(&mut self, ticket: Ticket) -> ErrorCode {
        match self.answer(ticket) {
            Some(GroupResponse::OffsetsCommitted(answer)) => {
                code(answer.topics[0].partitions[0].error_code)
            }
            other => panic!("no answer to a commit: {other:?}"),
        }
    }

    /// The committed offset of `topic`'s partition 0; -1: none.
    pub fn offset(&mut self) -> i64 {
        let group = OffsetFetchRequestGroup {
            group_id: GROUP.into(),
            topics: Some(vec![OffsetFetchRequestTopics {
                name: TOPIC.into(),
                partition_indexes: vec![0],
            }]),
            ..Default::default()
        };
        let body = GroupRequest::FetchOffsets {
            group,
            require_stable: false,
        };
        let ticket = self.call(9, body);
        match self.answer(ticket) {
            Some(GroupResponse::OffsetsFetched(answer)) => {
                assert_eq!(answer.error_code, 0);
                answer.topics[0].partitions[0].committed_offset
            }
            other => panic!("no answer to a fetch: {other:?}"),
        }
    }

    pub fn described(&mut self) -> DescribedGroup {
        let ticket = self.call(6, GroupRequest::Describe(GROUP.into()));
        match self.answer(ticket) {
            Some(GroupResponse::Described(group)) => group,
            other => panic!("no description: {other:?}"),
        }
    }

    pub fn state(&mut self) -> String {
        self.described().group_state.to_string()
    }

    pub fn delete(&mut self) -> Ticket {
        self.call(2, GroupRequest::DeleteGroup(GROUP.into()))
    }

    pub fn deleted(&mut self, ticket: Ticket) -> ErrorCode {
        match self.answer(ticket) {
            Some(GroupResponse::GroupDeleted(error)) => error,
            other => panic!("no answer to a deletion: {other:?}"),
        }
    }

    /// A stable group of `count` dynamic members, the leader first; each is assigned its
    /// place in the order.
    pub fn stable(&mut self, count: usize) -> Vec<Str> {
        let joins: Vec<_> = (0..count).map(|_| self.join_new()).collect();
        self.pass_until_answered(joins[0].1);
        let mut leader = None;
        let mut members = Vec::new();
        for (member, ticket) in joins {
            let answer = self.joined(ticket);
            assert_eq!((answer.error_code, answer.generation_id), (0, 1));
            match answer.leader == answer.member_id {
                true => leader = Some(member),
                false => members.push(member),
            }
        }
        members.insert(0, leader.expect("a leader"));
        self.sync_all(&members, 1);
        members
    }

    /// Every member syncs, the first as the leader.
    pub fn sync_all(&mut self, members: &[Str], generation: i32) {
        let names: Vec<String> = (0..members.len()).map(|at| at.to_string()).collect();
        let given = members.iter().zip(&names);
        let given: Vec<(&Str, &str)> = given.map(|(id, name)| (id, name.as_str())).collect();
        let followers: Vec<_> = (members[1..].iter())
            .map(|member| self.sync(member, generation, &[]))
            .collect();
        let mut tickets = vec![self.sync(&members[0], generation, &given)];
        tickets.extend(followers);
        for (ticket, name) in tickets.into_iter().zip(&names) {
            let answer = self.synced(ticket);
            assert_eq!(answer.error_code, 0);
            assert_eq!(&answer.assignment[..], name.as_bytes());
        }
        assert_eq!(self.state(), "Stable");
    }
}

pub const TOPIC: &str = "topic";

pub fn code(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).unwrap()
}

/// A consumer's metadata: a subscription to these topics.
pub fn subscription(topics: &[&str]) -> Bytes {
    let mut bytes = vec![0, 3];
    bytes.extend((topics.len() as i32).to_be_bytes());
    for topic in topics {
        bytes.extend((topic.len() as i16).to_be_bytes());
        bytes.extend(topic.as_bytes());
    }
    Bytes::from(bytes)
}

pub fn protocols(names: &[&str]) -> Vec<JoinGroupRequestProtocol> {
    let names = names.iter().map(|name| JoinGroupRequestProtocol {
        name: (*name).to_owned().into(),
        metadata: subscription(&["subscribed"]),
    });
    names.collect()
}

pub fn joining(member: &str) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: GROUP.into(),
        session_timeout_ms: SESSION_MS,
        rebalance_timeout_ms: REBALANCE_MS,
        member_id: member.to_owned().into(),
        protocol_type: "consumer".into(),
        protocols: protocols(&["range"]),
        ..Default::default()
    }
}

pub fn syncing(member: &Str, generation: i32, given: &[(&Str, &str)]) -> SyncGroupRequest {
    let assignments = given
        .iter()
        .map(|(member, text)| SyncGroupRequestAssignment {
            member_id: (*member).clone(),
            assignment: Bytes::from((*text).to_owned()),
        });
    SyncGroupRequest {
        group_id: GROUP.into(),
        generation_id: generation,
        member_id: member.clone(),
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignments: assignments.collect(),
        ..Default::default()
    }
}

pub fn committing(member: &str, generation: i32, offset: i64) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: GROUP.into(),
        generation_id_or_member_epoch: generation,
        member_id: member.to_owned().into(),
        topics: vec![OffsetCommitRequestTopic {
            name: TOPIC.into(),
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: offset,
                ..Default::default()
            }],
        }],
        ..Default::default()
    }
}
