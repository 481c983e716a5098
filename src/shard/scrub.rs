//! The scrubber: re-reads old segments of this shard's partitions, little by little.
//!
//! A pass goes over all partitions once and begins at a random one, so that a broker that
//! restarts often gets everywhere in time. Between two beginnings lies at least
//! `log.scrub.interval.hours`; the shards share `log.scrub.max.bytes.per.second` evenly.
//! Damage takes the partition offline (`partition/fence.rs` says so once); the others
//! serve on.

use super::Shard;
use crate::runtime::Queue;
use crate::storage::{ReadError, Scrubbed, Throttle};
use futures_lite::future::or;
use std::time::Duration;

/// Starts the scrubber of this shard.
pub(super) fn start(shard: &Shard) {
    let shard_ = shard.clone();
    shard
        .rt()
        .spawn(Queue::Background, async move { run(shard_).await });
}

async fn run(shard: Shard) {
    let stop = shard.stop_event().listen();
    if shard.is_stopping() {
        return;
    }
    // Reads and pauses may be given up anywhere.
    or(stop, scrub_forever(&shard)).await;
}

async fn scrub_forever(shard: &Shard) {
    let throttle = Throttle::new(shard.rt().clone(), 0);
    let first = Duration::from_millis(shard.config().log_initial_task_delay_ms);
    shard.rt().sleep(first).await;
    // A pass before the partitions are loaded would find none, and the next is far.
    while shard.image().is_none() {
        shard.rt().sleep(LOAD_TICK).await;
    }
    loop {
        while shard.config().log_scrub_max_bytes_per_second == 0 {
            shard.rt().sleep(TICK).await;
        }
        let began = shard.rt().now();
        pass(shard, &throttle).await;
        shard.counters().scrub_passes.add(1);
        loop {
            // At least one tick: an empty shard is looked at now and then.
            shard.rt().sleep(TICK).await;
            let hours = shard.config().log_scrub_interval_hours;
            let interval = Duration::from_secs(hours.saturating_mul(3_600));
            if shard.rt().now().since(began) >= interval {
                break;
            }
        }
    }
}

/// All partitions that are online, once.
async fn pass(shard: &Shard, throttle: &Throttle) {
    let mut all = shard.0.partitions.all_online();
    if !all.is_empty() {
        let first = shard.rt().random_u64() % all.len() as u64;
        all.rotate_left(first as usize);
    }
    let keys = all.into_iter().map(|named| named.key).collect::<Vec<_>>();
    for key in keys {
        let mut from = 0;
        // One that was deleted or went offline meanwhile is left alone.
        while let Ok(partition) = shard.0.partitions.online(&key) {
            if !set_rate(shard, throttle) {
                return;
            }
            match partition.scrub_next(from, throttle).await {
                Ok(Some(done)) => {
                    from = done.next;
                    shard.note_scrubbed(&partition.id().to_string(), &done);
                }
                Ok(None) => break,
                Err(error) => {
                    shard.note_scrub_error(&partition.id().to_string(), &error);
                    break;
                }
            }
            shard.rt().yield_if_needed().await;
        }
    }
}

/// This shard's part of the limit as it is now; false if nothing is to be read.
fn set_rate(shard: &Shard, throttle: &Throttle) -> bool {
    let limit = shard.config().log_scrub_max_bytes_per_second;
    let shards = shard.shards().max(1) as u64;
    throttle.set_bytes_per_second(limit.div_ceil(shards));
    limit > 0
}

impl Shard {
    fn note_scrubbed(&self, partition: &str, done: &Scrubbed) {
        let counters = self.counters();
        counters.scrub_segments.add(u64::from(done.whole));
        counters.scrub_bytes.add(done.bytes);
        counters.scrub_rereads.add(done.reread);
        if done.reread > 0 {
            let batches = done.reread;
            tracing::warn!(partition, batches, "what was read wrong once was right when it was read again; check the disk and its cables");
        }
        if let Some(detail) = &done.rebuilt {
            counters.scrub_indexes_rebuilt.add(1);
            tracing::error!(
                partition,
                detail,
                "an index was damaged and has been rebuilt"
            );
        }
    }

    fn note_scrub_error(&self, partition: &str, error: &ReadError) {
        match error {
            // The partition has said so itself.
            ReadError::Corrupt { .. } | ReadError::Device(_) => {
                self.counters().scrub_damaged.add(1);
            }
            _ => tracing::warn!(partition, %error, "scrubbing failed and is tried again"),
        }
    }
}

/// How often it looks whether the partitions are loaded.
const LOAD_TICK: Duration = Duration::from_millis(200);
/// How often a scrubber that has nothing to do looks whether that changed.
const TICK: Duration = Duration::from_secs(10);
