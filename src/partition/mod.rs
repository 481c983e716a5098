//! A partition: its log, its replica, its appender and those who wait.
//!
//! A shard owns one [`Partition`] for each replica it holds and calls it from its
//! own tasks only. [`Partition::produce`] is synchronous: it validates a batch,
//! assigns its offsets and queues it, so batches are written in the order of the
//! calls. Everything that waits for the disk runs in tasks of the partition.
//!
//! Four numbers, each with one owner, in rising order: the high watermark (the
//! replica), flushed offset and LEO (the log), next offset (here). Readers see
//! what lies below the high watermark.
//!
//! Why nothing acknowledged is lost: a batch is answered only by the number that
//! its acks policy names, each number rises only after the disk said so, and a
//! failed write answers its batches and all that are queued behind them with an
//! error before anything else is written.
//!
//! What it is not: it knows no client, no other partition and no other core. It
//! does not decide when the whole data directory is given up; it reports a failed
//! device once ([`Partition::on_device_error`]).

mod appender;
mod close;
mod compaction;
mod epochs;
mod fence;
mod fetch;
mod flush;
mod inner;
mod list_offsets;
mod open;
mod produce;
mod producers;
mod retention;
mod scrub;
mod validate;
mod waiters;

#[cfg(test)]
mod tests;

pub use close::{CloseError, ClosedPartition};
pub use fetch::{FetchOutcome, FetchSpec, Reader};
pub use list_offsets::{
    ListedOffset, EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP,
};
pub use open::{PartitionLoad, PartitionOptions};
pub use produce::{Acks, Keep, ProduceError, ProduceTicket};
pub use retention::{LogStartRecorder, Recording, HIGH_WATERMARK};
pub use validate::{RecordRefusal, RecordRefusalReason};
pub use waiters::ProduceDone;

use crate::config::TopicConfig;
use crate::observe::TrafficSnapshot;
use crate::protocol::ErrorCode;
use crate::runtime::local::Event;
use inner::Inner;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// Which partition of which topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PartitionId {
    /// The topic's id, which no other topic ever had.
    pub topic_id: Uuid,
    /// The topic's name.
    pub topic: Rc<str>,
    /// The partition's number within the topic.
    pub index: i32,
}

/// One partition. Cheap to clone; all clones are the same partition.
#[derive(Clone)]
pub struct Partition(Rc<Inner>);

/// A partition's numbers at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The first offset of the log.
    pub log_start_offset: i64,
    /// The offset that the next produced record gets; beyond the LEO while
    /// batches are queued.
    pub next_offset: i64,
    /// The LEO: the offset after the last written record.
    pub end_offset: i64,
    /// The offset up to which the log is flushed.
    pub flushed_offset: i64,
    /// The high watermark: consumers see what lies below.
    pub high_watermark: i64,
    /// The last stable offset: read_committed consumers see what lies below.
    pub last_stable_offset: i64,
    /// The epoch that is stamped on batches.
    pub leader_epoch: i32,
}

/// What a partition can do at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionState {
    /// It reads and writes.
    Online,
    /// A write failed in a way that leaves the device usable (no space, a short
    /// write). It reads; writes get KAFKA_STORAGE_ERROR until it has been rebuilt
    /// from disk, which happens by itself.
    Fenced,
    /// The device failed, or flushed data is damaged. Everything gets
    /// KAFKA_STORAGE_ERROR until the broker is restarted.
    Offline,
}

impl Partition {
    /// Which partition this is.
    pub fn id(&self) -> &PartitionId {
        &self.0.id
    }

    /// What it can do at the moment.
    pub fn state(&self) -> PartitionState {
        self.0.state.get()
    }

    /// Its numbers now.
    pub fn numbers(&self) -> Numbers {
        self.0.numbers()
    }

    /// What went in and out since it was opened.
    pub fn traffic(&self) -> TrafficSnapshot {
        self.0.traffic.snapshot()
    }

    /// Counts a batch that [`Partition::produce`] has refused.
    pub fn count_refused(&self) {
        self.0.count_errors(1);
    }

    /// Bytes of the log, and its segments.
    pub fn size(&self) -> (u64, usize) {
        let log = self.0.log();
        (log.size_bytes(), log.segment_count())
    }

    /// The bytes of whole batches between `offset` and what the reader sees, without
    /// reading them: what a long poll compares with `min.bytes`. About right where
    /// the batches are not cached.
    ///
    /// # Errors
    /// OFFSET_OUT_OF_RANGE, and what every call gets from a partition that is
    /// offline or stopped.
    pub fn bytes_available(&self, offset: i64, reader: Reader) -> Result<u64, ErrorCode> {
        self.0.bytes_available(offset, reader)
    }

    /// Notified when the high watermark or the log start offset moves, and when
    /// the partition stops or goes offline.
    pub fn bound_moved(&self) -> Event {
        self.0.bound_moved.clone()
    }

    /// Calls `handler`, at most once, when the device failed, so that the owner can
    /// take the whole data directory offline. The partition itself is offline by
    /// then. Replaces an earlier handler.
    pub fn on_device_error(&self, handler: impl FnOnce(&PartitionId, &str) + 'static) {
        self.0.set_device_error_handler(Box::new(handler));
    }

    /// Takes the partition offline, because its data directory is: everything that
    /// is queued or waits gets KAFKA_STORAGE_ERROR, and so does what comes later.
    pub fn take_offline(&self, reason: &str) {
        self.0.go_offline(reason);
        self.0.log().give_up(reason);
    }

    /// Starts a flush if something written is older than `flush.ms`. The owner calls it
    /// every second or so.
    pub fn flush_old(&self) {
        self.0.flush_old();
    }

    /// `file.delete.delay.ms` of the topic.
    pub fn file_delete_delay(&self) -> Duration {
        Duration::from_millis(self.0.config.borrow().file_delete_delay_ms)
    }

    /// Puts changed topic settings in force.
    pub fn set_config(&self, config: TopicConfig) {
        self.0.set_config(config);
    }
}
