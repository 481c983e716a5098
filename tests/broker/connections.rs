//! Connections: limits, order, fairness, peers that stall.

use super::broker::{Broker, Launch};
use super::client::{
    batch_of, create_topic, fetch, fetch_request, produce_ok, produce_request, with,
};
use super::raw::{answer, connect, connect_from, is_closed, request, send, PATIENCE};
use super::{data_dir, launch};
use highwater::protocol::messages::*;
use highwater::runtime::native;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const THREE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

fn start(launch: Launch) -> Broker {
    let broker = launch.start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "t", 3, &[("retention.ms", "-1")]).await;
    });
    broker
}

/// Whether the broker took the connection: it answers, or has closed it.
fn is_served(socket: &mut TcpStream) -> bool {
    let asked = request(7, 0, &ApiVersionsRequest::default());
    send(socket, &asked) && answer(socket).is_some_and(|(id, _)| id == 7)
}

/// A connection that ends is counted out a little later.
fn is_served_soon(mut open: impl FnMut() -> TcpStream) -> TcpStream {
    let begun = Instant::now();
    loop {
        let mut socket = open();
        if is_served(&mut socket) {
            return socket;
        }
        assert!(begun.elapsed() < PATIENCE, "no room came free");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn others_are_served(broker: &Broker) {
    with(broker.addr(), move |c| async move {
        for partition in 0..3 {
            let offset = produce_ok(&c, "t", partition, batch_of("served")).await;
            let read = fetch(&c, "t", partition, offset, 100, 1000).await;
            assert_eq!((read.error_code, read.high_watermark), (0, offset + 1));
        }
    });
}

#[test]
fn given_limits_by_address_then_each_address_has_its_own() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .set("max.connections.per.ip=3")
        .set("max.connections.per.ip.overrides=127.0.0.2:1,127.0.0.3:0")
        .start();
    let mut open: Vec<TcpStream> = (0..3).map(|_| connect_from(&broker, ONE)).collect();
    assert!(open.iter_mut().all(is_served));
    for _ in 0..3 {
        assert!(is_closed(&mut connect_from(&broker, ONE)), "the fourth");
    }
    let mut two = connect_from(&broker, TWO);
    assert!(is_served(&mut two));
    assert!(is_closed(&mut connect_from(&broker, TWO)));
    assert!(is_closed(&mut connect_from(&broker, THREE)));
    // They are counted over all shards, and those that are refused take no place.
    drop(open.remove(1));
    let again = is_served_soon(|| connect_from(&broker, ONE));
    assert!(is_closed(&mut connect_from(&broker, ONE)));
    assert!(open.iter_mut().all(is_served) && is_served(&mut two));
    drop((open, again));
    is_served_soon(|| connect_from(&broker, ONE));
    broker.stop();
}

#[test]
fn given_a_limit_for_all_then_a_further_connection_takes_the_place_of_one_that_ended() {
    let dir = data_dir();
    let broker = launch(dir.path()).set("max.connections=5").start();
    let mut open: Vec<TcpStream> = [ONE, TWO, THREE, ONE, TWO]
        .iter()
        .map(|from| connect_from(&broker, *from))
        .collect();
    assert!(open.iter_mut().all(is_served));
    for from in [ONE, THREE] {
        assert!(is_closed(&mut connect_from(&broker, from)));
    }
    for _ in 0..20 {
        drop(open.remove(0));
        open.push(is_served_soon(|| connect_from(&broker, ONE)));
        assert!(is_closed(&mut connect_from(&broker, TWO)));
    }
    drop(open);
    broker.stop();
}

#[test]
fn given_an_override_without_an_address_then_the_broker_says_so_and_does_not_start() {
    let dir = data_dir();
    let refused = launch(dir.path())
        .set("max.connections.per.ip.overrides=no.such.host.invalid:5")
        .try_start("127.0.0.1:0");
    let stderr = refused.err().expect("it does not start").stderr;
    assert!(stderr.contains("no.such.host.invalid"), "{stderr}");
}

#[test]
fn given_500_mixed_requests_at_once_then_answers_come_in_their_order() {
    let dir = data_dir();
    let broker = start(launch(dir.path()));
    let mut socket = connect(&broker);
    let list = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: "t".into(),
            partitions: vec![ListOffsetsPartition {
                partition_index: 1,
                current_leader_epoch: -1,
                timestamp: -1,
            }],
        }],
        ..Default::default()
    };
    let frames: Vec<u8> = (0..500)
        .flat_map(|id| match id % 7 {
            0 => request(id, 12, &MetadataRequest::default()),
            1 | 4 => request(id, 12, &produce_request("t", id % 3, -1, batch_of("x"))),
            // Some wait for data, behind which quicker ones must not come first.
            2 => request(id, 12, &fetch_request("t", id % 3, 0, 20, 1000)),
            5 => request(id, 12, &fetch_request("t", id % 3, 1 << 40, 20, 1000)),
            3 => request(id, 7, &list),
            _ => request(id, 3, &api_versions()),
        })
        .collect();
    let mut writer = socket.try_clone().expect("it can be cloned");
    let writing = std::thread::spawn(move || send(&mut writer, &frames));
    for expected in 0..500 {
        let (id, body) = answer(&mut socket).expect("an answer");
        assert_eq!(id, expected);
        assert!(!body.is_empty());
    }
    assert!(writing.join().expect("it writes"));
    broker.stop();
}

