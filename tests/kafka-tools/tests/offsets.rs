//! The records of `__consumer_offsets`: Kafka's tool reads ours as we do, and we read Kafka's as its tool does.

use highwater::client::BrokerConnection;
use highwater::coordinator::records::{Entry, NO_TIMESTAMP};
use highwater::protocol::batch::{Batches, RecordIter};
use highwater::protocol::messages::*;
use kafka_tools_tests::broker::Launch;
use kafka_tools_tests::kafka::{self, Kafka};
use kafka_tools_tests::{client, data_dir, files, highwater};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

const TOPIC: &str = "read";

#[test]
fn kafkas_tool_reads_what_we_wrote_of_groups() {
    let dir = data_dir();
    let broker = Launch::new(highwater(), dir.path())
        .set("offsets.topic.num.partitions=1")
        .set("group.initial.rebalance.delay.ms=0")
        .start();
    work_as_groups(broker.addr());
    broker.stop();
    let (offsets, groups, tombstones) = compare(dir.path(), "3");
    assert!(offsets >= 4 && groups >= 1 && tombstones >= 1);
}

#[test]
fn we_read_what_kafka_wrote_of_groups() {
    let dir = data_dir();
    let kafka = Kafka::start(dir.path(), &["group.initial.rebalance.delay.ms=0"]);
    work_as_groups(kafka.addr());
    let (offsets, groups, tombstones) = compare(&kafka.stop(), "4");
    assert!(offsets >= 4 && groups >= 1 && tombstones >= 1);
}

/// A simple consumer's commits, one with a retention of its own, one deleted; and a member of a group.
fn work_as_groups(addr: SocketAddr) {
    client::with(addr, |c| async move {
        let created = client::create_topic(&c, TOPIC, 2, &[]).await;
        assert_eq!(created.error_code, 0, "{:?}", created.error_message);
        let simple = commit("simple", -1, "", &[(0, 5, 3, "mine"), (1, 0, -1, "")]);
        commit_until_taken(&c, &simple, 9).await;
        let expiring = OffsetCommitRequest {
            retention_time_ms: 3_600_000,
            ..commit("expiring", -1, "", &[(1, 1 << 40, -1, "\u{e4}\u{1f600}")])
        };
        commit_until_taken(&c, &expiring, 3).await;
        let delete = OffsetDeleteRequest {
            group_id: client::text("simple"),
            topics: vec![OffsetDeleteRequestTopic {
                name: client::text(TOPIC),
                partitions: vec![OffsetDeleteRequestPartition { partition_index: 1 }],
            }],
        };
        let deleted = c.call(&delete).await.expect("an answer");
        assert_eq!(deleted.error_code, 0);
        let join = JoinGroupRequest {
            group_id: client::text("members"),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 20_000,
            // The tool would read what is of consumers.
            protocol_type: client::text("readers"),
            protocols: vec![JoinGroupRequestProtocol {
                name: client::text("range"),
                metadata: b"what it reads"[..].into(),
            }],
            ..Default::default()
        };
        let joined = c.start_as(&join, 3).await.expect("it is sent");
        let joined = joined.await.expect("an answer");
        assert_eq!(joined.error_code, 0);
        let sync = SyncGroupRequest {
            group_id: client::text("members"),
            generation_id: joined.generation_id,
            member_id: joined.member_id.clone(),
            assignments: vec![SyncGroupRequestAssignment {
                member_id: joined.member_id.clone(),
                assignment: b"what it gets"[..].into(),
            }],
            ..Default::default()
        };
        let synced = c.start_as(&sync, 2).await.expect("it is sent");
        assert_eq!(synced.await.expect("an answer").error_code, 0);
        let member = joined.member_id.to_string();
        let own = commit("members", joined.generation_id, &member, &[(0, 9, 0, "")]);
        commit_until_taken(&c, &own, 7).await;
    });
}

fn commit(
    group: &str,
    generation: i32,
    member: &str,
    offsets: &[(i32, i64, i32, &str)],
) -> OffsetCommitRequest {
    let partition =
        |(index, offset, epoch, metadata): &(i32, i64, i32, &str)| OffsetCommitRequestPartition {
            partition_index: *index,
            committed_offset: *offset,
            committed_leader_epoch: *epoch,
            committed_metadata: Some(client::text(metadata)),
        };
    OffsetCommitRequest {
        group_id: client::text(group),
        generation_id_or_member_epoch: generation,
        member_id: client::text(member),
        topics: vec![OffsetCommitRequestTopic {
            name: client::text(TOPIC),
            partitions: offsets.iter().map(partition).collect(),
        }],
        ..Default::default()
    }
}

