//! A partition log and what the logs of one shard share.
//!
//! [`Log`] is a cheap clone over one [`LogShared`], used by the tasks of one
//! executor: one appender, any number of readers, the flusher, checkpoints. They
//! interleave at every `.await`; what keeps them apart:
//! - the appender writes beyond `end_offset` only, in memory that nobody else sees
//!   until the write completed, and then publishes it in one stretch without an
//!   `.await` (`append.rs`);
//! - a reader works below the `end_offset` that it saw, holding its own refcounts of
//!   segments, files and buffers (`read.rs`);
//! - sealing and checkpoints write files beside the segment, so they exclude each
//!   other by [`LogShared::side_files`] (`segment.rs`, `checkpoint.rs`);
//! - truncation and deletion first close the [`IoGate`] and wait until no I/O is left;
//! - before another log is loaded from the directory, this one is retired (`retire.rs`).
//!
//! What it is not: it does not decide when to flush, checkpoint, or delete.

use super::cache::Cache;
use super::checkpoint::SideFilesWritten;
use super::flusher::{FlushFence, FlushTurn, Flusher};
use super::index::{OffsetIndex, TimeIndex};
use super::leader_epochs::{EpochEnd, EpochEntry, LeaderEpochs};
use super::producer_state::{BatchProducer, ProducerStates};
use super::read::ReadAhead;
use super::recycle::{RecyclePool, Recycler};
use super::room::Room;
use super::segment::{file_name, OpenSegments, Segment};
use super::{LoadError, Recorder, Throttle};
use crate::observe::Counters;
use crate::runtime::local::{Budget, Event};
use crate::runtime::{Dir, File, OpenMode, Rt, SyncSite, BLOCK_BYTES};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
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
    next_log: Cell<u64>,
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

/// The settings of one log. `Default` is Kafka's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`.
    pub segment_bytes: u32,
    /// `segment.ms`.
    pub segment_ms: i64,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u32,
    /// `segment.index.bytes`.
    pub index_bytes_max: u32,
    /// Flushed bytes after which the owner should call [`Log::checkpoint`].
    pub checkpoint_bytes: u64,
    /// `segment.jitter.ms`.
    pub segment_jitter_ms: i64,
    /// `file.delete.delay.ms`.
    pub file_delete_delay_ms: u64,
    /// `cleanup.policy` contains `compact`: offsets may have gaps.
    pub compacted: bool,
    /// Whether expired segments are overwritten as new ones.
    pub recycle_segments: bool,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 60 * 60 * 1000,
            index_interval_bytes: 4096,
            index_bytes_max: 10 << 20,
            checkpoint_bytes: 64 << 20,
            segment_jitter_ms: 0,
            file_delete_delay_ms: 60_000,
            compacted: false,
            recycle_segments: false,
        }
    }
}

impl LogConfig {
    /// By how much earlier than `segment.ms` one segment is rolled: drawn when it is
    /// created, so that logs that were created together do not roll together.
    pub(super) fn draw_jitter_ms(&self, rt: &Rt) -> i64 {
        match self.segment_jitter_ms.min(self.segment_ms) {
            none if none <= 0 => 0,
            most => (rt.random_u64() % most as u64) as i64,
        }
    }
}

/// A batch to append, with its offsets assigned.
#[derive(Debug, Clone)]
pub struct LogBatch {
    /// One whole v2 batch as received; base offset and leader epoch are stamped in
    /// the copy that is written.
    pub bytes: Bytes,
    /// The offset of its first record.
    pub base_offset: i64,
    /// The offset of its last record.
    pub last_offset: i64,
    /// The leader epoch under which it is appended.
    pub leader_epoch: i32,
    /// Its largest timestamp, milliseconds; -1 if it has none.
    pub max_timestamp: i64,
    /// The idempotent producer that made it, if one did.
    pub producer: Option<BatchProducer>,
}

/// One partition's log. Cheap to clone; all clones are the same log.
#[derive(Clone)]
pub struct Log(pub(super) Rc<LogShared>);

