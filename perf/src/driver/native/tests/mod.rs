//! The driver against a broker that misbehaves.

mod broker;

use super::*;
use crate::driver::Edge;
use crate::target::Protocol;
use crate::workload::{Case, CodecName, Drain, Keys as KeyPlan, LoadPoint, Timing};
use broker::{Broker, Reply};
use std::sync::Mutex;

/// A case of one load with records of 100 bytes, one producer and one partition, to be changed.
fn case(load: &str) -> Case {
    let text = format!(
        "name = \"test\"\ntitle = \"t\"\n[case]\nrecords = {{ bytes = 100 }}\nloads = [{{ name = \"l\", {load} }}]"
    );
    crate::workload::parse(&text, "test", false)
        .unwrap()
        .cases
        .remove(0)
}

fn timing(warmup_s: f64, measure_s: f64) -> Timing {
    Timing {
        warmup_s,
        measure_s,
        ..Default::default()
    }
}

fn endpoint(broker: &Broker) -> Endpoint {
    Endpoint {
        protocol: Protocol::Kafka,
        addr: broker.addr,
    }
}

fn run_with(native: &Native, broker: &Broker, case: &Case, cpus: &[usize]) -> Result<Measured> {
    let load: &LoadPoint = &case.loads[0];
    let topics: Vec<String> = (0..case.topic.topics).map(|n| format!("t{n}")).collect();
    let edges = Mutex::new(Vec::new());
    let measured = native.run(&Job {
        endpoint: &endpoint(broker),
        case,
        load,
        rate: load.rate,
        topics: &topics,
        timing: &case.timing,
        cpus,
        stop: &Stop::default(),
        on_measure: &|edge| edges.lock().unwrap().push(edge),
    });
    if measured.is_ok() {
        assert_eq!(*edges.lock().unwrap(), [Edge::Start, Edge::End]);
    }
    measured
}

fn run(broker: &Broker, case: &Case) -> Result<Measured> {
    run_with(&Native::default(), broker, case, &[])
}

fn failure(measured: Result<Measured>) -> String {
    format!("{:#}", measured.expect_err("the measurement fails"))
}

#[test]
fn a_stall_is_seen_by_all_records_that_were_due_in_it() {
    const STALL: Duration = Duration::from_millis(200);
    let broker = Broker::start(1, |number| match number {
        100 => Reply::After(STALL),
        _ => Reply::Good,
    });
    let mut case = case("rate = 1000");
    case.timing = timing(0.0, 0.6);
    let measured = run(&broker, &case).unwrap();
    // A client that waits before it sends the next one would have one slow sample of at most 600. Here the records that
    // were due within the first 150 ms of the stall waited for at least 50 ms.
    assert!(broker.requests() >= 600);
    assert_eq!(measured.acknowledged.samples(), 600);
    assert_eq!(measured.schedule_delay.samples(), 600);
    let slow_us = 50_000.0;
    assert!(measured.acknowledged.percentile_us(76.0).unwrap() >= slow_us);
    assert!(measured.schedule_delay.percentile_us(76.0).unwrap() >= slow_us);
    assert!(measured.acknowledged.max_us().unwrap() >= STALL.as_micros() as f64);
    assert_eq!(measured.unacknowledged, 0);
}

#[test]
fn what_is_not_acknowledged_after_the_grace_is_counted() {
    let broker = Broker::start(1, |number| match number {
        0..50 => Reply::Good,
        _ => Reply::Never,
    });
    let mut case = case("rate = 1000");
    case.timing = timing(0.0, 0.3);
    let native = Native {
        grace: Duration::from_millis(50),
        ..Default::default()
    };
    let measured = run_with(&native, &broker, &case, &[]).unwrap();
    assert_eq!(measured.acknowledged.samples(), 50);
    assert_eq!(measured.unacknowledged, 250);
    assert_eq!(measured.produced.records, 50);
}

