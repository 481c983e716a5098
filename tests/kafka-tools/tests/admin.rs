//! Apache Kafka's own tools for topics and settings, which are its AdminClient's, against the broker.

use kafka_tools_tests::broker::Launch;
use kafka_tools_tests::{data_dir, highwater, kafka};

const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";
const CONFIGS: &str = "org.apache.kafka.tools.ConfigCommand";

#[test]
fn kafkas_tools_see_and_change_topics_partitions_and_settings() {
    let dir = data_dir();
    let broker = Launch::new(highwater(), dir.path())
        .set("log.retention.hours=-1")
        .start();
    let addr = broker.addr().to_string();
    let with_addr = |arguments: &str| -> Vec<String> {
        let words = arguments.split(' ').map(str::to_owned);
        ["--bootstrap-server".to_owned(), addr.clone()]
            .into_iter()
            .chain(words)
            .collect()
    };
    let run = |class, arguments: &str| {
        let arguments = with_addr(arguments);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        kafka::run(class, &arguments)
    };
    let refused = |class, arguments: &str| {
        let arguments = with_addr(arguments);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        kafka::run_refused(class, &arguments)
    };

    run(
        TOPICS,
        "--create --topic t --partitions 2 --config retention.ms=5000",
    );
    run(TOPICS, "--alter --topic t --partitions 3");
    let described = run(TOPICS, "--describe --topic t");
    assert!(
        described.contains("PartitionCount: 3\tReplicationFactor: 1\tConfigs: retention.ms=5000"),
        "{described}"
    );
    assert!(
        described.contains("Topic: t\tPartition: 2\tLeader: 1\tReplicas: 1\tIsr: 1"),
        "{described}"
    );
    let too_few = refused(TOPICS, "--alter --topic t --partitions 2");
    assert!(
        too_few.contains("currently has 3 partition(s); 2 would not be an increase"),
        "{too_few}"
    );

    let topic = "--entity-type topics --entity-name t";
    run(
        CONFIGS,
        &format!("--alter {topic} --add-config retention.ms=7000,flush.ms=5"),
    );
    run(
        CONFIGS,
        &format!("--alter {topic} --delete-config flush.ms"),
    );
    let own = run(CONFIGS, &format!("--describe {topic}"));
    let shown: Vec<&str> = own.lines().map(str::trim).collect();
    let expected = [
        "Dynamic configs for topic t are:",
        "retention.ms=7000 sensitive=false \
         synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7000, STATIC_BROKER_CONFIG:log.retention.hours=-1, DEFAULT_CONFIG:log.retention.hours=168}",
    ];
    assert_eq!(shown, expected);
    run(
        CONFIGS,
        &format!("--alter {topic} --add-config cleanup.policy=[compact,delete]"),
    );
    let policy = run(CONFIGS, &format!("--describe {topic}"));
    assert!(
        policy.contains("cleanup.policy=compact,delete sensitive=false"),
        "{policy}"
    );
    let tiered = refused(
        CONFIGS,
        &format!("--alter {topic} --add-config remote.storage.enable=true"),
    );
    assert!(
        tiered.contains("InvalidConfigurationException") && tiered.contains("no tiered storage"),
        "{tiered}"
    );
    let all = run(
        CONFIGS,
        "--describe --entity-type brokers --entity-name 1 --all",
    );
    assert!(all.contains("  listeners=PLAINTEXT://127.0.0.1:"), "{all}");
    broker.stop();
}
