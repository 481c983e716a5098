//! The directory of one partition: its name, its `partition.metadata`, its creation
//! and its removal.
//!
//! A removal first renames the directory to `…-delete`, durably: from then on the
//! partition does not exist, and a start finishes what a crash left. What is in the way and
//! may be missed by somebody becomes `…-stray` instead, and stays (as with Kafka).

use super::small_file::{read_or_set_aside, Belief, SmallFile};
use super::uuid_text;
use crate::runtime::{Dir, IoError, Rt, SyncSite};
use std::fmt;
use std::path::Path;
use uuid::Uuid;

/// A topic's name and a partition's number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionName {
    /// The topic.
    pub topic: String,
    /// The partition's number.
    pub partition: i32,
}

/// Why a partition's directory cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PartitionDirError {
    /// The file system refused.
    #[error("the partition's directory cannot be used: {0}")]
    Io(#[from] IoError),
}

impl PartitionName {
    /// Reads a directory's name, `topic-N`. `None` if it is no partition's.
    pub fn parse(dir_name: &str) -> Option<PartitionName> {
        let (topic, number) = dir_name.rsplit_once('-')?;
        let partition: i32 = number.parse().ok()?;
        let name = PartitionName {
            topic: topic.to_owned(),
            partition,
        };
        // Kept exact: no "+1", no "01", no second name for one partition.
        (!topic.is_empty() && partition >= 0 && name.to_string() == dir_name).then_some(name)
    }
}

impl fmt::Display for PartitionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// Creates a partition's directory with its `partition.metadata`, durably. No error
/// if a crash left it half made.
pub async fn create(
    rt: &Rt,
    data_dir: impl AsRef<Path>,
    name: &PartitionName,
    topic_id: Uuid,
) -> Result<Dir, PartitionDirError> {
    let site = SyncSite::PartitionCreate;
    let dir = rt.dir(data_dir).subdir(&name.to_string());
    dir.create_all(site).await?;
    let content = format!("version: 0\ntopic_id: {}", uuid_text::encode(topic_id));
    dir.replace_small(METADATA_FILE, content.into_bytes(), site)
        .await?;
    dir.sync(site).await?;
    Ok(dir)
}

/// What `partition.metadata` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopicIdFile {
    /// The topic's id.
    Read(Uuid),
    /// Nothing; why, the end of a sentence that begins with the file's name.
    Lost(String),
}

/// Reads the topic's id from `partition.metadata`. Anything but `expected` is read twice before
/// it is believed, because the directory may be removed for it.
pub async fn read_topic_id(dir: &Dir, expected: Uuid) -> Result<TopicIdFile, PartitionDirError> {
    let is_expected = |bytes: &[u8]| match parse_metadata(bytes) {
        Ok(id) if id == expected => Ok(id),
        Ok(other) if is_damaged(other, expected) => Err(TopicIdFile::Lost(
            "names this topic but for one character".to_owned(),
        )),
        Ok(other) => Err(TopicIdFile::Read(other)),
        Err(detail) => Err(TopicIdFile::Lost(format!("is malformed ({detail})"))),
    };
    let belief = Belief::Proven;
    let file = read_or_set_aside(dir, METADATA_FILE, METADATA_BYTES_MAX, belief, is_expected);
    Ok(match file.await? {
        SmallFile::Read(id) => TopicIdFile::Read(id),
        SmallFile::Malformed(other) => other,
        SmallFile::Unusable(why) => TopicIdFile::Lost(format!("cannot be used ({why})")),
        SmallFile::Missing => TopicIdFile::Lost("is missing".to_owned()),
    })
}

/// Whether an id is `expected` with a bit that changed, for good: ids are drawn at random, so no
/// other topic's is that near.
fn is_damaged(found: Uuid, expected: Uuid) -> bool {
    let (found, expected) = (uuid_text::encode(found), uuid_text::encode(expected));
    let differ = found.bytes().zip(expected.bytes()).filter(|(a, b)| a != b);
    differ.count() == 1
}

/// The bytes of all segments in a partition's directory; `None` if there is no segment.
pub async fn log_bytes(dir: &Dir) -> Result<Option<u64>, PartitionDirError> {
    let entries = dir.list().await?;
    let logs = entries.iter().filter(|e| e.name.ends_with(".log"));
    Ok(logs.map(|e| e.len).reduce(|all, one| all + one))
}

