//! What a shard does when nobody waits: checkpoints, flushes of what is older than
//! `flush.ms`, and forgetting inactive producers (`producers.rs`).
//!
//! A partition is checkpointed when enough was flushed since its last checkpoint
//! (`checkpoint.bytes`) or enough time has passed; high watermarks travel more often
//! and cost nothing on the shard. The control executor writes the files.

use super::messages::{CheckpointLine, PartitionKey, Request};
use super::partitions::Named;
use super::Shard;
use crate::partition::PartitionState;
use crate::runtime::{Mono, Queue};
use crate::storage::CheckpointError;
use futures_lite::future::or;
use std::collections::HashMap;
use std::time::Duration;

/// How often partitions are looked at.
const TICK: Duration = Duration::from_secs(1);

/// What was last sent of one partition.
struct Sent {
    recovery_point: i64,
    high_watermark: i64,
    /// The last try.
    checkpointed_at: Mono,
    /// It failed: the next try waits for the interval.
    failed: bool,
}

pub(super) fn start(shard: &Shard) {
    let shard_ = shard.clone();
    shard
        .rt()
        .spawn(Queue::Background, async move { run(shard_).await });
    let expiry = super::producers::expire(shard.clone());
    shard.rt().spawn(Queue::Background, expiry);
}

async fn run(shard: Shard) {
    let mut sent: HashMap<PartitionKey, Sent> = HashMap::new();
    loop {
        let stop = shard.stop_event().listen();
        if shard.is_stopping() {
            return;
        }
        or(stop, shard.rt().sleep(TICK)).await;
        let mut lines = Vec::new();
        let partitions = shard.0.partitions.all_online();
        sent.retain(|key, _| shard.0.partitions.online(key).is_ok());
        // Before the checkpoints, which take time.
        for named in &partitions {
            named.partition.flush_old();
        }
        for named in partitions {
            if shard.is_stopping() {
                return;
            }
            if let Some(line) = line_of(&shard, &named, &mut sent).await {
                lines.push(line);
            }
            shard.rt().yield_if_needed().await;
        }
        if !lines.is_empty()
            && shard
                .call_control(Request::Checkpointed(lines))
                .await
                .is_err()
        {
            // The control executor is gone, and the process with it.
            return;
        }
    }
}

async fn line_of(
    shard: &Shard,
    named: &Named,
    sent: &mut HashMap<PartitionKey, Sent>,
) -> Option<CheckpointLine> {
    let now = shard.rt().now();
    let numbers = named.partition.numbers();
    let last = sent.entry(named.key).or_insert(Sent {
        recovery_point: named.recovery_point,
        high_watermark: named.high_watermark,
        checkpointed_at: now,
        failed: false,
    });
    let interval = Duration::from_millis(shard.config().log_flush_offset_checkpoint_interval_ms);
    let waited = now.since(last.checkpointed_at) >= interval;
    let wanted = match last.failed {
        true => waited,
        false => {
            named.partition.checkpoint_is_due()
                || (waited && numbers.flushed_offset > last.recovery_point)
        }
    };
    let recovery_point = if wanted && named.partition.state() == PartitionState::Online {
        last.checkpointed_at = now;
        let outcome = named.partition.checkpoint().await;
        last.failed = outcome.is_err();
        match outcome {
            Ok(point) => {
                last.recovery_point = point;
                Some(point)
            }
            // It was closed or deleted meanwhile.
            Err(CheckpointError::Closed) => None,
            Err(error) => {
                tracing::error!(partition = %named.name(), %error, "checkpoint failed; until one succeeds a restart re-reads more");
                None
            }
        }
    } else {
        None
    };
    // What is flushed of it: a load takes it for that, and refuses a log that ends below.
    let high_watermark = numbers.high_watermark.min(numbers.flushed_offset);
    let moved = high_watermark > last.high_watermark;
    if recovery_point.is_none() && !moved {
        return None;
    }
    last.high_watermark = high_watermark;
    Some(CheckpointLine {
        key: named.key,
        topic: named.topic.to_string(),
        dir: named.dir,
        recovery_point,
        high_watermark: Some(high_watermark),
        log_start: Some(numbers.log_start_offset),
        cleaned_to: None,
    })
}
