//! Where reading begins and ends.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cli::place::Place;
use crate::cli::remote::offsets;
use crate::cli::CliError;
use crate::client::{Cluster, CommittedOffset, OffsetQuery, PartitionKey, EARLIEST, LATEST};

/// What to read of a partition: from one offset up to another (exclusive).
pub(super) type Span = (PartitionKey, i64, i64);

/// Each partition's place: what was committed, or else `from`.
pub(super) async fn spans(
    cluster: &Cluster,
    keys: &[PartitionKey],
    from: Place,
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
        Place::Time(ms) => offsets(cluster, &ask(ms), ends.read_committed, ends.patience).await?,
        _ => BTreeMap::new(),
    };
    let span = |key: &PartitionKey| {
        let (first, last) = (earliest[key], latest[key]);
        let wanted = match committed.get(key) {
            Some(committed) => committed.offset,
            None => from.offset(first, last, at_time.get(key).copied()),
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
