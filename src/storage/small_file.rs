//! Reading small files so that a bit that came wrong for once decides nothing.
//!
//! The rule: what a file says is believed after one read where the file proves it (a
//! checksum) or the reader knew it before (the topic's id). All else is believed when two
//! reads in a row give the same bytes: the content of a file without a checksum, and of any
//! file that is malformed or contradicts what is known, before that leads to a refusal, a
//! removal or a rewrite. So a start reads twice the few files of a data directory and each
//! partition's epochs, and nothing else that is in order.
//!
//! What it is not: it changes nothing on the disk. A file that is the same at each read may
//! still be wrong; what that means is the caller's to know.

use super::unusable::set_aside;
use crate::runtime::{Dir, IoError, IoErrorKind};

/// What stands under the name of a small file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SmallFile<T, E> {
    /// Nothing.
    Missing,
    /// What holds no content of such a file: no regular file, or one that is too large. Why.
    Unusable(String),
    /// Its content is not what it should be: so say two reads.
    Malformed(E),
    /// What it says.
    Read(T),
}

/// What it takes to believe a content that is well-formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Belief {
    /// It proves itself: a checksum, or it says what was known.
    Proven,
    /// Nothing but a second read.
    ReadTwice,
}

/// Reads a small file whole, as the rule above has it. `parse` says what the content means.
///
/// # Errors
/// The file system refused, or no two reads gave the same ([`IoErrorKind::Device`]).
pub(super) async fn read_small_file<T, E>(
    dir: &Dir,
    name: &str,
    len_max: u64,
    belief: Belief,
    parse: impl Fn(&[u8]) -> Result<T, E>,
) -> Result<SmallFile<T, E>, IoError> {
    let mut before = None;
    for _ in 0..READS_MAX {
        let read = match &before {
            None => dir.read_small(name, len_max).await,
            Some(_) => dir.read_small_again(name, len_max).await,
        };
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) if error.kind == IoErrorKind::NotFound => return Ok(SmallFile::Missing),
            Err(error) if error.kind == IoErrorKind::Unusable => {
                return Ok(SmallFile::Unusable(error.to_string()));
            }
            Err(error) => return Err(error),
        };
        let is_same = before.as_ref() == Some(&bytes);
        if is_same || belief == Belief::Proven {
            match parse(&bytes) {
                Ok(says) => return Ok(SmallFile::Read(says)),
                Err(error) if is_same => return Ok(SmallFile::Malformed(error)),
                Err(_) => {}
            }
        }
        before = Some(bytes);
    }
    Err(IoError::new(
        "read",
        dir.path().join(name),
        IoErrorKind::Device,
        "each read gives something else".to_owned(),
    ))
}

/// The same; what is no such file is set aside.
pub(super) async fn read_or_set_aside<T, E>(
    dir: &Dir,
    name: &str,
    len_max: u64,
    belief: Belief,
    parse: impl Fn(&[u8]) -> Result<T, E>,
) -> Result<SmallFile<T, E>, IoError> {
    let file = read_small_file(dir, name, len_max, belief, parse).await?;
    if let SmallFile::Unusable(why) = &file {
        set_aside(dir, name, why).await?;
    }
    Ok(file)
}

