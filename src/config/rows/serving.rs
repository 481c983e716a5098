//! Requests, memory, connections, and what an operator sees.

use super::{broker, int, I32_MAX, NEVER};
use crate::config::table::Setting;
use crate::config::value::Kind;

pub(super) const ROWS: &[Setting] = &[
    // Requests and memory.
    broker(
        "socket.request.max.bytes",
        int(1024, I32_MAX),
        "104857600",
        "Largest request; an eighth of a shard's request memory where that is less.",
    ),
    broker(
        "request.memory.bytes",
        int(0, 1 << 44),
        "0",
        "Memory for requests that are being read and served, over all shards; 0: 1/16 of RAM, \
         at most 1 GiB a shard. A full budget stops reading from sockets.",
    ),
    broker(
        "min.request.progress",
        int(0, I32_MAX),
        "16384",
        "Bytes a second below which, after 10 s, a half-sent request that holds memory is \
         closed first when others wait for memory; 0: never.",
    ),
    broker(
        "fetch.max.bytes",
        int(1024, I32_MAX),
        "57671680",
        "Most bytes of records in the answer to one fetch; a first batch larger than this is \
         still sent whole.",
    ),
    broker(
        "max.incremental.fetch.session.cache.slots",
        int(0, I32_MAX),
        "1000",
        "Most fetch sessions at once, over all shards; a consumer beyond them sends its whole \
         list of partitions with each fetch. 0: no sessions.",
    ),
    broker(
        "cache.bytes",
        int(0, 1 << 44),
        "0",
        "Memory for recent records, over all shards; 0: chosen from the machine's RAM.",
    ),
    broker(
        "max.request.partition.size.limit",
        int(1, I32_MAX),
        "2000",
        "Most partitions in one answer to DescribeTopicPartitions; its cursor leads to the rest.",
    ),
    // Connections.
    broker(
        "max.connections",
        int(1, I32_MAX),
        "2147483647",
        "Most open connections; a further one is closed at once.",
    )
    .dynamic(),
    broker(
        "max.connections.per.ip",
        int(0, I32_MAX),
        "2147483647",
        "Most open connections from one address; a further one is closed at once. 0 where only \
         those in `max.connections.per.ip.overrides` may connect.",
    )
    .dynamic(),
    broker(
        "max.connections.per.ip.overrides",
        Kind::HostCounts,
        "",
        "Addresses or host names with limits of their own, in place of `max.connections.per.ip`; \
         names are resolved when the broker starts.",
    )
    .dynamic(),
    broker(
        "max.connection.creation.rate",
        int(1, I32_MAX),
        "2147483647",
        "Most connections that are accepted in a second; further ones wait to be accepted.",
    )
    .dynamic(),
    broker(
        "connections.max.idle.ms",
        int(1_000, i64::MAX),
        "600000",
        "A connection without a request for this long is closed.",
    ),
    // What an operator sees.
    broker(
        "admin.listener",
        Kind::Address,
        "127.0.0.1:9644",
        "Where `/metrics`, `/healthz`, `/readyz` and `/debug/stalls` are served over HTTP, `HOST:PORT`; port 0 takes a \
         free one, empty: nowhere. Nobody is asked who they are, so keep it from where clients are. A port that is \
         taken ends the start if the setting was given, and is a warning otherwise.",
    ),
    broker(
        "metrics.topics.max",
        int(0, 100_000),
        "200",
        "Topics with metrics of their own; those of the rest are summed under the topic `(other)`.",
    ),
    broker(
        "metrics.partitions.max",
        int(0, 100_000),
        "1000",
        "Partitions with metrics of their own: the first by topic and number.",
    ),
    broker(
        "metrics.group.offsets.max",
        int(0, 100_000),
        "1000",
        "Committed offsets with metrics of their own (offset and lag): the first by group, topic and partition.",
    ),
    broker(
        "stall.threshold.ms",
        Kind::IntOr {
            or: 0,
            min: 10,
            max: 60_000,
        },
        "50",
        "A task that holds its core for longer is recorded, logged and counted (`/debug/stalls`), to about 10 ms; 0: never.",
    ),
    // Kafka's tools set these around a reassignment, and take them away after it.
    broker(
        "leader.replication.throttled.rate",
        int(0, i64::MAX),
        NEVER,
        "Bytes a second that leaders send to throttled replicas. No effect: nothing is replicated.",
    )
    .dynamic(),
    broker(
        "follower.replication.throttled.rate",
        int(0, i64::MAX),
        NEVER,
        "Bytes a second that throttled replicas fetch. No effect: nothing is replicated.",
    )
    .dynamic(),
    broker(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        int(0, i64::MAX),
        NEVER,
        "Bytes a second at which replicas move between directories. No effect: there is one directory.",
    )
    .dynamic(),
];
