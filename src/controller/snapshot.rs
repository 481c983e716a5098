//! Snapshots of the image, beside the metadata log.
//!
//! A snapshot is one small file, `<offset>-<epoch>.checkpoint` (20 and 10 digits, as
//! Kafka names them): a header, the image's records, and a CRC-32 of all before it. It
//! stands for every record below its offset. It is replaced as a whole and synced, so
//! a power cut leaves it absent or complete; a checksum that does not fit is damage,
//! and the snapshot before it, or the log from its start, is used instead.
//!
//! What it is not: it is not needed for durability. The log holds everything.

use super::journal::TERM;
use crate::metadata::records::{
    records_of_image, MetadataRecord, RecordError, Replay, ReplayError,
};
use crate::metadata::Image;
use crate::protocol::EncodeError;
use crate::runtime::{Dir, IoError, IoErrorKind, Rt, SyncSite};
use bytes::{Buf, Bytes};
use std::cell::Cell;
use uuid::Uuid;

/// The snapshots of one metadata log.
pub(super) struct SnapshotStore {
    dir: Dir,
    /// The newest one that is known to be whole.
    newest_valid: Cell<Option<SnapshotName>>,
}

/// What a snapshot is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SnapshotName {
    /// It stands for the records below this offset.
    pub offset: i64,
    /// The term of the last of them.
    pub epoch: i32,
}

