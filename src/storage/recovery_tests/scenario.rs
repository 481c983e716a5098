//! A random life of one partition under power cuts and kills, against a model.
//!
//! The model stands outside the machine. It knows every batch that was handed to the
//! log, what was acknowledged by a completed flush, and what may have been cut. After
//! each crash the log must hold exactly a prefix of the batches, with everything
//! acknowledged in it. Any breach is an `Err` with a sentence, so that a test can ask
//! whether a breach is noticed where one is provoked.

use super::producers;
use crate::runtime::sim::{SimNode, World};
use crate::runtime::{Queue, Rt, SyncSite};
use crate::storage::leader_epochs::LeaderEpochs;
use crate::storage::log_tests::stamped;
use crate::storage::{
    partition_dir::{self, TopicIdFile},
    DataDir, Log, LogBatch, LogConfig, PartitionName, RetentionRules, StartKind, Storage,
    StorageLimits,
};
use futures_lite::future::zip;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// What happened over many seeds, so that a test can prove that it saw something.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tally {
    pub(super) lives: u64,
    pub(super) opened: u64,
    pub(super) opened_clean: u64,
    pub(super) cut_while_opening: u64,
    pub(super) truncated_bytes: u64,
    pub(super) segments_max: u64,
    pub(super) batches_checked: u64,
    pub(super) unflushed_lost: u64,
    pub(super) cuts: u64,
    pub(super) starts_moved: u64,
    pub(super) segments_removed: u64,
    pub(super) removals_cut_short: u64,
}

pub(super) struct Scenario {
    world: World,
    node: SimNode,
    model: Rc<RefCell<Model>>,
    config: LogConfig,
}

/// What is known outside the machine.
#[derive(Default)]
struct Model {
    /// Every batch handed to the log, in order, that may be in it.
    batches: Vec<LogBatch>,
    /// LEO after the last append that completed.
    written: i64,
    /// The offset up to which a completed flush (or recovery) answered.
    acked: i64,
    /// The least LEO that the next load may find.
    floor: i64,
    epoch: i32,
    unique: i64,
    flushes: usize,
    partition_created: bool,
    clean: Clean,
    opened: bool,
    /// The recovery point that was durably recorded last.
    recorded: Option<i64>,
    /// The offset of the last checkpoint that completed, recorded or not.
    checkpointed: Option<i64>,
    /// The high watermark that was durably recorded last, with the log start.
    recorded_hw: Option<i64>,
    /// The log start that was acknowledged last, and one that may have been recorded.
    log_start: i64,
    log_start_perhaps: i64,
    /// A truncation may leave no snapshot, and then the producers are found from what is
    /// left of the log: this is where it began at the last truncation.
    forgotten_below: i64,
    removing: bool,
    tally: Tally,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Clean {
    #[default]
    No,
    Perhaps,
    Yes,
}

type Checked<T> = Result<T, String>;

/// Runs one seed to its end.
pub(super) fn run(seed: u64, disabled: Option<SyncSite>) -> Checked<Tally> {
    let world = World::new(seed);
    let node = world.node("a");
    if let Some(site) = disabled {
        node.disk().disable_sync(site);
    }
    let config = LogConfig {
        segment_bytes: 8_000 + world.random_below(150_000) as u32,
        index_interval_bytes: [0, 500, 4_096][world.random_below(3) as usize],
        ..LogConfig::default()
    };
    let mut scenario = Scenario {
        world,
        node,
        model: Rc::default(),
        config,
    };
    scenario.run()?;
    let tally = scenario.model.borrow().tally;
    Ok(tally)
}

impl Scenario {
    fn run(&mut self) -> Checked<()> {
        let lives = 2 + self.world.random_below(5);
        for life in 0..lives {
            let rt = self.start();
            let life_ms = match self.world.random_below(3) {
                0 => 1 + self.world.random_below(30),
                1 => 1 + self.world.random_below(300),
                _ => 1 + self.world.random_below(2_000),
            };
            let life_time = Duration::from_micros(life_ms * 200);
            self.model.borrow_mut().opened = false;
            let living = live(rt.clone(), self.model.clone(), self.config, false);
            if let Some(result) = self.world.block_on_for(&rt, life_time, living) {
                result.map_err(|breach| format!("life {life}: {breach}"))?;
            }
            self.end_life();
        }
        let rt = self.start();
        let last = live(rt.clone(), self.model.clone(), self.config, true);
        self.world.block_on(&rt, last)?;
        self.end_life();
        let rt = self.start();
        let check = open_and_check(&rt, &self.model, self.config);
        self.world.block_on(&rt, check)?;
        Ok(())
    }

