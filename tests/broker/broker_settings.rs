//! Settings of the broker that are changed while it runs (KIP-226).

use super::client::{batch_of, create_topic, produce, with};
use super::raw::{answer, is_closed, request, send, PATIENCE};
use super::settings::*;
use super::{data_dir, launch};
use highwater::client::BrokerConnection;
use highwater::protocol::messages::*;
use std::net::TcpStream;

/// Changes settings of this broker (`1`) or of all (``).
async fn alter_broker(c: &BrokerConnection, name: &str, ops: &[Op<'_>]) -> (i16, String) {
    let resource = alteration(BROKER, name, ops);
    alter_all(c, vec![resource], false).await.remove(0)
}

/// A setting's value and where each comes from, the nearest first.
async fn shown(c: &BrokerConnection, kind: i8, name: &str, key: &str) -> Vec<(String, String, i8)> {
    let mut result = describe(c, kind, name, Some(&[key])).await;
    assert_eq!((result.error_code, result.configs.len()), (0, 1), "{key}");
    let one = result.configs.remove(0);
    let synonyms = one.synonyms.into_iter();
    let synonyms: Vec<_> = synonyms
        .map(|s| (s.name.to_string(), said(s.value), s.source))
        .collect();
    assert_eq!(said(one.value), synonyms[0].1);
    assert_eq!(one.config_source, synonyms[0].2);
    synonyms
}

fn synonym(name: &str, value: &str, source: i8) -> (String, String, i8) {
    (name.to_owned(), value.to_owned(), source)
}

/// Whether a record of 2000 bytes is taken, by each of the partitions.
async fn takes_large(c: &BrokerConnection, topic: &str) -> Vec<bool> {
    let mut taken = Vec::new();
    for partition in 0..3 {
        let large = batch_of(&"x".repeat(2_000));
        let answer = produce(c, topic, partition, -1, large).await;
        assert!([0, MESSAGE_TOO_LARGE].contains(&answer.error_code));
        taken.push(answer.error_code == 0);
    }
    taken
}

const LIMIT: &str = "message.max.bytes";
const ALL: [bool; 3] = [true; 3];
const NONE: [bool; 3] = [false; 3];

#[test]
fn given_a_changed_default_then_every_topic_without_its_own_follows_at_once_and_after_a_kill() {
    let dir = data_dir();
    let launch = launch(dir.path()).set("message.max.bytes=5000");
    let broker = launch.start();
    with(broker.addr(), |c| async move {
        create_topic(&c, "follows", 3, &[]).await;
        create_topic(&c, "own", 3, &[("max.message.bytes", "4000")]).await;
        assert_eq!(takes_large(&c, "follows").await, ALL);
        assert_eq!(
            alter_broker(&c, "", &[(LIMIT, SET, Some("1000"))]).await.0,
            0
        );
        // The answer comes after every shard has it in force.
        assert_eq!(takes_large(&c, "follows").await, NONE);
        assert_eq!(takes_large(&c, "own").await, ALL);
        create_topic(&c, "new", 3, &[]).await;
        assert_eq!(takes_large(&c, "new").await, NONE);
        assert_eq!(
            alter_broker(&c, "1", &[(LIMIT, SET, Some("3000"))]).await.0,
            0
        );
        assert_eq!(takes_large(&c, "follows").await, ALL);
        let layers = vec![
            synonym(LIMIT, "3000", 2),
            synonym(LIMIT, "1000", 3),
            synonym(LIMIT, "5000", 4),
            synonym(LIMIT, "1048588", 5),
        ];
        assert_eq!(shown(&c, BROKER, "1", LIMIT).await, layers);
        assert_eq!(shown(&c, TOPIC, "new", "max.message.bytes").await, layers);
        let common = vec![synonym(LIMIT, "1000", 3)];
        assert_eq!(shown(&c, BROKER, "", LIMIT).await, common);
        assert_eq!(describe(&c, BROKER, "", None).await.configs.len(), 1);
    });
    broker.kill();
    let broker = launch.start();
    with(broker.addr(), |c| async move {
        assert_eq!(takes_large(&c, "follows").await, ALL);
        assert_eq!(shown(&c, BROKER, "1", LIMIT).await.len(), 4);
        assert_eq!(alter_broker(&c, "1", &[(LIMIT, DELETE, None)]).await.0, 0);
        assert_eq!(takes_large(&c, "follows").await, NONE);
    });
    // A snapshot of the image has it too.
    broker.stop();
    let broker = launch.start();
    with(broker.addr(), |c| async move {
        assert_eq!(takes_large(&c, "follows").await, NONE);
        assert_eq!(replace(&c, BROKER, "", &[], false).await.0, 0);
        assert_eq!(takes_large(&c, "follows").await, ALL);
        assert_eq!(describe(&c, BROKER, "", None).await.configs.len(), 0);
        assert_eq!(shown(&c, BROKER, "1", LIMIT).await.len(), 2);
    });
    broker.stop();
}

#[test]
fn given_bad_changes_then_each_has_its_code_and_nothing_changes() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        let set = |name, value| vec![(name, SET, Some(value))];
        let cases: [(&str, Vec<Op<'_>>, i16, &str); 16] = [
            (
                "1",
                set("node.id", "5"),
                INVALID_REQUEST,
                "Cannot update these configs dynamically: [node.id]",
            ),
            (
                "",
                set("log.retention.hours", "5"),
                INVALID_REQUEST,
                "Cannot update",
            ),
            (
                "1",
                set("num.io.threads", "5"),
                INVALID_REQUEST,
                "Cannot update",
            ),
            (
                "1",
                set("foo.bar", "5"),
                INVALID_CONFIG,
                "no setting 'foo.bar'",
            ),
            (
                "1",
                set("log.retention.mss", "5"),
                INVALID_CONFIG,
                "did you mean 'log.retention.ms'",
            ),
            (
                "1",
                set("log.retention.ms", "abc"),
                INVALID_REQUEST,
                "whole number",
            ),
            (
                "1",
                set("log.retention.ms", "0"),
                INVALID_REQUEST,
                "at least 1",
            ),
            (
                "1",
                set("log.cleaner.min.compaction.lag.ms", "soon"),
                INVALID_REQUEST,
                "whole number",
            ),
            (
                "1",
                set("max.connections.per.ip", "0"),
                INVALID_REQUEST,
                "who may connect",
            ),
            ("1", vec![(LIMIT, SET, None)], INVALID_REQUEST, "Null value"),
            (
                "1",
                vec![(LIMIT, DELETE, None), (LIMIT, SET, Some("100"))],
                INVALID_REQUEST,
                "duplicate",
            ),
            (
                "1",
                vec![(LIMIT, APPEND, Some("5"))],
                INVALID_CONFIG,
                "not LIST",
            ),
            (
                "1",
                vec![(LIMIT, 9, Some("5"))],
                INVALID_REQUEST,
                "Unknown config operation",
            ),
            (
                "2",
                set(LIMIT, "100"),
                INVALID_REQUEST,
                "Unexpected broker id, expected 1, but received 2",
            ),
            (
                "one",
                set(LIMIT, "100"),
                INVALID_REQUEST,
                "must be an integer",
            ),
            (
                "1",
                vec![(LIMIT, SET, Some("100")), ("foo", SET, Some("1"))],
                INVALID_CONFIG,
                "foo",
            ),
        ];
        for (name, ops, code, says) in &cases {
            let (found, message) = alter_broker(&c, name, ops).await;
            assert_eq!(found, *code, "{name} {ops:?}: {message}");
            assert!(message.contains(says), "{ops:?}: {message}");
        }
        let twice = vec![alteration(BROKER, "1", &set(LIMIT, "100")); 2];
        for (code, message) in alter_all(&c, twice, false).await {
            assert_eq!(code, INVALID_REQUEST, "{message}");
        }
        let checked = vec![alteration(BROKER, "", &set(LIMIT, "100"))];
        assert_eq!(alter_all(&c, checked, true).await[0].0, 0);
        assert_eq!(
            replace(&c, BROKER, "1", &[(LIMIT, Some("100"))], true)
                .await
                .0,
            0
        );
        assert_eq!(describe(&c, BROKER, "", None).await.configs, []);
        assert_eq!(
            shown(&c, BROKER, "1", LIMIT).await,
            [synonym(LIMIT, "1048588", 5)]
        );
        // As Kafka's tool does after a reassignment: away with what is not there.
        let gone = [
            ("leader.replication.throttled.rate", DELETE, None),
            ("foo", DELETE, None),
        ];
        assert_eq!(alter_broker(&c, "1", &gone).await.0, 0);
    });
    broker.stop();
}

