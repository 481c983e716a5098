//! A data directory (`log.dirs`): its lock, its identity, its clean-shutdown marker
//! and its four checkpoints.
//!
//! One executor owns it (the control executor); shards get the path and what they
//! need of the checkpoints as values. Why that is safe: one writer for each file,
//! every file replaced whole (temporary file, fsync, rename, directory sync), and the
//! marker is removed durably before anything loads, so a crash while loading is never
//! taken for a clean stop.
//!
//! What it is not: it opens no log, and it does not decide what a recovery point is
//! worth (`recover.rs` does).

use super::checkpoint_file::{self, Checkpoint, CheckpointEntries};
use super::partition_dir::{PartitionName, DELETE_SUFFIX};
use super::small_file::{read_or_set_aside, read_small_file, Belief, SmallFile};
use super::unusable::set_aside_no_files;
use super::uuid_text;
use super::LoadMode;
use crate::runtime::{Dir, DirLock, IoError, IoErrorKind, Rt, SyncSite};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// An open, locked data directory.
pub struct DataDir {
    dir: Dir,
    _lock: DirLock,
    meta: MetaProperties,
    start: StartKind,
    partitions: Vec<PartitionName>,
    recovery_points: Checkpoint,
    high_watermarks: Checkpoint,
    log_starts: Checkpoint,
    cleaner_points: Checkpoint,
}

/// How the directory was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartKind {
    /// It did not exist, or was empty, and has just been formatted.
    Fresh,
    /// The clean-shutdown marker stood there (and is removed now).
    Clean,
    /// No marker: every log is recovered.
    Unclean,
}

/// What `meta.properties` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaProperties {
    /// `cluster.id`.
    pub cluster_id: Uuid,
    /// `node.id`.
    pub node_id: i32,
    /// `directory.id`.
    pub directory_id: Uuid,
}

/// Why a data directory cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DataDirError {
    /// The file system refused.
    #[error("the data directory cannot be used: {0}")]
    Io(#[from] IoError),
    /// Another process holds the lock.
    #[error(
        "the data directory {} is in use by another process; stop that broker, or give this one a \
         directory of its own (log.dirs, --data-dir)",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Formatted for another broker.
    #[error(
        "the data directory {} belongs to node.id {found}, but this broker has node.id {expected}; \
         set node.id={found}, or give this broker a directory of its own (log.dirs, --data-dir)",
        path.display()
    )]
    OtherNode {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        found: i32,
        /// Who asks.
        expected: i32,
    },
    /// Formatted for another cluster.
    #[error(
        "the data directory {} belongs to the cluster {}, but this broker is in the cluster {}; \
         correct cluster.id, or give this broker a directory of its own (log.dirs, --data-dir)",
        path.display(), uuid_text::encode(*found), uuid_text::encode(*expected)
    )]
    OtherCluster {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        found: Uuid,
        /// Who asks.
        expected: Uuid,
    },
    /// `meta.properties` cannot be understood.
    #[error(
        "{}/meta.properties cannot be used: {detail}; restore the file, or move the directory away \
         to start empty",
        path.display()
    )]
    Meta {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// There are partitions but no `meta.properties`.
    #[error(
        "{} holds partitions but no meta.properties; restore the file, or move the directory away \
         to start empty",
        path.display()
    )]
    MetaMissing {
        /// The directory.
        path: PathBuf,
    },
}

