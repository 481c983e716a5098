//! Room: storage.

pub mod checkpoint_file;
pub mod index;
pub mod leader_epochs;
pub mod producer_snapshot;
