//! A controller on a simulated machine: how it is opened, and what it left on the disk.

use super::*;
use crate::controller::options::SnapshotInterval;
use crate::controller::snapshot::SnapshotName;
use crate::controller::{Controller, ControllerError, ControllerOptions};
use crate::protocol::ErrorCode;
use crate::runtime::sim::SimNode;
use crate::runtime::Rt;
use crate::storage::{Storage, StorageLimits};
use std::path::PathBuf;

pub(super) const DATA_DIR: &str = "/data";

pub(super) fn storage(rt: &Rt) -> Storage {
    Storage::new(
        rt.clone(),
        StorageLimits {
            cache_bytes: 4 << 20,
            cold_read_bytes: 4 << 20,
            write_bytes: 4 << 20,
            flushes_in_flight_max: 4,
            open_segments_max: 4,
        },
    )
}

pub(super) fn options(clean_at: Option<i64>) -> ControllerOptions {
    ControllerOptions {
        node_id: 1,
        cluster_id: CLUSTER,
        broker_config: Default::default(),
        max_partitions_per_topic: 50,
        max_partitions: 1000,
        clean: clean_at.is_some(),
        recovery_point: clean_at,
    }
}

pub(super) async fn open(
    rt: &Rt,
    clean_at: Option<i64>,
) -> Result<(Controller, Image), ControllerError> {
    // Snapshots often, so that every run meets some.
    let interval = SnapshotInterval {
        records: 40,
        bytes: 1 << 20,
    };
    let dir = rt.dir(DATA_DIR);
    Controller::open_with(rt, &storage(rt), dir, options(clean_at), interval).await
}

pub(super) fn topic_names(image: &Image) -> Vec<String> {
    image.topics().map(|t| t.name.to_string()).collect()
}

pub(super) async fn create(controller: &Controller, name: &str) -> Result<Uuid, ErrorCode> {
    let (mut results, _) = controller.create_topics(vec![new_topic(name)], false).await;
    results.remove(0).map(|t| t.id).map_err(|fault| fault.code)
}

pub(super) fn snapshots(node: &SimNode) -> Vec<(SnapshotName, PathBuf)> {
    let files = node.disk().list_raw(DATA_DIR);
    let mut found: Vec<_> = files
        .into_iter()
        .filter_map(|(path, _)| {
            let name = SnapshotName::parse(path.file_name()?.to_str()?)?;
            Some((name, path))
        })
        .collect();
    found.sort();
    found
}
