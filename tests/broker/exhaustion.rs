//! Case C18 (KAFKA-2878): peers that claim more memory than there is.

use super::broker::Broker;
use super::client::{batch_of, create_topic, fetch, fetch_request, produce_ok, with};
use super::raw::{answer, connect, is_closed, request, send, PATIENCE};
use super::{data_dir, launch};
use highwater::protocol::messages::*;
use highwater::protocol::{ApiKey, Message};
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn others_are_served(broker: &Broker) {
    with(broker.addr(), move |c| async move {
        let offset = produce_ok(&c, "t", 0, batch_of("served")).await;
        let read = fetch(&c, "t", 0, offset, 100, 1000).await;
        assert_eq!((read.error_code, read.high_watermark), (0, offset + 1));
    });
}

/// A request of each version whose first array claims 2^31-1 elements. `empty` and `one`
/// differ only in that array.
fn claims<M: Message>(out: &mut Vec<(ApiKey, i16, Vec<u8>)>, empty: M, one: M) {
    for version in M::KEY.decoded_versions() {
        let (mut bytes, other) = (request(1, version, &empty), request(1, version, &one));
        // Behind the length of the frame, which differs too.
        let differs = (4..).find(|i| bytes[*i] != other[*i]).expect("the array");
        if version >= M::KEY.flexible_from() {
            // Compact: one more than the count, as an unsigned varint.
            bytes.truncate(differs);
            bytes.extend([0x80, 0x80, 0x80, 0x80, 0x08]);
        } else {
            bytes.truncate(differs - 3);
            bytes.extend(i32::MAX.to_be_bytes());
        }
        bytes.extend([0; 64]);
        let length = (bytes.len() - 4) as i32;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        out.push((M::KEY, version, bytes));
    }
}

/// Every API that has an array. Those that are not served are closed for that.
fn all_claims() -> Vec<(ApiKey, i16, Vec<u8>)> {
    let mut out = Vec::new();
    macro_rules! claims {
        ($($request:ident.$array:ident;)*) => {$({
            let mut one = $request::default();
            one.$array.push(Default::default());
            claims(&mut out, $request::default(), one);
        })*};
    }
    claims! {
        ProduceRequest.topic_data;
        FetchRequest.topics;
        ListOffsetsRequest.topics;
        CreateTopicsRequest.topics;
        DeleteRecordsRequest.topics;
        OffsetForLeaderEpochRequest.topics;
        DescribeConfigsRequest.resources;
        AlterConfigsRequest.resources;
        CreatePartitionsRequest.topics;
        IncrementalAlterConfigsRequest.resources;
        DescribeProducersRequest.topics;
        DescribeTopicPartitionsRequest.topics;
        JoinGroupRequest.protocols;
        SyncGroupRequest.assignments;
        OffsetCommitRequest.topics;
        OffsetDeleteRequest.topics;
        DescribeGroupsRequest.groups;
        DeleteGroupsRequest.groups_names;
    }
    let metadata = |topics| MetadataRequest {
        topics: Some(topics),
        ..Default::default()
    };
    let topic = MetadataRequestTopic::default();
    claims(&mut out, metadata(vec![]), metadata(vec![topic]));
    out
}

#[test]
fn c18_given_arrays_that_claim_everything_then_the_connection_closes_and_no_memory_is_taken() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .set("request.memory.bytes=67108864")
        .start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "t", 1, &[("retention.ms", "-1")]).await;
    });
    let before = broker.resident_bytes();
    let claims = all_claims();
    assert!(claims.len() > 60);
    for (key, version, frame) in claims {
        let mut socket = connect(&broker);
        assert!(send(&mut socket, &frame));
        assert!(is_closed(&mut socket), "{key:?} version {version}");
    }
    // DeleteTopics has two lists, of which each version has one.
    for (version, list) in [
        (1, &[0x7f, 0xff, 0xff, 0xff][..]),
        (6, &[0x80, 0x80, 0x80, 0x80, 8]),
    ] {
        let header: &[u8] = if version == 1 { &[] } else { &[0] };
        let body = [
            &[0, 20, 0, version, 0, 0, 0, 1, 0xff, 0xff],
            header,
            list,
            &[0; 64],
        ]
        .concat();
        let mut socket = connect(&broker);
        let length = (body.len() as i32).to_be_bytes();
        assert!(send(&mut socket, &[&length, &body[..]].concat()));
        assert!(is_closed(&mut socket), "DeleteTopics version {version}");
    }
    for length in [-1, i32::MIN, i32::MAX] {
        let mut socket = connect(&broker);
        assert!(send(&mut socket, &length.to_be_bytes()));
        assert!(is_closed(&mut socket), "a frame of {length} bytes");
    }
    others_are_served(&broker);
    let grown = broker.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for claims");
    broker.stop();
}

