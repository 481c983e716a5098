use super::super::fake::FakeBroker;
use super::*;
use highwater::protocol::messages::{
    ApiVersion, DescribeConfigsResourceResult, DescribeConfigsResponse, DescribeConfigsResult,
    MetadataResponseBroker,
};
use highwater::protocol::Str;

fn external(addr: SocketAddr) -> External {
    External::new("other", &addr.to_string(), None).unwrap()
}

fn versions(keys: &[(ApiKey, i16, i16)]) -> ApiVersionsResponse {
    ApiVersionsResponse {
        api_keys: keys
            .iter()
            .map(|&(key, min_version, max_version)| ApiVersion {
                api_key: key.code(),
                min_version,
                max_version,
            })
            .collect(),
        ..Default::default()
    }
}

fn one_broker() -> MetadataResponse {
    MetadataResponse {
        brokers: vec![MetadataResponseBroker::default()],
        ..Default::default()
    }
}

fn settings(names: &[&'static str]) -> DescribeConfigsResponse {
    DescribeConfigsResponse {
        results: vec![DescribeConfigsResult {
            configs: names
                .iter()
                .map(|name| DescribeConfigsResourceResult {
                    name: Str::from(*name),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[test]
fn nobody_who_listens_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let error = external(addr).check().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("nothing can be reached at {addr}: is the broker running?")
    );
}

#[test]
fn a_listener_that_is_no_broker_is_told() {
    for answer in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        // A TLS alert.
        vec![0x15, 3, 3, 0, 2, 2, 80],
        // A frame of another protocol.
        vec![0, 0, 0, 5, 1, 2, 3, 4, 5],
        // It ends in the middle.
        vec![0, 0, 1, 0, 1],
        Vec::new(),
    ] {
        let broker = FakeBroker::start(vec![answer.clone()]);
        let error = external(broker.addr()).check().unwrap_err();
        assert!(
            error
                .to_string()
                .contains("does not answer as a Kafka broker"),
            "{answer:?}: {error}"
        );
        broker.finish();
    }
}

#[test]
fn versions_that_are_missing_are_named() {
    let some = versions(&[
        (ApiKey::Produce, 0, 8),
        (ApiKey::Fetch, 4, 16),
        (ApiKey::Metadata, 0, 12),
        (ApiKey::ListOffsets, 1, 7),
        (ApiKey::DeleteTopics, 1, 6),
    ]);
    let broker = FakeBroker::start(vec![FakeBroker::answer(0, &some)]);
    let error = external(broker.addr()).check().unwrap_err().to_string();
    assert!(
        error.contains("does not serve Produce 9, CreateTopics 5:"),
        "{error}"
    );
    broker.finish();
}

#[test]
fn a_name_that_cannot_be_found_is_told() {
    let target = External::new("x", "no-port", None).unwrap();
    let error = target.check().unwrap_err().to_string();
    assert_eq!(error, "no-port is no address that can be found");
}

#[test]
fn the_flush_setting_is_that_of_the_brokers_kind() {
    let configs = |answers: Vec<Vec<u8>>, flush_spec: Option<&str>, flush: bool| {
        let broker = FakeBroker::start(answers);
        let target = External::new("x", &broker.addr().to_string(), flush_spec).unwrap();
        let mut admin = target.admin().unwrap();
        let configs = target.topic_configs(&mut admin, flush).unwrap();
        broker.finish();
        configs
    };
    let kind = |names: &[&'static str]| {
        vec![
            FakeBroker::answer(9, &one_broker()),
            FakeBroker::answer(1, &settings(names)),
        ]
    };
    let own = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let highwater: &[&'static str] = &[FLUSH_ON_ACK];
    assert_eq!(
        configs(kind(highwater), None, true),
        own(FLUSH_ON_ACK, "any")
    );
    assert_eq!(
        configs(kind(highwater), None, false),
        own(FLUSH_ON_ACK, "none")
    );
    assert_eq!(configs(kind(&[]), None, true), own("flush.messages", "1"));
    assert_eq!(configs(kind(&[]), None, false), []);
    let given = Some("write.caching=false");
    assert_eq!(
        configs(Vec::new(), given, true),
        own("write.caching", "false")
    );
    assert_eq!(configs(Vec::new(), given, false), []);
    assert_eq!(configs(Vec::new(), Some("default"), true), []);
}

#[test]
fn a_flush_that_is_no_setting_is_refused() {
    let error = External::new("x", "a:1", Some("yes")).err().unwrap();
    assert!(error.to_string().contains("flush=NAME=VALUE"), "{error}");
}

#[test]
fn it_is_neither_stopped_nor_killed() {
    let mut target = External::new("x", "127.0.0.1:1", None).unwrap();
    assert_eq!(target.stop().unwrap_err().to_string(), NOT_OURS);
    assert_eq!(target.kill().unwrap_err().to_string(), NOT_OURS);
    let mut case = Case {
        name: String::new(),
        kind: Kind::Lifecycle,
        topic: TopicPlan::default(),
        records: Default::default(),
        producers: Default::default(),
        consumers: Default::default(),
        loads: Vec::new(),
        timing: Default::default(),
        lifecycle: Default::default(),
    };
    assert!(target.lacks(&case).is_some());
    case.kind = Kind::Stream;
    assert_eq!(target.lacks(&case), None);
}

#[test]
fn the_process_is_that_which_listens_here() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    assert_eq!(external(addr).pid(), Some(std::process::id()));
}
