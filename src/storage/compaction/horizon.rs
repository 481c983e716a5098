//! When the next deletion marker of a log is due: kept beside it, so that a restart does not
//! forget it.
//!
//! Where nobody writes to a log nothing else would bring a round over it, and what was deleted
//! would keep its markers for good. The file is written at the end of a round and read once, by a
//! load of a log that was compacted. It is a hint: one that is lost makes markers stay until
//! the log is dirty again (as with Apache Kafka, which keeps it in memory alone), and one that
//! is older than the log costs a round that finds nothing.

use crate::runtime::{Dir, IoError, IoErrorKind, SyncSite};

/// The smallest delete horizon of a log, milliseconds since the Unix epoch, as its file has
/// it. `None`: there is no marker, or no file that could be read.
pub(in crate::storage) async fn read_horizon(dir: &Dir) -> Result<Option<i64>, IoError> {
    match dir.read_small(HORIZON_FILE, BYTES_MAX).await {
        Ok(bytes) => Ok(parse(&bytes)),
        Err(error) if matches!(error.kind, IoErrorKind::NotFound | IoErrorKind::Unusable) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Replaces the file.
pub(super) async fn write_horizon(dir: &Dir, horizon: Option<i64>) -> Result<(), IoError> {
    let horizon = horizon.unwrap_or(NONE);
    let content = format!("{VERSION}{horizon}\n").into_bytes();
    let site = SyncSite::CompactedSegment;
    dir.replace_small(HORIZON_FILE, content, site).await
}

fn parse(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let number = text.strip_prefix(VERSION)?.strip_suffix('\n')?;
    number.parse().ok().filter(|horizon| *horizon >= 0)
}

/// Beside the segments of a log.
const HORIZON_FILE: &str = "delete-horizon";
const VERSION: &str = "version: 0\ndelete_horizon_ms: ";
/// Stands for no marker.
const NONE: i64 = -1;
const BYTES_MAX: u64 = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::sim::World;

    #[test]
    fn what_is_written_is_read_and_nothing_else_counts() {
        let world = World::new(1);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let dir = rt.dir("/d");
            dir.create_all(SyncSite::PartitionDir).await.unwrap();
            assert_eq!(read_horizon(&dir).await.unwrap(), None);
            for horizon in [Some(0), Some(1_700_000_000_000), None] {
                write_horizon(&dir, horizon).await.unwrap();
                assert_eq!(read_horizon(&dir).await.unwrap(), horizon);
            }
        });
        for bad in [
            "",
            "version: 0\ndelete_horizon_ms: 5",
            "version: 1\ndelete_horizon_ms: 5\n",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