#[test]
fn c18_given_200_slow_frames_of_100_mb_then_memory_is_bounded_and_others_are_served() {
    // The least with which a frame of 100 MB is accepted: an eighth of it.
    const BUDGET: u64 = 800 << 20;
    const BASE: u64 = 64 << 20;
    const FRAME: usize = 100 << 20;
    const SENT_MAX: usize = 16 << 20;
    // Seven eighths of the budget are for large frames.
    const FIT: usize = 7;
    let dir = data_dir();
    let broker = launch(dir.path())
        .shards(1)
        .set(format!("request.memory.bytes={BUDGET}"))
        // Nobody is ended for being slow, so that it is the budget alone that bounds.
        .set("min.request.progress=0")
        .start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "t", 1, &[("retention.ms", "-1")]).await;
    });
    let before = broker.resident_bytes();
    let mut slow: Vec<(TcpStream, usize)> = (0..200)
        .map(|_| {
            let mut socket = connect(&broker);
            assert!(send(&mut socket, &(FRAME as i32).to_be_bytes()));
            socket.set_nonblocking(true).expect("it can be set");
            (socket, 0)
        })
        .collect();
    let piece = vec![0; 256 * 1024];
    // Rounds until those that fit the budget are read, and nobody's bytes are taken any more.
    let (mut rested, begun) = (0, Instant::now());
    let taken =
        |slow: &[(TcpStream, usize)]| slow.iter().filter(|(_, sent)| *sent >= SENT_MAX).count();
    while rested < 20 || taken(&slow) < FIT {
        assert!(
            begun.elapsed() < PATIENCE,
            "{} frames are read",
            taken(&slow)
        );
        let mut moved = false;
        for (socket, sent) in slow.iter_mut().filter(|(_, sent)| *sent < SENT_MAX) {
            match socket.write(&piece) {
                Ok(written) => {
                    *sent += written;
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("a frame of 100 MB is not refused: {error}"),
            }
        }
        rested = if moved { 0 } else { rested + 1 };
        std::thread::sleep(Duration::from_millis(5));
    }
    others_are_served(&broker);
    let grown = broker.resident_bytes().saturating_sub(before);
    assert!(grown < BUDGET + BASE, "{grown} bytes for slow frames");
    // Of no other were all bytes taken.
    assert_eq!(taken(&slow), FIT);
    assert!(grown < 8 * SENT_MAX as u64 + BASE, "{grown} bytes");
    drop(slow);
    others_are_served(&broker);
    broker.stop();
}

/// A produce of so many partitions that do not exist: its answer is larger than itself.
fn produce_to_nowhere(partitions: i32) -> Vec<u8> {
    let partition = |index| PartitionProduceData {
        index,
        records: None,
    };
    let body = ProduceRequest {
        acks: -1,
        timeout_ms: 1000,
        topic_data: vec![TopicProduceData {
            name: "nowhere".into(),
            partition_data: (0..partitions).map(partition).collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    request(7, 8, &body)
}

#[test]
fn given_peers_that_take_no_answer_when_answers_are_long_lists_then_memory_is_bounded() {
    const BUDGET: u64 = 16 << 20;
    let dir = data_dir();
    let broker = launch(dir.path())
        .shards(1)
        .set(format!("request.memory.bytes={BUDGET}"))
        .start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "t", 1, &[("retention.ms", "-1")]).await;
    });
    let before = broker.resident_bytes();
    // Frames of both kinds: those of up to 64 KiB have a share of their own.
    for (partitions, frames) in [(100_000, 50), (8_000, 500)] {
        let frame = produce_to_nowhere(partitions);
        let mut deaf: Vec<(TcpStream, usize)> = (0..5)
            .map(|_| {
                let socket = connect(&broker);
                socket.set_nonblocking(true).expect("it can be set");
                (socket, 0)
            })
            .collect();
        // All that the broker takes; it may end those who do not read.
        let (mut rested, begun) = (0, Instant::now());
        while rested < 100 {
            assert!(begun.elapsed() < PATIENCE, "it takes more and more");
            let before = deaf.iter().map(|(_, sent)| sent).sum::<usize>();
            for (socket, sent) in &mut deaf {
                let rest = &frame[*sent % frame.len()..];
                if *sent < frames * frame.len() {
                    *sent += socket.write(rest).unwrap_or(0);
                }
            }
            let after = deaf.iter().map(|(_, sent)| sent).sum::<usize>();
            rested = if after > before { 0 } else { rested + 1 };
            std::thread::sleep(Duration::from_millis(5));
        }
        let sent: Vec<usize> = deaf.iter().map(|(_, sent)| *sent).collect();
        assert!(sent.iter().any(|sent| *sent > frame.len()), "{sent:?}");
        let grown = broker.resident_bytes().saturating_sub(before);
        assert!(grown < 6 * BUDGET, "{grown} bytes for answers");
        others_are_served(&broker);
        // Large frames of others wait until those who do not read are ended.
        let mut other = connect(&broker);
        assert!(send(&mut other, &produce_to_nowhere(100_000)));
        assert_eq!(answer(&mut other).map(|(id, _)| id), Some(7));
    }
    broker.stop();
}

#[test]
fn given_long_polls_of_long_lists_when_another_request_needs_the_memory_then_they_end() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .shards(1)
        .set("request.memory.bytes=16777216")
        .start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "t", 1, &[]).await;
    });
    // A day; the second waits for its turn behind a short list that waits.
    let mut long = fetch_request("t", 0, 0, 86_400_000, 1000);
    let short = request(0, 12, &long);
    let partition = |partition| FetchPartition {
        partition,
        ..Default::default()
    };
    long.topics[0].partitions = (0..60_000).map(partition).collect();
    let long = request(1, 12, &long);
    let mut polls: Vec<TcpStream> = (0..2).map(|_| connect(&broker)).collect();
    assert!(send(&mut polls[0], &long));
    assert!(send(&mut polls[1], &[short, long].concat()));
    for poll in &polls {
        poll.set_read_timeout(Some(Duration::from_secs(1)))
            .expect("it can be set");
        assert!(poll.peek(&mut [0]).is_err(), "it does not wait");
        poll.set_read_timeout(Some(PATIENCE))
            .expect("it can be set");
    }
    let mut other = connect(&broker);
    assert!(send(&mut other, &produce_to_nowhere(60_000)));
    assert_eq!(answer(&mut other).map(|(id, _)| id), Some(7));
    assert!(answer(&mut polls[0]).is_some() || answer(&mut polls[1]).is_some());
    broker.stop();
}
