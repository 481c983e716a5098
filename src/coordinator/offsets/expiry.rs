//! When committed offsets expire (KIP-211).

use super::changes::{tombstone_bytes, BATCH_BYTES_MAX};
use super::{CommittedOffset, GroupOffsets, Prepared};
use crate::protocol::Str;

/// From when `offsets.retention.minutes` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionFrom {
    /// The group has had no member since this time, ms since the Unix epoch.
    Empty(i64),
    /// From each commit: the group never had members (a simple consumer's), or it is
    /// stable and says which topics it is subscribed to, or it does not know since when it
    /// has been empty.
    Commit,
}

/// What has expired.
#[derive(Debug)]
pub struct Expired {
    /// The tombstones to append; `None` if there are none.
    pub prepared: Option<Prepared>,
    /// Once they are durable the group has no offset left, nor an open transaction: it
    /// may go, if it is empty.
    pub is_all: bool,
}

impl GroupOffsets {
    /// Finds what has expired by `now_ms` (ms since the Unix epoch). Offsets that are being
    /// committed, in a transaction or not, and those of topics that the group is
    /// `subscribed` to stay. At most what one batch can hold; the rest is found later.
    pub fn expire(
        &mut self,
        group: &Str,
        now_ms: i64,
        retention_ms: i64,
        from: RetentionFrom,
        subscribed: &dyn Fn(&str) -> bool,
    ) -> Expired {
        let mut removed = Vec::new();
        let mut bytes = 0;
        let mut is_all = self.in_flight.is_empty() && self.transactions.is_empty();
        for topic in self.committed.topics() {
            let is_subscribed = subscribed(topic);
            for partition in self.committed.partitions(topic) {
                let committed = self.get(topic, partition);
                let is_expired =
                    committed.is_some_and(|it| it.is_expired(now_ms, retention_ms, from));
                if is_expired
                    && bytes < BATCH_BYTES_MAX
                    && !is_subscribed
                    && !self.is_in_flight(topic, partition)
                    && !self.is_unstable(topic, partition)
                {
                    removed.push((self.name_of(topic), partition));
                    bytes += tombstone_bytes(group, topic);
                } else {
                    is_all = false;
                }
            }
        }
        Expired {
            prepared: self.remove_all(group, removed),
            is_all,
        }
    }
}

impl CommittedOffset {
    fn is_expired(&self, now_ms: i64, retention_ms: i64, from: RetentionFrom) -> bool {
        now_ms >= self.expires_at_ms(retention_ms, from)
    }

    fn expires_at_ms(&self, retention_ms: i64, from: RetentionFrom) -> i64 {
        match (self.expire_timestamp_ms, from) {
            (Some(expires_at), _) => expires_at,
            (None, RetentionFrom::Empty(since)) => since.saturating_add(retention_ms),
            (None, RetentionFrom::Commit) => self.commit_timestamp_ms.saturating_add(retention_ms),
        }
    }
}