#[test]
fn records_of_the_warm_up_do_not_count() {
    let broker = Broker::start(1, |_| Reply::Good);
    let mut case = case("rate = 1000");
    case.timing = timing(0.2, 0.1);
    let measured = run(&broker, &case).unwrap();
    assert_eq!(measured.acknowledged.samples(), 100);
    assert_eq!(broker.requests(), 300);
}

#[test]
fn a_closed_connection_is_an_error() {
    let mut case = case("rate = 1000");
    case.timing = timing(0.0, 1.0);
    let close = |number| match number {
        20 => Reply::Close,
        _ => Reply::Good,
    };
    let failed = failure(run(&Broker::start(1, close), &case));
    assert!(failed.contains("closed a connection"), "{failed}");
    // A broker that closes because it does not know the version.
    let failed = failure(run(&Broker::serving(1, 8, |_| Reply::Close), &case));
    assert!(
        failed.starts_with("the broker does not serve Produce 9"),
        "{failed}"
    );
}

#[test]
fn a_code_is_told_by_its_name_with_the_partition() {
    let broker = Broker::start(3, |number| match number {
        2 => Reply::Code(6),
        _ => Reply::Good,
    });
    let mut case = case("saturate = true");
    case.topic.partitions = 3;
    let failed = failure(run(&broker, &case));
    assert_eq!(
        failed,
        "partition 2 of topic t0: the broker answered NOT_LEADER_OR_FOLLOWER (6)"
    );
}

#[test]
fn an_answer_that_does_not_come_is_an_error() {
    let broker = Broker::start(1, |_| Reply::Never);
    let native = Native {
        answer_max: Duration::from_millis(100),
        ..Default::default()
    };
    let failed = failure(run_with(&native, &broker, &case("saturate = true"), &[]));
    assert!(
        failed.contains("has not answered a produce request"),
        "{failed}"
    );
}

#[test]
fn no_broker_and_too_many_partitions_are_errors() {
    let broker = Broker::start(2, |_| Reply::Good);
    let failed = failure(run(&broker, &case("saturate = true")));
    assert!(
        failed.contains("has 2 partitions where 1 are expected"),
        "{failed}"
    );
    // A port that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let nowhere = Endpoint {
        protocol: Protocol::Kafka,
        addr,
    };
    let topics = ["t0".to_owned()];
    let plan = ConsumerPlan::default();
    let read = read_all(&nowhere, &topics, 1, &plan, &[], &Stop::default());
    let failed = failure(read);
    assert!(failed.contains(&format!("no broker at {addr}")), "{failed}");
}

/// A CPU that this process may run on, twice: two threads.
fn two_threads() -> Vec<usize> {
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let cpu = (0..nix::sched::CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap());
    vec![cpu.unwrap(); 2]
}

#[test]
fn every_set_gets_every_record_of_all_topics() {
    for (codec, keys) in [
        (CodecName::None, KeyPlan::None),
        (CodecName::None, KeyPlan::Zipf),
        (CodecName::Lz4, KeyPlan::None),
        (CodecName::Zstd, KeyPlan::Uniform),
    ] {
        let broker = Broker::start(2, |_| Reply::Good);
        let mut case = case("rate = 2000");
        case.timing = timing(0.05, 0.2);
        (case.topic.topics, case.topic.partitions) = (2, 2);
        (case.records.codec, case.records.keys) = (codec, keys);
        (case.producers.count, case.producers.in_flight) = (3, 2);
        (case.producers.batch_bytes, case.producers.linger_us) = (1000, 5000);
        (case.consumers.sets, case.consumers.per_set) = (2, 3);
        case.consumers.fetch_bytes = 3000;
        let measured = run_with(&Native::default(), &broker, &case, &two_threads()).unwrap();
        assert_eq!(measured.acknowledged.samples(), 400, "{codec:?} {keys:?}");
        assert_eq!(measured.delivered.samples(), 800, "{codec:?} {keys:?}");
        // Not more than 0: a machine with other work may let it run only when its time is over.
        let busy = measured.client_busy.unwrap();
        assert!((0.0..=1.0).contains(&busy), "{busy}");
    }
}

