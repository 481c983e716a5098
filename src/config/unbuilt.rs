//! Kafka's settings that this version does not have, and how each is answered.
//!
//! Three answers. *Fixed*: accepted at the one value that equals what this version does, refused at any other.
//! *Meaningless*: accepted with a note, because a thread-per-core broker has nothing that it would tune. *Refused*:
//! refused at any value, because the file's author counts on something that would not happen.

use super::table::Scope;

/// How a setting of Kafka's that is not built is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unbuilt {
    /// Accepted at these values, which equal what this version does.
    Fixed {
        /// The values accepted.
        values: &'static [&'static str],
        /// What this version does.
        because: &'static str,
    },
    /// Accepted with a note; it changes nothing that a client can see.
    Meaningless {
        /// What takes its place.
        because: &'static str,
    },
    /// Refused.
    Refused {
        /// What is missing.
        because: &'static str,
    },
}

/// The answer to this name, if it is one of Kafka's that are not built.
pub fn find(scope: Scope, name: &str) -> Option<Unbuilt> {
    let exact = match scope {
        Scope::Broker => BROKER,
        Scope::Topic => TOPIC,
    };
    if let Some((_, answer)) = exact.iter().find(|(known, _)| *known == name) {
        return Some(*answer);
    }
    if scope == Scope::Topic {
        return None;
    }
    let (_, because) = BROKER_PREFIXES
        .iter()
        .find(|(prefix, _)| name.starts_with(prefix))?;
    Some(Unbuilt::Refused { because })
}

const fn fixed(values: &'static [&'static str], because: &'static str) -> Unbuilt {
    Unbuilt::Fixed { values, because }
}

const THREADS: Unbuilt = Unbuilt::Meaningless {
    because: "each shard is one thread; see `shards`",
};
const KERNEL: Unbuilt = Unbuilt::Meaningless {
    because: "the kernel sizes socket buffers by itself",
};
const KEPT: &str = "records are kept until the topic is deleted";
const FLUSHED: &str = "`flush.on.ack` decides when records are flushed";

const TOPIC: &[(&str, Unbuilt)] = &[
    (
        "cleanup.policy",
        fixed(
            &["delete"],
            "compaction is not built, only 'delete' is accepted",
        ),
    ),
    (
        "compression.type",
        fixed(
            &["producer"],
            "batches are kept as the producer compressed them, only 'producer' is accepted",
        ),
    ),
    (
        "message.timestamp.type",
        fixed(
            &["CreateTime"],
            "records keep the producer's timestamp, only 'CreateTime' is accepted",
        ),
    ),
    (
        "retention.ms",
        fixed(
            &["-1"],
            "records are kept until the topic is deleted, only -1 is accepted",
        ),
    ),
    (
        "retention.bytes",
        fixed(
            &["-1"],
            "records are kept until the topic is deleted, only -1 is accepted",
        ),
    ),
    (
        "unclean.leader.election.enable",
        fixed(&["false"], "there is one replica, only false is accepted"),
    ),
    (
        "preallocate",
        fixed(
            &["false"],
            "preallocation grows with the segment by itself, only false is accepted",
        ),
    ),
    (
        "remote.storage.enable",
        fixed(
            &["false"],
            "there is no tiered storage, only false is accepted",
        ),
    ),
    (
        "segment.jitter.ms",
        fixed(&["0"], "rolls are not spread in time, only 0 is accepted"),
    ),
    (
        "flush.messages",
        fixed(
            &["9223372036854775807"],
            "`flush.on.ack` decides when records are flushed",
        ),
    ),
    (
        "flush.ms",
        fixed(
            &["9223372036854775807"],
            "`flush.on.ack` decides when records are flushed",
        ),
    ),
    (
        "delete.retention.ms",
        Unbuilt::Refused {
            because: "compaction is not built",
        },
    ),
    (
        "min.cleanable.dirty.ratio",
        Unbuilt::Refused {
            because: "compaction is not built",
        },
    ),
    (
        "min.compaction.lag.ms",
        Unbuilt::Refused {
            because: "compaction is not built",
        },
    ),
    (
        "max.compaction.lag.ms",
        Unbuilt::Refused {
            because: "compaction is not built",
        },
    ),
    (
        "file.delete.delay.ms",
        Unbuilt::Refused {
            because: "a deleted topic's files go at once",
        },
    ),
    (
        "local.retention.ms",
        Unbuilt::Refused {
            because: "there is no tiered storage",
        },
    ),
    (
        "local.retention.bytes",
        Unbuilt::Refused {
            because: "there is no tiered storage",
        },
    ),
    (
        "leader.replication.throttled.replicas",
        Unbuilt::Refused {
            because: "replication is not built",
        },
    ),
    (
        "follower.replication.throttled.replicas",
        Unbuilt::Refused {
            because: "replication is not built",
        },
    ),
];