    fn start(&self) -> Rt {
        self.model.borrow_mut().tally.lives += 1;
        match self.node.is_up() {
            true => self.node.rt(),
            false => self.node.restart(),
        }
    }

    /// A power cut, or a kill.
    fn end_life(&self) {
        let kill = self.world.random_below(2) == 0;
        let mut model = self.model.borrow_mut();
        if !model.opened {
            model.tally.cut_while_opening += 1;
        }
        model.flushes = 0;
        model.tally.removals_cut_short += u64::from(std::mem::take(&mut model.removing));
        model.floor = match (kill, model.opened) {
            (true, true) => model.written,
            (true, false) => model.floor,
            (false, _) => model.acked,
        };
        drop(model);
        match kill {
            true => self.node.kill(),
            false => self.node.crash(),
        }
    }
}

/// Opens the partition, checks it, and works on it until the life ends; or, in the
/// last life, for a while and then to a clean stop.
async fn live(
    rt: Rt,
    model: Rc<RefCell<Model>>,
    config: LogConfig,
    to_clean_stop: bool,
) -> Checked<()> {
    let (data_dir, log) = open_and_check(&rt, &model, config).await?;
    let data_dir = Rc::new(data_dir);
    if !to_clean_stop && draw(&rt, 3) == 0 {
        // The life ends right after the load.
        return Ok(());
    }
    let mut steps = 0;
    loop {
        steps += 1;
        if (to_clean_stop && steps > 30) || draw(&rt, 200) == 0 {
            return stop_cleanly(&data_dir, &log, &model).await;
        }
        match draw(&rt, 20) {
            0..=7 => append(&rt, &log, &model).await?,
            8..=9 => flush(&log, &model).await?,
            10..=12 => {
                model.borrow_mut().flushes += 1;
                let (log, model) = (log.clone(), model.clone());
                rt.spawn(Queue::Latency, async move {
                    flush(&log, &model).await.expect("no fault was injected");
                    model.borrow_mut().flushes -= 1;
                });
            }
            13 => checkpoint(&rt, &data_dir, &log, &model).await?,
            14 => {
                let both = zip(
                    append(&rt, &log, &model),
                    checkpoint(&rt, &data_dir, &log, &model),
                );
                let (appended, checkpointed) = both.await;
                appended.and(checkpointed)?;
            }
            15 if draw(&rt, 4) == 0 => truncate(&rt, &log, &model).await?,
            15 if draw(&rt, 4) == 0 => {
                // The life ends during the truncation, or right after it.
                let cutting = (rt.clone(), log.clone(), model.clone());
                rt.spawn(Queue::Latency, async move {
                    let (rt, log, model) = cutting;
                    let cut = truncate(&rt, &log, &model).await;
                    cut.expect("no fault was injected");
                });
                rt.sleep(Duration::from_micros(draw(&rt, 60_000))).await;
                return Ok(());
            }
            16 if draw(&rt, 3) == 0 => move_start(&rt, &data_dir, &log, &model).await?,
            16 if draw(&rt, 6) == 0 => {
                // The life ends while the head is removed, or right after.
                let moving = (rt.clone(), data_dir.clone(), log.clone(), model.clone());
                rt.spawn(Queue::Latency, async move {
                    let (rt, data_dir, log, model) = moving;
                    let moved = move_start(&rt, &data_dir, &log, &model).await;
                    moved.expect("no fault was injected");
                });
                rt.sleep(Duration::from_micros(draw(&rt, 20_000))).await;
                return Ok(());
            }
            16 => model.borrow_mut().epoch += 1,
            17 => check_content(&log, &model, 1 + draw(&rt, 40_000) as usize).await?,
            _ => rt.sleep(Duration::from_micros(draw(&rt, 300))).await,
        }
    }
}

async fn open_and_check(
    rt: &Rt,
    model: &Rc<RefCell<Model>>,
    config: LogConfig,
) -> Checked<(DataDir, Log)> {
    let clean_before = std::mem::replace(&mut model.borrow_mut().clean, Clean::Perhaps);
    let data_dir = DataDir::open(rt, "/data", 1, None)
        .await
        .map_err(|e| e.to_string())?;
    model.borrow_mut().clean = Clean::No;
    match (clean_before, data_dir.start_kind()) {
        (Clean::No, StartKind::Clean) => return Err("a crash was taken for a clean stop".into()),
        (Clean::Yes, StartKind::Unclean) => return Err("a clean stop was forgotten".into()),
        _ => {}
    }
    let recorded_hw = model.borrow().recorded_hw;
    if data_dir.high_watermark("topic", 0) < recorded_hw {
        return Err("the high watermark's checkpoint was lost".into());
    }
    let log_start = data_dir.log_start("topic", 0);
    {
        let mut model = model.borrow_mut();
        let possible = model.log_start..=model.log_start_perhaps;
        let needed = recorded_hw.is_some() || model.log_start > 0;
        if log_start.is_some_and(|start| !possible.contains(&start))
            || (needed && log_start.is_none())
        {
            return Err(format!(
                "the log start is recorded as {log_start:?}, expected {possible:?}"
            ));
        }
        model.log_start = log_start.unwrap_or(0);
        model.log_start_perhaps = model.log_start;
    }
    let recorded = model.borrow().recorded;
    if data_dir.load_mode("topic", 0).recovery_point < recorded {
        return Err("the recovery point's checkpoint was lost".into());
    }
    let log = open_log(rt, &data_dir, model, config).await?;
    check_opened(rt, &log, model).await?;
    Ok((data_dir, log))
}

async fn open_log(
    rt: &Rt,
    data_dir: &DataDir,
    model: &Rc<RefCell<Model>>,
    config: LogConfig,
) -> Checked<Log> {
    let storage = Storage::new(rt.clone(), limits(rt));
    let name = PartitionName {
        topic: "topic".to_owned(),
        partition: 0,
    };
    if !data_dir.partitions().contains(&name) {
        if model.borrow().partition_created {
            return Err("the partition's directory was lost".into());
        }
        let dir = partition_dir::create(rt, "/data", &name, Uuid::from_u128(7))
            .await
            .map_err(|e| e.to_string())?;
        let log = Log::create(&storage, dir, config)
            .await
            .map_err(|e| e.to_string())?;
        model.borrow_mut().partition_created = true;
        return Ok(log);
    }
    let dir = rt.dir("/data").subdir(&name.to_string());
    if !model.borrow().partition_created {
        // The creation was interrupted; nobody was told that it succeeded.
        partition_dir::create(rt, "/data", &name, Uuid::from_u128(7))
            .await
            .map_err(|e| e.to_string())?;
    } else {
        let topic_id = partition_dir::read_topic_id(&dir).await;
        let expected = TopicIdFile::Read(Uuid::from_u128(7));
        if topic_id.as_ref().ok() != Some(&expected) {
            return Err(format!("partition.metadata was lost: {topic_id:?}"));
        }
    }
    let mode = data_dir.load_mode("topic", 0);
    let (log, report) = Log::open(&storage, dir, config, mode)
        .await
        .map_err(|e| e.to_string())?;
    let mut model = model.borrow_mut();
    let m = &mut *model;
    m.partition_created = true;
    m.tally.opened_clean += u64::from(mode.clean);
    m.tally.truncated_bytes += report.truncated_bytes;
    let end = log.end_offset();
    if let (Some(point), false) = (m.checkpointed, mode.clean) {
        // What was written since the checkpoint, and one step of the index before it.
        let since: u64 = m.bytes_in(point, end);
        let slack = u64::from(config.index_interval_bytes) + 2 * BATCH_BYTES_MAX;
        let read = report.scanned_bytes + report.rebuilt_bytes;
        if read > since + slack {
            return Err(format!(
                "recovery read {} bytes, {since} were written since the checkpoint at {point}: {report:?}",
                read
            ));
        }
    }
    if report.segments != log.segment_count() {
        return Err(format!("{report:?} with {} segments", log.segment_count()));
    }
    Ok(log)
}

/// Holds a log that was just opened against the model.
async fn check_opened(rt: &Rt, log: &Log, model: &Rc<RefCell<Model>>) -> Checked<()> {
    let end = log.end_offset();
    {
        let mut model = model.borrow_mut();
        if end < model.floor {
            return Err(format!(
                "LEO is {end}, but {} was acknowledged",
                model.floor
            ));
        }
        if end > model.end() {
            return Err(format!(
                "LEO is {end}, but only {} was written",
                model.end()
            ));
        }
        if log.flushed_offset() != end {
            return Err(format!(
                "{} of {end} flushed after a load",
                log.flushed_offset()
            ));
        }
        let keep = model.batches.partition_point(|b| b.last_offset < end);
        if keep > 0 && model.batches[keep - 1].last_offset + 1 != end {
            return Err(format!("LEO {end} is inside a batch"));
        }
        model.tally.unflushed_lost += (model.batches.len() - keep) as u64;
        model.batches.truncate(keep);
        let mut epochs = LeaderEpochs::new();
        for batch in &model.batches {
            epochs.assign(batch.leader_epoch, batch.base_offset);
        }
        epochs.truncate_from_start(model.log_start);
        let (start, segments) = {
            let state = log.0.state.borrow();
            (state.log_start_offset, state.segments.clone())
        };
        if start != model.log_start {
            return Err(format!(
                "the log starts at {start}, {} was recorded",
                model.log_start
            ));
        }
        let expired = segments.len() > 1 && segments[0].next_offset() <= start;
        let sealed_to = model.checkpointed.unwrap_or(0);
        if expired && segments[0].next_offset() <= sealed_to {
            return Err(format!("a segment below the log start {start} is left"));
        }
        let found = log.0.state.borrow().epochs.clone();
        // A log without batches has the epoch of none (as in Kafka).
        if found != epochs && start < end {
            return Err(format!("the epochs are {found:?}, expected {epochs:?}"));
        }
    }
    check_content(log, model, 1 + draw(rt, 60_000) as usize).await?;
    let mut model = model.borrow_mut();
    model.opened = true;
    model.written = end;
    model.acked = end;
    model.floor = end;
    model.epoch += 1;
    let segments = log.segment_count() as u64;
    model.tally.opened += 1;
    model.tally.segments_max = model.tally.segments_max.max(segments);
    Ok(())
}

/// Reads everything, and holds it against the batches; asks for a timestamp.
async fn check_content(log: &Log, model: &Rc<RefCell<Model>>, bytes_max: usize) -> Checked<()> {
    let end = log.end_offset();
    let start = log.log_start_offset();
    let expected: Vec<LogBatch> = {
        let model = model.borrow();
        let within = |b: &&LogBatch| b.last_offset < end && b.last_offset >= start;
        model.batches.iter().filter(within).cloned().collect()
    };
    {
        let model = model.borrow();
        let below: Vec<LogBatch> = model
            .batches
            .iter()
            .filter(|b| b.last_offset < end)
            .cloned()
            .collect();
        producers::check(&log.producers(), &below, model.forgotten_below)?;
    }
    if start > 0 && log.read(start - 1, end, 1, true).await.is_ok() {
        return Err(format!("offset {} is read below the log start", start - 1));
    }
    let mut at = start;
    let mut found: Vec<u8> = Vec::new();
    while at < end {
        let read = log.read(at, end, bytes_max, true).await;
        let read = read.map_err(|e| e.to_string())?;
        if read.next_offset <= at {
            return Err(format!("a read at {at} of {end} gives nothing"));
        }
        at = read.next_offset;
        found.extend(read.slices.iter().flat_map(|s| s.iter()));
    }
    let wanted: Vec<u8> = expected.iter().flat_map(|b| stamped(b).to_vec()).collect();
    if found != wanted {
        let differs = found.iter().zip(&wanted).position(|(a, b)| a != b);
        return Err(format!(
            "{} bytes are read, {} were written; they differ at {differs:?}",
            found.len(),
            wanted.len()
        ));
    }
    if let Some(batch) = expected.get(expected.len() / 2) {
        let asked = log.offset_for_timestamp(batch.max_timestamp, end).await;
        let offset = asked.map_err(|e| e.to_string())?.map(|t| t.offset);
        if offset != Some(batch.base_offset.max(start)) {
            return Err(format!(
                "timestamp {} is at {offset:?}, expected {}",
                batch.max_timestamp, batch.base_offset
            ));
        }
        let largest = log.offset_of_max_timestamp(end).await;
        let offset = largest.map_err(|e| e.to_string())?.map(|t| t.offset);
        let last = expected.last().map(|b| b.base_offset.max(start));
        if offset != last {
            return Err(format!(
                "the largest timestamp is at {offset:?}, not {last:?}"
            ));
        }
    }
    model.borrow_mut().tally.batches_checked += expected.len() as u64;
    Ok(())
}

async fn append(rt: &Rt, log: &Log, model: &Rc<RefCell<Model>>) -> Checked<()> {
    let batches = model.borrow_mut().next_batches(rt);
    log.append(&batches).await.map_err(|e| e.to_string())?;
    let mut model = model.borrow_mut();
    model.written = log.end_offset();
    match model.written == model.end() {
        true => Ok(()),
        false => Err(format!("LEO is {} after an append", model.written)),
    }
}

async fn flush(log: &Log, model: &Rc<RefCell<Model>>) -> Checked<()> {
    let flushed = log.flush().await.map_err(|e| e.to_string())?;
    let mut model = model.borrow_mut();
    model.acked = model.acked.max(flushed);
    Ok(())
}

async fn checkpoint(
    rt: &Rt,
    data_dir: &DataDir,
    log: &Log,
    model: &Rc<RefCell<Model>>,
) -> Checked<()> {
    let point = log.checkpoint().await.map_err(|e| e.to_string())?;
    {
        let mut model = model.borrow_mut();
        model.acked = model.acked.max(point);
    }
    model.borrow_mut().checkpointed = Some(point);
    if draw(rt, 2) == 0 {
        // Another checkpoint may come before the point is recorded.
        return Ok(());
    }
    let entries = [(("topic".to_owned(), 0), point)].into();
    data_dir
        .write_recovery_points(&entries)
        .await
        .map_err(|e| e.to_string())?;
    model.borrow_mut().recorded = Some(point);
    if point % 4 == 0 {
        record_high_watermark(data_dir, point, model).await?;
    }
    Ok(())
}

async fn record_high_watermark(
    data_dir: &DataDir,
    offset: i64,
    model: &Rc<RefCell<Model>>,
) -> Checked<()> {
    let at = |offset| [(("topic".to_owned(), 0), offset)].into();
    let offset = offset.max(model.borrow().recorded_hw.unwrap_or(0));
    let written = data_dir.write_high_watermarks(&at(offset)).await;
    written.map_err(|e| e.to_string())?;
    let log_start = model.borrow().log_start;
    let written = data_dir.write_log_starts(&at(log_start)).await;
    written.map_err(|e| e.to_string())?;
    model.borrow_mut().recorded_hw = Some(offset);
    Ok(())
}

/// DeleteRecords, or a retention that also takes the active segment: the new log start
/// is recorded, then the log learns of it, then the files go.
async fn move_start(
    rt: &Rt,
    data_dir: &DataDir,
    log: &Log,
    model: &Rc<RefCell<Model>>,
) -> Checked<()> {
    let (before, acked) = {
        let model = model.borrow();
        (model.log_start, model.acked)
    };
    let target = match draw(rt, 3) {
        0 => {
            let rules = RetentionRules {
                retention_ms: -1,
                retention_bytes: [0, 30_000, 200_000][draw(rt, 3) as usize],
                bound: acked,
                now_ms: rt.wall_clock_ms(),
            };
            let expired = log.expired_up_to(rules).await;
            expired.map_err(|e| e.to_string())?
        }
        _ => before + draw(rt, (acked - before + 1) as u64) as i64,
    };
    if !(before..=acked).contains(&target) {
        return Err(format!(
            "the log would start at {target}, not {before} to {acked}"
        ));
    }
    let settled = log.settle_below(target).await;
    settled.map_err(|e| e.to_string())?;
    {
        let mut model = model.borrow_mut();
        // What is to go is sealed first, and that is a checkpoint.
        model.acked = model.acked.max(log.flushed_offset().min(model.written));
        model.log_start_perhaps = target;
    }
    let entries = [(("topic".to_owned(), 0), target)].into();
    let written = data_dir.write_log_starts(&entries).await;
    written.map_err(|e| e.to_string())?;
    {
        let mut model = model.borrow_mut();
        model.log_start = target;
        model.tally.starts_moved += 1;
    }
    log.set_log_start(target);
    if draw(rt, 5) > 0 {
        model.borrow_mut().removing = true;
        let removed = log.remove_head().await.map_err(|e| e.to_string())?;
        let mut model = model.borrow_mut();
        model.removing = false;
        model.tally.segments_removed += removed.segments;
        // What is to go is sealed first, and that is a checkpoint.
        model.acked = model.acked.max(log.flushed_offset().min(model.written));
    }
    Ok(())
}

async fn truncate(rt: &Rt, log: &Log, model: &Rc<RefCell<Model>>) -> Checked<()> {
    let end = {
        let mut model = model.borrow_mut();
        if model.flushes > 0 || model.batches.is_empty() {
            return Ok(());
        }
        let log_start = model.log_start;
        let below = model.batches.partition_point(|b| b.base_offset < log_start);
        let left = (model.batches.len() - below) as u64;
        if left == 0 {
            return Ok(());
        }
        let end = model.batches[below + draw(rt, left) as usize].base_offset;
        model.acked = model.acked.min(end);
        model.written = model.written.min(end);
        model.floor = model.floor.min(end);
        model.recorded = None;
        model.checkpointed = None;
        model.forgotten_below = log_start;
        end
    };
    let offset = {
        let model = model.borrow();
        let batch = model.batches.iter().find(|b| b.base_offset == end);
        let batch = batch.expect("a batch starts there");
        let len = (batch.last_offset - batch.base_offset + 1) as u64;
        batch.base_offset + draw(rt, len) as i64
    };
    let cut = log.truncate_to(offset).await.map_err(|e| e.to_string())?;
    let mut model = model.borrow_mut();
    let keep = model.batches.partition_point(|b| b.base_offset < end);
    model.batches.truncate(keep);
    model.epoch += 1;
    model.tally.cuts += 1;
    producers::check(&log.producers(), &model.batches, model.forgotten_below)?;
    match cut == end && log.end_offset() == end {
        true => Ok(()),
        false => Err(format!("cut at {cut}, expected {end}")),
    }
}

async fn stop_cleanly(data_dir: &DataDir, log: &Log, model: &Rc<RefCell<Model>>) -> Checked<()> {
    // Flushes in flight end with the close: they are not waited for here.
    let point = log.close().await.map_err(|e| e.to_string())?;
    let end = model.borrow().end();
    if point != end {
        return Err(format!("closed at {point}, expected {end}"));
    }
    model.borrow_mut().acked = end;
    let entries = [(("topic".to_owned(), 0), point)].into();
    let written = data_dir.write_recovery_points(&entries).await;
    written.map_err(|e| e.to_string())?;
    {
        let mut model = model.borrow_mut();
        model.recorded = Some(point);
        model.checkpointed = Some(point);
        model.clean = Clean::Perhaps;
    }
    data_dir.mark_clean().await.map_err(|e| e.to_string())?;
    model.borrow_mut().clean = Clean::Yes;
    Ok(())
}

impl Model {
    /// The offset after the last batch that may be in the log.
    fn end(&self) -> i64 {
        self.batches.last().map_or(0, |b| b.last_offset + 1)
    }

