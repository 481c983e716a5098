//! The real broker process, driven over its socket and its signals.

#[path = "../harness/broker.rs"]
mod broker;
#[path = "../harness/files.rs"]
mod files;
#[path = "../harness/loop_disk.rs"]
mod loop_disk;

mod admin;
mod admin_http;
mod bad_files;
mod bad_input;
mod broker_settings;
mod client;
mod compaction;
mod compaction_groups;
mod connections;
mod corruption;
mod data_dirs;
mod describe;
mod exhaustion;
mod failed_directory;
mod faulty_disk;
mod fetch_sessions;
mod group_client;
mod groups;
mod groups_admin;
mod groups_offsets;
mod idempotence;
mod keyed;
mod lifecycle;
mod many_partitions;
mod metrics;
mod offsets;
mod open_metrics;
mod raw;
mod recovery;
mod recovery_bounds;
mod retention;
mod semantics;
mod service;
mod settings;
mod validation;
mod waiting;

use broker::Launch;

/// The binary under test on a data directory.
fn launch(data_dir: &std::path::Path) -> Launch {
    Launch::new(env!("CARGO_BIN_EXE_highwater"), data_dir)
}

/// A directory on the file system of the build, where direct I/O works.
fn data_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory can be made")
}