pub(super) struct LogShared {
    pub(super) storage: Storage,
    /// Names the log in the cache; never used twice.
    pub(super) id: u64,
    pub(super) dir: Dir,
    pub(super) config: Cell<LogConfig>,
    pub(super) state: RefCell<LogState>,
    pub(super) append_busy: Cell<bool>,
    /// An append was dropped while its write may have been in flight: it may land at
    /// any time.
    pub(super) write_lost: Cell<bool>,
    /// A segment file was created and its name is not durable yet.
    pub(super) name_unsynced: Cell<bool>,
    pub(super) gate: IoGate,
    /// Held by whoever writes the files beside a segment: one at a time.
    pub(super) side_files: Budget,
    pub(super) side_files_written: RefCell<SideFilesWritten>,
    pub(super) seal_task: Cell<SealTask>,
    /// Told when a flush of this log ended, or the log closed.
    pub(super) flush_ended: Event,
    pub(super) read_ahead: ReadAhead,
    /// Offsets may have gaps: the log is, or once was, compacted. Never turns off.
    pub(super) may_have_gaps: Cell<bool>,
    /// Where a read found no batch, though LEO is not below its end.
    pub(super) empty_range: Cell<Option<(i64, i64)>>,
    /// The first offset that was not compacted, once the log began to be.
    pub(super) cleaned_to: Cell<Option<i64>>,
    /// How the owner makes it durable.
    pub(super) record_cleaned: RefCell<Option<Recorder>>,
    /// The smallest delete horizon of what was compacted, as far as it is known, milliseconds.
    pub(super) delete_horizon: Cell<Option<i64>>,
    /// A round of compaction is under way.
    pub(super) compacting: Cell<bool>,
    pub(super) recycler: Rc<Recycler>,
}

pub(super) struct LogState {
    pub(super) log_start_offset: i64,
    /// LEO: written.
    pub(super) end_offset: i64,
    pub(super) flushed_offset: i64,
    pub(super) recovery_point: i64,
    /// In offset order, never empty; the last one is the active segment.
    pub(super) segments: Vec<Rc<Segment>>,
    /// The bytes of the active segment's last, partial block.
    pub(super) tail: Vec<u8>,
    pub(super) append_fence: Option<String>,
    pub(super) flush_fence: Option<FlushFence>,
    /// Set when a close or deletion began: no more appends.
    pub(super) closing: bool,
    pub(super) flush_turn: FlushTurn,
    pub(super) epochs: LeaderEpochs,
    /// The producers as of `end_offset`.
    pub(super) producers: ProducerStates,
    /// How often the log was cut: what was noted of its end before may not hold.
    pub(super) truncations: u64,
}

/// The task that seals in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SealTask {
    /// None runs.
    Idle,
    /// One runs, or waits for its turn.
    Running,
    /// The last one failed. The next checkpoint tries again.
    Failed,
}

/// What a load found, for [`Log::assemble`].
pub(super) struct LoadedLog {
    pub(super) storage: Storage,
    pub(super) dir: Dir,
    pub(super) config: LogConfig,
    pub(super) log_start_offset: i64,
    /// Every byte below the end is durable: a load syncs what it scanned.
    pub(super) recovery_point: i64,
    /// In offset order, at least one. The last becomes the active segment and must
    /// have its file (open for writing) and indexes.
    pub(super) segments: Vec<LoadedSegment>,
    /// The bytes of the last segment from its last block boundary to its end.
    pub(super) tail: Vec<u8>,
    pub(super) epochs: LeaderEpochs,
    /// The producers as of the end.
    pub(super) producers: ProducerStates,
    /// The first offset that was not compacted, if the log ever was.
    pub(super) cleaned_to: Option<i64>,
}

