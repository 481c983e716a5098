//! Kafka's broker settings that this version does not have, and how each is answered.
//!
//! Three answers. *Fixed*: accepted at the one value that equals what this version does, refused at any other.
//! *Meaningless*: accepted with a note, because a thread-per-core broker has nothing that it would tune. *Refused*:
//! refused at any value, because the file's author counts on something that would not happen.

use super::table::{nearest, Scope};

/// How a setting of Kafka's that is not built is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unbuilt {
    /// Accepted at this one value, which equals what this version does.
    Fixed {
        /// The value accepted.
        value: &'static str,
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
pub fn find(name: &str) -> Option<Unbuilt> {
    if let Some((_, answer)) = BROKER.iter().find(|(known, _)| *known == name) {
        return Some(*answer);
    }
    // A misspelled setting of ours is not a member of a family.
    if nearest(Scope::Broker, name).is_some() {
        return None;
    }
    let (_, because) = BROKER_PREFIXES
        .iter()
        .find(|(prefix, _)| name.starts_with(prefix))?;
    Some(Unbuilt::Refused { because })
}

/// Those that are held at one value, with that value and the reason.
pub fn fixed_values() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    BROKER.iter().filter_map(|(name, answer)| match answer {
        Unbuilt::Fixed { value, because } => Some((*name, *value, *because)),
        Unbuilt::Meaningless { .. } | Unbuilt::Refused { .. } => None,
    })
}

type Row = (&'static str, Unbuilt);

const fn fixed(name: &'static str, value: &'static str, because: &'static str) -> Row {
    (name, Unbuilt::Fixed { value, because })
}

const fn meaningless(name: &'static str, because: &'static str) -> Row {
    (name, Unbuilt::Meaningless { because })
}

const fn refused(name: &'static str, because: &'static str) -> Row {
    (name, Unbuilt::Refused { because })
}

const CLEANER_BUFFERS: &str =
    "what compaction holds of a log is bounded by itself; see `log.cleaner.dedupe.buffer.size`";
const ONE_BROKER: &str = "there is one broker";
const ONE_REPLICA: &str = "there is one replica";
const ONLY_PLAINTEXT: &str = "there are only PLAINTEXT listeners";
const PREALLOCATION: &str = "preallocation grows with the segment by itself";
const SOCKETS: &str = "the kernel sizes socket buffers by itself";
const THREADS: &str = "each shard is one thread; see `shards`";

const BROKER: &[Row] = &[
    refused("broker.id", "use `node.id`"),
    fixed(
        "process.roles",
        "broker,controller",
        "one process is broker and controller",
    ),
    meaningless(
        "controller.listener.names",
        "the controller has no listener of its own",
    ),
    meaningless(
        "log.cleaner.threads",
        "each shard compacts one log at a time, in the background; see `shards`",
    ),
    meaningless("log.cleaner.io.buffer.size", CLEANER_BUFFERS),
    meaningless("log.cleaner.io.buffer.load.factor", CLEANER_BUFFERS),
    fixed("log.preallocate", "false", PREALLOCATION),
    fixed("unclean.leader.election.enable", "false", ONE_REPLICA),
    refused("auto.leader.rebalance.enable", ONE_BROKER),
    fixed("delete.topic.enable", "true", "topics can be deleted"),
    refused("controlled.shutdown.enable", ONE_BROKER),
    fixed(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        ONLY_PLAINTEXT,
    ),
    fixed("inter.broker.listener.name", "PLAINTEXT", ONLY_PLAINTEXT),
    fixed(
        "queued.max.request.bytes",
        "-1",
        "use `request.memory.bytes`",
    ),
    meaningless(
        "queued.max.requests",
        "requests are bounded by bytes; see `request.memory.bytes`",
    ),
    meaningless("num.network.threads", THREADS),
    meaningless("num.io.threads", THREADS),
    meaningless("background.threads", THREADS),
    meaningless("num.recovery.threads.per.data.dir", THREADS),
    meaningless("num.replica.fetchers", THREADS),
    meaningless("num.replica.alter.log.dirs.threads", THREADS),
    meaningless("group.coordinator.threads", THREADS),
    fixed(
        "group.coordinator.rebalance.protocols",
        "classic",
        "groups have the classic protocol only",
    ),
    meaningless(
        "group.coordinator.append.linger.ms",
        "appends that meet share a write by themselves",
    ),
    meaningless("socket.send.buffer.bytes", SOCKETS),
    meaningless("socket.receive.buffer.bytes", SOCKETS),
    refused("socket.listen.backlog.size", "the backlog has no setting"),
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
    (
        "group.consumer.",
        "the consumer protocol of KIP-848 is not built",
    ),
    ("group.share.", "share groups are not built"),
    ("group.streams.", "streams groups are not built"),
    (
        "group.coordinator.",
        "groups have the classic protocol only",
    ),
    ("share.", "share groups are not built"),
    ("transaction.", "transactions are not built"),
    ("transactional.", "transactions are not built"),
    ("log.cleaner.", "compaction has no such setting"),
    ("log.local.", "there is no tiered storage"),
    ("log.remote.", "there is no tiered storage"),
    ("log.dir.failure.", "there is one data directory"),
    (
        "log.flush.start.offset.",
        "a log start is saved when it moves",
    ),
    ("follower.fetch.", "there is no tiered storage"),
    ("remote.", "there is no tiered storage"),
    ("request.timeout.", "there is one broker"),
    (
        "server.max.startup.",
        "a start takes the time that it takes",
    ),
    ("socket.connection.setup.", "there is one broker"),
    ("unclean.leader.election.", "there is one replica"),
    ("unstable.", "only stable versions are served"),
    ("add.partitions.to.txn.", "transactions are not built"),
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
];
