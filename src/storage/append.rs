//! Appending: one aligned buffer, one direct write, then everything becomes visible.
//!
//! The buffer is made to measure: the last partial block of the write before, the
//! batches (the one copy; base offset and leader epoch are stamped in it), zeros up
//! to the block. Once submitted it never changes, and after the write it is the cache
//! entry. Writing the partial block again is safe: its bytes are the same.
//!
//! Why nothing half-done is seen: until the last write of an append completed, all
//! that changes is local to it (and the file beyond LEO). Then [`publish`] moves
//! segments, indexes, producers, cache, tail and LEO in one stretch without an `.await`. If a
//! write fails, or the append is dropped half-way, the log is fenced: what lies beyond
//! LEO is unknown, and only a load from disk may sort that out.
//!
//! What it is not: it neither validates batches nor limits what one write takes (the
//! partition's appender does), and it makes nothing durable.
//!
//! [`publish`]: LogShared::publish

use super::batch;
use super::cache::{BatchRun, RunBatch};
use super::log::LogShared;
use super::segment::{file_name, Extent, IndexEntry, RollClock, Segment};
use super::{AppendError, Log, LogBatch};
use crate::runtime::{IoError, OpenMode, SharedBuf, BLOCK_BYTES};
use std::rc::Rc;

impl Log {
    /// Appends batches, whose offsets follow the end of the log without a gap (but in a log that
    /// is compacted), in one write (more
    /// where a roll falls between them). LEO rises once all are written; on an error
    /// it does not move, and (see [`AppendError`]) the log is fenced. One caller at a
    /// time; the future is run to its end.
    pub async fn append(&self, batches: &[LogBatch]) -> Result<(), AppendError> {
        let log = &*self.0;
        let mut turn = AppendTurn::take(log);
        let Ok(_io) = log.gate.enter().await else {
            return turn.end(Err(AppendError::Closed));
        };
        if let Err(refused) = log.admit(batches) {
            return turn.end(Err(refused));
        }
        turn.writing = true;
        match log.write(batches).await {
            Ok(written) => {
                log.publish(batches, written);
                turn.end(Ok(()))
            }
            Err(error) => {
                let error = AppendError::from(error);
                log.state.borrow_mut().append_fence = Some(error.to_string());
                turn.end(Err(error))
            }
        }
    }
}

/// One write that completed, not yet visible.
struct Written {
    segment: Rc<Segment>,
    /// The segment was created by this append.
    created: bool,
    /// The segment after the write.
    extent: Extent,
    index_entries: Vec<IndexEntry>,
    /// How many batches it took.
    batch_count: usize,
    buf: SharedBuf,
    /// Where the buffer was written.
    position: u64,
    /// Bytes of the buffer before the first batch.
    prefix: usize,
}

impl LogShared {
    /// Checks, before anything is written, that the batches may be appended.
    fn admit(&self, batches: &[LogBatch]) -> Result<(), AppendError> {
        let state = self.state.borrow();
        if state.closing {
            return Err(AppendError::Closed);
        }
        if let Some(reason) = &state.append_fence {
            return Err(AppendError::Fenced(reason.clone()));
        }
        let mut expected = state.end_offset;
        for batch in batches {
            assert!(
                batch.bytes.len() >= batch::HEADER_BYTES && batch.last_offset >= batch.base_offset,
                "callers append whole, validated batches"
            );
            // A gap is refused as well: a load takes it for the end of the log. Only in a log
            // that is compacted may what a leader compacted away be missing.
            let is_gap = batch.base_offset > expected;
            if batch.base_offset < expected || (is_gap && !self.may_have_gaps.get()) {
                return Err(AppendError::OutOfOrder {
                    expected,
                    got: batch.base_offset,
                });
            }
            expected = batch.last_offset + 1;
        }
        Ok(())
    }

