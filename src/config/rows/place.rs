//! Who and where the broker is, and what topics it makes.

use super::{broker, int, I32_MAX};
use crate::config::table::Setting;
use crate::config::value::Kind;

pub(super) const ROWS: &[Setting] = &[
    // Identity and place.
    broker(
        "node.id",
        int(0, I32_MAX),
        "1",
        "This broker's id; a data directory belongs to the id that first used it.",
    ),
    broker(
        "listeners",
        Kind::Address,
        "127.0.0.1:9092",
        "Where the broker listens, `HOST:PORT` or Kafka's `PLAINTEXT://HOST:PORT`; port 0 \
         takes a free one, an empty host every interface.",
    ),
    broker(
        "advertised.listeners",
        Kind::Address,
        "",
        "The address that clients are told to connect to; empty: the listener's. Needed when \
         the listener is on every interface. Port 0 stands for the listener's port.",
    ),
    broker(
        "log.dirs",
        Kind::Directories,
        "",
        "The data directories, one for each disk: a new partition goes to the one that has the \
         fewest. A directory that fails takes its partitions offline, and the others serve on, \
         unless it is the one with the metadata log (the first, at the first start). Empty: \
         `log.dir`.",
    ),
    broker(
        "log.dir",
        Kind::Directory,
        "./highwater-data",
        "The data directory, where `log.dirs` is empty.",
    ),
    broker(
        "shards",
        int(0, 1024),
        "0",
        "Threads that own partitions and connections, one to a core; 0: one for each CPU that \
         the process may use.",
    ),
    // Topics.
    broker(
        "auto.create.topics.enable",
        Kind::Bool,
        "true",
        "Create a topic when a client that allows it asks for one that does not exist.",
    ),
    broker(
        "num.partitions",
        int(1, 10_000),
        "1",
        "Partitions of a topic that is created without a count.",
    ),
    broker(
        "default.replication.factor",
        int(1, 32_767),
        "1",
        "Replicas of a topic that is created without a count; with one broker only 1 can be \
         created.",
    ),
];
