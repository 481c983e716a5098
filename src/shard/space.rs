//! The guard of the free space of a data directory: produce is refused before the disk is
//! full, and taken again by itself when there is space.
//!
//! Each shard looks for itself, every second and whenever its writers have taken half of
//! what the last look allowed them ([`Room`]). The shards' allowances together never reach
//! below half of `log.dir.min.free.bytes`. Only new records are refused: reads, deletions,
//! retention (which runs at once, and often while space is short), checkpoints and the
//! metadata log go on, and have what is kept free.
//!
//! A partition that found no space for its files when it was created or loaded is tried
//! again here.
//!
//! What it is not: what becomes of a write that found no space all the same is up to
//! `partition/fence.rs`.

use super::messages::PartitionKey;
use super::partitions::{name_of, Named, Slot};
use super::place::Home;
use super::Shard;
use crate::metadata::TopicImage;
use crate::partition::PartitionLoad;
use crate::runtime::local::Event;
use crate::runtime::{Dir, Queue, Space};
use crate::storage::{Allowance, Room};
use futures_lite::future::or;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The guarded directories of one shard.
#[derive(Default)]
pub(super) struct Spaces {
    guarded: RefCell<Vec<Guarded>>,
    /// Told when one of them becomes short of space.
    low: Event,
}

/// One data directory.
#[derive(Clone)]
struct Guarded {
    dir: Dir,
    room: Room,
    usable_bytes: std::rc::Rc<Cell<Option<u64>>>,
}

/// What is told of one data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceFigures {
    /// Its path.
    pub dir: String,
    /// Bytes that may still be written, as of the last look; `None` if it failed.
    pub usable_bytes: Option<u64>,
    /// Whether it refuses records.
    pub refuses: bool,
    /// Batches that it has refused.
    pub refused: u64,
}

/// Between which sizes of free space records are refused and taken again, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thresholds {
    min_free: u64,
    resume: u64,
}

/// What a look leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The guard is off. So many bytes may be reserved ahead of writes until the next look.
    Unguarded(u64),
    /// So many bytes may be taken until the next look.
    Open(u64),
    /// Records are refused.
    Low(Thresholds),
}

impl Thresholds {
    /// By `log.dir.min.free.bytes`; `None` if that switches the guard off.
    fn of(setting: i64, total_bytes: u64) -> Option<Thresholds> {
        let min_free = match setting {
            0 => return None,
            set if set > 0 => set as u64,
            _ => MIN_FREE_MAX.min(total_bytes / MIN_FREE_PART),
        };
        Some(Thresholds {
            min_free,
            resume: min_free.saturating_add(min_free / RESUME_PART),
        })
    }
}

/// `was_low`: how the last look ended. `sharers`: how many take from the same space.
fn judge(was_low: bool, setting: i64, space: Space, sharers: u64) -> Verdict {
    let Some(thresholds) = Thresholds::of(setting, space.total_bytes) else {
        return Verdict::Unguarded(space.usable_bytes / sharers.max(1));
    };
    let needed = match was_low {
        true => thresholds.resume,
        false => thresholds.min_free,
    };
    if space.usable_bytes < needed {
        return Verdict::Low(thresholds);
    }
    let kept = thresholds.min_free / 2;
    Verdict::Open(space.usable_bytes.saturating_sub(kept) / sharers.max(1))
}

impl Shard {
    /// Looks at a data directory, and then again and again until the shard stops. Returns
    /// the room in it.
    pub(super) async fn guard_space(&self, path: &Path) -> Room {
        let guarded = Guarded {
            dir: self.rt().dir(path),
            room: Room::default(),
            usable_bytes: Default::default(),
        };
        self.look_at(&guarded).await;
        let room = guarded.room.clone();
        self.0.spaces.guarded.borrow_mut().push(guarded.clone());
        let shard = self.clone();
        self.rt().spawn(Queue::Latency, async move {
            loop {
                let stop = shard.stop_event().listen();
                if shard.is_stopping() {
                    return;
                }
                let sleep = shard.rt().sleep(LOOK_PAUSE);
                or(stop, or(sleep, guarded.room.look_wanted())).await;
                shard.look_at(&guarded).await;
            }
        });
        room
    }

