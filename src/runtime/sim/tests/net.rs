//! Streams between nodes: order, back-pressure, ends.

use crate::runtime::sim::{SimNode, World};
use crate::runtime::{Accepted, Conn, IoErrorKind, Queue, Rt};
use bytes::Bytes;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A connection from `a` to `b`: both ends.
fn connected(world: &World, a: &SimNode, b: &SimNode) -> (Conn, Conn) {
    let (rt_a, rt_b) = (a.rt(), b.rt());
    world.block_on(&rt_b, async {
        let addr = SocketAddr::new(b.ip(), 0);
        let listener = rt_b.listen(addr).await.unwrap();
        let connect = rt_a.connect(listener.local_addr());
        let (conn, accepted) = futures_lite::future::zip(connect, listener.accept()).await;
        let accepted = rt_b.adopt(accepted.unwrap()).unwrap();
        (conn.unwrap(), accepted)
    })
}

async fn read_to_end(conn: Conn) -> (Vec<u8>, Option<IoErrorKind>) {
    let (mut reader, _writer) = conn.split();
    let mut all = Vec::new();
    let mut buf = vec![0; 5000];
    loop {
        match reader.read(&mut buf).await {
            Ok(0) => return (all, None),
            Ok(n) => all.extend_from_slice(&buf[..n]),
            Err(e) => return (all, Some(e.kind)),
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8).collect()
}

#[test]
fn an_accepted_connection_is_send() {
    fn check<T: Send>() {}
    check::<Accepted>();
}

#[test]
fn bytes_arrive_whole_and_in_order_and_then_the_end() {
    for seed in 0..50 {
        let world = World::new(seed);
        let (a, b) = (world.node("a"), world.node("b"));
        let (conn, accepted) = connected(&world, &a, &b);
        let sent = pattern(300_000);
        let data = Bytes::from(sent.clone());
        a.rt().spawn(Queue::Latency, async move {
            let (_reader, mut writer) = conn.split();
            let mut slices: Vec<Bytes> = (0..30)
                .map(|i| data.slice(i * 10_000..(i + 1) * 10_000))
                .collect();
            writer.write_all(&mut slices).await.unwrap();
            assert!(slices.is_empty());
        });
        let (got, error) = world.block_on(&b.rt(), read_to_end(accepted));
        assert_eq!((got == sent, error), (true, None), "seed {seed}");
    }
}

#[test]
fn an_echo_answers_over_loopback() {
    let world = World::new(1);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let listener = rt.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = listener.local_addr();
        let echo = node.rt_shard(1);
        echo.clone().spawn(Queue::Latency, async move {
            let (mut reader, mut writer) = echo
                .adopt(listener.accept().await.unwrap())
                .unwrap()
                .split();
            let mut buf = [0; 64];
            loop {
                let count = reader.read(&mut buf).await.unwrap();
                if count == 0 {
                    return;
                }
                let mut slices = vec![Bytes::copy_from_slice(&buf[..count])];
                writer.write_all(&mut slices).await.unwrap();
            }
        });
        let (mut reader, mut writer) = rt.connect(addr).await.unwrap().split();
        writer
            .write_all(&mut vec![Bytes::from_static(b"hello")])
            .await
            .unwrap();
        let mut got = Vec::new();
        while got.len() < 5 {
            let mut buf = [0; 5];
            let count = reader.read(&mut buf).await.unwrap();
            got.extend_from_slice(&buf[..count]);
        }
        assert_eq!(got, b"hello");
    });
}

#[test]
fn a_writer_waits_for_a_reader_that_does_not_read() {
    let world = World::new(2);
    let (a, b) = (world.node("a"), world.node("b"));
    let (conn, accepted) = connected(&world, &a, &b);
    let done = Rc::new(Cell::new(false));
    let finished = done.clone();
    a.rt().spawn(Queue::Latency, async move {
        let (_reader, mut writer) = conn.split();
        writer
            .write_all(&mut vec![Bytes::from(vec![1; 200_000])])
            .await
            .unwrap();
        finished.set(true);
    });
    world.run_for(Duration::from_secs(60));
    assert!(!done.get());
    let (got, _) = world.block_on(&b.rt(), read_to_end(accepted));
    assert_eq!(got.len(), 200_000);
    assert!(done.get());
}

#[test]
fn a_closer_ends_pending_reads_on_both_sides() {
    let world = World::new(3);
    let (a, b) = (world.node("a"), world.node("b"));
    let (conn, accepted) = connected(&world, &a, &b);
    let closer = conn.closer();
    let rt = a.rt();
    rt.clone().spawn(Queue::Latency, async move {
        rt.sleep(MS * 5).await;
        closer.close();
        closer.close();
    });
    let own = world.block_on(&a.rt(), read_to_end(conn));
    assert_eq!(own, (vec![], Some(IoErrorKind::Disconnected)));
    let peer = world.block_on(&b.rt(), read_to_end(accepted));
    assert_eq!(peer, (vec![], None));
}