/// One segment as a load found it.
pub(super) struct LoadedSegment {
    pub(super) base_offset: i64,
    /// The offset after its last batch.
    pub(super) next_offset: i64,
    /// Bytes of whole batches.
    pub(super) len: u64,
    /// The file's size, which preallocation may have taken past `len`.
    pub(super) allocated: u64,
    /// The largest timestamp of the first batch, if there is a batch.
    pub(super) first_batch_timestamp: Option<i64>,
    /// The largest timestamp and the last offset of the batch that brought it; -1
    /// and the base offset if there is none.
    pub(super) max_timestamp: (i64, i64),
    /// Open file and indexes; a sealed segment opens them when they are first needed.
    pub(super) open: Option<(File, OffsetIndex, TimeIndex)>,
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

impl Log {
    /// Creates a new, empty log that starts at offset 0, its directory and first
    /// segment durable. [`LoadError::NotEmpty`] if a segment is there.
    pub async fn create(storage: &Storage, dir: Dir, config: LogConfig) -> Result<Log, LoadError> {
        dir.create_all(SyncSite::PartitionCreate).await?;
        let entries = dir.list().await?;
        if entries.iter().any(|entry| entry.name.ends_with(".log")) {
            return Err(LoadError::NotEmpty(dir.path().display().to_string()));
        }
        let file = dir.open(&file_name(0, "log"), OpenMode::CreateNew).await?;
        dir.sync(SyncSite::SegmentCreate).await?;
        Ok(Log::assemble(LoadedLog {
            storage: storage.clone(),
            dir,
            config,
            log_start_offset: 0,
            recovery_point: 0,
            segments: vec![LoadedSegment {
                base_offset: 0,
                next_offset: 0,
                len: 0,
                allocated: 0,
                first_batch_timestamp: None,
                max_timestamp: (-1, 0),
                open: Some((file, OffsetIndex::new(0), TimeIndex::new(0))),
            }],
            tail: Vec::new(),
            epochs: LeaderEpochs::new(),
            producers: ProducerStates::default(),
            cleaned_to: None,
        }))
    }

    /// Makes a log of what a load found. Every segment but the last is sealed.
    pub(super) fn assemble(loaded: LoadedLog) -> Log {
        let LoadedLog {
            storage,
            dir,
            config,
            log_start_offset,
            recovery_point,
            segments,
            tail,
            epochs,
            producers,
            cleaned_to,
        } = loaded;
        let now_ms = storage.rt().wall_clock_ms();
        let last = segments.len().checked_sub(1).expect("a log has a segment");
        let segments: Vec<Rc<Segment>> = segments
            .into_iter()
            .enumerate()
            .map(|(i, segment)| {
                let active = i == last;
                let jitter_ms = match active {
                    true => config.draw_jitter_ms(storage.rt()),
                    false => 0,
                };
                Rc::new(Segment::loaded(segment, active, now_ms, jitter_ms))
            })
            .collect();
        let end = segments[last].extent();
        assert_eq!(
            tail.len() as u64,
            end.len % BLOCK_BYTES as u64,
            "the tail is the last segment's partial block"
        );
        for segment in &segments[..last] {
            if segment.file().is_some() {
                storage.0.open_segments.used(segment);
            }
        }
        let recycler = Rc::new(Recycler::new(storage.0.recycling.clone()));
        if config.compacted {
            recycler.end();
        }
        let id = storage.0.next_log.get();
        storage.0.next_log.set(id + 1);
        Log(Rc::new(LogShared {
            id,
            dir,
            config: Cell::new(config),
            state: RefCell::new(LogState {
                log_start_offset,
                end_offset: end.next_offset,
                flushed_offset: end.next_offset,
                recovery_point,
                segments,
                tail,
                append_fence: None,
                flush_fence: None,
                closing: false,
                flush_turn: FlushTurn::Idle,
                epochs,
                producers,
                truncations: 0,
            }),
            append_busy: Cell::new(false),
            write_lost: Cell::new(false),
            name_unsynced: Cell::new(false),
            gate: IoGate::new(),
            side_files: Budget::new(1),
            side_files_written: RefCell::default(),
            seal_task: Cell::new(SealTask::Idle),
            flush_ended: Event::new(),
            read_ahead: ReadAhead::new(),
            may_have_gaps: Cell::new(config.compacted || cleaned_to.is_some()),
            empty_range: Cell::new(None),
            cleaned_to: Cell::new(cleaned_to),
            record_cleaned: RefCell::default(),
            delete_horizon: Cell::new(None),
            compacting: Cell::new(false),
            recycler,
            storage,
        }))
    }

