//! Room: storage.

pub mod checkpoint_file;
mod data_dir;
pub mod index;
pub mod leader_epochs;
mod load;
pub mod partition_dir;
pub mod producer_snapshot;
pub mod uuid_text;

pub use data_dir::{DataDir, DataDirError, MetaProperties, StartKind};
pub use load::{LoadMode, LoadReport};
