//! The data directories as a shard has them: where its partitions lie, and what becomes of
//! them when a directory goes offline.
//!
//! The control executor decides which directory a partition is in (`directories.rs`); here
//! that directory is found or made, and removed.

use super::messages::{Homeless, LoadDir, PartitionKey};
use super::Shard;
use crate::config::ConfigError;
use crate::metadata::PartitionImage;
use crate::partition::PartitionLoad;
use crate::runtime::{Dir, IoError, Queue};
use crate::storage::partition_dir::{self, PartitionDirError, TopicIdFile};
use crate::storage::{LoadError, PartitionName, Room};
use futures_lite::future::or;
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;
use uuid::Uuid;

/// The data directories, in the order of `log.dirs`.
#[derive(Default)]
pub(super) struct Directories(RefCell<Vec<Directory>>);

struct Directory {
    id: Uuid,
    path: PathBuf,
    /// What writers may take of its space.
    room: Room,
    /// Why it is offline, if it is.
    offline: Option<String>,
}

/// Where a partition is, or is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Home {
    /// The data directory, by its place in `log.dirs`.
    pub dir: usize,
    /// Whether what is not there may be created, and what is of another topic set aside: only
    /// where the partition can be nowhere else.
    pub may_create: bool,
}

impl Directories {
    pub fn add(&self, dir: &LoadDir, room: Room) {
        self.0.borrow_mut().push(Directory {
            id: dir.id,
            path: dir.path.clone(),
            room,
            offline: dir.offline.clone(),
        });
    }

    pub fn count(&self) -> usize {
        self.0.borrow().len()
    }

    pub fn room(&self, dir: usize) -> Room {
        self.0.borrow()[dir].room.clone()
    }

    /// Paths, and why they are offline, if they are.
    pub fn all(&self) -> Vec<(PathBuf, Option<String>)> {
        let dirs = self.0.borrow();
        let all = dirs
            .iter()
            .map(|dir| (dir.path.clone(), dir.offline.clone()));
        all.collect()
    }

    /// The path, if it is online.
    pub fn usable(&self, dir: usize) -> Option<PathBuf> {
        let dirs = self.0.borrow();
        let dir = &dirs[dir];
        dir.offline.is_none().then(|| dir.path.clone())
    }

    pub(super) fn path(&self, dir: usize) -> Result<PathBuf, OpenError> {
        let dirs = self.0.borrow();
        let dir = &dirs[dir];
        match &dir.offline {
            None => Ok(dir.path.clone()),
            Some(reason) => Err(OpenError::DirectoryOffline {
                path: dir.path.display().to_string(),
                reason: reason.clone(),
            }),
        }
    }

    fn offline_reason(&self, dir: usize) -> Option<String> {
        self.0.borrow()[dir].offline.clone()
    }

    /// Whether the directory of this id is offline. One that could not be read at the start
    /// may have any id that is not known.
    fn is_offline(&self, id: Uuid) -> bool {
        let dirs = self.0.borrow();
        match dirs.iter().find(|dir| dir.id == id) {
            Some(dir) => dir.offline.is_some(),
            None => dirs.iter().any(|dir| dir.id.is_nil()),
        }
    }
}

/// Why a partition is offline.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("{path} holds nothing of this topic, which may be in another data directory, so it is not created anew; bring the partition's directory back, or delete the topic")]
    NotCreated { path: String },
    #[error("{0}")]
    Homeless(String),
    #[error("its data directory {path} is offline: {reason}")]
    DirectoryOffline { path: String, reason: String },
    #[error("its settings are not valid any more: {0}")]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Directory(#[from] PartitionDirError),
    #[error(transparent)]
    Io(#[from] IoError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{path} is gone, and with it what was flushed up to offset {flushed}; restore it, or delete the topic")]
    DirectoryLost { path: String, flushed: i64 },
    #[error("{path} holds records, but its partition.metadata {why} and no checkpoint file names the partition, so they may be of an older topic of that name; restore that file, or delete the topic")]
    IdLost { path: String, why: String },
    #[error("{path} holds no segments any more, although records were flushed there up to offset {flushed}; restore the directory, or delete the topic")]
    SegmentsLost { path: String, flushed: i64 },
    #[error("{path} belongs to another topic by its partition.metadata, although records of this one were flushed there up to offset {flushed}; restore the directory, or delete the topic")]
    OtherTopic { path: String, flushed: i64 },
}

