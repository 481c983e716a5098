//! Making a log: a new one, or one of what a load found.
//!
//! What it is not: it reads nothing (`load.rs` does).

use super::checkpoint::SideFilesWritten;
use super::flusher::FlushTurn;
use super::gate::IoGate;
use super::index::{OffsetIndex, TimeIndex};
use super::leader_epochs::LeaderEpochs;
use super::log::{LogShared, LogState, SealTask};
use super::producer_state::ProducerStates;
use super::read::ReadAhead;
use super::recycle::Recycler;
use super::segment::{file_name, Segment};
use super::{LoadError, Log, LogConfig, Storage};
use crate::runtime::local::{Budget, Event};
use crate::runtime::{Dir, File, OpenMode, SyncSite, BLOCK_BYTES};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

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
    /// What is known of the files beside the last segment.
    pub(super) side_files: SideFilesWritten,
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
            side_files: SideFilesWritten::default(),
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
            side_files,
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
            side_files_written: RefCell::new(side_files),
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
}