impl DataDir {
    /// Opens a data directory, or formats a new one. `cluster_id` of `None` takes the
    /// directory's own (a random one, if new).
    pub async fn open(
        rt: &Rt,
        path: impl AsRef<Path>,
        node_id: i32,
        cluster_id: Option<Uuid>,
    ) -> Result<DataDir, DataDirError> {
        let dir = rt.dir(path.as_ref());
        dir.create_all(SyncSite::DataDirFormat).await?;
        // A broker that runs holds its lock in a file, so nothing of it is touched here.
        set_aside_no_files(&dir, &dir.list_measuring(|_| false).await?, is_replaceable).await?;
        let lock = match dir.lock(LOCK_FILE).await {
            Err(e) if e.kind == IoErrorKind::AlreadyExists => {
                return Err(DataDirError::InUse {
                    path: path.as_ref().to_owned(),
                })
            }
            other => other?,
        };
        let (meta, is_new) = open_meta(rt, &dir, node_id, cluster_id).await?;
        let was_clean = take_clean_marker(&dir).await?;
        if !was_clean {
            sync_names(rt, &dir).await?;
        }
        let partitions = list_partitions(&dir).await?;
        Ok(DataDir {
            recovery_points: read_checkpoint(&dir, RECOVERY_POINT_FILE).await?,
            high_watermarks: read_checkpoint(&dir, HIGH_WATERMARK_FILE).await?,
            log_starts: read_checkpoint(&dir, LOG_START_FILE).await?,
            cleaner_points: read_checkpoint(&dir, CLEANER_FILE).await?,
            start: match (is_new, was_clean) {
                (true, _) => StartKind::Fresh,
                (false, true) => StartKind::Clean,
                (false, false) => StartKind::Unclean,
            },
            dir,
            _lock: lock,
            meta,
            partitions,
        })
    }