fn api_versions() -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: "raw".into(),
        client_software_version: "1".into(),
    }
}

#[test]
fn given_1000_half_open_connections_then_others_are_served_and_the_half_open_ones_go() {
    native::raise_nofile_limit();
    let dir = data_dir();
    let broker = start(launch(dir.path()).set("connections.max.idle.ms=4000"));
    let before = broker.resident_bytes();
    let mut half: Vec<TcpStream> = (0..1000)
        .map(|n| {
            let mut socket = connect(&broker);
            // Nothing, a part of the length, the length, a part of the header.
            let bytes = [0, 0, 0, 50, 0, 3, 0];
            assert!(send(&mut socket, &bytes[..n % 8]));
            socket
        })
        .collect();
    others_are_served(&broker);
    let grown = broker.resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes for silent connections");
    // They owe nothing, and are owed nothing.
    assert!(half.iter_mut().all(is_closed));
    others_are_served(&broker);
    broker.stop();
}

#[test]
fn given_silent_connections_then_those_that_wait_for_an_answer_stay() {
    let dir = data_dir();
    let broker = start(launch(dir.path()).set("connections.max.idle.ms=2000"));
    let mut silent = connect(&broker);
    assert!(is_served(&mut silent));
    let mut waits = connect(&broker);
    let poll = request(9, 12, &fetch_request("t", 0, 0, 6000, 1000));
    assert!(send(&mut waits, &poll));
    assert!(is_closed(&mut silent), "it is idle");
    // Its long poll is longer than the limit, and is answered.
    assert_eq!(answer(&mut waits).map(|(id, _)| id), Some(9));
    assert!(is_closed(&mut waits), "it is idle now");
    others_are_served(&broker);
    broker.stop();
}

