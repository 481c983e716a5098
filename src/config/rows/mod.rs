//! The table: every setting that this version honours, and every topic setting of Kafka 4.
//!
//! A broker's setting enters when the code behind it works (`unbuilt.rs` answers Kafka's others). A topic's setting is
//! always here, because tools read and write them all: one that cannot work yet is held at one value
//! ([`Limit::Only`]), or its row says why any value is harmless. The order is the order of the documentation.

mod compaction;
mod groups;
mod log;
mod place;
mod serving;
mod topic;

use super::table::{Fallback, Limit, Scope, Setting};
use super::value::Kind;
use super::{FlushOnAck, MessageTimestampType, TopicCompression};

const fn broker(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        name,
        scope: Scope::Broker,
        kind,
        default: Fallback::Value(default),
        limit: None,
        dynamic: false,
        doc,
    }
}

const fn topic(
    name: &'static str,
    kind: Kind,
    default: &'static [&'static str],
    doc: &'static str,
) -> Setting {
    Setting {
        name,
        scope: Scope::Topic,
        kind,
        default: Fallback::Broker(default),
        limit: None,
        dynamic: true,
        doc,
    }
}

/// A topic's setting without a counterpart among the broker's.
const fn topic_alone(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        default: Fallback::Value(default),
        ..topic(name, kind, &[], doc)
    }
}

impl Setting {
    /// The row of a broker's setting that can be changed while the broker runs: one that Kafka changes too, and that
    /// nothing here holds on to.
    const fn dynamic(self) -> Setting {
        Setting {
            dynamic: true,
            ..self
        }
    }

    /// The row with all values but one refused.
    const fn only(self, value: &'static str, because: &'static str) -> Setting {
        let limit = Some(Limit::Only { value, because });
        Setting { limit, ..self }
    }
}

const fn int(min: i64, max: i64) -> Kind {
    Kind::Int { min, max }
}

/// Kafka's `int`.
const I32_MAX: i64 = i32::MAX as i64;

const fn optional_int(min: i64, max: i64) -> Kind {
    Kind::OptionalInt { min, max }
}

const FLUSH_ON_ACK: Kind = Kind::Choice(FlushOnAck::WORDS);
const TIMESTAMP_TYPE: Kind = Kind::Choice(MessageTimestampType::WORDS);
const COMPRESSION: Kind = Kind::Choice(TopicCompression::WORDS);
const GZIP_LEVEL: Kind = Kind::IntOr {
    or: -1,
    min: 1,
    max: 9,
};
const LZ4_LEVEL: Kind = int(1, 17);
const ZSTD_LEVEL: Kind = int(-131_072, 22);
const CLEANUP_POLICY: Kind = Kind::Words(&["compact", "delete"]);
const NO_TIERS: &str = "there is no tiered storage";
const NEVER: &str = "9223372036854775807";
const SEGMENT_BYTES: Kind = int(16 * 1024, I32_MAX);
const INDEX_BYTES: Kind = int(4 * 1024, I32_MAX);

/// The families, in the order of the documentation.
const FAMILIES: [&[Setting]; 6] = [
    place::ROWS,
    log::ROWS,
    compaction::ROWS,
    groups::ROWS,
    serving::ROWS,
    topic::ROWS,
];

/// Every setting. Names are unique within a scope.
pub static SETTINGS: &[Setting] = &ALL;

static ALL: [Setting; COUNT] = all();

const COUNT: usize = {
    let (mut count, mut family) = (0, 0);
    while family < FAMILIES.len() {
        count += FAMILIES[family].len();
        family += 1;
    }
    count
};

/// One table of all families: iterators are not for constants.
const fn all() -> [Setting; COUNT] {
    let mut all = [FAMILIES[0][0]; COUNT];
    let (mut next, mut family) = (0, 0);
    while family < FAMILIES.len() {
        let mut row = 0;
        while row < FAMILIES[family].len() {
            all[next] = FAMILIES[family][row];
            next += 1;
            row += 1;
        }
        family += 1;
    }
    all
}