    /// Whether a directory was ever used as one. Changes nothing.
    pub async fn is_formatted(dir: &Dir) -> Result<bool, IoError> {
        match dir.read_small(META_FILE, SMALL_FILE_BYTES_MAX).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == IoErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a broker has served from a directory: the first start of all writes the
    /// checkpoints only when there is a metadata log. Changes nothing.
    pub async fn has_run(dir: &Dir) -> Result<bool, IoError> {
        match dir.list().await {
            Ok(entries) => Ok(entries
                .iter()
                .any(|entry| entry.name == RECOVERY_POINT_FILE)),
            Err(error) if error.kind == IoErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// What `meta.properties` holds.
    pub fn meta(&self) -> MetaProperties {
        self.meta
    }

    /// How it was left.
    pub fn start_kind(&self) -> StartKind {
        self.start
    }

    /// The partitions that had a directory at the start.
    pub fn partitions(&self) -> &[PartitionName] {
        &self.partitions
    }

    /// The recovery point that the checkpoint held at the start.
    pub fn recovery_point(&self, topic: &str, partition: i32) -> Option<i64> {
        self.recovery_points.get(topic, partition)
    }

    /// The high watermark that the checkpoint held at the start.
    pub fn high_watermark(&self, topic: &str, partition: i32) -> Option<i64> {
        self.high_watermarks.get(topic, partition)
    }

    /// The log start offset that the checkpoint held at the start.
    pub fn log_start(&self, topic: &str, partition: i32) -> Option<i64> {
        self.log_starts.get(topic, partition)
    }

    /// The first offset that was not compacted, as the checkpoint held it at the start. Where
    /// the whole file is missing or malformed nobody knows which logs have gaps, so every
    /// partition that was there may have: its line counts as 0.
    pub fn cleaned_to(&self, topic: &str, partition: i32) -> Option<i64> {
        match &self.cleaner_points {
            Checkpoint::Read(entries) => entries.get(&(topic.to_owned(), partition)).copied(),
            Checkpoint::Missing | Checkpoint::Malformed(_) => {
                let there =
                    |name: &&PartitionName| name.topic == topic && name.partition == partition;
                self.partitions.iter().find(there).map(|_| 0)
            }
        }
    }

    /// How a partition's log is to be opened.
    pub fn load_mode(&self, topic: &str, partition: i32) -> LoadMode {
        LoadMode {
            clean: self.start == StartKind::Clean,
            recovery_point: self.recovery_point(topic, partition),
            log_start: self.log_start(topic, partition),
            flushed: self.high_watermark(topic, partition),
            cleaned_to: self.cleaned_to(topic, partition),
        }
    }

    /// Replaces the recovery points: all partitions of the directory, each at or below
    /// what is flushed. A partition that is left out counts as 0.
    pub async fn write_recovery_points(
        &self,
        offsets: &CheckpointEntries,
    ) -> Result<(), DataDirError> {
        let site = SyncSite::RecoveryPointCheckpoint;
        self.write_checkpoint(RECOVERY_POINT_FILE, offsets, site)
            .await
    }

    /// Replaces the high watermarks of all partitions of the directory.
    pub async fn write_high_watermarks(
        &self,
        offsets: &CheckpointEntries,
    ) -> Result<(), DataDirError> {
        let site = SyncSite::HighWatermarkCheckpoint;
        self.write_checkpoint(HIGH_WATERMARK_FILE, offsets, site)
            .await
    }

    /// Replaces the log start offsets of all partitions of the directory.
    pub async fn write_log_starts(&self, offsets: &CheckpointEntries) -> Result<(), DataDirError> {
        let site = SyncSite::LogStartCheckpoint;
        self.write_checkpoint(LOG_START_FILE, offsets, site).await
    }

    /// Replaces the cleaner's offsets of all partitions of the directory that were ever
    /// compacted. A partition's line is durable before its first compacted segment is.
    pub async fn write_cleaner_points(
        &self,
        offsets: &CheckpointEntries,
    ) -> Result<(), DataDirError> {
        let site = SyncSite::CleanerCheckpoint;
        self.write_checkpoint(CLEANER_FILE, offsets, site).await
    }

    /// Writes the clean-shutdown marker: the last thing of a clean stop, only after
    /// every log was closed, every flush succeeded and every load had finished.
    pub async fn mark_clean(&self) -> Result<(), DataDirError> {
        let site = SyncSite::CleanMarkerWrite;
        self.dir
            .replace_small(CLEAN_MARKER_FILE, CLEAN_MARKER.to_vec(), site)
            .await?;
        Ok(self.dir.sync(site).await?)
    }

    async fn write_checkpoint(
        &self,
        name: &str,
        offsets: &CheckpointEntries,
        site: SyncSite,
    ) -> Result<(), DataDirError> {
        self.dir
            .replace_small(name, checkpoint_file::encode(offsets), site)
            .await?;
        Ok(self.dir.sync(site).await?)
    }
}

impl MetaProperties {
    fn encode(&self) -> Vec<u8> {
        format!(
            "version=1\ncluster.id={}\nnode.id={}\ndirectory.id={}\n",
            uuid_text::encode(self.cluster_id),
            self.node_id,
            uuid_text::encode(self.directory_id)
        )
        .into_bytes()
    }

    /// Reads the file's content; the error says what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<MetaProperties, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
        let value = |key: &str| {
            text.lines()
                .filter(|line| !line.trim_start().starts_with(['#', '!']))
                .filter_map(|line| line.split_once('='))
                .find(|(k, _)| k.trim() == key)
                .map(|(_, v)| v.trim())
                .ok_or_else(|| format!("{key} is missing"))
        };
        let uuid = |key: &str| {
            let text = value(key)?;
            uuid_text::decode(text).ok_or_else(|| format!("{key}={text} is not a Kafka uuid"))
        };
        match value("version")? {
            "1" => {}
            other => return Err(format!("version={other}, expected version=1")),
        }
        let node_id = value("node.id")?;
        Ok(MetaProperties {
            node_id: node_id
                .parse()
                .map_err(|_| format!("node.id={node_id} is not a number"))?,
            cluster_id: uuid("cluster.id")?,
            directory_id: uuid("directory.id")?,
        })
    }
}

/// Reads and checks `meta.properties`, or writes it in a directory without
/// partitions. True if it was written.
async fn open_meta(
    rt: &Rt,
    dir: &Dir,
    node_id: i32,
    cluster_id: Option<Uuid>,
) -> Result<(MetaProperties, bool), DataDirError> {
    let path = || dir.path().to_owned();
    let (len_max, belief) = (SMALL_FILE_BYTES_MAX, Belief::ReadTwice);
    match read_small_file(dir, META_FILE, len_max, belief, MetaProperties::parse).await? {
        SmallFile::Unusable(detail) | SmallFile::Malformed(detail) => Err(DataDirError::Meta {
            path: path(),
            detail,
        }),
        SmallFile::Read(meta) => {
            if meta.node_id != node_id {
                return Err(DataDirError::OtherNode {
                    path: path(),
                    found: meta.node_id,
                    expected: node_id,
                });
            }
            match cluster_id {
                Some(expected) if expected != meta.cluster_id => Err(DataDirError::OtherCluster {
                    path: path(),
                    found: meta.cluster_id,
                    expected,
                }),
                _ => Ok((meta, false)),
            }
        }
        SmallFile::Missing => {
            let holds_partitions = dir
                .list()
                .await?
                .iter()
                .any(|e| e.is_dir && PartitionName::parse(&e.name).is_some());
            if holds_partitions {
                return Err(DataDirError::MetaMissing { path: path() });
            }
            let meta = MetaProperties {
                cluster_id: cluster_id.unwrap_or_else(|| uuid_text::random(rt)),
                node_id,
                directory_id: uuid_text::random(rt),
            };
            let site = SyncSite::DataDirFormat;
            dir.replace_small(META_FILE, meta.encode(), site).await?;
            dir.sync(site).await?;
            Ok((meta, true))
        }
    }
}

/// Removes the clean-shutdown marker, durably. True if it was there, and a broker wrote it:
/// the content of one that did not is no word on how the stop was.
pub(super) async fn take_clean_marker(dir: &Dir) -> Result<bool, DataDirError> {
    let is_ours = |content: &[u8]| {
        let ours =
            content.starts_with(CLEAN_MARKER_HEAD) && content.trim_ascii_end().ends_with(b"}");
        ours.then_some(()).ok_or(())
    };
    let (name, belief) = (CLEAN_MARKER_FILE, Belief::Proven);
    let is_ours = match read_or_set_aside(dir, name, SMALL_FILE_BYTES_MAX, belief, is_ours).await? {
        SmallFile::Missing | SmallFile::Unusable(_) => return Ok(false),
        SmallFile::Read(()) => true,
        SmallFile::Malformed(()) => {
            tracing::warn!(
                "{} holds no clean-shutdown marker of version 0 and is not believed: every log is recovered",
                dir.path().join(name).display()
            );
            false
        }
    };
    dir.remove_file(CLEAN_MARKER_FILE).await?;
    dir.sync(SyncSite::CleanMarkerRemove).await?;
    Ok(is_ours)
}

/// The files of a data directory that can be done without or made again.
fn is_replaceable(name: &str) -> bool {
    let name = name.strip_suffix(".tmp").unwrap_or(name);
    [
        RECOVERY_POINT_FILE,
        HIGH_WATERMARK_FILE,
        LOG_START_FILE,
        CLEANER_FILE,
        CLEAN_MARKER_FILE,
        LOCK_FILE,
    ]
    .contains(&name)
}

/// A process that was killed may have left names that are not durable yet: of
/// partitions' directories, and of the data directory itself.
async fn sync_names(rt: &Rt, dir: &Dir) -> Result<(), DataDirError> {
    dir.sync(SyncSite::PartitionCreate).await?;
    for above in dir.path().ancestors().skip(1) {
        let above = match above.as_os_str().is_empty() {
            true => Path::new("."),
            false => above,
        };
        match rt.dir(above).sync(SyncSite::DataDirFormat).await {
            // Not ours to read, so not ours to have made.
            Err(e) if e.kind == IoErrorKind::Denied => break,
            other => other?,
        }
    }
    Ok(())
}

/// Lists the partitions' directories, and finishes removals that were under way.
async fn list_partitions(dir: &Dir) -> Result<Vec<PartitionName>, DataDirError> {
    let mut partitions = Vec::new();
    let mut removed = false;
    let entries = dir.list_measuring(|_| false).await?;
    for entry in entries.into_iter().filter(|e| e.is_dir) {
        if entry.name.ends_with(DELETE_SUFFIX) {
            dir.remove_dir_all(&entry.name).await?;
            removed = true;
        } else if let Some(name) = PartitionName::parse(&entry.name) {
            partitions.push(name);
        } else {
            tracing::warn!(
                "{} in the data directory {} is no partition's directory and is left alone",
                entry.name,
                dir.path().display()
            );
        }
    }
    if removed {
        dir.sync(SyncSite::PartitionRemove).await?;
    }
    partitions.sort();
    Ok(partitions)
}

pub(super) async fn read_checkpoint(dir: &Dir, name: &str) -> Result<Checkpoint, DataDirError> {
    let (belief, parse) = (Belief::ReadTwice, checkpoint_file::parse);
    let file = read_or_set_aside(dir, name, CHECKPOINT_BYTES_MAX, belief, parse);
    Ok(match file.await? {
        // What was set aside counts as missing: nobody knows what it said.
        SmallFile::Missing | SmallFile::Unusable(_) => Checkpoint::Missing,
        SmallFile::Read(entries) => Checkpoint::Read(entries),
        SmallFile::Malformed(error) => {
            tracing::warn!(
                "{}/{name} is malformed and counts as empty: {error}",
                dir.path().display()
            );
            Checkpoint::Malformed(error)
        }
    })
}

/// The recovery points of a data directory.
pub const RECOVERY_POINT_FILE: &str = "recovery-point-offset-checkpoint";
/// The high watermarks of a data directory.
pub const HIGH_WATERMARK_FILE: &str = "replication-offset-checkpoint";
/// The log start offsets of a data directory.
pub const LOG_START_FILE: &str = "log-start-offset-checkpoint";
/// Up to where the logs of a data directory were compacted.
pub const CLEANER_FILE: &str = "cleaner-offset-checkpoint";
/// The clean-shutdown marker of a data directory.
pub const CLEAN_MARKER_FILE: &str = ".kafka_cleanshutdown";
pub(super) const LOCK_FILE: &str = ".lock";
const META_FILE: &str = "meta.properties";
/// No broker epoch yet: a single node has none.
const CLEAN_MARKER: &[u8] = b"{\"version\":0,\"brokerEpoch\":-1}";
/// How a marker of any broker epoch begins.
const CLEAN_MARKER_HEAD: &[u8] = b"{\"version\":0,";
const SMALL_FILE_BYTES_MAX: u64 = 64 << 10;
const CHECKPOINT_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_properties_survive_the_file() {
        let meta = MetaProperties {
            cluster_id: Uuid::from_u128(0x1234_5678_9ABC_DEF0_1122_3344_5566_7788),
            node_id: 7,
            directory_id: Uuid::from_u128(9),
        };
        assert_eq!(MetaProperties::parse(&meta.encode()), Ok(meta));
        let kafkas = b"#\n#Sat Nov 01 10:00:00 UTC 2025\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n\
            directory.id=AAAAAAAAAAAAAAAAAAAAAg\nnode.id=3\nversion=1\n";
        assert_eq!(
            MetaProperties::parse(kafkas),
            Ok(MetaProperties {
                cluster_id: Uuid::from_u128(1),
                node_id: 3,
                directory_id: Uuid::from_u128(2),
            })
        );
    }

    #[test]
    fn damaged_meta_properties_say_what_is_wrong() {
        let wrong = |text: &str| MetaProperties::parse(text.as_bytes()).unwrap_err();
        assert_eq!(wrong(""), "version is missing");
        assert_eq!(wrong("version=0\n"), "version=0, expected version=1");
        assert_eq!(wrong("version=1\nnode.id=x\n"), "node.id=x is not a number");
        assert_eq!(
            wrong("version=1\nnode.id=1\ncluster.id=short\n"),
            "cluster.id=short is not a Kafka uuid"
        );
    }
}
