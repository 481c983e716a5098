//! Names for every place where the code makes something durable.

/// Where a flush or a directory sync happens. Every such call in the code passes
/// one, so that the simulator can turn any single site into a no-op and prove that
/// a test notices the loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SyncSite {
    /// fdatasync of the active segment on behalf of waiting acknowledgements.
    SegmentFlush,
    /// fdatasync of a segment that was cut to its exact length at a roll.
    SegmentSeal,
    /// Directory sync after a segment file was created.
    SegmentCreate,
    /// fdatasync of what an unclean load scanned, before it counts as flushed.
    RecoveryScan,
    /// fdatasync after a truncation.
    Truncate,
    /// Directory sync after files were removed by a truncation.
    TruncateRemove,
    /// An offset or time index file.
    Index,
    /// A producer snapshot file.
    ProducerSnapshot,
    /// The leader-epoch checkpoint file.
    EpochCheckpoint,
    /// Directory sync after index, snapshot or epoch files were written.
    PartitionDir,
    /// The recovery-point checkpoint of a data directory (file, then directory).
    RecoveryPointCheckpoint,
    /// The high-watermark checkpoint of a data directory.
    HighWatermarkCheckpoint,
    /// The log-start-offset checkpoint of a data directory.
    LogStartCheckpoint,
    /// Creation of a partition's directory.
    PartitionCreate,
    /// Removal of a partition's directory.
    PartitionRemove,
    /// `meta.properties` and the data directory itself.
    DataDirFormat,
    /// Writing the clean-shutdown marker.
    CleanMarkerWrite,
    /// Removing the clean-shutdown marker before a load.
    CleanMarkerRemove,
    /// A metadata snapshot.
    MetadataSnapshot,
    /// fdatasync of a compacted segment and its indexes before they become `.swap`.
    CompactedSegment,
    /// Directory syncs while compacted segments take the place of those they replace.
    CompactionSwap,
    /// The cleaner-offset checkpoint of a data directory.
    CleanerCheckpoint,
    /// Directory sync after an expired segment's file got the name of a new one.
    SegmentRecycle,
}

impl SyncSite {
    /// Every site, for tests that disable one at a time.
    pub const ALL: [SyncSite; 23] = [
        SyncSite::SegmentFlush,
        SyncSite::SegmentSeal,
        SyncSite::SegmentCreate,
        SyncSite::RecoveryScan,
        SyncSite::Truncate,
        SyncSite::TruncateRemove,
        SyncSite::Index,
        SyncSite::ProducerSnapshot,
        SyncSite::EpochCheckpoint,
        SyncSite::PartitionDir,
        SyncSite::RecoveryPointCheckpoint,
        SyncSite::HighWatermarkCheckpoint,
        SyncSite::LogStartCheckpoint,
        SyncSite::PartitionCreate,
        SyncSite::PartitionRemove,
        SyncSite::DataDirFormat,
        SyncSite::CleanMarkerWrite,
        SyncSite::CleanMarkerRemove,
        SyncSite::MetadataSnapshot,
        SyncSite::CompactedSegment,
        SyncSite::CompactionSwap,
        SyncSite::CleanerCheckpoint,
        SyncSite::SegmentRecycle,
    ];
}