#[test]
fn given_a_list_then_entries_come_and_go() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        create_topic(&c, "t", 1, &[]).await;
        let policy = "log.cleanup.policy";
        let ops = [(policy, SUBTRACT, Some("delete"))];
        assert_eq!(alter_broker(&c, "", &ops).await.0, 0);
        assert_eq!(value_of(&c, "t", "cleanup.policy").await, "");
        // A topic's list begins with what it inherits now.
        let own = alteration(TOPIC, "t", &[("cleanup.policy", APPEND, Some("delete"))]);
        assert_eq!(alter_all(&c, vec![own], false).await[0].0, 0);
        assert_eq!(value_of(&c, "t", "cleanup.policy").await, "delete");
        let ops = [(policy, APPEND, Some("delete"))];
        assert_eq!(alter_broker(&c, "1", &ops).await.0, 0);
        assert_eq!(
            shown(&c, BROKER, "1", policy).await[0],
            synonym(policy, "delete", 2)
        );
    });
    broker.stop();
}

#[test]
fn given_another_limit_of_connections_then_the_next_ones_are_held_to_it() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    let addr = broker.addr();
    let is_served = move || {
        let mut socket = TcpStream::connect(addr).expect("it listens");
        let set = socket.set_read_timeout(Some(PATIENCE));
        set.expect("a timeout can be set");
        let asked = request(7, 0, &ApiVersionsRequest::default());
        let served = send(&mut socket, &asked) && answer(&mut socket).is_some();
        (served, socket)
    };
    with(addr, move |c| async move {
        let (served, kept) = is_served();
        assert!(served);
        let limit = |max| [("max.connections", SET, Some(max))];
        assert_eq!(alter_broker(&c, "", &limit("2")).await.0, 0);
        let (served, mut refused) = is_served();
        assert!(!served && is_closed(&mut refused));
        let ops = [(
            "max.connections.per.ip.overrides",
            SET,
            Some("127.0.0.1:50"),
        )];
        assert_eq!(alter_broker(&c, "1", &ops).await.0, 0);
        let ops = [
            ("max.connections.per.ip", SET, Some("0")),
            ("max.connections", SET, Some("9")),
        ];
        assert_eq!(alter_broker(&c, "1", &ops).await.0, 0);
        let (served, also) = is_served();
        assert!(served, "a limit of its own");
        drop((kept, also));
        // Those who are connected stay so.
        assert_eq!(
            describe(&c, BROKER, "1", Some(&["max.connections"]))
                .await
                .error_code,
            0
        );
    });
    broker.stop();
}

