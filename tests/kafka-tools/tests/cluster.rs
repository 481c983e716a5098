//! Apache Kafka's tools that ask about a cluster and move its parts, against the one broker: what they print where
//! Apache Kafka with one broker answers them.

use kafka_tools_tests::broker::{Broker, Launch};
use kafka_tools_tests::{data_dir, highwater, kafka};

const TOOLS: &str = "org.apache.kafka.tools.";

/// A broker, and Kafka's tools pointed at it.
struct Against {
    broker: Broker,
    dir: tempfile::TempDir,
}

impl Against {
    fn start() -> Against {
        let dir = data_dir();
        let broker = Launch::new(highwater(), dir.path()).start();
        Against { broker, dir }
    }

    /// Runs a tool; it must neither fail nor print a stack trace.
    fn run(&self, class: &str, arguments: &str) -> String {
        let said = kafka::run(&format!("{TOOLS}{class}"), &self.arguments(arguments));
        assert!(
            !said.contains("Exception") && !said.contains("\tat "),
            "{class} {arguments}:\n{said}"
        );
        said
    }

    fn refused(&self, class: &str, arguments: &str) -> String {
        kafka::run_refused(&format!("{TOOLS}{class}"), &self.arguments(arguments))
    }

    fn arguments(&self, arguments: &str) -> Vec<&'static str> {
        let addr = self.broker.addr().to_string();
        let words = ["--bootstrap-server", &addr];
        let words = words.into_iter().chain(arguments.split(' '));
        // A test ends before this is much.
        words.map(|word| &*word.to_owned().leak()).collect()
    }
}

/// The lines, without the spaces around them and those that are empty.
fn lines(said: &str) -> Vec<&str> {
    said.lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect()
}

#[test]
fn kafkas_tools_show_directories_the_quorum_and_what_is_served() {
    let against = Against::start();
    against.run("TopicCommand", "--create --topic t --partitions 2");
    kafka::produce(against.broker.addr(), "t", 100, &[]);

    let said = against.run(
        "LogDirsCommand",
        "--describe --topic-list t,none --broker-list 1",
    );
    let dir = against.dir.path().display();
    assert!(
        said.contains(&format!("\"error\":null,\"logDir\":\"{dir}\"")),
        "{said}"
    );
    assert_eq!(said.matches("\"partition\":\"t-").count(), 2, "{said}");
    assert_eq!(
        said.matches("\"offsetLag\":0,\"isFuture\":false").count(),
        2,
        "{said}"
    );
    let sizes = said.split("\"size\":").skip(1);
    let digits = |text: &str| text.split(',').next().and_then(|n| n.parse::<u64>().ok());
    let bytes: u64 = sizes.filter_map(digits).sum();
    assert!(bytes >= 100 * 100, "{bytes} bytes: {said}");

    let status = against.run("MetadataQuorumCommand", "describe --status");
    for line in [
        "LeaderId:               1",
        "LeaderEpoch:            1",
        "MaxFollowerLag:         0",
    ] {
        assert!(status.contains(line), "{status}");
    }
    assert!(
        status.contains("CurrentVoters:          [{\"id\": 1, \"directoryId\": \""),
        "{status}"
    );
    let replication = against.run("MetadataQuorumCommand", "describe --replication");
    let leader = lines(&replication).pop().unwrap_or_default().to_owned();
    assert!(
        leader.starts_with("1 ") && leader.ends_with("Leader"),
        "{replication}"
    );

    // There are none, and nothing fails.
    assert_eq!(lines(&against.run("FeatureCommand", "describe")), [""; 0]);
    let addr = against.broker.addr().to_string();
    let class = "BrokerApiVersionsCommand";
    let versions = kafka::run(&format!("{TOOLS}{class}"), &["--bootstrap-server", &addr]);
    for api in [
        "DescribeLogDirs(35): 1 to 4",
        "DescribeQuorum(55): 0 to 2",
        "ElectLeaders(43): 0 to 2",
    ] {
        assert!(versions.contains(api), "{versions}");
    }
    let cluster = |command| {
        kafka::run(
            &format!("{TOOLS}ClusterTool"),
            &[command, "--bootstrap-server", &addr],
        )
    };
    assert!(cluster("cluster-id").starts_with("Cluster ID: "));
    let endpoints = cluster("list-endpoints");
    assert!(endpoints.contains("127.0.0.1"), "{endpoints}");
    against.broker.stop();
}