#[test]
fn a_batch_holds_what_is_due_and_never_more_than_it_may() {
    // The linger is longer than it takes until a batch is full.
    let broker = Broker::start(1, |_| Reply::Good);
    let mut case = case("rate = 5000");
    case.timing = timing(0.0, 0.2);
    (case.producers.batch_bytes, case.producers.linger_us) = (1000, 1_000_000);
    case.producers.in_flight = 100;
    let measured = run(&broker, &case).unwrap();
    assert_eq!(measured.acknowledged.samples(), 1000);
    assert_eq!(broker.requests(), 100);
}

#[test]
fn so_many_bytes_end_a_measurement() {
    let broker = Broker::start(1, |_| Reply::Good);
    let mut case = case("saturate = true");
    case.timing = Timing {
        bytes_max: 100_000,
        ..timing(0.0, 30.0)
    };
    (case.producers.batch_bytes, case.consumers.sets) = (2000, 1);
    let measured = run(&broker, &case).unwrap();
    assert!(measured.produced.bytes >= 98_000 && measured.produced.seconds < 30.0);
    // What is sent at one time is delivered as such.
    assert!(measured.delivered.samples() >= measured.produced.records);
    assert!(measured.consumed.records > 0);
    assert!(measured.schedule_delay.is_empty());
}

#[test]
fn late_consumers_catch_up() {
    for load in ["saturate = true", "rate = 5000"] {
        let broker = Broker::start(2, |_| Reply::Good);
        let mut case = case(load);
        case.loads[0].drain = Some(Drain { backlog_s: 0.1 });
        (case.topic.partitions, case.consumers.sets) = (2, 1);
        case.producers.batch_bytes = 1000;
        case.timing = Timing {
            bytes_max: 1_000_000,
            ..timing(0.0, 0.5)
        };
        let measured = run(&broker, &case).unwrap();
        let drained = measured.drained_after_s;
        assert!(drained.unwrap() > 0.0, "{load}");
        assert!(
            measured.consumed.records >= 450,
            "{load}: {:?}",
            measured.consumed
        );
        if case.loads[0].saturate {
            // It ends when it is drained.
            assert_eq!(Some(measured.consumed.seconds), drained);
        } else {
            // The producers go on.
            assert_eq!(measured.acknowledged.samples(), 2500);
        }
    }
}

#[test]
fn what_fills_is_read_again() {
    let broker = Broker::start(3, |_| Reply::Good);
    let records = RecordPlan {
        bytes: 100,
        ..Default::default()
    };
    let topics = ["t0".to_owned(), "t1".to_owned()];
    let (endpoint, stop) = (endpoint(&broker), Stop::default());
    let moved = fill(
        &endpoint,
        &topics,
        3,
        &records,
        50_050,
        1000,
        Acks::All,
        &stop,
    )
    .unwrap();
    assert_eq!((moved.records, moved.bytes), (501, 50_100));
    let plan = ConsumerPlan {
        per_set: 2,
        fetch_bytes: 2500,
        ..Default::default()
    };
    let read = read_all(&endpoint, &topics, 3, &plan, &two_threads(), &stop).unwrap();
    assert_eq!((read.consumed.records, read.consumed.bytes), (501, 50_100));
    assert_eq!(read.acknowledged.samples(), read.consumed.requests);
    // Nothing is left to be read of a topic that is empty.
    let empty = ["t2".to_owned()];
    let read = read_all(&endpoint, &empty, 3, &plan, &[], &stop).unwrap();
    assert_eq!(read.consumed.records, 0);
}

#[test]
fn a_stop_ends_it() {
    let broker = Broker::start(1, |_| Reply::Good);
    let case = case("saturate = true");
    let stop = Stop::default();
    stop.ask();
    let topics = ["t0".to_owned()];
    let stopped = Native::default().run(&Job {
        endpoint: &endpoint(&broker),
        case: &case,
        load: &case.loads[0],
        rate: None,
        topics: &topics,
        timing: &case.timing,
        cpus: &[],
        stop: &stop,
        on_measure: &|_| (),
    });
    assert!(stopped.is_err());
}