/// Commits once the coordinator is there, which Kafka creates in its own time when it is asked for.
async fn commit_until_taken(c: &BrokerConnection, request: &OffsetCommitRequest, version: i16) {
    for _ in 0..600 {
        let find = FindCoordinatorRequest {
            coordinator_keys: vec![request.group_id.clone()],
            ..Default::default()
        };
        c.call(&find).await.expect("an answer");
        let answer = c.start_as(request, version).await.expect("it is sent");
        let answer = answer.await.expect("an answer");
        let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
        let codes: Vec<i16> = partitions.map(|it| it.error_code).collect();
        match codes.iter().find(|code| **code != 0) {
            None => return,
            // It loads, is not there yet, or the topic's leader is not known there yet.
            Some(14..=16 | 3) => std::thread::sleep(Duration::from_millis(100)),
            Some(code) => panic!("{code}"),
        }
    }
    panic!("no commit is taken");
}

/// Compares what the tool prints of each record with what we read; how many offsets, groups and tombstones there were.
///
/// Offsets are written in this `version`: Kafka's newest says which topic id they are of.
fn compare(data: &Path, version: &str) -> (usize, usize, usize) {
    let logs = files::files_of(data, "__consumer_offsets-0", "log");
    let printed = kafka::dump_offsets(&logs);
    let lines = printed
        .lines()
        .filter(|line| line.starts_with("| offset: "));
    let by_offset: BTreeMap<i64, &str> = lines
        .map(|line| {
            let offset = line["| offset: ".len()..].split(' ').next();
            (
                offset.and_then(|it| it.parse().ok()).expect("an offset"),
                line,
            )
        })
        .collect();
    let (mut offsets, mut groups, mut tombstones, mut all) = (0, 0, 0, 0);
    for log in logs {
        let bytes = std::fs::read(&log).expect("it can be read");
        let end = files::end_of_batches(&log) as usize;
        for batch in Batches::new(bytes[..end].to_vec().into()) {
            let batch = batch.expect("a batch");
            let base = batch.header().base_offset;
            let records = batch.decompressed(1 << 20).expect("it is sound");
            for record in RecordIter::new(&records, batch.header().record_count) {
                let record = record.expect("it is sound");
                let key = records.slice_ref(record.key.expect("a key"));
                let value = record.value.map(|value| records.slice_ref(value));
                let offset = base + i64::from(record.offset_delta);
                let line = by_offset.get(&offset);
                let line = *line.unwrap_or_else(|| panic!("{offset} was not printed:\n{printed}"));
                let entry = Entry::decode(key, value).expect("a record");
                let (is_offset, is_tombstone) = match &entry {
                    Entry::Offset { value, .. } => (true, value.is_none()),
                    Entry::Group { value, .. } => (false, value.is_none()),
                    Entry::Unknown(kind) => panic!("a record of kind {kind}"),
                };
                for part in parts_of(&entry, version) {
                    assert!(line.contains(&part), "{part} is not in\n{line}");
                }
                offsets += usize::from(is_offset && !is_tombstone);
                groups += usize::from(!is_offset && !is_tombstone);
                tombstones += usize::from(is_tombstone);
                all += 1;
            }
        }
    }
    assert_eq!(all, by_offset.len(), "{printed}");
    (offsets, groups, tombstones)
}

/// What the tool's JSON holds of it.
fn parts_of(entry: &Entry, version: &str) -> Vec<String> {
    let text = |name: &str, value: &str| format!("\"{name}\":\"{value}\"");
    let number = |name: &str, value: i64| format!("\"{name}\":{value}");
    match entry {
        Entry::Offset { key, value } => {
            let mut parts = vec![
                text("type", "1"),
                text("group", &key.group),
                text("topic", &key.topic),
                number("partition", i64::from(key.partition)),
            ];
            if let Some(value) = value {
                parts.extend([
                    number("offset", value.offset),
                    text("metadata", &value.metadata),
                    number("commitTimestamp", value.commit_timestamp),
                ]);
                match value.expire_timestamp {
                    NO_TIMESTAMP => parts.extend([
                        text("version", version),
                        number("leaderEpoch", i64::from(value.leader_epoch)),
                    ]),
                    at => parts.extend([text("version", "1"), number("expireTimestamp", at)]),
                }
            }
            parts
        }
        Entry::Group { group, value } => {
            let mut parts = vec![text("type", "2"), text("group", group)];
            if let Some(value) = value {
                parts.extend([
                    text("version", "3"),
                    text("protocolType", &value.protocol_type),
                    number("generation", i64::from(value.generation)),
                    number("currentStateTimestamp", value.current_state_timestamp),
                ]);
                parts.extend(value.protocol.iter().map(|it| text("protocol", it)));
                parts.extend(value.leader.iter().map(|it| text("leader", it)));
                for member in &value.members {
                    parts.extend([
                        text("memberId", &member.member_id),
                        text("clientId", &member.client_id),
                        text("clientHost", &member.client_host),
                        number("rebalanceTimeout", i64::from(member.rebalance_timeout)),
                        number("sessionTimeout", i64::from(member.session_timeout)),
                    ]);
                }
            }
            parts
        }
        Entry::Unknown(_) => Vec::new(),
    }
}