/// Why a snapshot cannot be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SnapshotError {
    /// The file system refused.
    #[error("the metadata snapshot: {0}")]
    Io(#[from] IoError),
    /// The file's content is not what was written.
    #[error("the metadata snapshot {name} is damaged: {detail}")]
    Damaged {
        /// The file.
        name: String,
        /// What is wrong.
        detail: String,
    },
    /// It belongs to another cluster.
    #[error("the metadata snapshot {name} is of the cluster {found}, not of {expected}: the data directory belongs to another cluster")]
    OtherCluster {
        /// The file.
        name: String,
        /// The cluster in it.
        found: Uuid,
        /// This cluster.
        expected: Uuid,
    },
    /// The format is a later version's.
    #[error("the metadata snapshot {name} has format {format}, and this version reads only {FORMAT}: a later version of the broker wrote it; start that version")]
    Format {
        /// The file.
        name: String,
        /// Its format.
        format: u16,
    },
    /// A record that this version cannot read.
    #[error("the metadata snapshot {name}: {error}")]
    Record {
        /// The file.
        name: String,
        /// Why.
        error: RecordError,
    },
    /// The records make no sense together.
    #[error("the metadata snapshot {name}: {error}")]
    Replay {
        /// The file.
        name: String,
        /// Why.
        error: ReplayError,
    },
    /// A record that cannot be written.
    #[error("the metadata snapshot cannot be written: {0}")]
    Encode(#[from] EncodeError),
    /// The image is larger than a snapshot may be.
    #[error("the metadata is larger than a snapshot may be, {BYTES_MAX} bytes; delete topics")]
    TooLarge,
}

impl SnapshotStore {
    pub fn new(dir: Dir) -> SnapshotStore {
        SnapshotStore {
            dir,
            newest_valid: Cell::new(None),
        }
    }

    /// The names of all snapshots, the newest first.
    pub async fn list(&self) -> Result<Vec<SnapshotName>, SnapshotError> {
        let entries = self.dir.list().await?;
        let files = entries.iter().filter(|entry| !entry.is_dir);
        let mut names: Vec<_> = files
            .filter_map(|entry| SnapshotName::parse(&entry.name))
            .collect();
        names.sort_by(|a, b| b.cmp(a));
        Ok(names)
    }

    /// Reads one.
    pub async fn read(
        &self,
        rt: &Rt,
        name: SnapshotName,
        empty: Image,
    ) -> Result<Image, SnapshotError> {
        let content = match self.dir.read_small(&name.file(), BYTES_MAX as u64).await {
            // No regular file, a link to nothing, or far too large.
            Err(error) if matches!(error.kind, IoErrorKind::Unusable | IoErrorKind::NotFound) => {
                return Err(SnapshotError::Damaged {
                    name: name.file(),
                    detail: error.to_string(),
                })
            }
            read => read?,
        };
        let image = decode(rt, name, Bytes::from(content), empty).await?;
        self.newest_valid.set(Some(name));
        Ok(image)
    }

    /// Writes one that stands for all records below `offset`, durably, and removes
    /// those that two whole ones make useless.
    pub async fn write(&self, rt: &Rt, image: &Image, offset: i64) -> Result<(), SnapshotError> {
        let name = SnapshotName {
            offset,
            epoch: TERM,
        };
        let content = encode(rt, name, image).await?;
        let site = SyncSite::MetadataSnapshot;
        self.dir.replace_small(&name.file(), content, site).await?;
        self.dir.sync(site).await?;
        let before = self.newest_valid.replace(Some(name));
        for other in self.list().await? {
            if other != name && Some(other) != before {
                self.dir.remove_file(&other.file()).await?;
            }
        }
        Ok(())
    }
}

impl SnapshotName {
    /// The file's name.
    pub fn file(&self) -> String {
        format!("{:020}-{:010}{SUFFIX}", self.offset, self.epoch)
    }

    /// The snapshot of a file's name; `None` for every other file.
    pub fn parse(file: &str) -> Option<SnapshotName> {
        let (offset, epoch) = file.strip_suffix(SUFFIX)?.split_once('-')?;
        let name = SnapshotName {
            offset: offset.parse().ok()?,
            epoch: epoch.parse().ok()?,
        };
        (name.file() == file).then_some(name)
    }
}

pub(super) async fn encode(
    rt: &Rt,
    name: SnapshotName,
    image: &Image,
) -> Result<Vec<u8>, SnapshotError> {
    let mut content = Vec::new();
    content.extend_from_slice(MAGIC);
    content.extend_from_slice(&FORMAT.to_be_bytes());
    content.extend_from_slice(image.cluster_id().as_bytes());
    content.extend_from_slice(&name.offset.to_be_bytes());
    content.extend_from_slice(&name.epoch.to_be_bytes());
    content.extend_from_slice(&image.version().to_be_bytes());
    for (i, record) in records_of_image(image).enumerate() {
        let value = record.encode()?;
        content.extend_from_slice(&(value.len() as u32).to_be_bytes());
        content.extend_from_slice(&value);
        if content.len() > BYTES_MAX - CRC_BYTES {
            return Err(SnapshotError::TooLarge);
        }
        if i % RECORDS_PER_SLICE == 0 {
            rt.yield_if_needed().await;
        }
    }
    let crc = crc32fast::hash(&content);
    content.extend_from_slice(&crc.to_be_bytes());
    Ok(content)
}

pub(super) async fn decode(
    rt: &Rt,
    name: SnapshotName,
    content: Bytes,
    empty: Image,
) -> Result<Image, SnapshotError> {
    let file = || name.file();
    let damaged = |detail: &str| SnapshotError::Damaged {
        name: file(),
        detail: detail.into(),
    };
    if content.len() < HEADER_BYTES + CRC_BYTES {
        return Err(damaged("it is too short"));
    }
    let (body, crc) = content.split_at(content.len() - CRC_BYTES);
    if crc32fast::hash(body).to_be_bytes() != crc {
        return Err(damaged("its checksum does not fit"));
    }
    let mut body = content.slice(..content.len() - CRC_BYTES);
    if body.split_to(MAGIC.len()) != MAGIC[..] {
        return Err(damaged("it is not a snapshot"));
    }
    let format = body.get_u16();
    if format != FORMAT {
        return Err(SnapshotError::Format {
            name: file(),
            format,
        });
    }
    let found = Uuid::from_u128(body.get_u128());
    if found != empty.cluster_id() {
        return Err(SnapshotError::OtherCluster {
            name: file(),
            found,
            expected: empty.cluster_id(),
        });
    }
    if (body.get_i64(), body.get_i32()) != (name.offset, name.epoch) {
        return Err(damaged("it was written under another name"));
    }
    let version = body.get_i64();
    if version >= name.offset {
        return Err(damaged("its version is not below its offset"));
    }
    let replay_error = |error| SnapshotError::Replay {
        name: file(),
        error,
    };
    let mut replay = Replay::new(empty);
    let mut count = 0;
    while !body.is_empty() {
        if body.len() < 4 {
            return Err(damaged("it ends within a record's length"));
        }
        let len = body.get_u32() as usize;
        if len > body.len() {
            return Err(damaged("it ends within a record"));
        }
        let record = MetadataRecord::decode(body.split_to(len));
        let record = record.map_err(|error| SnapshotError::Record {
            name: file(),
            error,
        })?;
        replay.push(record).map_err(replay_error)?;
        count += 1;
        if count % RECORDS_PER_SLICE == 0 {
            rt.yield_if_needed().await;
        }
    }
    replay.finish(version).map_err(replay_error)
}

const SUFFIX: &str = ".checkpoint";
const MAGIC: &[u8; 8] = b"HWMETA\r\n";
const FORMAT: u16 = 1;
/// Magic, format, cluster id, offset, epoch, version.
const HEADER_BYTES: usize = 8 + 2 + 16 + 8 + 4 + 8;
const CRC_BYTES: usize = 4;
/// The largest snapshot, in bytes.
const BYTES_MAX: usize = 256 << 20;
/// How many records are worked on before other tasks get a turn.
const RECORDS_PER_SLICE: usize = 256;
