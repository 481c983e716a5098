//! The page of metrics: what it says is what happened.

use super::broker::Broker;
use super::client::{
    batch_of, create_topic, delete_topic, fetch, fetch_all, produce, produce_ok, with,
};
use super::group_client::commit_ok;
use super::open_metrics::{ask, Scrape, PATIENCE};
use super::{data_dir, launch};
use bytes::Bytes;
use highwater::observe::{Kind, CATALOG};
use highwater::protocol::batch::BatchBuilder;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Instant;

/// A group's name, as any client may choose it.
const ODD: &str = "a\"} 1\n# EOF\n\\";
const PRODUCED: &str = "highwater_produced_records_total";

/// A batch of `records` records.
fn batch(records: usize) -> Bytes {
    let mut batch = BatchBuilder::new();
    for record in 0..records {
        batch.push(1_700_000_000_000, None, Some(record.to_string().as_bytes()));
    }
    batch.build()
}

fn create(broker: &Broker, topics: &'static [(&'static str, i32)]) {
    with(broker.addr(), move |connection| async move {
        for (topic, partitions) in topics {
            let created = create_topic(&connection, topic, *partitions, &[]).await;
            assert_eq!(created.error_code, 0);
        }
    });
}

/// A request is counted as answered a moment after its answer was sent.
fn settled(broker: &Broker) -> Scrape {
    let begun = Instant::now();
    loop {
        let scrape = Scrape::of(broker);
        if scrape.one("highwater_requests_in_progress", &[]) == 0.0 {
            return scrape;
        }
        assert!(begun.elapsed() < PATIENCE, "requests stay in progress");
    }
}

#[test]
fn given_a_known_load_then_the_figures_add_up() {
    let dir = data_dir();
    let broker = launch(dir.path()).with_admin().start();
    create(&broker, &[("a", 4), ("b", 1)]);
    let bytes: usize = with(broker.addr(), |connection| async move {
        let mut bytes = 0;
        for round in 0..5 {
            for partition in 0..4 {
                let batch = batch(10 + round);
                bytes += batch.len();
                produce_ok(&connection, "a", partition, batch).await;
            }
        }
        let last = batch(3);
        bytes += last.len();
        produce_ok(&connection, "b", 0, last).await;
        // Refused: the CRC is wrong; there is no such partition.
        let mut damaged = batch(1).to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        let refused = produce(&connection, "b", 0, -1, damaged.into()).await;
        assert_ne!(refused.error_code, 0);
        let absent = produce(&connection, "b", 7, -1, batch(1)).await;
        assert_ne!(absent.error_code, 0);
        assert_eq!(fetch_all(&connection, "a", 2, 0).await.len(), 60);
        let beyond = fetch(&connection, "a", 2, 1_000, 0, 1 << 20).await;
        assert_ne!(beyond.error_code, 0);
        // A long poll that ends by its time.
        fetch(&connection, "b", 0, 3, 50, 1 << 20).await;
        bytes
    });
    let scrape = settled(&broker);
    // 5 rounds of 4 batches of 10 to 14 records, and one of 3.
    let records = 4 * (10 + 11 + 12 + 13 + 14) + 3;
    assert_eq!(scrape.one(PRODUCED, &[]), f64::from(records));
    assert_eq!(scrape.one("highwater_produced_batches_total", &[]), 21.0);
    assert_eq!(
        scrape.one("highwater_produced_bytes_total", &[]),
        bytes as f64
    );
    assert_eq!(scrape.one("highwater_produce_errors_total", &[]), 1.0);
    let by_topic = |name, topic| scrape.one(name, &[("topic", topic)]);
    let (produced, fetched) = (
        "highwater_topic_produced_records_total",
        "highwater_topic_fetched_records_total",
    );
    assert_eq!(by_topic(produced, "a"), 240.0);
    assert_eq!(by_topic(produced, "b"), 3.0);
    assert_eq!(by_topic("highwater_topic_produce_errors_total", "b"), 1.0);
    assert_eq!(by_topic("highwater_topic_produce_errors_total", "a"), 0.0);
    assert_eq!(by_topic(fetched, "a"), 60.0);
    assert_eq!(by_topic("highwater_topic_fetch_errors_total", "a"), 1.0);
    let sum = |name| scrape.sum(name, &[]);
    assert_eq!(sum("highwater_topic_produced_bytes_total"), bytes as f64);
    assert_eq!(
        sum("highwater_topic_fetched_bytes_total"),
        sum("highwater_fetched_bytes_total")
    );
    let of = |partition| [("topic", "a"), ("partition", partition)];
    for partition in ["0", "1", "2", "3"] {
        for name in ["high_watermark", "log_end_offset"] {
            let name = format!("highwater_partition_{name}");
            assert_eq!(scrape.one(&name, &of(partition)), 60.0);
        }
    }
    assert_eq!(
        sum("highwater_partition_log_bytes"),
        sum("highwater_topic_log_bytes")
    );
    assert_eq!(sum("highwater_topic_log_bytes"), bytes as f64);
    let online = [("state", "online")];
    assert_eq!(scrape.one("highwater_partitions", &online), 5.0);
    assert_eq!(sum("highwater_shard_partitions"), 5.0);

    let api = [("api", "Produce")];
    assert_eq!(scrape.one("highwater_requests_total", &api), 23.0);
    let duration = "highwater_request_duration_seconds_count";
    assert_eq!(scrape.one(duration, &api), 23.0);
    assert_eq!(
        scrape.one(duration, &[("api", "Fetch")]),
        scrape.one("highwater_requests_total", &[("api", "Fetch")])
    );
    let stage = |stage| {
        let name = "highwater_produce_stage_duration_seconds_count";
        scrape.one(name, &[("stage", stage)])
    };
    assert_eq!(stage("queue"), 21.0);
    assert_eq!(stage("reply"), 23.0);
    assert_eq!(stage("write"), sum("highwater_log_writes_total"));
    assert!(stage("flush") >= 1.0 && stage("write") >= 5.0);
    // Of 5 partitions on 3 shards some are not the connection's.
    assert!(stage("mesh") >= 1.0 && stage("mesh") < 22.0);
    assert_eq!(sum("highwater_fetch_wait_seconds_count"), 1.0);
    assert!(sum("highwater_fetch_wait_seconds_sum") >= 0.04);
    assert!(sum("process_resident_memory_bytes") > 1e6);
    assert_eq!(sum("highwater_ready"), 1.0);
    broker.stop();
}

