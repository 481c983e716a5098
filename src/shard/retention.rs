//! What expires, and DeleteRecords across owners.
//!
//! Every `log.retention.check.interval.ms`, and at once where space is short, each shard looks at its partitions, one after
//! the other. A new log start travels to the control executor, the one writer of the
//! checkpoint files, and holds once it is on the disk there.

use super::messages::{CheckpointLine, DeleteRecordsPart, PartitionKey, Reply, Request};
use super::Shard;
use crate::partition::{LogStartRecorder, Partition};
use crate::protocol::ErrorCode;
use crate::runtime::local::{join_bounded, oneshot};
use crate::runtime::Queue;
use crate::storage::{RemovedHead, RetentionError};
use futures_lite::future::or;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Starts the look-out of this shard.
pub(super) fn start(shard: &Shard) {
    let shard_ = shard.clone();
    shard
        .rt()
        .spawn(Queue::Background, async move { run(shard_).await });
}

async fn run(shard: Shard) {
    let config = shard.config();
    let first = Duration::from_millis(config.log_initial_task_delay_ms);
    let interval = Duration::from_millis(config.log_retention_check_interval_ms);
    let mut pause = first;
    loop {
        let stop = shard.stop_event().listen();
        if shard.is_stopping() {
            return;
        }
        let sleep = shard.rt().sleep(pause);
        or(stop, or(sleep, shard.space_is_low())).await;
        for named in shard.0.partitions.all_online() {
            if shard.is_stopping() {
                return;
            }
            let now_ms = shard.rt().wall_clock_ms();
            let outcome = named.partition.expire(now_ms).await;
            shard.count_removed(&named.name(), outcome);
            shard.rt().yield_if_needed().await;
        }
        pause = shard.retention_pause(interval);
    }
}

/// Puts an offset into a line, and says which request records the line.
pub(super) type PutOffset = fn(&mut CheckpointLine, i64) -> fn(CheckpointLine) -> Request;

impl Shard {
    /// Deletes the records of each part below its offset, in the order of the parts: the
    /// log start offset from which each partition goes on, durably recorded. What has not
    /// come about within `timeout` gets REQUEST_TIMED_OUT, and may still come about.
    pub async fn delete_records(
        &self,
        parts: Vec<DeleteRecordsPart>,
        timeout: Duration,
    ) -> Vec<Result<i64, ErrorCode>> {
        let mut all = vec![Err(ErrorCode::UnknownServerError); parts.len()];
        let mut groups = Vec::new();
        let mut waits = Vec::new();
        for (owner, places, parts) in self.by_owner(parts, |part| part.key) {
            waits.push(self.delete_records_at(owner, parts, timeout));
            groups.push(places);
        }
        let results = join_bounded(OWNERS_AT_ONCE, waits).await;
        for (places, results) in groups.into_iter().zip(results) {
            for (place, result) in places.into_iter().zip(results) {
                all[place] = result;
            }
        }
        all
    }

    async fn delete_records_at(
        &self,
        owner: usize,
        parts: Vec<DeleteRecordsPart>,
        timeout: Duration,
    ) -> Vec<Result<i64, ErrorCode>> {
        let count = parts.len();
        let (done, answer) = oneshot();
        let shard = self.clone();
        // A task of its own: it is not given up where the wait for it is.
        self.rt().spawn(Queue::Latency, async move {
            let results = if owner == shard.0.me {
                shard.delete_records_here(parts).await
            } else {
                match shard.call(owner, Request::DeleteRecords(parts)).await {
                    Ok(Reply::RecordsDeleted(results)) => results,
                    Ok(_) | Err(_) => vec![Err(ErrorCode::NotLeaderOrFollower); count],
                }
            };
            // Nobody waits any more once the time is over.
            let _ = done.send(results);
        });
        match self.rt().timeout(timeout, answer).await {
            Ok(Some(results)) => results,
            Ok(None) => vec![Err(ErrorCode::UnknownServerError); count],
            Err(_) => vec![Err(ErrorCode::RequestTimedOut); count],
        }
    }

    /// Several at a time, so that they share writes of the checkpoint file.
    pub(super) async fn delete_records_here(
        &self,
        parts: Vec<DeleteRecordsPart>,
    ) -> Vec<Result<i64, ErrorCode>> {
        let each = parts.into_iter().map(|part| async move {
            let partition = self.0.partitions.online(&part.key)?;
            let log_start = partition.delete_records(part.offset).await?;
            self.remove_in_background(partition);
            Ok(log_start)
        });
        join_bounded(MOVES_AT_ONCE, each).await
    }

    fn remove_in_background(&self, partition: Partition) {
        let shard = self.clone();
        self.rt().spawn(Queue::Background, async move {
            let outcome = partition.remove_segments().await;
            shard.count_removed(&partition.id().to_string(), outcome);
        });
    }

    fn count_removed(&self, partition: &str, outcome: Result<RemovedHead, RetentionError>) {
        match outcome {
            Ok(removed) => {
                self.counters().removed_segments.add(removed.segments);
                self.counters().removed_bytes.add(removed.bytes);
            }
            Err(error) => {
                tracing::warn!(partition, %error, "retention failed and is tried again");
            }
        }
    }

    /// Has the control executor record log starts of a partition.
    pub(super) fn log_start_recorder(
        &self,
        key: PartitionKey,
        topic: Arc<str>,
        dir: usize,
    ) -> LogStartRecorder {
        self.recorder(key, topic, dir, |line, offset| {
            line.log_start = Some(offset);
            Request::RecordLogStart
        })
    }

    /// Has the control executor record an offset of a partition: where in its line, and by
    /// which request, `put` says.
    pub(super) fn recorder(
        &self,
        key: PartitionKey,
        topic: Arc<str>,
        dir: usize,
        put: PutOffset,
    ) -> LogStartRecorder {
        let shard = self.clone();
        Rc::new(move |offset| {
            let shard = shard.clone();
            let mut line = CheckpointLine::of_nothing(key, topic.to_string(), dir);
            let request = put(&mut line, offset);
            Box::pin(async move {
                match shard.call_control(request(line)).await {
                    Ok(Reply::Done) => Ok(()),
                    Ok(_) => Err("the checkpoint file could not be written".to_owned()),
                    Err(code) => Err(code.to_string()),
                }
            })
        })
    }
}

/// Owners that are asked at the same time: more shards than any machine has.
const OWNERS_AT_ONCE: usize = 64;
/// Log starts that one request moves at the same time.
const MOVES_AT_ONCE: usize = 16;