const BROKER: &[(&str, Unbuilt)] = &[
    (
        "broker.id",
        Unbuilt::Refused {
            because: "use `node.id`",
        },
    ),
    (
        "port",
        Unbuilt::Refused {
            because: "use `listeners`",
        },
    ),
    (
        "host.name",
        Unbuilt::Refused {
            because: "use `listeners`",
        },
    ),
    (
        "process.roles",
        fixed(
            &["broker,controller", "controller,broker"],
            "one process is broker and controller",
        ),
    ),
    (
        "log.cleanup.policy",
        fixed(
            &["delete"],
            "compaction is not built, only 'delete' is accepted",
        ),
    ),
    (
        "log.cleaner.enable",
        fixed(
            &["false"],
            "compaction is not built, only false is accepted",
        ),
    ),
    (
        "compression.type",
        fixed(
            &["producer"],
            "batches are kept as the producer compressed them, only 'producer' is accepted",
        ),
    ),
    (
        "log.message.timestamp.type",
        fixed(
            &["CreateTime"],
            "records keep the producer's timestamp, only 'CreateTime' is accepted",
        ),
    ),
    (
        "log.retention.ms",
        fixed(
            &["-1"],
            "records are kept until the topic is deleted, only -1 is accepted",
        ),
    ),
    ("log.retention.minutes", Unbuilt::Refused { because: KEPT }),
    (
        "log.retention.hours",
        fixed(
            &["-1"],
            "records are kept until the topic is deleted, only -1 is accepted",
        ),
    ),
    (
        "log.retention.bytes",
        fixed(
            &["-1"],
            "records are kept until the topic is deleted, only -1 is accepted",
        ),
    ),
    (
        "log.retention.check.interval.ms",
        Unbuilt::Meaningless { because: KEPT },
    ),
    (
        "log.flush.interval.messages",
        fixed(&["9223372036854775807"], FLUSHED),
    ),
    (
        "log.flush.interval.ms",
        Unbuilt::Refused { because: FLUSHED },
    ),
    (
        "log.flush.scheduler.interval.ms",
        fixed(&["9223372036854775807"], FLUSHED),
    ),
    (
        "log.preallocate",
        fixed(
            &["false"],
            "preallocation grows with the segment by itself, only false is accepted",
        ),
    ),
    (
        "log.roll.jitter.ms",
        fixed(&["0"], "rolls are not spread in time, only 0 is accepted"),
    ),
    (
        "log.roll.jitter.hours",
        fixed(&["0"], "rolls are not spread in time, only 0 is accepted"),
    ),
    (
        "unclean.leader.election.enable",
        fixed(&["false"], "there is one replica, only false is accepted"),
    ),
    (
        "auto.leader.rebalance.enable",
        Unbuilt::Refused {
            because: "there is one broker",
        },
    ),
    (
        "delete.topic.enable",
        fixed(&["true"], "topics can be deleted, only true is accepted"),
    ),
    (
        "controlled.shutdown.enable",
        Unbuilt::Refused {
            because: "there is one broker",
        },
    ),
    (
        "broker.rack",
        Unbuilt::Refused {
            because: "there is one broker",
        },
    ),
    (
        "security.inter.broker.protocol",
        fixed(&["PLAINTEXT"], "only PLAINTEXT listeners are supported yet"),
    ),
    (
        "inter.broker.listener.name",
        fixed(&["PLAINTEXT"], "only PLAINTEXT listeners are supported yet"),
    ),
    (
        "max.connections.per.ip",
        fixed(
            &["2147483647"],
            "connections are counted over all addresses; use `max.connections`",
        ),
    ),
    (
        "max.connections.per.ip.overrides",
        fixed(
            &[""],
            "connections are counted over all addresses; use `max.connections`",
        ),
    ),
    (
        "max.connection.creation.rate",
        fixed(
            &["2147483647"],
            "connections are not limited by rate; use `max.connections`",
        ),
    ),
    (
        "max.incremental.fetch.session.cache.slots",
        fixed(&["0"], "there are no fetch sessions, only 0 is accepted"),
    ),
    (
        "queued.max.request.bytes",
        fixed(&["-1"], "use `request.memory.bytes`"),
    ),
    (
        "queued.max.requests",
        Unbuilt::Meaningless {
            because: "requests are bounded by bytes; see `request.memory.bytes`",
        },
    ),
    ("num.network.threads", THREADS),
    ("num.io.threads", THREADS),
    ("background.threads", THREADS),
    ("num.recovery.threads.per.data.dir", THREADS),
    ("num.replica.fetchers", THREADS),
    ("num.replica.alter.log.dirs.threads", THREADS),
    ("socket.send.buffer.bytes", KERNEL),
    ("socket.receive.buffer.bytes", KERNEL),
    (
        "controller.listener.names",
        Unbuilt::Meaningless {
            because: "the controller has no listener of its own",
        },
    ),
];

