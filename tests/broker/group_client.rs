//! Members of groups, each with a connection of its own, as real ones have.

use super::client::text;
use bytes::Bytes;
use highwater::client::{BrokerConnection, ConnectionOptions};
use highwater::protocol::messages::*;
use highwater::protocol::{ErrorCode, Str};
use highwater::runtime::{native, Rt};
use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Nothing that is waited for takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `work` on an executor of its own.
pub fn run<T, W>(work: impl FnOnce(Rt) -> W + Send + 'static) -> T
where
    T: Send + 'static,
    W: Future<Output = T> + 'static,
{
    native::run(work).expect("an executor can be started")
}

pub async fn connect(rt: &Rt, addr: SocketAddr) -> BrokerConnection {
    let options = ConnectionOptions {
        client_id: CLIENT_ID.to_string(),
        request_timeout: PATIENCE,
        ..Default::default()
    };
    let connected = BrokerConnection::connect(rt, addr, options).await;
    let connection = connected.expect("the broker can be connected to");
    // As every client does first: groups have a coordinator then, which reads its records.
    let find = FindCoordinatorRequest {
        coordinator_keys: vec!["any".into()],
        ..Default::default()
    };
    let found = connection.call(&find).await.expect("an answer");
    assert_eq!(ok(found.coordinators[0].error_code), Ok(()));
    let start = Instant::now();
    loop {
        let listed = connection.call(&ListGroupsRequest::default()).await;
        match ok(listed.expect("an answer").error_code) {
            Ok(()) => return connection,
            Err(code) => assert!(
                code.is_retriable() && start.elapsed() < PATIENCE,
                "{code:?}"
            ),
        }
        rt.sleep(Duration::from_millis(20)).await;
    }
}

/// What the members of these tests call themselves.
pub const CLIENT_ID: &str = "member";

/// A consumer that a test drives by hand.
pub struct Member {
    pub connection: BrokerConnection,
    pub id: Str,
    pub generation: i32,
    pub asks: JoinGroupRequest,
    rt: Rt,
}

impl Member {
    /// One of that group with topics to read. It lives long without a heartbeat.
    pub async fn new(rt: &Rt, addr: SocketAddr, group: &str, topics: &[&str]) -> Member {
        Member {
            connection: connect(rt, addr).await,
            id: Str::default(),
            generation: -1,
            asks: JoinGroupRequest {
                group_id: text(group),
                session_timeout_ms: 60_000,
                rebalance_timeout_ms: 60_000,
                protocol_type: "consumer".into(),
                protocols: vec![JoinGroupRequestProtocol {
                    name: "range".into(),
                    metadata: subscription(topics),
                }],
                ..Default::default()
            },
            rt: rt.clone(),
        }
    }

    /// The same, a static one.
    pub fn named(mut self, instance: &str) -> Member {
        self.asks.group_instance_id = Some(text(instance));
        self
    }

    /// One that is gone when it says nothing for a second.
    pub fn short_lived(mut self) -> Member {
        self.asks.session_timeout_ms = SHORT_MS;
        self
    }

    /// Sends the join; a new member has got its id before.
    pub async fn start_join(&mut self) -> impl Future<Output = JoinGroupResponse> + use<> {
        self.asks.member_id = self.id.clone();
        if self.id.is_empty() && self.asks.group_instance_id.is_none() {
            let answer = self.connection.call(&self.asks).await.expect("an answer");
            assert_eq!(answer.error_code, ErrorCode::MemberIdRequired.code());
            assert!(answer.member_id.starts_with(&format!("{CLIENT_ID}-")));
            self.id = answer.member_id;
            self.asks.member_id = self.id.clone();
        }
        let wait = self.connection.start(&self.asks).await;
        let wait = wait.expect("the request is sent");
        async move { wait.await.expect("an answer") }
    }

    /// Takes in the answer to a join, which must be good.
    pub fn joined(&mut self, answer: JoinGroupResponse) -> JoinGroupResponse {
        assert_eq!(answer.error_code, 0, "{answer:?}");
        self.id = answer.member_id.clone();
        self.generation = answer.generation_id;
        answer
    }

    pub async fn join(&mut self) -> JoinGroupResponse {
        let answer = self.start_join().await.await;
        self.joined(answer)
    }

    pub fn sync_request(&self, assignments: &[(&Str, &str)]) -> SyncGroupRequest {
        let of_member = |(id, assignment): &(&Str, &str)| SyncGroupRequestAssignment {
            member_id: Str::clone(id),
            assignment: Bytes::from(assignment.to_string()),
        };
        SyncGroupRequest {
            group_id: self.asks.group_id.clone(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            group_instance_id: self.asks.group_instance_id.clone(),
            protocol_type: Some("consumer".into()),
            protocol_name: Some("range".into()),
            assignments: assignments.iter().map(of_member).collect(),
        }
    }

    pub async fn start_sync(
        &self,
        assignments: &[(&Str, &str)],
    ) -> impl Future<Output = Result<String, ErrorCode>> + use<> {
        let request = self.sync_request(assignments);
        let wait = self.connection.start(&request).await;
        let wait = wait.expect("the request is sent");
        async move {
            let answer = wait.await.expect("an answer");
            let assignment = String::from_utf8(answer.assignment.to_vec()).expect("text");
            ok(answer.error_code).map(|()| assignment)
        }
    }

    /// Joins a group that has nobody else, and takes an assignment of its own.
    pub async fn settle_alone(&mut self) {
        let joined = self.join().await;
        assert_eq!(joined.leader, self.id);
        let got = self.start_sync(&[(&self.id, "all")]).await.await;
        assert_eq!(got.as_deref(), Ok("all"));
    }

    pub fn heartbeat_request(&self) -> HeartbeatRequest {
        HeartbeatRequest {
            group_id: self.asks.group_id.clone(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            group_instance_id: self.asks.group_instance_id.clone(),
        }
    }

    pub async fn heartbeat(&self) -> Result<(), ErrorCode> {
        let answer = self.connection.call(&self.heartbeat_request()).await;
        ok(answer.expect("an answer").error_code)
    }

    /// Beats until it is told that others come or go.
    pub async fn until_rebalance(&self) {
        let start = Instant::now();
        loop {
            match self.heartbeat().await {
                Ok(()) => assert!(start.elapsed() < PATIENCE, "no rebalance"),
                Err(code) => return assert_eq!(code, ErrorCode::RebalanceInProgress),
            }
            self.rt.sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn leave(&self) -> LeaveGroupResponse {
        let request = LeaveGroupRequest {
            group_id: self.asks.group_id.clone(),
            members: vec![MemberIdentity {
                member_id: self.id.clone(),
                group_instance_id: self.asks.group_instance_id.clone(),
                reason: Some("done".into()),
            }],
            ..Default::default()
        };
        self.connection.call(&request).await.expect("an answer")
    }

    pub fn commit_request(&self, topic: &str, offset: i64) -> OffsetCommitRequest {
        OffsetCommitRequest {
            generation_id_or_member_epoch: self.generation,
            member_id: self.id.clone(),
            group_instance_id: self.asks.group_instance_id.clone(),
            ..commit_request(&self.asks.group_id, topic, &[(0, offset)])
        }
    }

    pub async fn commit(&self, topic: &str, offset: i64) -> Result<(), ErrorCode> {
        let request = self.commit_request(topic, offset);
        let answer = self.connection.call(&request).await.expect("an answer");
        ok(answer.topics[0].partitions[0].error_code)
    }
}

/// How long a short-lived member may say nothing.
pub const SHORT_MS: i32 = 1_000;

pub fn ok(code: i16) -> Result<(), ErrorCode> {
    match code {
        0 => Ok(()),
        code => Err(ErrorCode::from_code(code).expect("a code of Kafka's")),
    }
}

/// A consumer's subscription, version 0.
pub fn subscription(topics: &[&str]) -> Bytes {
    let mut out = vec![0, 0];
    out.extend((topics.len() as i32).to_be_bytes());
    for topic in topics {
        out.extend((topic.len() as i16).to_be_bytes());
        out.extend(topic.as_bytes());
    }
    out.extend((-1i32).to_be_bytes());
    out.into()
}

/// A commit of who is no member.
pub fn commit_request(group: &str, topic: &str, offsets: &[(i32, i64)]) -> OffsetCommitRequest {
    let partition =
        |&(partition_index, committed_offset): &(i32, i64)| OffsetCommitRequestPartition {
            partition_index,
            committed_offset,
            ..Default::default()
        };
    OffsetCommitRequest {
        group_id: text(group),
        topics: vec![OffsetCommitRequestTopic {
            name: text(topic),
            partitions: offsets.iter().map(partition).collect(),
        }],
        ..Default::default()
    }
}

/// Commits as who is no member, and insists on success.
pub async fn commit_ok(c: &BrokerConnection, group: &str, topic: &str, offsets: &[(i32, i64)]) {
    let request = commit_request(group, topic, offsets);
    let answer = c.call(&request).await.expect("an answer");
    for partition in &answer.topics[0].partitions {
        assert_eq!(ok(partition.error_code), Ok(()), "{group}");
    }
}

/// All offsets of a group: topic, partition, offset, in this order.
pub async fn committed(c: &BrokerConnection, group: &str) -> Vec<(String, i32, i64)> {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: text(group),
            topics: None,
            ..Default::default()
        }],
        require_stable: true,
        ..Default::default()
    };
    let mut answer = c.call(&request).await.expect("an answer");
    let group = answer.groups.remove(0);
    assert_eq!(ok(group.error_code), Ok(()));
    let mut all = Vec::new();
    for topic in group.topics {
        for partition in topic.partitions {
            assert_eq!(ok(partition.error_code), Ok(()));
            let place = (topic.name.to_string(), partition.partition_index);
            all.push((place.0, place.1, partition.committed_offset));
        }
    }
    all.sort();
    all
}

pub async fn describe(c: &BrokerConnection, group: &str) -> DescribedGroup {
    let request = DescribeGroupsRequest {
        groups: vec![text(group)],
        include_authorized_operations: true,
    };
    let mut answer = c.call(&request).await.expect("an answer");
    answer.groups.remove(0)
}