#[test]
fn given_a_file_under_which_a_change_does_not_hold_any_more_then_the_other_changes_do() {
    let dir = data_dir();
    let listed = launch(dir.path()).set("max.connections.per.ip.overrides=127.0.0.1:50");
    let limit = "max.connections.per.ip";
    let broker = listed.start();
    with(broker.addr(), move |c| async move {
        let ops = [
            (limit, SET, Some("0")),
            ("flush.on.ack", SET, Some("none")),
            (LIMIT, SET, Some("1000")),
        ];
        assert_eq!(alter_broker(&c, "1", &ops).await, (0, String::new()));
        create_topic(&c, "t", 3, &[]).await;
    });
    broker.stop();
    // Without the list nobody could connect.
    let broker = launch(dir.path()).start();
    let said = broker.said();
    assert!(said.contains("max.connections.per.ip=0"), "{said}");
    with(broker.addr(), move |c| async move {
        assert_eq!(takes_large(&c, "t").await, NONE);
        let in_force = shown(&c, BROKER, "1", limit).await;
        assert_eq!(in_force, [synonym(limit, "2147483647", 5)]);
        // It is named until it is put right.
        let (code, message) = alter_broker(&c, "1", &[(LIMIT, DELETE, None)]).await;
        assert_eq!(code, INVALID_REQUEST);
        assert!(message.contains("who may connect"), "{message}");
        let both = [(LIMIT, DELETE, None), (limit, DELETE, None)];
        assert_eq!(alter_broker(&c, "1", &both).await.0, 0);
        assert_eq!(takes_large(&c, "t").await, ALL);
    });
    broker.stop();
}