/// How often a file is read until two reads in a row give the same.
const READS_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::sim::{FaultKind, FaultRates, World};
    use crate::runtime::SyncSite;
    use crate::storage::partition_dir::{self, PartitionName, TopicIdFile};
    use crate::storage::{DataDir, StartKind};
    use uuid::Uuid;

    /// Often enough that two reads in a row are wrong, now and then; but not both in the same bit.
    fn flips() -> FaultRates {
        FaultRates::none().with(FaultKind::BitFlip, 8)
    }

    const ID: Uuid = Uuid::from_u128(0x1234_5678_9ABC_DEF0_1122_3344_5566_7788);

    #[test]
    fn given_a_bit_that_is_wrong_once_then_a_partition_is_not_taken_for_another_topics() {
        let (mut read, mut failed, mut others) = (0, 0, 0);
        for seed in 0..400 {
            let world = World::new(seed);
            let node = world.node("a");
            let rt = node.rt();
            world.block_on(&rt, async {
                rt.dir("/data")
                    .create_all(SyncSite::DataDirFormat)
                    .await
                    .unwrap();
                let name = PartitionName::parse("topic-0").unwrap();
                let dir = partition_dir::create(&rt, "/data", &name, ID)
                    .await
                    .unwrap();
                node.disk().faults_by_seed(flips());
                let bytes = dir.read_small("partition.metadata", 1_000).await.unwrap();
                let other = partition_dir::parse_metadata(&bytes).is_ok_and(|id| id != ID);
                others += usize::from(other);
                match partition_dir::read_topic_id(&dir, ID).await {
                    Ok(found) => {
                        assert_eq!(found, TopicIdFile::Read(ID), "seed {seed}");
                        read += 1;
                    }
                    Err(error) => {
                        assert!(error.to_string().contains("each read gives"), "{error}");
                        failed += 1;
                    }
                }
                node.disk().clear_faults();
                let another = partition_dir::read_topic_id(&dir, Uuid::from_u128(9)).await;
                assert_eq!(another.unwrap(), TopicIdFile::Read(ID));
            });
        }
        assert!(
            others > 3,
            "one read gave another topic's id {others} times"
        );
        assert!(read > 350, "{read} read, {failed} failed");
    }

    #[test]
    fn given_a_bit_that_is_wrong_once_then_a_data_directory_says_what_was_written() {
        let (mut opened, mut failed, mut flipped) = (0, 0, 0);
        for seed in 0..200 {
            let world = World::new(seed);
            let node = world.node("a");
            let rt = node.rt();
            let line = |offset: i64| [(("topic".to_owned(), 0), offset)].into();
            world.block_on(&rt, async {
                let data = DataDir::open(&rt, "/data", 1, Some(ID)).await.unwrap();
                data.write_recovery_points(&line(1_000_111)).await.unwrap();
                data.write_high_watermarks(&line(2_000_222)).await.unwrap();
                data.write_log_starts(&line(300)).await.unwrap();
                data.write_cleaner_points(&line(400_400)).await.unwrap();
                data.mark_clean().await.unwrap();
                drop(data);
                node.disk().faults_by_seed(flips());
                let data = DataDir::open(&rt, "/data", 1, Some(ID)).await;
                flipped += node.disk().planned_faults(FaultKind::BitFlip);
                node.disk().clear_faults();
                let data = match data {
                    Ok(data) => data,
                    Err(error) => {
                        assert!(error.to_string().contains("each read gives"), "{error}");
                        failed += 1;
                        return;
                    }
                };
                opened += 1;
                assert_eq!(data.start_kind(), StartKind::Clean);
                let mode = data.load_mode("topic", 0);
                assert_eq!(mode.recovery_point, Some(1_000_111), "seed {seed}");
                assert_eq!(data.high_watermark("topic", 0), Some(2_000_222));
                assert_eq!(
                    (mode.log_start, mode.cleaned_to),
                    (Some(300), Some(400_400))
                );
            });
        }
        assert!(flipped > 200, "{flipped} bits were wrong");
        assert!(opened > 100, "{opened} opened, {failed} failed");
    }

    #[test]
    fn what_every_read_gives_is_believed_and_what_none_gives_twice_is_the_devices_fault() {
        let world = World::new(1);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let dir = rt.dir("/d");
            dir.create_all(SyncSite::PartitionDir).await.unwrap();
            let refuse = |bytes: &[u8]| Err::<(), _>(bytes.to_vec());
            let read = |belief| read_small_file(&dir, "f", 100, belief, refuse);
            assert_eq!(read(Belief::Proven).await.unwrap(), SmallFile::Missing);
            let content = vec![7; 90];
            let site = SyncSite::PartitionDir;
            dir.replace_small("f", content.clone(), site).await.unwrap();
            for belief in [Belief::Proven, Belief::ReadTwice] {
                let found = read(belief).await.unwrap();
                assert_eq!(found, SmallFile::Malformed(content.clone()));
            }
            let rates = FaultRates::none().with(FaultKind::BitFlip, 1);
            node.disk().faults_by_seed(rates);
            let error = read(Belief::ReadTwice).await.unwrap_err();
            assert_eq!(error.kind, IoErrorKind::Device);
            node.disk().clear_faults();
            dir.replace_small("f", vec![7; 101], site).await.unwrap();
            let found = read(Belief::Proven).await.unwrap();
            assert!(matches!(found, SmallFile::Unusable(_)), "{found:?}");
        });
    }
}
