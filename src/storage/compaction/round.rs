//! One round: map, groups, swaps, and how far the log is compacted then.

use super::fill::{fill, Filled, OpenTransactions, RECORDS_AT_ONCE};
use super::group::{group, GroupLimits, Source as Sizes};
use super::horizon::write_horizon;
use super::need::{of_retention, Range};
use super::pace::{Buffer, Halt, Pace};
use super::retain::{BatchFacts, BatchFate, LiveProducers, Retention};
use super::source::Source;
use super::target::Target;
use super::{Compacted, CompactionError, CompactionMeans, CompactionRules};
use crate::protocol::batch::{BatchView, Record, RecordIter, RECORDS_BYTES_MAX};
use crate::storage::log::LogShared;
use crate::storage::log_files::LogFiles;
use crate::storage::segment::{Segment, SegmentPhase};
use crate::storage::{LoadError, Log};
use std::rc::Rc;

impl Log {
    /// Compacts what `rules` allow. One round at a time. It may end early
    /// ([`Compacted::ended_early`]); the rest is dirty still.
    ///
    /// # Errors
    /// See [`CompactionError`]. After one that came while segments were replaced, the log is
    /// fenced ([`Log::fence_reason`]).
    pub async fn compact(
        &self,
        rules: &CompactionRules,
        means: &CompactionMeans,
    ) -> Result<Compacted, CompactionError> {
        let log = &*self.0;
        if log.compacting.replace(true) {
            let reason = "it is being compacted already".to_owned();
            return Err(CompactionError::Closed(reason));
        }
        let _turn = Turn(log);
        let rt = log.storage.rt();
        let started = rt.now();
        let pace = Pace::new(log, means);
        // What rolled since the last checkpoint waits for no other.
        self.settle_below(rules.bound).await.map_err(of_retention)?;
        let is_sealed = |segment: &Segment| segment.phase() == SegmentPhase::Sealed;
        let range = log.compaction_range(rules, is_sealed).await?;
        let mut round = Round {
            log,
            pace: &pace,
            rules,
            means,
            done: Compacted {
                cleaned_to: range.first_dirty,
                ..Compacted::default()
            },
            open: OpenTransactions::default(),
            horizon: None,
        };
        let outcome = round.run(&range).await;
        let mut done = round.done;
        match outcome {
            Ok(()) => {}
            Err(Halt::Early) => done.ended_early = true,
            Err(Halt::Failed(error)) => return Err(error),
        }
        done.bytes_read = pace.bytes_read.get();
        done.bytes_written = pace.bytes_written.get();
        done.buffer_bytes_max = pace.buffers_max.get();
        done.took = rt.now().since(started);
        Ok(done)
    }

    /// Why the log takes no writes until it is rebuilt, if so.
    pub fn fence_reason(&self) -> Option<String> {
        self.0.fence()
    }
}

/// The right to compact.
struct Turn<'a>(&'a LogShared);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.compacting.set(false);
    }
}

struct Round<'a> {
    log: &'a LogShared,
    pace: &'a Pace<'a>,
    rules: &'a CompactionRules,
    means: &'a CompactionMeans,
    done: Compacted,
    open: OpenTransactions,
    /// The smallest delete horizon that is still to come.
    horizon: Option<i64>,
}

