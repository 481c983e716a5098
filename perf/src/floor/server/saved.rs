//! What a stop keeps for the next start: the topics always, and after a clean stop where their batches are.
//!
//! Only records that are not flushed are found again, since their file is written once only; and only after a clean
//! stop, since nothing is recovered here: offsets then go on from 0.

use super::store::{Batch, Store};
use anyhow::{Context, Result};
use highwater::protocol::Str;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

const TOPICS: &str = "topics.json";
const INDEX: &str = "index.json";

#[derive(Serialize, Deserialize)]
struct SavedTopic {
    name: String,
    partitions: usize,
    flush: bool,
}

#[derive(Serialize, Deserialize)]
struct Index {
    /// The next place of the file of records that are not flushed.
    next: u64,
    partitions: Vec<SavedPartition>,
}

#[derive(Serialize, Deserialize)]
struct SavedPartition {
    topic: String,
    partition: i32,
    next: i64,
    /// Base offset, next offset, place, bytes.
    batches: Vec<(i64, i64, u64, u32)>,
}

/// After each topic that is made or deleted.
pub fn save_topics(dir: &Path, store: &Store) -> Result<()> {
    let saved = |topic: &super::store::Topic| SavedTopic {
        name: topic.name.to_string(),
        partitions: topic.partitions.len(),
        flush: topic.flush,
    };
    write(dir, TOPICS, &store.topics().map(saved).collect::<Vec<_>>())
}

/// At a clean stop.
pub fn save_index(dir: &Path, store: &Store, next: u64, holds: impl Fn(u64) -> bool) -> Result<()> {
    let mut partitions = Vec::new();
    for topic in store.topics() {
        for (n, partition) in topic.partitions.iter().enumerate() {
            let batches = partition
                .batches()
                .filter(|batch| !topic.flush && holds(batch.place))
                .map(|batch| (batch.base, batch.next, batch.place, batch.len));
            partitions.push(SavedPartition {
                topic: topic.name.to_string(),
                partition: n as i32,
                next: partition.visible,
                batches: batches.collect(),
            });
        }
    }
    write(dir, INDEX, &Index { next, partitions })
}

/// Fills an empty store; the next place of the file of records that are not flushed.
pub fn load(dir: &Path, store: &mut Store) -> Result<u64> {
    let topics: Option<Vec<SavedTopic>> = read(dir, TOPICS)?;
    for topic in topics.into_iter().flatten() {
        store.create(Str::from(topic.name), topic.partitions, topic.flush);
    }
    let Some(index) = read::<Index>(dir, INDEX)? else {
        return Ok(0);
    };
    // It is true until something is written.
    fs::remove_file(dir.join(INDEX)).context("the index can't be removed")?;
    for saved in index.partitions {
        let Some(id) = store.id(&saved.topic) else {
            continue;
        };
        for (base, next, place, len) in saved.batches {
            let bytes = None;
            let batch = Batch {
                base,
                next,
                place,
                len,
                bytes,
            };
            store.append(id, saved.partition, batch);
        }
        if let Some(partition) = store.partition_mut(id, saved.partition) {
            partition.next = saved.next;
            partition.visible = saved.next;
        }
    }
    Ok(index.next)
}

fn write(dir: &Path, name: &str, what: &impl Serialize) -> Result<()> {
    let path = dir.join(name);
    fs::write(&path, serde_json::to_vec(what)?)
        .with_context(|| format!("{} can't be written", path.display()))
}

/// `None` if it is not there.
fn read<T: for<'de> Deserialize<'de>>(dir: &Path, name: &str) -> Result<Option<T>> {
    let path = dir.join(name);
    if !path.exists() {
        return Ok(None);
    }
    let bytes = fs::read(&path).with_context(|| format!("{} can't be read", path.display()))?;
    let read = serde_json::from_slice(&bytes);
    Ok(Some(read.with_context(|| {
        format!("{} is damaged", path.display())
    })?))
}
