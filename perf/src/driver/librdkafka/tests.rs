use super::*;
use crate::stop::Stop;
use crate::target::{Endpoint, Protocol};
use crate::workload::{parse, Case};
use std::net::TcpListener;

fn case(text: &str) -> Case {
    let text = format!("name = \"t\"\ntitle = \"t\"\n[case]\n{text}");
    parse(&text, "test", false).unwrap().cases.remove(0)
}

fn with_job<T>(case: &Case, port: u16, stop: &Stop, work: impl FnOnce(&Job<'_>) -> T) -> T {
    work(&Job {
        endpoint: &Endpoint {
            protocol: Protocol::Kafka,
            addr: ([127, 0, 0, 1], port).into(),
        },
        case,
        load: &case.loads[0],
        rate: None,
        topics: &["t".to_owned()],
        timing: &case.timing,
        cpus: &[],
        stop,
        on_measure: &|_| {},
    })
}

#[test]
fn settings_follow_the_case() {
    let case = case(
        "producers = { acks = \"leader\", batch_bytes = 16384, linger_us = 500, in_flight = 5 }\n\
         records = { codec = \"lz4\" }\nconsumers = { sets = 1, min_bytes = 7, wait_ms = 8, fetch_bytes = 9 }",
    );
    with_job(&case, 1, &Stop::default(), |job| {
        let producer = config::producer(job).unwrap();
        for (name, value) in [
            ("acks", "1"),
            ("linger.ms", "0.5"),
            ("batch.num.messages", "16"),
            ("max.in.flight", "5"),
            ("compression.codec", "lz4"),
            ("enable.idempotence", "false"),
        ] {
            assert_eq!(producer.get(name), Some(value), "{name}");
        }
        // librdkafka itself knows all of them.
        producer.create_native_config().unwrap();
        let consumer = config::consumer(job);
        for (name, value) in [
            ("fetch.min.bytes", "7"),
            ("fetch.wait.max.ms", "8"),
            ("max.partition.fetch.bytes", "9"),
        ] {
            assert_eq!(consumer.get(name), Some(value), "{name}");
        }
        consumer.create_native_config().unwrap();
        assert_eq!(config::window(job.case), 6 * 16);
    });
}

#[test]
fn single_records_are_requests_of_their_own() {
    let case = case("producers = { in_flight = 3 }");
    with_job(&case, 1, &Stop::default(), |job| {
        let producer = config::producer(job).unwrap();
        assert_eq!(producer.get("batch.num.messages"), Some("1"));
        assert_eq!(producer.get("linger.ms"), Some("0"));
        assert_eq!(config::window(job.case), 3);
    });
}

#[test]
fn many_clients_and_zstd_are_refused_in_words() {
    for (text, says) in [
        ("producers = { count = 65 }", "at most 64 clients"),
        ("records = { codec = \"zstd\" }", "without zstd"),
    ] {
        let case = case(text);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = with_job(&case, port, &Stop::default(), |job| {
            LibrdkafkaDriver.run(job)
        });
        let error = format!("{:#}", error.unwrap_err());
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_busy_part_is_the_busiest_thread_s_or_that_of_all_cpus() {
    let times = |list: &[(&str, u64)]| list.iter().map(|(n, t)| ((*n).to_owned(), *t)).collect();
    let before = times(&[("a", 100), ("b", 0)]);
    let after = times(&[("a", 150), ("b", 40), ("new", 10)]);
    assert_eq!(busy_part(&before, &after, 1.0, 0), Some(0.5));
    assert_eq!(busy_part(&before, &after, 1.0, 1), Some(1.0));
    assert_eq!(busy_part(&before, &after, 2.0, 1), Some(0.5));
    assert_eq!(busy_part(&before, &after, 0.0, 1), None);
}

#[test]
fn a_record_that_the_queue_did_not_take_leaves_its_place_in_the_batch() {
    let case = case("producers = { batch_bytes = 2048 }");
    let mut maker = Maker {
        values: Values::new(&case.records, 1),
        keys: Keys::new(&case.records, 1),
        partitioner: Partitioner::new(3, 0),
        partition: 0,
        left: 0,
        batch_records: case.batch_records(),
    };
    let mut partitions = Vec::new();
    for n in 0..6 {
        partitions.push(maker.next(n).0);
        if n == 1 {
            maker.put_back();
        }
    }
    assert_eq!(partitions, [0, 0, 0, 1, 1, 2]);
}

#[test]
fn an_address_where_nobody_listens_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let case = case("");
    let error = with_job(&case, port, &Stop::default(), |job| {
        LibrdkafkaDriver.run(job)
    });
    let error = format!("{:#}", error.unwrap_err());
    assert!(error.contains("can't be connected to"), "{error}");
}