#[test]
fn kafkas_tools_find_leaders_elected_and_reassignments_done() {
    let against = Against::start();
    against.run("TopicCommand", "--create --topic t --partitions 2");
    let elect = "--election-type preferred";
    let all = against.run(
        "LeaderElectionCommand",
        &format!("{elect} --all-topic-partitions"),
    );
    assert_eq!(lines(&all), [""; 0]);
    let one = against.run(
        "LeaderElectionCommand",
        &format!("{elect} --topic t --partition 0"),
    );
    assert_eq!(
        lines(&one),
        ["Valid replica already elected for partitions t-0"]
    );
    let none = against.refused(
        "LeaderElectionCommand",
        &format!("{elect} --topic none --partition 0"),
    );
    assert!(none.contains("No such topic as none"), "{none}");

    let file = against.dir.path().join("reassignment.json");
    let plan =
        "{\"version\":1,\"partitions\":[{\"topic\":\"t\",\"partition\":0,\"replicas\":[1]}]}";
    std::fs::write(&file, plan).expect("a file can be written");
    let reassign = |what: &str| {
        let arguments = format!("--reassignment-json-file {} {what}", file.display());
        against.run("reassign.ReassignPartitionsCommand", &arguments)
    };
    let executed = reassign("--execute --throttle 1000");
    assert!(
        executed.contains("Successfully started partition reassignment for t-0"),
        "{executed}"
    );
    let settings = "--describe --entity-type brokers --entity-name 1";
    let throttled = against.run("ConfigCommand", settings);
    assert!(
        throttled.contains("leader.replication.throttled.rate=1000"),
        "{throttled}"
    );
    let verified = reassign("--verify");
    assert!(
        verified.contains("Reassignment of partition t-0 is completed."),
        "{verified}"
    );
    let unthrottled = against.run("ConfigCommand", settings);
    assert_eq!(lines(&unthrottled), ["Dynamic configs for broker 1 are:"]);
    let cancelled = reassign("--cancel");
    assert!(
        cancelled.contains("None of the specified partition reassignments are active."),
        "{cancelled}"
    );
    let listed = against.run("reassign.ReassignPartitionsCommand", "--list");
    assert_eq!(lines(&listed), ["No partition reassignments found."]);
    against.broker.stop();
}

#[test]
fn kafkas_tools_change_the_brokers_settings_and_are_told_what_they_can_not() {
    let against = Against::start();
    against.run("TopicCommand", "--create --topic t");
    let alter = |entity: &str, what: &str| {
        let arguments = format!("--alter --entity-type brokers {entity} {what}");
        against.run("ConfigCommand", &arguments)
    };
    let describe = |entity: &str| against.run("ConfigCommand", &format!("--describe {entity}"));
    alter(
        "--entity-default",
        "--add-config log.retention.ms=6000,message.max.bytes=2000000",
    );
    alter("--entity-name 1", "--add-config log.retention.ms=5000");
    let own = "log.retention.ms=5000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=5000, \
               DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=6000, STATIC_BROKER_CONFIG:log.retention.hours=-1, \
               DEFAULT_CONFIG:log.retention.hours=168}";
    let shown = describe("--entity-type brokers");
    let common = [
        "log.retention.ms=6000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=6000}",
        "message.max.bytes=2000000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2000000}",
    ];
    let expected = [
        "Dynamic configs for broker 1 are:",
        own,
        "Default configs for brokers in the cluster are:",
        common[0],
        common[1],
    ];
    assert_eq!(lines(&shown), expected);
    let topic = describe("--entity-type topics --entity-name t --all");
    assert!(
        topic.contains(&format!("  {}", own.replacen("log.", "", 1))),
        "{topic}"
    );
    alter("--entity-name 1", "--delete-config log.retention.ms");
    let topic = describe("--entity-type topics --entity-name t --all");
    assert!(topic.contains("  retention.ms=6000 "), "{topic}");

    for (config, says) in [
        (
            "node.id=5",
            "Cannot update these configs dynamically: [node.id]",
        ),
        ("foo.bar=5", "there is no setting 'foo.bar'"),
        ("log.retention.ms=abc", "must be a whole number"),
    ] {
        let arguments =
            format!("--alter --entity-type brokers --entity-name 1 --add-config {config}");
        let refused = against.refused("ConfigCommand", &arguments);
        assert!(refused.contains(says), "{refused}");
    }
    for entity in ["users", "clients", "ips", "client-metrics"] {
        assert_eq!(
            lines(&describe(&format!("--entity-type {entity}"))),
            [""; 0]
        );
    }
    let quota = "--alter --entity-type users --entity-name u --add-config consumer_byte_rate=5";
    let refused = against.refused("ConfigCommand", quota);
    assert!(
        refused.contains("does not support ALTER_CLIENT_QUOTAS"),
        "{refused}"
    );
    let acls = against.refused("AclCommand", "--list");
    assert!(
        acls.contains("No Authorizer is configured on the broker"),
        "{acls}"
    );
    against.broker.stop();
}