impl OpenError {
    /// Whether the disk, or a quota, is full.
    pub fn is_no_space(&self) -> bool {
        match self {
            OpenError::Io(error) | OpenError::Directory(PartitionDirError::Io(error)) => {
                error.is_no_space()
            }
            OpenError::Load(error) => error.is_no_space(),
            _ => false,
        }
    }
}

impl Shard {
    /// The data directories' paths, and why those are offline that are.
    pub fn data_dirs(&self) -> Vec<(PathBuf, Option<String>)> {
        self.0.partitions.dirs.all()
    }

    /// Whether this broker's replica of the partition is in a data directory that is
    /// offline: nobody leads it then.
    pub fn is_replica_offline(&self, topic_id: Uuid, partition: &PartitionImage) -> bool {
        let index = partition.index;
        let elsewhere = self.0.partitions.elsewhere.borrow();
        match elsewhere.get(&PartitionKey { topic_id, index }) {
            Some(None) => true,
            Some(Some(dir)) => self.0.partitions.dirs.usable(*dir).is_none(),
            None => {
                let id = partition.directory(self.config().node_id);
                !id.is_nil() && self.0.partitions.dirs.is_offline(id)
            }
        }
    }

    /// Takes a data directory offline, and all that lies in it.
    pub(super) fn directory_offline(&self, dir: usize, reason: &str) {
        {
            let mut dirs = self.0.partitions.dirs.0.borrow_mut();
            // It may not have been told of any before.
            let Some(directory) = dirs.get_mut(dir) else {
                return;
            };
            directory.offline.get_or_insert_with(|| reason.to_owned());
        }
        for named in self.0.partitions.all_online() {
            if named.dir == dir {
                named.partition.take_offline(reason);
            }
        }
    }

    /// Takes a partition offline that was opened while its directory failed.
    pub(super) fn follow_directory(&self, key: &PartitionKey) {
        let Some(named) = self.0.partitions.named(key) else {
            return;
        };
        if let Some(reason) = self.0.partitions.dirs.offline_reason(named.dir) {
            named.partition.take_offline(&reason);
        }
    }

    /// The directory that the controller has chosen for a new partition.
    pub(super) fn home_of_new(&self, partition: &PartitionImage) -> Result<Home, Homeless> {
        let id = partition.directory(self.config().node_id);
        let dirs = self.0.partitions.dirs.0.borrow();
        let found = match id.is_nil() {
            true => dirs.iter().position(|dir| dir.offline.is_none()),
            false => dirs.iter().position(|dir| dir.id == id),
        };
        let home = found.map(|dir| Home {
            dir,
            may_create: true,
        });
        home.ok_or_else(|| Homeless {
            dir: None,
            reason: "its data directory is not among log.dirs".to_owned(),
        })
    }

    /// Renames a partition's directory away, durably, and removes it in the background
    /// after `delay` (`file.delete.delay.ms`). A stop before leaves that to the next start.
    /// What is another topic's by its `partition.metadata` stays.
    pub(super) async fn remove_directory(
        &self,
        name: &PartitionName,
        topic_id: Uuid,
        dir: usize,
        delay: Duration,
    ) -> Result<(), PartitionDirError> {
        let Some(data_dir) = self.0.partitions.dirs.usable(dir) else {
            // What is left there stays. It is served to nobody: its topic is not known any more,
            // and a later one of its name has another id.
            return Ok(());
        };
        let found = self.rt().dir(&data_dir).subdir(&name.to_string());
        if !found.exists().await? {
            return Ok(());
        }
        match partition_dir::read_topic_id(&found, topic_id).await? {
            TopicIdFile::Read(id) if id != topic_id => {
                let path = found.path().display();
                tracing::warn!("{path} belongs to another topic than the deleted one, and stays");
                return Ok(());
            }
            TopicIdFile::Read(_) | TopicIdFile::Lost(_) => {}
        }
        let renamed = partition_dir::begin_delete(self.rt(), &data_dir, name).await?;
        let shard = self.clone();
        self.rt().spawn(Queue::Background, async move {
            let (rt, stop) = (shard.rt(), shard.stop_event().listen());
            if !shard.is_stopping() {
                or(stop, rt.sleep(delay)).await;
            }
            if shard.is_stopping() {
                return;
            }
            if let Err(error) = partition_dir::finish_delete(rt, &data_dir, &renamed).await {
                tracing::warn!(%error, "files of a deleted partition stay until the next start");
            }
        });
        Ok(())
    }