    async fn look_at(&self, guarded: &Guarded) {
        let (dir, room) = (guarded.dir.path().display(), &guarded.room);
        let look = room.begin_look();
        let space = match guarded.dir.space().await {
            Ok(space) => space,
            Err(error) => {
                // Whatever ails the directory, its writes will tell.
                if guarded.usable_bytes.take().is_some() {
                    tracing::error!(%error, "the free space of a data directory is not known");
                }
                room.end_look(&look, Ok(None));
                return;
            }
        };
        guarded.usable_bytes.set(Some(space.usable_bytes));
        let was_low = room.is_low();
        let setting = self.config().log_dir_min_free_bytes;
        let sharers = self.sharers();
        let (usable, verdict) = (space.usable_bytes, judge(was_low, setting, space, sharers));
        // All shards see the same; one says so.
        let tells = self.me() == 0;
        match verdict {
            Verdict::Unguarded(bytes) => {
                room.end_look(&look, Ok(Some(Allowance::Unguarded(bytes))));
            }
            Verdict::Open(bytes) => room.end_look(&look, Ok(Some(Allowance::Guarded(bytes)))),
            Verdict::Low(Thresholds { min_free, resume }) => {
                let reason = format!(
                    "the data directory {dir} has {usable} bytes free; below {min_free} (log.dir.min.free.bytes) it takes no records until {resume} are free: free space on it, or lower the setting"
                );
                if tells && !was_low {
                    tracing::warn!("{reason}");
                }
                room.end_look(&look, Err(reason));
            }
        }
        match (was_low, room.is_low()) {
            (false, true) => {
                self.0.spaces.low.notify_all();
                self.stop_compaction();
            }
            (true, false) if tells => {
                tracing::info!(%dir, usable_bytes = usable, "the data directory takes records again");
            }
            _ => {}
        }
    }

    /// Every shard takes from the space, and it may be one for several directories. As much
    /// again is left for what is not counted: indexes, snapshots, compaction.
    fn sharers(&self) -> u64 {
        let dirs = self.0.spaces.guarded.borrow().len().max(1);
        2 * self.shards() as u64 * dirs as u64
    }

    /// Resolves when a data directory becomes short of space.
    pub(super) async fn space_is_low(&self) {
        self.0.spaces.low.listen().await;
    }

    /// Bytes that are free in a data directory, as of the last look; `None`: not known.
    pub(super) fn usable_bytes(&self, dir: usize) -> Option<u64> {
        let path = self.0.partitions.dirs.usable(dir)?;
        let guarded = self.0.spaces.guarded.borrow();
        let found = guarded.iter().find(|guarded| guarded.dir.path() == path);
        found.and_then(|guarded| guarded.usable_bytes.get())
    }

    /// How long retention may rest.
    pub(super) fn retention_pause(&self, interval: Duration) -> Duration {
        let guarded = self.0.spaces.guarded.borrow();
        match guarded.iter().any(|guarded| guarded.room.is_low()) {
            true => interval.min(RETENTION_PAUSE_LOW),
            false => interval,
        }
    }

    pub(super) fn space_figures(&self) -> Vec<SpaceFigures> {
        let guarded = self.0.spaces.guarded.borrow();
        let figures = guarded.iter().map(|guarded| SpaceFigures {
            dir: guarded.dir.path().display().to_string(),
            usable_bytes: guarded.usable_bytes.get(),
            refuses: guarded.room.is_low(),
            refused: guarded.room.refused(),
        });
        figures.collect()
    }

    /// Opens a partition again that found no space, until it is there or its topic is gone.
    pub(super) fn open_when_there_is_space(
        &self,
        topic: Arc<TopicImage>,
        key: PartitionKey,
        load: PartitionLoad,
        home: Home,
    ) {
        let shard = self.clone();
        self.rt().spawn(Queue::Background, async move {
            loop {
                let stop = shard.stop_event().listen();
                if shard.is_stopping() {
                    return;
                }
                or(stop, shard.rt().sleep(OPEN_PAUSE)).await;
                if shard.is_stopping() || !shard.open_again(&topic, key, load, home).await {
                    return;
                }
            }
        });
    }