    /// The first offset that exists.
    pub fn log_start_offset(&self) -> i64 {
        self.0.state.borrow().log_start_offset
    }

    /// LEO: the offset after the last written batch.
    pub fn end_offset(&self) -> i64 {
        self.0.state.borrow().end_offset
    }

    /// Every batch below it is durable.
    pub fn flushed_offset(&self) -> i64 {
        self.0.state.borrow().flushed_offset
    }

    /// The recovery point that may be recorded: at or below the flushed offset.
    pub fn recovery_point(&self) -> i64 {
        self.0.state.borrow().recovery_point
    }

    /// Bytes of all segments.
    pub fn size_bytes(&self) -> u64 {
        let state = self.0.state.borrow();
        state.segments.iter().map(|s| s.len()).sum()
    }

    /// Number of segments, the active one included.
    pub fn segment_count(&self) -> usize {
        self.0.state.borrow().segments.len()
    }

    /// Replaces the settings; they hold from the next append on.
    pub fn set_config(&self, config: LogConfig) {
        self.0.config.set(config);
        if config.compacted {
            self.0.may_have_gaps.set(true);
            // For good: from now on it may be compacted at any time.
            self.0.recycler.end();
        } else if !config.recycle_segments {
            self.0
                .recycler
                .drop_spares(self.0.storage.rt(), &self.0.dir);
        }
    }

    /// The first offset that was not compacted, if the log ever was: its offsets may have
    /// gaps.
    pub fn cleaned_to(&self) -> Option<i64> {
        self.0.cleaned_to.get()
    }

    /// How the first offset that was not compacted is made durable. A log that was compacted
    /// is cut below it only with this.
    pub fn record_cleaned_with(&self, recorder: Recorder) {
        self.0.record_cleaned.replace(Some(recorder));
    }

    /// The latest leader epoch that the log knows.
    pub fn latest_leader_epoch(&self) -> Option<i32> {
        self.latest_epoch().map(|entry| entry.epoch)
    }

    /// The same with its start offset.
    pub fn latest_epoch(&self) -> Option<EpochEntry> {
        self.0.state.borrow().epochs.latest()
    }

    /// The leader epoch that wrote `offset`, or that will.
    pub fn epoch_of(&self, offset: i64) -> Option<i32> {
        self.0.state.borrow().epochs.epoch_for_offset(offset)
    }

    /// Where a leader epoch ended (see [`LeaderEpochs::end_offset_for`]); the latest
    /// ends at `end_offset`.
    pub fn end_of_epoch(&self, epoch: i32, end_offset: i64) -> Option<EpochEnd> {
        let state = self.0.state.borrow();
        state.epochs.end_offset_for(epoch, end_offset)
    }

    /// Notes that `epoch` starts at `start_offset` (see [`LeaderEpochs::assign`]). It
    /// becomes durable with the next checkpoint; an epoch that wrote something is
    /// found again by recovery even before.
    pub fn assign_epoch(&self, epoch: i32, start_offset: i64) {
        self.0.state.borrow_mut().epochs.assign(epoch, start_offset);
    }

    /// The idempotent producers as of LEO. Costs nothing.
    pub fn producers(&self) -> ProducerStates {
        self.0.state.borrow().producers.clone()
    }

    /// Forgets inactive producers (see [`ProducerStates::expire`]). Returns how many.
    pub fn expire_producers(&self, now_ms: i64, expiration_ms: i64) -> usize {
        let mut state = self.0.state.borrow_mut();
        state.producers.expire(now_ms, expiration_ms)
    }

    /// Ends the log's use before its directory is removed: refuses new work, waits
    /// for I/O in flight, drops cached buffers and files. Removing the directory is
    /// the caller's.
    pub async fn delete(self) {
        self.0.state.borrow_mut().closing = true;
        self.0.gate.close().await;
        self.0.drop_memory();
    }
}

impl LogShared {
    /// The active segment.
    pub(super) fn active(&self) -> Rc<Segment> {
        let state = self.state.borrow();
        state.segments[state.segments.len() - 1].clone()
    }