/// What the documentation says is what is shown, and the dashboard asks for nothing else.
#[test]
fn the_catalogue_the_page_and_the_dashboard_agree() {
    let dir = data_dir();
    let broker = launch(dir.path()).with_admin().start();
    create(&broker, &[("a", 1)]);
    with(broker.addr(), |connection| async move {
        produce_ok(&connection, "a", 0, batch_of("x")).await;
        fetch(&connection, "a", 0, 0, 0, 1 << 20).await;
    });
    let scrape = Scrape::of(&broker);
    assert_eq!(scrape.families.len(), CATALOG.len());
    for family in CATALOG {
        let (kind, help) = &scrape.families[&family.name()];
        let expected = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        };
        assert_eq!((kind.as_str(), help.as_str()), (expected, family.help));
        for sample in scrape.find(&family.sample(), &[]) {
            let labels: BTreeSet<&str> = sample.labels.keys().map(String::as_str).collect();
            let mut known: BTreeSet<&str> = family.labels.iter().copied().collect();
            known.extend((family.kind == Kind::Histogram).then_some("le"));
            assert_eq!(labels, known, "{}", sample.name);
        }
    }
    let mut names: BTreeSet<String> = CATALOG.iter().map(|family| family.sample()).collect();
    let histograms = CATALOG.iter().filter(|f| f.kind == Kind::Histogram);
    names.extend(histograms.flat_map(|f| [f.name() + "_sum", f.name() + "_count"]));
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/scripts/grafana/highwater.json"
    );
    let dashboard = std::fs::read_to_string(file).expect("the dashboard is there");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("it is JSON");
    let mut asked = BTreeSet::new();
    queries(&dashboard, &mut asked);
    let unknown: Vec<&String> = asked.difference(&names).collect();
    assert!(unknown.is_empty(), "the dashboard asks for {unknown:?}");
    assert!(asked.len() > 20, "the dashboard's queries were found");
    broker.stop();
}

/// The names of metrics in all queries below `value`.
fn queries(value: &serde_json::Value, names: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                let is_query = ["expr", "query", "definition"].contains(&key.as_str());
                if let (true, Some(text)) = (is_query, value.as_str()) {
                    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    let metrics = words.filter(|word| {
                        word.starts_with("highwater_") || word.starts_with("process_")
                    });
                    names.extend(metrics.map(str::to_owned));
                }
                queries(value, names);
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|v| queries(v, names)),
        _ => {}
    }
}

#[test]
fn given_more_topics_and_partitions_than_the_caps_then_the_rest_is_summed_and_counted() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .with_admin()
        .set("metrics.topics.max=2")
        .set("metrics.partitions.max=3")
        .start();
    create(&broker, &[("b", 2), ("c", 2), ("d", 2)]);
    let one = |broker: &Broker| {
        with(broker.addr(), |connection| async move {
            for topic in ["b", "c", "d"] {
                produce_ok(&connection, topic, 1, batch(10)).await;
            }
        });
    };
    one(&broker);
    let name = "highwater_topic_produced_records_total";
    let first = Scrape::of(&broker);
    // One that comes later and stands before them by name changes nothing for those that are shown.
    create(&broker, &[("a", 1)]);
    one(&broker);
    let second = Scrape::of(&broker);
    for (scrape, records, topics, partitions) in
        [(&first, 10.0, 1.0, 3.0), (&second, 20.0, 2.0, 4.0)]
    {
        for topic in ["b", "c", "(other)"] {
            assert_eq!(scrape.one(name, &[("topic", topic)]), records, "{topic}");
        }
        assert_eq!(scrape.find(name, &[]).count(), 3);
        assert_eq!(scrape.sum(name, &[]), scrape.one(PRODUCED, &[]));
        let left_out = |kind| scrape.one("highwater_metrics_left_out", &[("kind", kind)]);
        assert_eq!(left_out("topics"), topics);
        assert_eq!(left_out("partitions"), partitions);
        assert_eq!(scrape.find("highwater_partition_segments", &[]).count(), 3);
    }
    broker.stop();
}

