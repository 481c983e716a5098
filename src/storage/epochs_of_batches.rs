//! The leader epochs of a log whose `leader-epoch-checkpoint` is missing or malformed.
//!
//! Each batch carries the epoch that wrote it, so the whole history stands in the
//! segments; it is read from all of them, which takes as long as reading the log, and
//! happens only when that one file was lost. To go on without it would forget where
//! old epochs ended, and a follower that asks would keep or cut the wrong records; to
//! go offline would give up a replica that has lost nothing. What is not found again is
//! an epoch that wrote no record: no record can differ because of it.
//!
//! What stands below what is known to be durable must be whole; if it is not, the
//! history cannot be known, and that is damage.

use super::leader_epochs::LeaderEpochs;
use super::log_files::{damaged, file_name, LogFiles, LOG};
use super::scan::{scan_segment, ScanStart};
use super::LoadError;
use crate::runtime::{Dir, OpenMode, Rt};

/// Reads the epochs from the batches of all segments, up to the first that is no valid
/// batch in order. [`LoadError::Damaged`] if that is below `proven`. Also returns how
/// many bytes were read and checked. `gaps`: the log may be compacted.
pub(super) async fn epochs_of_batches(
    rt: &Rt,
    dir: &Dir,
    files: &LogFiles,
    index_interval_bytes: u32,
    gaps: bool,
    proven: i64,
) -> Result<(LeaderEpochs, u64), LoadError> {
    let mut epochs = LeaderEpochs::new();
    let mut latest = -1;
    let mut scanned_bytes = 0;
    for (base, segment) in &files.segments {
        let name = file_name(*base, LOG);
        let file = dir.open(&name, OpenMode::Read).await?;
        let start = ScanStart::segment_start(*base).with_gaps(gaps);
        let size = segment.log_bytes;
        let scan = scan_segment(rt, &file, *base, size, start, index_interval_bytes, latest);
        let scan = scan.await?;
        scanned_bytes += scan.scanned_bytes;
        for (epoch, offset) in &scan.epochs {
            epochs.assign(*epoch, *offset);
            latest = *epoch;
        }
        let follows = |next: i64| {
            next == scan.next_offset || (gaps && scan.bad.is_none() && next > scan.next_offset)
        };
        if files.base_after(*base).is_some_and(follows) {
            continue;
        }
        if scan.next_offset < proven {
            let why = scan
                .bad
                .map_or_else(String::new, |bad| format!(" ({})", bad.detail));
            let detail = format!(
                "the leader-epoch-checkpoint is lost, and the epochs cannot be read from the batches beyond offset {}{why}",
                scan.next_offset
            );
            return Err(damaged(dir, &name, scan.len, &detail));
        }
        break;
    }
    Ok((epochs, scanned_bytes))
}