#[test]
fn given_a_flood_of_tiny_requests_then_a_trickle_on_the_same_shard_gets_all_its_answers() {
    let dir = data_dir();
    let broker = start(launch(dir.path()).shards(1));
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicI32::new(0));
    let floods: Vec<_> = (0..3)
        .map(|kind| {
            let mut socket = connect(&broker);
            let mut writer = socket.try_clone().expect("it can be cloned");
            let (stop, answered) = (stop.clone(), answered.clone());
            let writing = std::thread::spawn(move || {
                let mut sent = 0;
                while !stop.load(Ordering::Relaxed) {
                    let many: Vec<u8> = (sent..sent + 100)
                        .flat_map(|id| match kind {
                            0 => request(id, 3, &api_versions()),
                            1 => request(id, 12, &fetch_request("t", 0, 0, 0, 1000)),
                            _ => request(id, 12, &produce_request("t", 9, -1, batch_of("x"))),
                        })
                        .collect();
                    assert!(send(&mut writer, &many));
                    sent += 100;
                }
                writer.shutdown(std::net::Shutdown::Write).expect("open");
                sent
            });
            let reading = std::thread::spawn(move || {
                let mut next = 0;
                while let Some((id, _)) = answer(&mut socket) {
                    assert_eq!(id, next);
                    next += 1;
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                next
            });
            (writing, reading)
        })
        .collect();
    let flooded = || answered.load(Ordering::Relaxed);
    while flooded() < 1000 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut trickle = connect(&broker);
    for id in 0..100 {
        let before = flooded();
        let asked = match id % 2 {
            0 => request(id, 3, &api_versions()),
            _ => request(id, 12, &fetch_request("t", 1, 0, 0, 1000)),
        };
        assert!(send(&mut trickle, &asked));
        assert_eq!(answer(&mut trickle).map(|(id, _)| id), Some(id));
        // The flood does not stop for it: the test would say nothing then.
        while flooded() == before {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    stop.store(true, Ordering::Relaxed);
    for (writing, reading) in floods {
        let sent = writing.join().expect("it writes");
        assert_eq!(reading.join().expect("it reads"), sent, "all are answered");
    }
    broker.stop();
}

#[test]
fn given_peers_that_read_nothing_then_others_get_memory_for_their_answers() {
    const BUDGET: u64 = 32 << 20;
    let dir = data_dir();
    let broker = start(
        launch(dir.path())
            .shards(1)
            .set(format!("request.memory.bytes={BUDGET}"))
            .set("cache.bytes=134217728"),
    );
    with(broker.addr(), move |c| async move {
        for _ in 0..32 {
            produce_ok(&c, "t", 0, batch_of(&"x".repeat(1_000_000))).await;
        }
    });
    let before = broker.resident_bytes();
    // Together they ask for 3 GiB of 32 MiB. Others get what is left meanwhile, at least one
    // batch at a time, and all that they ask for when those that take nothing are ended.
    let batches_read = |broker: &Broker| {
        with(broker.addr(), move |c| async move {
            let read = fetch(&c, "t", 0, 0, 0, 6 << 20).await;
            read.records.map_or(0, |records| records.len()) / 1_000_000
        })
    };
    let mut contended = false;
    let deaf: Vec<TcpStream> = (0..60)
        .map(|_| {
            let mut socket = connect(&broker);
            for id in 0..60 {
                let asked = request(id, 12, &fetch_request("t", 0, 0, 0, 1_500_000));
                assert!(send(&mut socket, &asked));
            }
            // Those that came first are ended soon, so it is looked for while others come.
            contended = contended || batches_read(&broker) < 6;
            socket
        })
        .collect();
    let begun = Instant::now();
    while !contended {
        assert!(begun.elapsed() < PATIENCE, "the budget was never contended");
        contended = batches_read(&broker) < 6;
    }
    let grown = broker.resident_bytes().saturating_sub(before);
    assert!(grown < 2 * BUDGET + (32 << 20), "{grown} bytes");
    others_are_served(&broker);
    loop {
        let read = batches_read(&broker);
        assert!(read >= 1, "others get nothing");
        if read == 6 {
            break;
        }
        assert!(begun.elapsed() < 2 * PATIENCE, "they were never ended");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(deaf);
    others_are_served(&broker);
    broker.stop();
}

#[test]
fn given_too_few_descriptors_then_the_rest_waits_and_is_served_when_others_end() {
    let dir = data_dir();
    let script = dir.path().join("limited.sh");
    let binary = env!("CARGO_BIN_EXE_highwater");
    std::fs::write(
        &script,
        format!("#!/bin/sh\nulimit -n 256\nexec {binary} \"$@\"\n"),
    )
    .expect("a script can be written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))
        .expect("it can be made executable");
    let broker = start(Launch::new(script, dir.path().join("data")));
    let mut open: Vec<TcpStream> = (0..400).map(|_| connect(&broker)).collect();
    assert!(open[..50].iter_mut().all(is_served));
    // The last wait in the kernel's backlog: connected, and nobody reads.
    let mut last = open.pop().expect("there are 400");
    let asked = request(1, 0, &ApiVersionsRequest::default());
    assert!(send(&mut last, &asked));
    last.set_read_timeout(Some(Duration::from_millis(500)))
        .expect("it can be set");
    let mut byte = [0];
    assert!(last.peek(&mut byte).is_err(), "descriptors did not run out");
    last.set_read_timeout(Some(PATIENCE))
        .expect("it can be set");
    drop(open);
    assert_eq!(answer(&mut last).map(|(id, _)| id), Some(1));
    others_are_served(&broker);
    let said = broker.stop();
    let told = said.matches("connections can't be accepted").count();
    assert!((1..20).contains(&told), "told {told} times");
}

#[test]
fn given_a_transactional_produce_with_acks_0_then_the_connection_closes() {
    let dir = data_dir();
    let broker = start(launch(dir.path()));
    for version in [3, 8, 12] {
        let mut socket = connect(&broker);
        let mut asked = produce_request("t", 0, 0, batch_of("x"));
        asked.transactional_id = Some("transaction".into());
        assert!(send(&mut socket, &request(1, version, &asked)));
        assert!(is_closed(&mut socket), "v{version}");
        // With an answer the same is an error.
        let mut socket = connect(&broker);
        asked.acks = -1;
        assert!(send(&mut socket, &request(2, version, &asked)));
        assert_eq!(answer(&mut socket).map(|(id, _)| id), Some(2));
    }
    others_are_served(&broker);
    broker.stop();
}