#[test]
fn a_write_to_a_closed_peer_fails() {
    let world = World::new(4);
    let (a, b) = (world.node("a"), world.node("b"));
    let (conn, accepted) = connected(&world, &a, &b);
    drop(accepted);
    world.run_for(MS * 100);
    let (_reader, mut writer) = conn.split();
    let mut slices = vec![Bytes::from_static(b"x")];
    let error = world
        .block_on(&a.rt(), writer.write_all(&mut slices))
        .unwrap_err();
    assert_eq!(error.kind, IoErrorKind::Disconnected);
    assert_eq!(slices.len(), 1);
}

#[test]
fn a_crash_resets_connections_and_frees_the_port() {
    let world = World::new(5);
    let (a, b) = (world.node("a"), world.node("b"));
    let addr = SocketAddr::new(b.ip(), 9092);
    let rt_b = b.rt();
    let listener = world.block_on(&rt_b, rt_b.listen(addr)).unwrap();
    let (conn, accepted) = connected(&world, &a, &b);
    rt_b.spawn(Queue::Latency, async move {
        let _listener = listener;
        read_to_end(accepted).await;
    });
    let crashing = b.clone();
    let rt = a.rt();
    rt.clone().spawn(Queue::Latency, async move {
        rt.sleep(MS).await;
        crashing.crash();
    });
    let ended = world.block_on(&a.rt(), read_to_end(conn));
    assert_eq!(ended, (vec![], Some(IoErrorKind::Disconnected)));
    let refused = world.block_on(&a.rt(), a.rt().connect(addr));
    assert_eq!(
        refused.err().and_then(|e| e.errno),
        Some(libc::ECONNREFUSED)
    );
    let rt_b = b.restart();
    assert!(world.block_on(&rt_b, rt_b.listen(addr)).is_ok());
}

#[test]
fn a_taken_port_is_refused_until_the_listener_is_gone() {
    let world = World::new(6);
    let rt = world.node("a").rt();
    let addr: SocketAddr = "0.0.0.0:9092".parse().unwrap();
    let listen = |rt: &Rt| {
        let rt = rt.clone();
        async move { rt.listen(addr).await }
    };
    let first = world.block_on(&rt, listen(&rt)).unwrap();
    let second = world.block_on(&rt, listen(&rt)).err();
    assert_eq!(second.map(|e| e.kind), Some(IoErrorKind::AlreadyExists));
    first.close();
    let closed = world.block_on(&rt, first.accept()).err();
    assert_eq!(closed.map(|e| e.kind), Some(IoErrorKind::Disconnected));
    assert!(world.block_on(&rt, listen(&rt)).is_ok());
}

#[test]
fn a_cut_network_delivers_after_it_heals() {
    let world = World::new(7);
    let (a, b) = (world.node("a"), world.node("b"));
    let (conn, accepted) = connected(&world, &a, &b);
    world.cut(&a, &b);
    let (_reader, mut writer) = conn.split();
    let mut slices = vec![Bytes::from_static(b"late")];
    world
        .block_on(&a.rt(), writer.write_all(&mut slices))
        .unwrap();
    let (mut reader, _peer_writer) = accepted.split();
    let mut buf = [0; 4];
    let early = world.block_on_for(&b.rt(), MS * 1000, reader.read(&mut buf));
    assert!(early.is_none());
    let timed_out = world.block_on(&a.rt(), a.rt().connect(SocketAddr::new(b.ip(), 1)));
    assert_eq!(timed_out.err().and_then(|e| e.errno), Some(libc::ETIMEDOUT));
    world.heal(&a, &b);
    let count = world.block_on(&b.rt(), reader.read(&mut buf)).unwrap();
    assert!(b"late".starts_with(&buf[..count]));
}

#[test]
fn reads_come_in_pieces() {
    let mut counts = BTreeSet::new();
    for seed in 0..50 {
        let world = World::new(seed);
        let (a, b) = (world.node("a"), world.node("b"));
        let (conn, accepted) = connected(&world, &a, &b);
        let (_r, mut writer) = conn.split();
        let (mut reader, _w) = accepted.split();
        let mut slices = vec![Bytes::from_static(&[7; 100])];
        world
            .block_on(&a.rt(), writer.write_all(&mut slices))
            .unwrap();
        let mut buf = [0; 100];
        counts.insert(world.block_on(&b.rt(), reader.read(&mut buf)).unwrap());
    }
    assert!(counts.contains(&100) && counts.len() > 3, "{counts:?}");
}