    /// Writes all batches, rolling where needed.
    async fn write(&self, batches: &[LogBatch]) -> Result<Vec<Written>, IoError> {
        let mut written: Vec<Written> = Vec::with_capacity(1);
        let mut segment = self.active();
        let mut extent = segment.extent();
        let mut tail = std::mem::take(&mut self.state.borrow_mut().tail);
        let mut created = false;
        let mut rest = batches;
        while !rest.is_empty() {
            let (count, after, index_entries) = self.fitting(&segment, extent, rest);
            if count == 0 {
                segment = Rc::new(self.create_segment(rest[0].base_offset).await?);
                extent = segment.extent();
                tail.clear();
                created = true;
                continue;
            }
            let (now, later) = rest.split_at(count);
            let position = extent.len - tail.len() as u64;
            let buf = self.fill(&tail, now);
            self.write_buf(&segment, &buf, position, after.len).await?;
            let prefix = tail.len();
            copy_tail(&mut tail, &buf, after.len - position);
            written.push(Written {
                segment: segment.clone(),
                created: std::mem::take(&mut created),
                extent: after,
                index_entries,
                batch_count: count,
                buf,
                position,
                prefix,
            });
            extent = after;
            rest = later;
        }
        self.state.borrow_mut().tail = tail;
        Ok(written)
    }

    /// How many of `batches` go to this segment, how far it then reaches, and the
    /// index entries due. 0 if the first must roll.
    fn fitting(
        &self,
        segment: &Segment,
        mut extent: Extent,
        batches: &[LogBatch],
    ) -> (usize, Extent, Vec<IndexEntry>) {
        let config = self.config.get();
        let now_ms = self.storage.rt().wall_clock_ms();
        let mut entries = Vec::new();
        let mut count = 0;
        for batch in batches {
            if extent.must_roll(segment.base_offset, segment.clock, batch, &config, now_ms) {
                break;
            }
            entries.extend(extent.add(batch, config.index_interval_bytes));
            count += 1;
        }
        (count, extent, entries)
    }

    /// Creates a segment's file; it is not part of the log yet. The caller has the log's
    /// end for itself.
    pub(super) async fn create_segment(&self, base_offset: i64) -> Result<Segment, IoError> {
        let name = file_name(base_offset, "log");
        let config = self.config.get();
        let recycled = self.recycler.take(&self.dir, &config, &name).await?;
        let (file, allocated) = match recycled {
            Some(recycled) => recycled,
            None => {
                let file = self.dir.open(&name, OpenMode::CreateNew).await?;
                // A flush that began before cannot have synced the name; the next one will.
                self.name_unsynced.set(true);
                (file, 0)
            }
        };
        let rt = self.storage.rt();
        let clock = RollClock {
            created_ms: rt.wall_clock_ms(),
            jitter_ms: config.draw_jitter_ms(rt),
        };
        let segment = Segment::new_active(base_offset, file, clock);
        segment.set_allocated(allocated);
        Ok(segment)
    }

    fn fill(&self, tail: &[u8], batches: &[LogBatch]) -> SharedBuf {
        let bytes: usize = batches.iter().map(|b| b.bytes.len()).sum();
        let mut buf = self.storage.rt().write_buf(tail.len() + bytes);
        let memory = buf.as_mut_slice();
        memory[..tail.len()].copy_from_slice(tail);
        let mut at = tail.len();
        for batch in batches {
            let end = at + batch.bytes.len();
            memory[at..end].copy_from_slice(&batch.bytes);
            batch::stamp(&mut memory[at..end], batch.base_offset, batch.leader_epoch);
            at = end;
        }
        buf.freeze()
    }