impl Round<'_> {
    async fn run(&mut self, range: &Range) -> Result<(), Halt> {
        let horizon = self.log.delete_horizon.get();
        let is_due = horizon.is_some_and(|horizon| horizon <= self.rules.now_ms);
        if range.segments.is_empty() || (range.end <= range.first_dirty && !is_due) {
            return Ok(());
        }
        let filled = fill(self.pace, range, self.rules.bound, self.means.map_bytes).await?;
        self.done.map_bytes = filled.map.bytes();
        let live = LiveProducers::of(&self.log.state.borrow().producers);
        let retention = Retention {
            map: &filled.map,
            end: filled.end,
            now_ms: self.rules.now_ms,
            delete_retention_ms: self.rules.delete_retention_ms,
            live,
        };
        let below = range
            .segments
            .partition_point(|s| s.base_offset < filled.end);
        let segments = &range.segments[..below];
        // Gaps are expected from here on, by this process and by any later load. How far the
        // log is compacted has not changed.
        self.record(range.first_dirty).await?;
        self.log.may_have_gaps.set(true);
        let mut from = 0;
        for count in self.groups(segments).await? {
            let sources = &segments[from..from + count];
            from += count;
            let is_last = from == segments.len();
            let done = self.group(sources, is_last, &retention, &filled).await;
            if let Err(halt) = done {
                // Nothing half-written stays: no later group need begin here again. (A log that
                // was fenced within the swap is left to a load as it is.)
                let io = self.log.gate.enter().await;
                if io.is_ok() && self.log.fence().is_none() {
                    self.log.discard(sources[0].base_offset).await?;
                }
                return Err(halt);
            }
        }
        self.record(filled.end).await?;
        self.done.cleaned_to = filled.end;
        self.done.ended_early = filled.end < range.end;
        if self.log.delete_horizon.get() != self.horizon {
            let _io = self.pace.enter().await?;
            write_horizon(&self.log.dir, self.horizon).await?;
            self.log.delete_horizon.set(self.horizon);
        }
        Ok(())
    }

    /// Makes it durable that the log is compacted up to `offset`.
    async fn record(&self, offset: i64) -> Result<(), Halt> {
        // Not for a log that is closed, or whose directory another one has; and no cut lowers
        // it meanwhile.
        let _io = self.pace.enter().await?;
        (self.means.record)(offset)
            .await
            .map_err(CompactionError::Record)?;
        self.log.cleaned_to.set(Some(offset));
        Ok(())
    }

    async fn groups(&self, segments: &[Rc<Segment>]) -> Result<Vec<usize>, Halt> {
        let files = {
            let _io = self.pace.enter().await?;
            match LogFiles::list(&self.log.dir).await {
                Ok(files) => files,
                Err(LoadError::Io(error)) => return Err(error.into()),
                Err(other) => return Err(Halt::Failed(CompactionError::Closed(other.to_string()))),
            }
        };
        let sizes = segments.iter().map(|segment| {
            let stored = files.segments.get(&segment.base_offset);
            Sizes {
                base_offset: segment.base_offset,
                next_offset: segment.next_offset(),
                bytes: segment.len(),
                index_bytes: stored.and_then(|f| f.index_bytes).unwrap_or(0),
                time_index_bytes: stored.and_then(|f| f.time_index_bytes).unwrap_or(0),
            }
        });
        let config = self.log.config.get();
        let limits = GroupLimits {
            segment_bytes: u64::from(config.segment_bytes),
            index_bytes: u64::from(config.index_bytes_max),
        };
        Ok(group(&sizes.collect::<Vec<_>>(), limits))
    }

    /// Rewrites the segments of a group into one, and puts it in their place.
    async fn group(
        &mut self,
        sources: &[Rc<Segment>],
        is_last: bool,
        retention: &Retention<'_>,
        filled: &Filled,
    ) -> Result<(), Halt> {
        let base = sources[0].base_offset;
        let next = sources[sources.len() - 1].next_offset();
        let mut target = Target::create(self.pace, base).await?;
        let mut changed = sources.len() > 1;
        let (mut records_before, mut records_after) = (0, 0);
        for (at, segment) in sources.iter().enumerate() {
            let mut source = Source::open(self.pace, segment).await?;
            while let Some(view) = source.next().await? {
                let header = *view.header();
                let attributes = header.attributes;
                let is_data = attributes.is_transactional() && !attributes.is_control();
                let known = filled.transactions.as_ref().filter(|_| is_data);
                let ends_log = is_last && at + 1 == sources.len() && source.is_at_end();
                let facts = BatchFacts {
                    is_last: ends_log || header.next_offset() == filled.end,
                    is_aborted: known
                        .is_some_and(|t| t.is_aborted(header.producer_id, header.base_offset)),
                    is_empty_marker: self.open.is_empty_marker(&view),
                };
                records_before += header.record_count as u64;
                let kept = self.rewrite(&source, &view, facts, retention).await?;
                changed |= kept.as_ref() != Some(&view);
                if let Some(kept) = kept {
                    let header = kept.header();
                    records_after += header.record_count as u64;
                    // Where it has passed, what it was for has gone, though the bit stays.
                    if header.attributes.has_delete_horizon()
                        && header.base_timestamp > self.rules.now_ms
                    {
                        let least = self.horizon.map_or(i64::MAX, |least| least);
                        self.horizon = Some(least.min(header.base_timestamp));
                    }
                    target.add(&kept).await?;
                }
                self.pace.holds(Buffer::Batch, 0);
            }
        }
        if !changed {
            let _io = self.pace.enter().await?;
            return Ok(self.log.discard(base).await?);
        }
        let target = target.finish(next).await?;
        let bytes_after = target.len;
        if !self.log.replace(self.pace, sources, target).await? {
            // Retention was faster. What is left is for the next round.
            return Err(Halt::Early);
        }
        let done = &mut self.done;
        done.segments_before += sources.len();
        done.segments_after += 1;
        done.bytes_before += sources.iter().map(|s| s.len()).sum::<u64>();
        done.bytes_after += bytes_after;
        done.records_before += records_before;
        done.records_after += records_after;
        Ok(())
    }

    /// What is left of a batch.
    async fn rewrite(
        &self,
        source: &Source<'_>,
        view: &BatchView,
        facts: BatchFacts,
        retention: &Retention<'_>,
    ) -> Result<Option<BatchView>, Halt> {
        let header = view.header();
        let damage = |e: &dyn std::fmt::Display| source.damage_in(view, e.to_string());
        let emptied = |keep: bool| {
            keep.then(|| match header.record_count {
                0 => view.clone(),
                _ => view.emptied(None),
            })
        };
        let judged = match retention.fate(header, facts) {
            BatchFate::Emptied { keep_empty } => return Ok(emptied(keep_empty)),
            BatchFate::Untouched => None,
            BatchFate::Judged { keep_empty } => Some(keep_empty),
        };
        let keeps = |record: &Record<'_>| judged.is_none() || retention.keeps(header, record);
        if judged.is_none()
            && retention
                .horizon_for(header, facts.is_empty_marker)
                .is_none()
        {
            return Ok(Some(view.clone()));
        }
        let records = view
            .decompressed(RECORDS_BYTES_MAX)
            .map_err(|e| damage(&e))?;
        // Decompressed, what is kept of that, and that compressed again.
        self.pace.holds(Buffer::Batch, 3 * records.len());
        let rt = self.log.storage.rt();
        let (mut kept, mut has_markers) = (0, false);
        for (n, record) in RecordIter::new(&records, header.record_count).enumerate() {
            let record = record.map_err(|e| damage(&e))?;
            if keeps(&record) {
                kept += 1;
                has_markers |= record.value.is_none() && judged.is_some();
            }
            if n % RECORDS_AT_ONCE == RECORDS_AT_ONCE - 1 {
                rt.yield_if_needed().await;
            }
        }
        if let Some(keep_empty) = judged.filter(|_| kept == 0) {
            return Ok(emptied(keep_empty));
        }
        let horizon = retention.horizon_for(header, has_markers || facts.is_empty_marker);
        if kept == header.record_count && horizon.is_none() {
            return Ok(Some(view.clone()));
        }
        let pause = async || rt.yield_if_needed().await;
        let left = view.retained(&records, keeps, horizon, pause).await;
        Ok(Some(left.map_err(|e| damage(&e))?))
    }
}
