//! Requests that wait: nobody waits for ever, and what waits holds nothing that others need.

use super::client::{
    batch_of, create_topic, fetch_request, list_offset, produce_ok, produce_request, with,
};
use super::{data_dir, launch};
use highwater::client::{BrokerConnection, ConnectionOptions};
use highwater::runtime::native;
use std::time::Duration;

/// A day.
const LONG_MS: i32 = 86_400_000;

#[test]
fn given_clients_that_leave_during_long_polls_then_their_connections_end() {
    let dir = data_dir();
    let broker = launch(dir.path()).set("max.connections=3").start();
    let addr = broker.addr();
    with(addr, move |c| async move {
        create_topic(&c, "quiet", 3, &[]).await;
    });
    native::run(move |rt| async move {
        for round in 0..9 {
            // Refused while the ones before it are still counted as open.
            let mut tries = 0;
            let connection = loop {
                let options = ConnectionOptions::default();
                match BrokerConnection::connect(&rt, addr, options).await {
                    Ok(connection) => break connection,
                    Err(error) => assert!(tries < 300, "round {round}: {error}"),
                }
                tries += 1;
                rt.sleep(Duration::from_millis(100)).await;
            };
            let request = fetch_request("quiet", round % 3, 0, LONG_MS, 1 << 20);
            let _answer = connection.start_as(&request, 12).await.expect("it is sent");
            // Answered behind nothing: the fetch before it waits.
            rt.sleep(Duration::from_millis(100)).await;
        }
    })
    .expect("an executor can be started");
    broker.stop();
}

/// A later fetch of a connection must not take the memory that an earlier one needs.
#[test]
fn given_little_memory_when_fetches_are_pipelined_then_all_are_answered() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .shards(1)
        .set("request.memory.bytes=1048576")
        .start();
    let addr = broker.addr();
    with(addr, move |c| async move {
        create_topic(&c, "full", 1, &[]).await;
        create_topic(&c, "slow", 1, &[]).await;
        for _ in 0..20 {
            produce_ok(&c, "full", 0, batch_of(&"x".repeat(60_000))).await;
        }
    });
    native::run(move |rt| async move {
        let options = ConnectionOptions::default();
        let reader = BrokerConnection::connect(&rt, addr, options.clone()).await;
        let reader = reader.expect("a connection");
        let other = BrokerConnection::connect(&rt, addr, options).await;
        let other = other.expect("a connection");
        for round in 0..3 {
            let slow = fetch_request("slow", 0, round, LONG_MS, 8 << 20);
            let slow = reader.start_as(&slow, 12).await.expect("it is sent");
            let full = fetch_request("full", 0, 0, LONG_MS, 8 << 20);
            let full = reader.start_as(&full, 12).await.expect("it is sent");
            rt.sleep(Duration::from_millis(200)).await;
            produce_ok(&other, "slow", 0, batch_of("at last")).await;
            let slow = slow.await.expect("the first fetch is answered");
            let full = full.await.expect("the second fetch is answered");
            let bytes = |mut answer: highwater::protocol::messages::FetchResponse| {
                let partition = answer.responses.remove(0).partitions.remove(0);
                assert_eq!(partition.error_code, 0);
                partition.records.map_or(0, |r| r.to_bytes().len())
            };
            assert!(bytes(slow) > 0);
            assert!(bytes(full) > 900_000);
        }
    })
    .expect("an executor can be started");
    broker.stop();
}

/// Answered requests give their memory back, those with no answer as well.
#[test]
fn given_more_requests_than_memory_then_all_are_served() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .shards(2)
        .set("request.memory.bytes=2097152")
        .start();
    let end = with(broker.addr(), move |c| async move {
        create_topic(&c, "t", 2, &[]).await;
        let value = "x".repeat(50_000);
        for n in 0..200 {
            let acks = [-1, 1, 0][n % 3];
            let request = produce_request("t", n as i32 % 2, acks, batch_of(&value));
            if acks == 0 {
                c.send_only_as(&request, 12).await.expect("it is sent");
            } else {
                let wait = c.start_as(&request, 12).await.expect("it is sent");
                wait.await.expect("an answer");
            }
        }
        // acks=all waits for all before it to be durable.
        for partition in 0..2 {
            produce_ok(&c, "t", partition, batch_of("last")).await;
        }
        let first = list_offset(&c, "t", 0, -1).await.offset;
        first + list_offset(&c, "t", 1, -1).await.offset
    });
    assert_eq!(end, 202);
    broker.stop();
}