#[test]
fn given_many_scrapes_at_once_under_load_then_each_is_whole_and_counters_only_rise() {
    let dir = data_dir();
    let broker = launch(dir.path()).with_admin().start();
    create(&broker, &[("busy", 6)]);
    let (addr, admin) = (broker.addr(), broker.admin());
    let stop = Arc::new(AtomicBool::new(false));
    let producer = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            with(addr, move |connection| async move {
                let mut records = 0;
                while !stop.load(Ordering::Relaxed) {
                    for partition in 0..6 {
                        produce_ok(&connection, "busy", partition, batch(7)).await;
                        records += 7;
                    }
                }
                records
            })
        })
    };
    let scrapers: Vec<_> = (0..16)
        .map(|_| {
            std::thread::spawn(move || {
                let mut last = 0.0;
                for _ in 0..4 {
                    let answer = ask(admin, "GET", "/metrics");
                    assert_eq!(answer.status, 200, "{}", answer.body);
                    let now = Scrape::parse(&answer.body).one(PRODUCED, &[]);
                    assert!(now >= last, "{now} after {last}");
                    last = now;
                }
            })
        })
        .collect();
    for scraper in scrapers {
        scraper.join().expect("every scrape is whole");
    }
    stop.store(true, Ordering::Relaxed);
    let records: i32 = producer.join().expect("the load ran to its end");
    assert!(records > 0);
    let scrape = Scrape::of(&broker);
    assert_eq!(scrape.one(PRODUCED, &[]), f64::from(records));
    broker.stop();
}

/// The reader takes no row twice.
#[test]
fn given_a_topic_that_comes_and_goes_while_scraped_then_its_rows_are_those_of_one() {
    let dir = data_dir();
    let broker = launch(dir.path()).with_admin().start();
    let addr = broker.addr();
    let changes = std::thread::spawn(move || {
        with(addr, move |connection| async move {
            for _ in 0..40 {
                let created = create_topic(&connection, "t", 6, &[]).await;
                assert_eq!(created.error_code, 0);
                for partition in 0..6 {
                    produce_ok(&connection, "t", partition, batch(10)).await;
                }
                delete_topic(&connection, "t").await;
            }
        });
    });
    let mut most: f64 = 0.0;
    while !changes.is_finished() {
        let scrape = Scrape::of(&broker);
        let name = "highwater_topic_produced_records_total";
        most = most.max(scrape.sum(name, &[("topic", "t")]));
    }
    assert!(most > 0.0 && most <= 60.0, "{most}");
    changes.join().expect("each change is made");
    broker.stop();
}

#[test]
fn given_groups_that_committed_then_their_lag_is_what_they_have_yet_to_read() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .with_admin()
        .set("metrics.group.offsets.max=4")
        .start();
    create(&broker, &[("t", 2)]);
    with(broker.addr(), |connection| async move {
        for partition in 0..2 {
            produce_ok(&connection, "t", partition, batch(10)).await;
        }
        commit_ok(&connection, "g1", "t", &[(0, 4), (1, 10)]).await;
        commit_ok(&connection, "g2", "t", &[(0, 0)]).await;
        commit_ok(&connection, "g3", "t", &[(0, 1)]).await;
        // A name that would break the page if it stood there as it is; it is the first.
        commit_ok(&connection, ODD, "t", &[(0, 3)]).await;
    });
    let scrape = Scrape::of(&broker);
    let lag = |group, partition| {
        let labels = [("group", group), ("topic", "t"), ("partition", partition)];
        scrape.one("highwater_group_lag_records", &labels)
    };
    assert_eq!(
        [ODD, "g1", "g2"].map(|group| lag(group, "0")),
        [7.0, 6.0, 10.0]
    );
    assert_eq!(lag("g1", "1"), 0.0);
    assert_eq!(scrape.find("highwater_group_lag_records", &[]).count(), 4);
    assert_eq!(scrape.sum("highwater_group_committed_offset", &[]), 17.0);
    let left_out = [("kind", "group_offsets")];
    assert_eq!(scrape.one("highwater_metrics_left_out", &left_out), 1.0);
    assert_eq!(scrape.one("highwater_groups", &[("state", "Empty")]), 4.0);
    broker.stop();
}