    /// Lets go of buffers and files, once the gate is closed.
    pub(super) fn drop_memory(&self) {
        self.storage.0.cache.remove_log(self.id);
        for segment in &self.state.borrow().segments {
            segment.close();
        }
        self.flush_ended.notify_all();
    }
}

impl Drop for LogShared {
    /// Nobody asks for its buffers any more.
    fn drop(&mut self) {
        self.storage.0.cache.remove_log(self.id);
    }
}

/// Counts I/O in flight on a log, so that truncation, closing and deletion can wait
/// until none is left. Who is inside never enters again.
#[derive(Clone)]
pub(super) struct IoGate(Rc<GateState>);

struct GateState {
    /// How many are inside, by the side on which they entered.
    inside: [Cell<usize>; 2],
    /// The side on which they enter now.
    side: Cell<usize>,
    door: Cell<Door>,
    changed: Event,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Open,
    /// Someone has the log for himself; others wait.
    Held,
    /// Nobody enters any more.
    Closed,
}

/// Being inside the gate.
pub(super) struct IoGuard(Rc<GateState>, usize);

/// Having the log for oneself; opens the gate again when dropped.
pub(super) struct ExclusiveGuard(Rc<GateState>);

/// The gate was closed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GateClosed;

impl IoGate {
    fn new() -> IoGate {
        IoGate(Rc::new(GateState {
            inside: Default::default(),
            side: Cell::new(0),
            door: Cell::new(Door::Open),
            changed: Event::new(),
        }))
    }

    /// Enters, once nobody has the log for himself.
    pub(super) async fn enter(&self) -> Result<IoGuard, GateClosed> {
        self.0
            .changed
            .wait_until(|| self.0.door.get() != Door::Held)
            .await;
        if self.0.door.get() == Door::Closed {
            return Err(GateClosed);
        }
        let side = self.0.side.get();
        let inside = &self.0.inside[side];
        inside.set(inside.get() + 1);
        Ok(IoGuard(self.0.clone(), side))
    }

    /// Waits until everybody who is inside now has left; keeps nobody out.
    pub(super) async fn grace(&self) {
        let gate = &self.0;
        let other = || &gate.inside[1 - gate.side.get()];
        // Those whom an earlier grace waits for.
        gate.changed.wait_until(|| other().get() == 0).await;
        let left = gate.side.get();
        gate.side.set(1 - left);
        gate.changed
            .wait_until(|| gate.inside[left].get() == 0)
            .await;
    }

    /// True once the gate is closed for good.
    pub(super) fn is_closed(&self) -> bool {
        self.0.door.get() == Door::Closed
    }

    /// Keeps others out, and waits until nobody is inside.
    pub(super) async fn exclusive(&self) -> Result<ExclusiveGuard, GateClosed> {
        self.0
            .changed
            .wait_until(|| self.0.door.get() != Door::Held)
            .await;
        if self.0.door.get() == Door::Closed {
            return Err(GateClosed);
        }
        self.0.door.set(Door::Held);
        let guard = ExclusiveGuard(self.0.clone());
        self.0.changed.wait_until(|| self.0.is_empty()).await;
        Ok(guard)
    }

    /// Waits until the gate is closed for good.
    pub(super) async fn closed(&self) {
        self.0.changed.wait_until(|| self.is_closed()).await;
    }

    /// Closes the gate for good, and waits until nobody is inside.
    pub(super) async fn close(&self) {
        self.0
            .changed
            .wait_until(|| self.0.door.get() != Door::Held)
            .await;
        self.0.door.set(Door::Closed);
        self.0.changed.notify_all();
        self.0.changed.wait_until(|| self.0.is_empty()).await;
    }
}

impl GateState {
    fn is_empty(&self) -> bool {
        self.inside.iter().all(|inside| inside.get() == 0)
    }
}

impl Drop for IoGuard {
    fn drop(&mut self) {
        let inside = &self.0.inside[self.1];
        inside.set(inside.get() - 1);
        if inside.get() == 0 {
            self.0.changed.notify_all();
        }
    }
}

impl Drop for ExclusiveGuard {
    fn drop(&mut self) {
        self.0.door.set(Door::Open);
        self.0.changed.notify_all();
    }
}
