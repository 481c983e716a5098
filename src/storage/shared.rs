//! What the logs of one shard share, and the limits of it.
//!
//! What it is not: it knows no log; each holds a clone.

use super::cache::Cache;
use super::flusher::Flusher;
use super::recycle::RecyclePool;
use super::room::Room;
use super::segment::OpenSegments;
use super::Throttle;
use crate::observe::Counters;
use crate::runtime::local::Budget;
use crate::runtime::Rt;
use std::cell::Cell;
use std::rc::Rc;

/// What the logs of one shard share: buffer cache, cold-read budget, flusher, open
/// files. Cheap to clone, `!Send`.
#[derive(Clone)]
pub struct Storage(pub(super) Rc<StorageShared>, Room);

pub(super) struct StorageShared {
    pub(super) rt: Rt,
    pub(super) limits: StorageLimits,
    pub(super) cache: Cache,
    pub(super) cold_reads: Budget,
    grown: Budget,
    pub(super) flusher: Flusher,
    pub(super) open_segments: OpenSegments,
    pub(super) recycling: Rc<RecyclePool>,
    pub(super) counters: Rc<Counters>,
    background: Throttle,
    pub(super) next_log: Cell<u64>,
}

/// The limits of one shard's [`Storage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageLimits {
    /// Bytes of written and read buffers kept for readers.
    pub cache_bytes: u64,
    /// Bytes of reads from disk in flight.
    pub cold_read_bytes: u64,
    /// Bytes of appends in flight; the appender reserves them, the log does not.
    pub write_bytes: u64,
    /// fdatasyncs in flight at once, of all logs.
    pub flushes_in_flight_max: usize,
    /// Sealed segments whose file and indexes are open at once, of all logs.
    pub open_segments_max: usize,
}

impl Storage {
    /// Makes the shared part of one shard.
    pub fn new(rt: Rt, limits: StorageLimits) -> Storage {
        let shared = Rc::new(StorageShared {
            cache: Cache::new(limits.cache_bytes),
            cold_reads: Budget::new(limits.cold_read_bytes),
            grown: Budget::new(limits.write_bytes),
            flusher: Flusher::new(rt.clone(), limits.flushes_in_flight_max),
            open_segments: OpenSegments::new(limits.open_segments_max),
            recycling: Rc::new(RecyclePool::new(rt.clone())),
            counters: Rc::default(),
            background: Throttle::new(rt.clone(), 0),
            next_log: Cell::new(0),
            rt,
            limits,
        });
        Storage(shared, Room::default())
    }

    /// The same for the logs of one data directory, whose writers take their room there.
    pub fn in_room(&self, room: Room) -> Storage {
        Storage(self.0.clone(), room)
    }

    /// The room that writers take; without a limit unless [`Storage::in_room`] gave one.
    pub fn room(&self) -> &Room {
        &self.1
    }

    /// What the shard counts; reads count themselves here.
    pub fn counters(&self) -> &Rc<Counters> {
        &self.0.counters
    }

    /// The runtime of the shard.
    pub fn rt(&self) -> &Rt {
        &self.0.rt
    }

    /// The bandwidth that all background work on the logs shares: no limit until the owner
    /// sets one.
    pub fn background(&self) -> &Throttle {
        &self.0.background
    }

    /// Bytes by which batches that wait to be written exceed what was received: no
    /// request's memory accounts for them. As much again as writes in flight.
    pub fn grown(&self) -> &Budget {
        &self.0.grown
    }

    /// Memory taken and in all, by budget.
    pub fn memory(&self) -> [(&'static str, u64, u64); 3] {
        let taken = |budget: &Budget| budget.total() - budget.available().min(budget.total());
        let (grown, cold) = (&self.0.grown, &self.0.cold_reads);
        [
            ("grown", taken(grown), grown.total()),
            ("cold_reads", taken(cold), cold.total()),
            ("cache", self.0.cache.bytes(), self.0.limits.cache_bytes),
        ]
    }

    /// The limits in force.
    pub fn limits(&self) -> StorageLimits {
        self.0.limits
    }
}