    /// Opens a partition that is offline for want of space. False once it is done with:
    /// open, failed otherwise, or gone.
    async fn open_again(
        &self,
        topic: &Arc<TopicImage>,
        key: PartitionKey,
        load: PartitionLoad,
        home: Home,
    ) -> bool {
        let partitions = &self.0.partitions;
        let is_offline = || partitions.is_offline(&key);
        if !is_offline() {
            return false;
        }
        // Settings may have changed meanwhile.
        let image = self.image();
        let topic = image
            .as_ref()
            .and_then(|image| image.topic_by_id(&topic.id))
            .unwrap_or(topic);
        let name = name_of(topic, key);
        let _reopening = partitions.reopening.begin(key);
        match self.try_open(topic, key, load, home).await {
            Ok((partition, _)) if is_offline() => {
                let (recovery_point, high_watermark) = checkpointed(load);
                partitions.put(
                    key,
                    Slot::Online(Named {
                        key,
                        topic: topic.name.clone(),
                        dir: home.dir,
                        partition,
                        recovery_point,
                        high_watermark,
                    }),
                );
                self.follow_directory(&key);
                tracing::info!(partition = %name, "there is space: the partition is online");
                self.take_coordinators(topic);
                false
            }
            Ok((partition, _)) => {
                // Its topic was deleted meanwhile; whoever does that waits, and removes the directory.
                partition.delete().await;
                false
            }
            Err(error) if error.is_no_space() => true,
            Err(error) => {
                tracing::error!(partition = %name, %error, "partition is offline");
                false
            }
        }
    }
}

/// How to load a partition whose creation was cut short.
pub(super) fn half_made(load: PartitionLoad) -> PartitionLoad {
    match load {
        PartitionLoad::Create => PartitionLoad::Open {
            clean: false,
            recovery_point: None,
            log_start: None,
            cleaned_to: None,
            high_watermark: None,
        },
        open => open,
    }
}

/// The recovery point and the high watermark that the checkpoint files hold.
pub(super) fn checkpointed(load: PartitionLoad) -> (i64, i64) {
    match load {
        PartitionLoad::Open {
            recovery_point,
            high_watermark,
            ..
        } => (recovery_point.unwrap_or(0), high_watermark.unwrap_or(0)),
        PartitionLoad::Create => (0, 0),
    }
}

/// What is kept free by default: the smaller of this...
const MIN_FREE_MAX: u64 = 1 << 30;
/// ...and this part of the file system.
const MIN_FREE_PART: u64 = 20;
/// Records are taken again when this part more than the least is free.
const RESUME_PART: u64 = 4;
/// Between two looks at the free space.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Between two rounds of retention while space is short.
const RETENTION_PAUSE_LOW: Duration = Duration::from_secs(5);
/// Between two tries to open a partition that found no space.
const OPEN_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn space(total_bytes: u64, usable_bytes: u64) -> Space {
        Space {
            total_bytes,
            usable_bytes,
        }
    }

    #[test]
    fn the_default_is_a_part_of_a_small_disk_and_a_gibibyte_of_a_large_one() {
        let of = |total| Thresholds::of(-1, total).unwrap().min_free;
        assert_eq!(of(60 * MIB), 3 * MIB);
        assert_eq!(of(20 << 30), 1 << 30);
        assert_eq!(of(u64::MAX), 1 << 30);
        assert_eq!(Thresholds::of(0, 60 * MIB), None);
        assert_eq!(
            Thresholds::of(8, 0),
            Some(Thresholds {
                min_free: 8,
                resume: 10
            })
        );
        let most = i64::MAX as u64;
        let resume = Thresholds::of(i64::MAX, 0).unwrap().resume;
        assert_eq!(resume, most + most / 4);
    }

    #[test]
    fn it_closes_below_the_least_and_opens_again_well_above_it() {
        let judge = |was_low, usable| judge(was_low, 100, space(1_000, usable), 4);
        assert_eq!(judge(false, 100), Verdict::Open(12));
        assert!(matches!(judge(false, 99), Verdict::Low(_)));
        assert!(matches!(judge(true, 124), Verdict::Low(_)));
        assert_eq!(judge(true, 125), Verdict::Open(18));
    }

    #[test]
    fn without_a_guard_no_writer_reserves_all_that_is_free() {
        let verdict = |usable| judge(false, 0, space(100_000, usable), 6);
        assert_eq!(verdict(60_000), Verdict::Unguarded(10_000));
        assert_eq!(verdict(5), Verdict::Unguarded(0));
    }

    #[test]
    fn the_allowances_of_all_leave_half_of_the_least() {
        for usable in [100, 1_000, 54_321] {
            let Verdict::Open(allowance) = judge(false, 100, space(100_000, usable), 6) else {
                panic!("{usable} is enough");
            };
            assert!(usable - 6 * allowance >= 50);
        }
    }
}