/// Families of which no member is built.
const BROKER_PREFIXES: &[(&str, &str)] = &[
    ("ssl.", "there is no TLS"),
    ("sasl.", "there is no SASL"),
    ("listener.", "only PLAINTEXT listeners are supported yet"),
    ("authorizer.", "there are no ACLs"),
    ("super.users", "there are no ACLs"),
    ("principal.builder.", "there are no ACLs"),
    ("security.", "there is no TLS and no SASL"),
    ("zookeeper.", "there is no ZooKeeper"),
    ("controller.", "there is one controller, in this process"),
    ("quorum.", "there is one controller, in this process"),
    ("broker.", "there is one broker"),
    ("leader.", "there is one broker"),
    ("replica.", "replication between brokers is not built"),
    ("replication.", "replication between brokers is not built"),
    ("reserved.broker.", "use `node.id`"),
    ("metadata.log.", "the metadata log has no settings"),
    ("metadata.max.", "the metadata log has no settings"),
    ("group.", "consumer groups are not built"),
    ("offsets.", "consumer groups are not built"),
    ("offset.metadata.", "consumer groups are not built"),
    ("share.", "consumer groups are not built"),
    ("transaction.", "transactions are not built"),
    ("transactional.", "transactions are not built"),
    ("producer.id.", "transactions are not built"),
    ("log.cleaner.", "compaction is not built"),
    ("log.local.", "there is no tiered storage"),
    ("log.deletion.", "a deleted topic's files go at once"),
    ("log.segment.delete.", "a deleted topic's files go at once"),
    ("remote.", "there is no tiered storage"),
    ("quota.", "there are no quotas"),
    ("client.quota.", "there are no quotas"),
    ("alter.", "there are no quotas"),
    ("controller.quota.", "there are no quotas"),
    ("metric.", "there are no metrics reporters"),
    ("metrics.", "there are no metrics reporters"),
    ("kafka.metrics.", "there are no metrics reporters"),
    ("telemetry.", "there is no client telemetry"),
    ("delegation.token.", "there are no delegation tokens"),
    ("password.encoder.", "no secrets are kept"),
    ("config.providers", "there are no configuration providers"),
    ("create.topic.policy.", "there are no topic policies"),
    ("alter.config.policy.", "there are no topic policies"),
    ("early.start.listeners", "there is one listener"),
    ("inter.broker.", "there is one broker"),
    ("initial.broker.", "there is one broker"),
    ("fetch.purgatory.", "waiting requests need no purgatory"),
    ("producer.purgatory.", "waiting requests need no purgatory"),
    (
        "delete.records.purgatory.",
        "waiting requests need no purgatory",
    ),
    (
        "connection.failed.authentication.",
        "there is no authentication",
    ),
    ("connections.max.reauth.", "there is no authentication"),
    (
        "compression.",
        "batches are kept as the producer compressed them",
    ),
];