/// Makes a partition cease to exist, durably, by renaming its directory. Its log was
/// closed before ([`super::Log::abandon`]). Returns the name for [`finish_delete`].
pub async fn begin_delete(
    rt: &Rt,
    data_dir: impl AsRef<Path>,
    name: &PartitionName,
) -> Result<String, PartitionDirError> {
    rename_away(rt, data_dir, name, DELETE_SUFFIX).await
}

/// Renames a partition's directory out of the way, durably, and keeps what it holds. Returns
/// its new name.
pub async fn set_aside(
    rt: &Rt,
    data_dir: impl AsRef<Path>,
    name: &PartitionName,
) -> Result<String, PartitionDirError> {
    rename_away(rt, data_dir, name, STRAY_SUFFIX).await
}

async fn rename_away(
    rt: &Rt,
    data_dir: impl AsRef<Path>,
    name: &PartitionName,
    suffix: &str,
) -> Result<String, PartitionDirError> {
    let data_dir = rt.dir(data_dir);
    let tail = format!(
        "-{}.{:032x}{suffix}",
        name.partition,
        uuid_text::random(rt).as_u128()
    );
    // Topic names are ASCII; the longest one leaves no room for the tail.
    let head_bytes_max = FILE_NAME_BYTES_MAX - tail.len();
    let head: String = name.topic.chars().take(head_bytes_max).collect();
    let renamed = format!("{head}{tail}");
    data_dir.rename(&name.to_string(), &renamed).await?;
    data_dir.sync(SyncSite::PartitionRemove).await?;
    Ok(renamed)
}

/// Removes what [`begin_delete`] renamed.
pub async fn finish_delete(
    rt: &Rt,
    data_dir: impl AsRef<Path>,
    renamed: &str,
) -> Result<(), PartitionDirError> {
    let data_dir = rt.dir(data_dir);
    data_dir.remove_dir_all(renamed).await?;
    Ok(data_dir.sync(SyncSite::PartitionRemove).await?)
}

/// Reads the content of `partition.metadata`: the topic's id. The error says what is wrong with it.
pub fn parse_metadata(bytes: &[u8]) -> Result<Uuid, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let mut lines = text.lines();
    let mut value = |key: &str| {
        lines
            .next()
            .and_then(|line| line.split_once(':'))
            .filter(|(k, _)| *k == key)
            .map(|(_, v)| v.trim())
            .ok_or_else(|| format!("{key} is missing"))
    };
    match value("version")? {
        "0" => {}
        other => return Err(format!("version {other}, expected 0")),
    }
    let topic_id = value("topic_id")?;
    uuid_text::decode(topic_id).ok_or_else(|| format!("topic_id {topic_id} is not a Kafka uuid"))
}

/// The end of the name of a directory that is being removed.
pub const DELETE_SUFFIX: &str = "-delete";
/// The end of the name of a directory that was in the way, and is kept.
pub const STRAY_SUFFIX: &str = "-stray";
const METADATA_FILE: &str = "partition.metadata";
const METADATA_BYTES_MAX: u64 = 4 << 10;
const FILE_NAME_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_topic_dash_number() {
        let name = PartitionName::parse("a-b.c_d-12").unwrap();
        assert_eq!((name.topic.as_str(), name.partition), ("a-b.c_d", 12));
        assert_eq!(name.to_string(), "a-b.c_d-12");
        for bad in [
            "",
            "a",
            "-1",
            "a-",
            "a-x",
            "a-+1",
            "a-01",
            "a--1x",
            "a-0.abc-delete",
        ] {
            assert_eq!(PartitionName::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_id_that_differs_in_one_character_is_no_other_topics() {
        let id = Uuid::from_u128(0x1234_5678_9ABC_DEF0_1122_3344_5566_7788);
        assert!(!is_damaged(id, id));
        for bit in 0..128 {
            let near = Uuid::from_u128(id.as_u128() ^ (1 << bit));
            assert!(is_damaged(near, id), "bit {bit}");
        }
        assert!(!is_damaged(
            Uuid::from_u128(id.as_u128() ^ (1 << 127) ^ 1),
            id
        ));
    }

    #[test]
    fn partition_metadata_is_kafkas() {
        let text = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ";
        assert_eq!(parse_metadata(text.as_bytes()), Ok(Uuid::from_u128(1)));
        for bad in [
            "",
            "version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
            "version: 0\ntopic_id: x",
        ] {
            assert!(parse_metadata(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