    /// Finds or makes a partition's directory. The metadata log is the truth: what a
    /// crash left between it and the directory is finished here.
    pub(super) async fn directory(
        &self,
        name: &PartitionName,
        home: Home,
        topic_id: Uuid,
        load: PartitionLoad,
    ) -> Result<(Dir, PartitionLoad), OpenError> {
        let data_dir = self.0.partitions.dirs.path(home.dir)?;
        let dir = self.rt().dir(&data_dir).subdir(&name.to_string());
        let path = || dir.path().display().to_string();
        let recorded = match load {
            // A log start is recorded at once, the others now and then.
            PartitionLoad::Open {
                recovery_point,
                log_start,
                high_watermark,
                ..
            } => recovery_point.max(log_start).max(high_watermark),
            PartitionLoad::Create => None,
        };
        let flushed = recorded.unwrap_or(0);
        // Of one that is to be loaded the file is there, and the directory need not be asked for.
        let is_new = load == PartitionLoad::Create && !dir.exists().await?;
        let found = match is_new {
            true => None,
            false => match partition_dir::read_topic_id(&dir, topic_id).await {
                Ok(TopicIdFile::Read(id)) => Some(TopicIdFile::Read(id)),
                // There may be no directory either.
                other => match dir.exists().await? {
                    true => Some(other?),
                    false => None,
                },
            },
        };
        if let Some(found) = found {
            match found {
                TopicIdFile::Read(found) if found == topic_id => return Ok((dir, load)),
                // This topic's records were flushed, so the one before was gone by then.
                TopicIdFile::Read(_) if flushed > 0 => {
                    return Err(OpenError::OtherTopic {
                        path: path(),
                        flushed,
                    })
                }
                TopicIdFile::Read(_) if !home.may_create => {
                    return Err(OpenError::NotCreated { path: path() })
                }
                // Of a deleted topic of the same name, whose removal was cut short; or of one
                // that a damaged metadata log has forgotten. Nobody can tell, so it is kept.
                TopicIdFile::Read(other) => {
                    let bytes = partition_dir::log_bytes(&dir).await?.unwrap_or(0);
                    let kept = partition_dir::set_aside(self.rt(), &data_dir, name).await?;
                    tracing::warn!(
                        "{} held {bytes} bytes of segments of another topic, whose id is {other}: they are kept in {kept}, remove that if nobody misses it",
                        path()
                    );
                }
                TopicIdFile::Lost(why) => {
                    let bytes = partition_dir::log_bytes(&dir).await?;
                    // Whose records are they? A line in a checkpoint file is written for a
                    // partition that was opened, and goes, durably, before the name can be
                    // used again; so with a line the directory is this topic's.
                    if bytes > Some(0) && recorded.is_none() {
                        return Err(OpenError::IdLost { path: path(), why });
                    }
                    if bytes.is_some() {
                        partition_dir::create(self.rt(), &data_dir, name, topic_id).await?;
                        tracing::warn!(
                            "{}/partition.metadata {why} and was written again: topic {}",
                            dir.path().display(),
                            name.topic
                        );
                        return Ok((dir, load));
                    }
                    if flushed > 0 {
                        return Err(OpenError::SegmentsLost {
                            path: path(),
                            flushed,
                        });
                    }
                    // Its creation was cut short.
                }
            }
        } else if flushed > 0 {
            return Err(OpenError::DirectoryLost {
                path: path(),
                flushed,
            });
        }
        if !home.may_create {
            return Err(OpenError::NotCreated { path: path() });
        }
        let dir = partition_dir::create(self.rt(), &data_dir, name, topic_id).await?;
        Ok((dir, PartitionLoad::Create))
    }
}
