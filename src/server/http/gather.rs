//! Gathering the figures of a scrape from every shard.
//!
//! One gathering at a time; a scrape that came before it began takes its result too. So of any number of scrapes at
//! once two gatherings serve all.

use super::page::{long_parts, Topics};
use super::Admin;
use crate::metadata::Image;
use crate::observe::{Stalls, Total};
use crate::runtime::local::{oneshot, Budget};
use crate::runtime::native::{process_figures, ProcessFigures};
use crate::runtime::{Mono, Queue};
use crate::shard::{CommittedFigures, Control, MetricsOrder, PartitionKey, ShardMetrics};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use uuid::Uuid;

/// What is kept between scrapes.
pub(super) struct Gatherer {
    turn: Budget,
    /// The last page, and when its gathering began.
    last: RefCell<Option<(Mono, Result<Bytes, String>)>>,
    /// What the page shows of topics.
    pub topics: RefCell<Topics>,
}

impl Default for Gatherer {
    fn default() -> Gatherer {
        Gatherer {
            turn: Budget::new(1),
            last: RefCell::default(),
            topics: RefCell::default(),
        }
    }
}

/// All figures of one scrape.
pub(super) struct Gathered {
    /// Of each shard, in their order.
    pub shards: Vec<ShardMetrics>,
    /// The first committed offsets, with the high watermark of their partition where it is known.
    pub offsets: Vec<(CommittedFigures, Option<i64>)>,
    /// The data directories, and why those are offline that are.
    pub dirs: Vec<(String, Option<String>)>,
    /// Of the process.
    pub process: ProcessFigures,
    /// Of each executor.
    pub stalls: BTreeMap<String, Total>,
    /// How long it took.
    pub took: Duration,
}

impl Admin {
    /// The page of metrics, or why there is none.
    pub(super) async fn metrics(&self) -> Result<Bytes, String> {
        let inner = &*self.0;
        let came_at = inner.rt.now();
        let turn = inner.gatherer.turn.acquire(1).await;
        if let Some((began, page)) = &*inner.gatherer.last.borrow() {
            if *began >= came_at {
                return page.clone();
            }
        }
        // A task of its own: a scraper that goes away meanwhile ends neither the turn nor what was asked of shards.
        let (tell, told) = oneshot();
        let admin = self.clone();
        inner.rt.spawn(Queue::Latency, async move {
            let began = admin.0.rt.now();
            let page = admin.rendered().await;
            *admin.0.gatherer.last.borrow_mut() = Some((began, page.clone()));
            drop(turn);
            let _ = tell.send(page);
        });
        let page = told.await;
        page.unwrap_or_else(|| Err("stopping".to_owned()))
    }

    async fn rendered(&self) -> Result<Bytes, String> {
        let config = &self.0.config;
        let order = MetricsOrder {
            partitions_max: config.metrics_partitions_max,
            offsets_max: config.metrics_group_offsets_max,
        };
        let mut gathered = self.gather(order).await?;
        let image = self.0.control.image();
        without_deleted(&mut gathered.shards, &image);
        let mut page = self.page(&gathered);
        // Thousands of lines of text: not on an executor.
        let render = move || {
            long_parts(&mut page, &gathered, order);
            page.render()
        };
        let text = self.0.rt.spawn_blocking(render).await;
        text.map(Bytes::from).map_err(|panic| panic.to_string())
    }

    async fn gather(&self, order: MetricsOrder) -> Result<Gathered, String> {
        let inner = &*self.0;
        let began = inner.rt.now();
        let asked = async {
            let mut shards = inner.control.metrics(order).await?;
            let offsets = first_offsets(&mut shards, order.offsets_max);
            let offsets = with_high_watermarks(&inner.control, offsets).await?;
            Ok((shards, offsets))
        };
        let (shards, offsets) = match inner.rt.timeout(GATHER_MAX, asked).await {
            Ok(Ok(gathered)) => gathered,
            Ok(Err::<_, crate::runtime::MeshError>(error)) => return Err(error.to_string()),
            Err(_) => {
                let seconds = GATHER_MAX.as_secs();
                return Err(format!(
                    "a shard did not tell its figures within {seconds} s (see /healthz, /debug/stalls)"
                ));
            }
        };
        let stalls: Stalls = inner.stalls.clone();
        let read = move || (process_figures(), stalls.totals());
        let (process, stalls) = inner.rt.spawn_blocking(read).await.unwrap_or_default();
        Ok(Gathered {
            shards,
            offsets,
            dirs: inner.control.data_dirs(),
            process,
            stalls,
            took: inner.rt.now().since(began),
        })
    }
}

/// Shards delete a topic one after the other. What is left of it would be a counter that falls, and beside a new topic of its
/// name one that is there twice.
fn without_deleted(shards: &mut [ShardMetrics], image: &Image) {
    let is_there = |id: &Uuid| image.topic_by_id(id).is_some();
    for shard in shards {
        shard.topics.retain(|topic| is_there(&topic.id));
        shard.partitions.retain(|it| is_there(&it.key.topic_id));
    }
}

/// The first over all shards.
fn first_offsets(shards: &mut [ShardMetrics], max: usize) -> Vec<CommittedFigures> {
    let each = shards.iter_mut();
    let mut all: Vec<CommittedFigures> = each
        .flat_map(|shard| std::mem::take(&mut shard.groups.offsets))
        .collect();
    all.sort_unstable();
    all.truncate(max);
    all
}

/// The offsets were read before the high watermarks, so a group that keeps up has no lag below 0.
async fn with_high_watermarks(
    control: &Control,
    offsets: Vec<CommittedFigures>,
) -> Result<Vec<(CommittedFigures, Option<i64>)>, crate::runtime::MeshError> {
    if offsets.is_empty() {
        return Ok(Vec::new());
    }
    let image = control.image();
    let key_of = |offset: &CommittedFigures| {
        let topic = image.topic(&offset.topic)?;
        Some(PartitionKey {
            topic_id: topic.id,
            index: offset.partition,
        })
    };
    let keys: BTreeSet<PartitionKey> = offsets.iter().filter_map(key_of).collect();
    let marks: HashMap<PartitionKey, i64> = control.high_watermarks(keys).await?;
    let with = offsets.into_iter().map(|offset| {
        let mark = key_of(&offset).and_then(|key| marks.get(&key).copied());
        (offset, mark)
    });
    Ok(with.collect())
}

/// How long shards have for their figures.
const GATHER_MAX: Duration = Duration::from_secs(5);
