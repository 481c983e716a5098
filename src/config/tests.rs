//! Tests of the table and of what is built from it.

use super::*;

#[test]
fn given_nothing_then_the_defaults_build_a_configuration() {
    let config = BrokerConfig::default();
    assert_eq!(
        config.listener,
        HostPort {
            host: "127.0.0.1".to_owned(),
            port: 9092
        }
    );
    assert_eq!(config.log_roll_ms, 168 * 3_600_000);
    let topic =
        TopicConfig::resolve(&config, [("flush.on.ack", "none"), ("retention.ms", "-1")]).unwrap();
    assert_eq!(topic.flush_on_ack, FlushOnAck::None);
    assert_eq!(topic.segment_bytes, 1 << 30);
}
