//! How long a write and a flush take on the file system of the data directory.
//!
//! As the broker does it: direct writes of one block, one after the other, into a file whose space is reserved, each
//! followed by fdatasync. The file is removed again.
//!
//! What it cannot know: whether the disk keeps what it says is flushed.

use std::path::Path;
use std::time::Duration;

use crate::runtime::{IoError, OpenMode, Rt, SyncSite, BLOCK_BYTES};

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskSpeed {
    /// Writes with a flush each.
    pub rounds: usize,
    /// One direct write.
    pub write: Percentiles,
    /// One fdatasync after it.
    pub flush: Percentiles,
    /// Both together: what an acknowledgement waits for.
    pub both: Percentiles,
}

/// Times of which a half, and 99 of 100, are shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Percentiles {
    pub p50: Duration,
    pub p99: Duration,
    pub max: Duration,
}

impl Percentiles {
    fn of(mut times: Vec<Duration>) -> Percentiles {
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
        Percentiles {
            p50: at(50),
            p99: at(99),
            max: at(100),
        }
    }
}

/// Measures in a directory that exists.
pub(super) async fn measure(rt: &Rt, path: &Path) -> Result<DiskSpeed, IoError> {
    let dir = rt.dir(path);
    let name = format!(".highwater-doctor-{:016x}", rt.random_u64());
    let file = dir.open(&name, OpenMode::CreateNew).await?;
    let measured = rounds(rt, &file).await;
    drop(file);
    dir.remove_file(&name).await?;
    measured
}

async fn rounds(rt: &Rt, file: &crate::runtime::File) -> Result<DiskSpeed, IoError> {
    file.pre_allocate((ROUNDS_MAX + WARM_UP) as u64 * BLOCK_BYTES as u64)
        .await?;
    let mut block = rt.write_buf(BLOCK_BYTES);
    // Some disks do nothing for zeros.
    for (place, byte) in block.as_mut_slice().iter_mut().enumerate() {
        *byte = (place as u8).wrapping_mul(31).wrapping_add(7);
    }
    let block = block.freeze();
    let (mut writes, mut flushes, mut both) = (Vec::new(), Vec::new(), Vec::new());
    let begun = rt.now();
    for round in 0..ROUNDS_MAX + WARM_UP {
        let start = rt.now();
        file.write_at(&block, (round * BLOCK_BYTES) as u64).await?;
        let written = rt.now();
        file.sync_data(SyncSite::SegmentFlush).await?;
        let flushed = rt.now();
        if round < WARM_UP {
            continue;
        }
        writes.push(written - start);
        flushes.push(flushed - written);
        both.push(flushed - start);
        if flushed.since(begun) > TIME_MAX && both.len() >= ROUNDS_MIN {
            break;
        }
    }
    Ok(DiskSpeed {
        rounds: both.len(),
        write: Percentiles::of(writes),
        flush: Percentiles::of(flushes),
        both: Percentiles::of(both),
    })
}

/// The first writes find the file system's structures cold.
const WARM_UP: usize = 10;
const ROUNDS_MAX: usize = 500;
/// A slow disk is measured shorter, but so often at least.
const ROUNDS_MIN: usize = 20;
const TIME_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::native;

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let times = (1..=100).rev().map(Duration::from_millis).collect();
        let found = Percentiles::of(times);
        let ms = |p: Duration| p.as_millis();
        assert_eq!(
            (ms(found.p50), ms(found.p99), ms(found.max)),
            (51, 100, 100)
        );
        let one = Percentiles::of(vec![Duration::from_millis(3)]);
        assert_eq!(
            (one.p50, one.p99),
            (Duration::from_millis(3), Duration::from_millis(3))
        );
    }

    #[test]
    fn a_directory_is_measured_and_left_as_it_was() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR").to_owned() + "/target").unwrap();
        let path = dir.path().to_owned();
        let speed = native::run(move |rt| async move { measure(&rt, &path).await })
            .unwrap()
            .unwrap();
        assert!(speed.rounds >= ROUNDS_MIN);
        assert!(speed.both.p50 >= speed.flush.p50.min(speed.write.p50));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