    async fn write_buf(
        &self,
        segment: &Segment,
        buf: &SharedBuf,
        position: u64,
        len_after: u64,
    ) -> Result<(), IoError> {
        let file = segment.file().expect("the active segment is open");
        let end = position + buf.len() as u64;
        let segment_bytes = u64::from(self.config.get().segment_bytes);
        if let Some(size) = preallocation(segment.allocated(), len_after, segment_bytes) {
            // Where space is scarce, the write itself takes what it needs, and no more.
            let room = self.storage.room();
            if let Some(_taken) = room.reserve(size - segment.allocated()) {
                match file.pre_allocate(size).await {
                    Ok(()) => segment.set_allocated(size),
                    // What the file got is for its next writes. To give it back would help
                    // nobody at once: a file system may keep it until its journal commits.
                    Err(error) if error.is_no_space() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        file.write_at(buf, position).await?;
        let counters = &self.storage.0.counters;
        counters.writes.add(1);
        counters.write_bytes.add(buf.len() as u64);
        segment.set_allocated(segment.allocated().max(end));
        Ok(())
    }

    /// Makes an append visible. No `.await` in here.
    fn publish(&self, batches: &[LogBatch], written: Vec<Written>) {
        let mut state = self.state.borrow_mut();
        let now_ms = self.storage.rt().wall_clock_ms();
        let mut rest = batches;
        for write in written {
            let (now, later) = rest.split_at(write.batch_count);
            rest = later;
            if write.created {
                let last = state.segments.len() - 1;
                state.segments[last].roll(state.producers.clone());
                state.segments.push(write.segment.clone());
                self.storage.0.counters.segment_rolls.add(1);
            }
            write.segment.publish(write.extent, &write.index_entries);
            for batch in now {
                state.epochs.assign(batch.leader_epoch, batch.base_offset);
                if let Some(producer) = &batch.producer {
                    state.producers.append(
                        producer,
                        batch.base_offset,
                        batch.last_offset,
                        batch.max_timestamp,
                        now_ms,
                    );
                }
            }
            self.storage.0.cache.insert_written(self.id, write.run(now));
        }
        debug_assert!(rest.is_empty());
        if let Some(last) = batches.last() {
            state.end_offset = last.last_offset + 1;
        }
    }
}

impl Written {
    fn run(&self, batches: &[LogBatch]) -> BatchRun {
        let mut start = self.prefix as u32;
        let batches = batches
            .iter()
            .map(|batch| {
                let len = batch.bytes.len() as u32;
                let in_run = RunBatch {
                    base_offset: batch.base_offset,
                    last_offset: batch.last_offset,
                    start,
                    len,
                };
                start += len;
                in_run
            })
            .collect();
        BatchRun {
            segment_base: self.segment.base_offset,
            position: self.position,
            buf: self.buf.slice(0..self.buf.len()),
            batches,
            crcs_checked: true,
        }
    }
}

/// The right to append, one at a time. Dropped without [`AppendTurn::end`] (the
/// future was dropped, or panicked), it fences the log: a write may be in flight. The
/// gate's guard goes with the future, so that the log also notes that a write is lost:
/// it must not be loaded again before the process ends (`retire.rs`). An append that is
/// run to its end pays nothing for this.
struct AppendTurn<'a> {
    log: &'a LogShared,
    /// I/O began.
    writing: bool,
    ended: bool,
}

impl<'a> AppendTurn<'a> {
    fn take(log: &'a LogShared) -> AppendTurn<'a> {
        assert!(!log.append_busy.replace(true), "one append at a time");
        AppendTurn {
            log,
            writing: false,
            ended: false,
        }
    }

    fn end(mut self, result: Result<(), AppendError>) -> Result<(), AppendError> {
        self.ended = true;
        result
    }
}

impl Drop for AppendTurn<'_> {
    fn drop(&mut self) {
        self.log.append_busy.set(false);
        if !self.ended {
            if self.writing {
                self.log.write_lost.set(true);
            }
            let mut state = self.log.state.borrow_mut();
            state
                .append_fence
                .get_or_insert_with(|| "an append was dropped before it ended".to_owned());
        }
    }
}

/// Keeps the last, partial block of what was written: `len` bytes of `buf`.
fn copy_tail(tail: &mut Vec<u8>, buf: &SharedBuf, len: u64) {
    let len = len as usize;
    let block_start = len - len % BLOCK_BYTES;
    tail.clear();
    tail.extend_from_slice(&buf.as_slice()[block_start..len]);
}

/// The size that a segment's file should have reserved before it holds `len` bytes,
/// if more than now: steps that double with the file, from 64 KiB to 32 MiB, never
/// beyond `segment.bytes`.
fn preallocation(allocated: u64, len: u64, segment_bytes: u64) -> Option<u64> {
    if len <= allocated {
        return None;
    }
    let block = BLOCK_BYTES as u64;
    let segment_blocks_bytes = segment_bytes.next_multiple_of(block);
    let mut size = allocated;
    while size < len {
        size += size.clamp(PREALLOCATION_MIN, PREALLOCATION_MAX);
    }
    let size = size.min(segment_blocks_bytes).next_multiple_of(block);
    // A batch larger than the segment, or settings that shrank: the write extends.
    (size > allocated).then_some(size)
}

const PREALLOCATION_MIN: u64 = 64 << 10;
const PREALLOCATION_MAX: u64 = 32 << 20;
