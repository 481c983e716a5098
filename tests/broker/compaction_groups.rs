//! `__consumer_offsets` is compacted, and no commit is lost by it.

use super::broker::Broker;
use super::client::{create_topic, text};
use super::data_dir;
use super::group_client::{commit_ok, committed, connect, ok, run};
use super::keyed::{diligent, verify, wait_for_bytes};
use super::open_metrics::Scrape;
use highwater::protocol::messages::*;

/// One record for each key, and an active segment.
const SMALL: f64 = 24_000.0;
const OFFSETS: &str = "__consumer_offsets";
const GROUPS: i64 = 20;
/// Commits of each group.
const ROUNDS: i64 = 60;

fn group(n: i64) -> String {
    format!("group-{n}")
}

/// The last commit of every group is there, and of the deleted one nothing.
fn check(broker: &Broker, last: i64) {
    let addr = broker.addr();
    run(move |rt| async move {
        let c = connect(&rt, addr).await;
        for n in 0..GROUPS {
            let place = |partition, offset| ("t".to_owned(), partition, offset);
            let expected = vec![place(0, last), place(1, n)];
            assert_eq!(committed(&c, &group(n)).await, expected, "{}", group(n));
        }
        assert_eq!(committed(&c, "deleted").await, vec![]);
    });
}

fn commit(broker: &Broker, rounds: std::ops::Range<i64>) {
    let addr = broker.addr();
    run(move |rt| async move {
        let c = connect(&rt, addr).await;
        for round in rounds {
            for n in 0..GROUPS {
                commit_ok(&c, &group(n), "t", &[(0, round)]).await;
            }
        }
    });
}

#[test]
fn given_many_commits_then_their_log_shrinks_and_groups_load_what_was_committed_last() {
    let dir = data_dir();
    let launch = diligent(dir.path())
        .set("offsets.topic.num.partitions=1")
        .set("offsets.topic.segment.bytes=16384")
        .set("log.cleaner.min.cleanable.ratio=0.01")
        .set("log.segment.delete.delay.ms=0");
    let broker = launch.start();
    let addr = broker.addr();
    run(move |rt| async move {
        let c = connect(&rt, addr).await;
        create_topic(&c, "t", 2, &[]).await;
        commit_ok(&c, "deleted", "t", &[(0, 5), (1, 6)]).await;
        let request = DeleteGroupsRequest {
            groups_names: vec![text("deleted")],
        };
        let answer = c.call(&request).await.expect("an answer");
        assert_eq!(ok(answer.results[0].error_code), Ok(()));
        // These are committed once, and never again.
        for n in 0..GROUPS {
            commit_ok(&c, &group(n), "t", &[(1, n)]).await;
        }
    });
    commit(&broker, 0..ROUNDS);
    let scrape = wait_for_bytes(&broker, OFFSETS, SMALL);
    let of_offsets = |scrape: &Scrape, name: &str| scrape.one(name, &[("topic", OFFSETS)]);
    let produced = of_offsets(&scrape, "highwater_topic_produced_bytes_total");
    let kept = of_offsets(&scrape, "highwater_topic_log_bytes");
    assert!(produced > 8.0 * 16_384.0, "{produced}");
    assert!(kept < produced / 2.0, "{kept} of {produced}");
    check(&broker, ROUNDS - 1);
    broker.stop();

    let broker = launch.start();
    check(&broker, ROUNDS - 1);
    commit(&broker, ROUNDS..2 * ROUNDS);
    wait_for_bytes(&broker, OFFSETS, SMALL);
    broker.kill();
    let broker = launch.start();
    check(&broker, 2 * ROUNDS - 1);
    broker.stop();
    verify(dir.path());
}
