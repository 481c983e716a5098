//! Where reading begins and ends.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cli::remote::offsets;
use crate::cli::{when, CliError};
use crate::client::{Cluster, CommittedOffset, OffsetQuery, PartitionKey, EARLIEST, LATEST};

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Beginning,
    End,
    Offset(i64),
    /// So many before the end, of each partition.
    Last(i64),
    /// The first record at or after a time, ms.
    Time(i64),
}

impl From {
    pub fn parse(text: &str, now_ms: i64) -> Result<From, String> {
        if let Some(time) = text.strip_prefix('@') {
            return when::parse(time, now_ms).map(From::Time);
        }
        match (text, text.parse::<i64>()) {
            ("beginning" | "earliest", _) => Ok(From::Beginning),
            ("end" | "latest", _) => Ok(From::End),
            (_, Ok(last)) if last < 0 => Ok(From::Last(last.saturating_neg())),
            (_, Ok(offset)) => Ok(From::Offset(offset)),
            _ => when::parse(text, now_ms).map(From::Time).map_err(|_| {
                format!(
                    "{text} is no place to begin; write beginning, end, an offset, -N for the last N, @TIME in ms, a time such as \
                     2026-11-30T18:00:00Z, or -2h"
                )
            }),
        }
    }
}

/// What to read of a partition: from one offset up to another (exclusive).
pub(super) type Span = (PartitionKey, i64, i64);

/// Each partition's place: what was committed, or else `from`.
pub(super) async fn spans(
    cluster: &Cluster,
    keys: &[PartitionKey],
    from: From,
    committed: &BTreeMap<PartitionKey, CommittedOffset>,
    ends: Ends,
) -> Result<Vec<Span>, CliError> {
    let ask = |mark: i64| {
        keys.iter()
            .map(|key| (key.clone(), mark))
            .collect::<Vec<OffsetQuery>>()
    };
    let earliest = offsets(cluster, &ask(EARLIEST), false, ends.patience).await?;
    let latest = offsets(cluster, &ask(LATEST), ends.read_committed, ends.patience).await?;
    let at_time = match from {
        From::Time(ms) => offsets(cluster, &ask(ms), ends.read_committed, ends.patience).await?,
        _ => BTreeMap::new(),
    };
    let span = |key: &PartitionKey| {
        let (first, last) = (earliest[key], latest[key]);
        let wanted = match committed.get(key) {
            Some(committed) => committed.offset,
            None => begin(from, first, last, at_time.get(key).copied()),
        };
        let start = wanted.clamp(first, last.max(first));
        if start != wanted {
            eprintln!(
                "highwater: {} partition {}: offset {wanted} is not in the log ({first} to {last}); beginning at {start}",
                key.0, key.1
            );
        }
        (
            key.clone(),
            start,
            if ends.follow { i64::MAX } else { last },
        )
    };
    Ok(keys.iter().map(span).collect())
}

/// Where reading ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    /// Nowhere; else at the end as it is now.
    pub follow: bool,
    pub read_committed: bool,
    /// How long a leader may be away.
    pub patience: Duration,
}

/// `at_time` is -1 where no record is that late.
fn begin(from: From, first: i64, last: i64, at_time: Option<i64>) -> i64 {
    match from {
        From::Beginning => first,
        From::End => last,
        From::Offset(offset) => offset,
        From::Last(count) => last.saturating_sub(count).max(first),
        From::Time(_) => at_time.filter(|offset| *offset >= 0).unwrap_or(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_words_numbers_and_times() {
        let now = 10_000_000;
        let cases = [
            ("beginning", From::Beginning),
            ("latest", From::End),
            ("17", From::Offset(17)),
            ("-5", From::Last(5)),
            ("@17", From::Time(17)),
            ("-10s", From::Time(now - 10_000)),
            ("1970-01-02", From::Time(86_400_000)),
        ];
        for (text, expected) in cases {
            assert_eq!(From::parse(text, now), Ok(expected), "{text}");
        }
        for bad in ["", "start", "@", "@-5", "1.5"] {
            assert!(From::parse(bad, now).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_place_becomes_an_offset() {
        let cases = [
            (From::Beginning, None, 10),
            (From::End, None, 20),
            (From::Offset(3), None, 3),
            (From::Last(4), None, 16),
            (From::Last(99), None, 10),
            (From::Time(5), Some(12), 12),
            (From::Time(5), Some(-1), 20),
        ];
        for (from, at_time, expected) in cases {
            assert_eq!(begin(from, 10, 20, at_time), expected, "{from:?}");
        }
    }
}
