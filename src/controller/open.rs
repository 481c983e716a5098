//! Opening the controller: the newest whole snapshot, then the log behind it.

use super::committer::Committer;
use super::journal::{Journal, Mark};
use super::options::{ControllerError, ControllerOptions, SnapshotInterval};
use super::plan::Limits;
use super::snapshot::{SnapshotError, SnapshotStore};
use super::Published;
use crate::metadata::records::Replay;
use crate::metadata::{Image, METADATA_TOPIC_NAME};
use crate::runtime::{Dir, Rt, SyncSite};
use crate::storage::{LoadMode, Log, LogConfig, PartitionName, Storage};
use std::rc::Rc;

/// Opens the log and makes the task's state of it. Registers this broker if no record
/// does, which is the only thing it may write.
pub(super) async fn open(
    rt: &Rt,
    storage: &Storage,
    data_dir: Dir,
    options: ControllerOptions,
    snapshot_interval: SnapshotInterval,
) -> Result<Committer, ControllerError> {
    let dir = data_dir.subdir(&format!("{METADATA_TOPIC_NAME}-0"));
    let empty = Image::empty(options.cluster_id, options.node_id);
    let snapshots = SnapshotStore::new(dir.clone());
    let log = open_log(storage, &data_dir, &dir, &snapshots, &options).await?;
    let journal = Journal::new(rt.clone(), storage.clone(), dir.clone(), log);

    let loaded = newest_snapshot(rt, &snapshots, &journal, empty).await?;
    check_coverage(&dir, &journal, &loaded)?;
    let mut replay = Replay::new(loaded.image);
    let replayed = journal.replay(loaded.offset, &mut replay).await?;
    let end = journal.mark();

    let mut committer = Committer {
        rt: rt.clone(),
        proof_tried_at: journal.recovery_point(),
        snapshot_mark: Mark {
            offset: loaded.offset,
            bytes: end.bytes.saturating_sub(replayed),
        },
        snapshot_interval,
        journal,
        snapshots,
        limits: Limits {
            num_partitions: options.broker_config.num_partitions,
            default_replication_factor: options.broker_config.default_replication_factor,
            max_partitions_per_topic: options.max_partitions_per_topic,
            max_partitions: options.max_partitions,
        },
        rules: options.broker_config.clone(),
        published: Rc::new(Published::new(replay.into_image())),
    };
    committer.register_broker(options.node_id).await?;
    Ok(committer)
}

async fn open_log(
    storage: &Storage,
    data_dir: &Dir,
    dir: &Dir,
    snapshots: &SnapshotStore,
    options: &ControllerOptions,
) -> Result<Log, ControllerError> {
    let config = LogConfig::default();
    dir.create_all(SyncSite::PartitionCreate)
        .await
        .map_err(SnapshotError::from)?;
    let entries = dir.list().await.map_err(SnapshotError::from)?;
    if entries.iter().any(|entry| entry.name.ends_with(".log")) {
        let mode = LoadMode {
            cleaned_to: None,
            clean: options.clean,
            recovery_point: options.recovery_point,
            log_start: None,
            flushed: None,
        };
        let opened = Log::open(storage, dir.clone(), config, mode).await;
        let (log, report) = opened.map_err(super::JournalError::from)?;
        tracing::info!(?report, "the metadata log is loaded");
        return Ok(log);
    }
    // No segment. That is a first start (perhaps one that was cut short), unless
    // something says that records were written.
    let newest = snapshots.list().await?.first().map(|name| name.offset);
    let recorded = newest.max(options.recovery_point).unwrap_or(0);
    if recorded > 0 {
        return Err(ControllerError::RecordsMissing {
            log_start_offset: 0,
            end_offset: 0,
            need: format!(
                "a snapshot or the recovery point says that offsets up to {recorded} were written"
            ),
            directory: dir.path().display().to_string(),
        });
    }
    // Partitions are made only after the record of their topic is durable.
    let names = data_dir.list().await.map_err(SnapshotError::from)?;
    let mut partitions = names.iter().filter(|entry| entry.is_dir).filter(|entry| {
        let name = PartitionName::parse(&entry.name);
        name.is_some_and(|name| name.topic != METADATA_TOPIC_NAME)
    });
    if let Some(partition) = partitions.next() {
        return Err(ControllerError::RecordsMissing {
            log_start_offset: 0,
            end_offset: 0,
            need: format!(
                "there is a partition's directory, {}, so its topic was recorded",
                partition.name
            ),
            directory: dir.path().display().to_string(),
        });
    }
    let created = Log::create(storage, dir.clone(), config).await;
    Ok(created.map_err(super::JournalError::from)?)
}

/// An image and the first offset that it does not hold.
struct Loaded {
    image: Image,
    offset: i64,
    /// Which damaged snapshots were passed over.
    damaged: Vec<String>,
}

/// The newest snapshot that is whole, or nothing. Only damage passes one over; what a
/// later version wrote, or a disk that cannot read, is an error.
async fn newest_snapshot(
    rt: &Rt,
    snapshots: &SnapshotStore,
    journal: &Journal,
    empty: Image,
) -> Result<Loaded, ControllerError> {
    let mut damaged = Vec::new();
    for name in snapshots.list().await? {
        match snapshots.read(rt, name, empty.clone()).await {
            Ok(image) => {
                return Ok(Loaded {
                    image,
                    offset: name.offset,
                    damaged,
                })
            }
            Err(error @ SnapshotError::Damaged { .. }) => {
                tracing::warn!(
                    log_start_offset = journal.start_offset(),
                    "{error}; an older snapshot and the log are used instead"
                );
                damaged.push(name.file());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Loaded {
        image: empty,
        offset: 0,
        damaged,
    })
}

/// Refuses to start where records are missing between the snapshot and the log.
fn check_coverage(dir: &Dir, journal: &Journal, loaded: &Loaded) -> Result<(), ControllerError> {
    let (start, end) = (journal.start_offset(), journal.next_offset());
    if start <= loaded.offset && loaded.offset <= end {
        return Ok(());
    }
    let mut need = match loaded.offset {
        0 => "there is no snapshot that could be used".to_owned(),
        offset => format!("the newest snapshot that could be used ends at offset {offset}"),
    };
    if !loaded.damaged.is_empty() {
        need.push_str(&format!(" ({} damaged)", loaded.damaged.join(", ")));
    }
    Err(ControllerError::RecordsMissing {
        log_start_offset: start,
        end_offset: end,
        need,
        directory: dir.path().display().to_string(),
    })
}