    fn bytes_in(&self, from: i64, to: i64) -> u64 {
        self.batches
            .iter()
            .filter(|b| b.last_offset >= from && b.base_offset < to)
            .map(|b| b.bytes.len() as u64)
            .sum()
    }

    fn next_batches(&mut self, rt: &Rt) -> Vec<LogBatch> {
        let count = 1 + draw(rt, 4);
        let new: Vec<LogBatch> = (0..count).map(|_| self.next_batch(rt)).collect();
        new
    }

    fn next_batch(&mut self, rt: &Rt) -> LogBatch {
        let records = 1 + draw(rt, 5);
        let value_bytes = match draw(rt, 12) {
            0 => draw(rt, 2_300),
            1..=3 => draw(rt, 1_000),
            _ => draw(rt, 100),
        };
        self.unique += 1;
        let timestamp = 1_000 + self.unique * 10;
        let producer = producers::next_producer(&self.batches, records, |n| draw(rt, n));
        let mut builder = producers::builder(&producer);
        for record in 0..records {
            let byte = (self.unique as u64 + record) as u8;
            let value = vec![byte; value_bytes as usize];
            builder.push(timestamp, None, Some(&value));
        }
        let base_offset = self.end();
        let batch = LogBatch {
            bytes: builder.build(),
            base_offset,
            last_offset: base_offset + records as i64 - 1,
            leader_epoch: self.epoch,
            max_timestamp: timestamp,
            producer,
        };
        assert!(batch.bytes.len() as u64 <= BATCH_BYTES_MAX);
        self.batches.push(batch.clone());
        batch
    }
}

fn draw(rt: &Rt, bound: u64) -> u64 {
    rt.random_u64() % bound
}

fn limits(rt: &Rt) -> StorageLimits {
    StorageLimits {
        cache_bytes: [0, 20_000, 1 << 20][draw(rt, 3) as usize],
        open_segments_max: 1 + draw(rt, 3) as usize,
        ..crate::storage::log_tests::limits()
    }
}

const BATCH_BYTES_MAX: u64 = 12 << 10;
