//! NATS and Redis themselves, with their drivers, and librdkafka with Highwater: `eval "$(scripts/peers)"`, and
//! HIGHWATER_BIN=<path of highwater>, then `cargo test -p perf peers -- --ignored --nocapture`.

use super::fake::beside_the_tests;
use super::{parse, Options, Protocol, Share, Target};
use crate::driver::{for_job, Job};
use crate::measure::Measured;
use crate::stop::Stop;
use crate::workload::{self, Case, DriverName};

fn case(text: &str) -> Case {
    let text = format!("name = \"t\"\ntitle = \"t\"\n[case]\n{text}");
    workload::parse(&text, "test", false)
        .unwrap()
        .cases
        .remove(0)
}

fn share() -> (tempfile::TempDir, Share) {
    let dir = tempfile::tempdir_in(beside_the_tests()).unwrap();
    let share = Share {
        dir: dir.path().to_owned(),
        cpus: vec![0],
        memory: 0,
    };
    (dir, share)
}

fn run(target: &dyn Target, case: &Case, topic: &str, name: DriverName) -> Measured {
    let endpoint = target.endpoint().unwrap();
    let load = &case.loads[0];
    let job = Job {
        endpoint: &endpoint,
        case,
        load,
        rate: load.rate,
        topics: &[topic.to_owned()],
        timing: &case.timing,
        cpus: &[1],
        stop: &Stop::default(),
        on_measure: &|_| {},
    };
    let driver = for_job(endpoint.protocol, name).unwrap();
    driver.run(&job).unwrap()
}

/// The life of a peer: records in both modes, consumers, a clean restart, a kill, and what is left.
fn lives(name: &str, protocol: Protocol) {
    let (_dir, share) = share();
    let mut target = parse(name, &Options::default()).unwrap();
    target.check().unwrap();
    println!("{}", target.describe());
    println!("started in {:?}", target.start(&share).unwrap());
    assert_eq!(target.endpoint().unwrap().protocol, protocol);
    const TIMING: &str = "timing = { warmup_s = 0.5, measure_s = 3.0 }";
    for (what, text) in [
        ("200 connections, flush", "producers = { count = 200 }"),
        ("one at a time, flush", ""),
        (
            "200 connections, no flush",
            "producers = { count = 200 }\ntopic = { flush = false }",
        ),
        (
            "2000/s to 10 sets of 2, no flush",
            "producers = { count = 4 }\ntopic = { flush = false, partitions = 3 }\nconsumers = { sets = 10, per_set = 2 }
             loads = [{ name = \"l\", rate = 2000.0 }]",
        ),
    ] {
        let case = case(&format!("{text}\n{TIMING}"));
        assert_eq!(target.lacks(&case), None);
        target.create_topic("t.1", &case.topic).unwrap();
        let measured = run(&*target, &case, "t.1", DriverName::Native);
        print(what, &measured);
        assert!(measured.produced.records > 0);
        let samples = measured.acknowledged.samples();
        let sets = u64::from(case.consumers.sets);
        // All, where the machine is not too busy.
        let delivered = measured.delivered.samples();
        assert!(delivered <= samples * sets, "{what}");
        assert!(sets == 0 || delivered > 0, "{what}");
        target.delete_topic("t.1").unwrap();
    }
    // What was acknowledged is there after a stop and after a kill.
    let case = case("consumers = { sets = 1 }\ntiming = { warmup_s = 0.1, measure_s = 0.3 }");
    target.create_topic("kept", &case.topic).unwrap();
    let before = run(&*target, &case, "kept", DriverName::Native);
    assert!(before.delivered.samples() > 0);
    println!("stopped in {:?}", target.stop().unwrap());
    println!("started in {:?}", target.start(&share).unwrap());
    run(&*target, &case, "kept", DriverName::Native);
    target.kill().unwrap();
    println!("started in {:?}", target.start(&share).unwrap());
    run(&*target, &case, "kept", DriverName::Native);
    target.delete_topic("kept").unwrap();
    assert!(target.delete_topic("kept").is_err());
    let pid = target.pid().unwrap();
    drop(target);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!(std::fs::read_dir(&share.dir).unwrap().count(), 0);
}

fn print(what: &str, measured: &Measured) {
    let us = |percentile| measured.acknowledged.percentile_us(percentile);
    println!(
        "{what}: {:.0} records/s, p50 {:?} us, p99 {:?} us, delivered p50 {:?} us, late p99 {:?} us, busy {:.2?}, unacknowledged {}",
        measured.produced.records_per_second(),
        us(50.0),
        us(99.0),
        measured.delivered.percentile_us(50.0),
        measured.schedule_delay.percentile_us(99.0),
        measured.client_busy,
        measured.unacknowledged,
    );
}

#[test]
#[ignore = "needs nats-server: scripts/peers"]
fn nats_lives() {
    lives("nats", Protocol::Nats);
}

#[test]
#[ignore = "needs redis-server: scripts/peers"]
fn redis_lives() {
    lives("redis", Protocol::Redis);
}

#[test]
#[ignore = "needs a broker: HIGHWATER_BIN"]
fn librdkafka_measures_a_broker() {
    let (_dir, share) = share();
    let binary = std::env::var("HIGHWATER_BIN").expect("HIGHWATER_BIN is set");
    let mut target = parse(&format!("hw=highwater:{binary}"), &Options::default()).unwrap();
    target.start(&share).unwrap();
    const TIMING: &str = "timing = { warmup_s = 0.5, measure_s = 3.0 }";
    for (what, text) in [
        ("one at a time, flush", ""),
        ("50 connections, flush", "producers = { count = 50 }"),
        (
            "16 KiB batches, 5 in flight, flush",
            "producers = { batch_bytes = 16384, in_flight = 5 }",
        ),
        (
            "1 MB batches, 5 in flight, no flush, 1 consumer",
            "producers = { batch_bytes = 1024000, in_flight = 5 }\ntopic = { flush = false }\nconsumers = { sets = 1 }",
        ),
        (
            "5000/s in 2 partitions to 2 sets of 2, keys, no flush",
            "producers = { count = 2, batch_bytes = 16384, in_flight = 5 }\ntopic = { flush = false, partitions = 2 }
             records = { keys = \"uniform\", codec = \"lz4\" }\nconsumers = { sets = 2, per_set = 2 }
             loads = [{ name = \"l\", rate = 5000.0 }]",
        ),
        (
            "a backlog of 1 s at 5000/s, drained while 5000/s go on",
            "producers = { batch_bytes = 16384, in_flight = 5 }\nconsumers = { sets = 1 }
             loads = [{ name = \"l\", rate = 5000.0, drain = { backlog_s = 1.0 } }]",
        ),
    ] {
        let case = case(&format!("{text}\n{TIMING}"));
        target.create_topic("t", &case.topic).unwrap();
        let measured = run(&*target, &case, "t", DriverName::Librdkafka);
        print(what, &measured);
        println!(
            "    {:.1} MB/s, {} requests, drained after {:?} s",
            measured.produced.mb_per_second(),
            measured.produced.requests,
            measured.drained_after_s
        );
        assert!(measured.produced.records > 0 && measured.produced.requests > 0);
        assert_eq!(measured.delivered.is_empty(), !case.has_consumers(), "{what}");
        target.delete_topic("t").unwrap();
    }
}
