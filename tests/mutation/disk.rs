//! What a broker reads of its own directory, and how: for the mutation test and the fuzz
//! target. Record batches have readers of their own.

use bytes::Bytes;
use highwater::metadata::records::{MetadataRecord, Replay};
use highwater::metadata::Image;
use highwater::storage::index::{OffsetIndex, TimeIndex};
use highwater::storage::leader_epochs::LeaderEpochs;
use highwater::storage::{
    checkpoint_file, partition_dir, producer_snapshot, MetaProperties, PartitionName,
};
use uuid::Uuid;

/// A kind of file, or what it is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Checkpoint,
    LeaderEpochs,
    /// The segment's base offset, eight bytes, then the file.
    OffsetIndex,
    /// The same.
    TimeIndex,
    ProducerSnapshot,
    /// The same, with the checksum put right: what only a wrong writer could leave.
    ProducerSnapshotBody,
    MetaProperties,
    PartitionMetadata,
    PartitionDirName,
    /// Length-prefixed records of the metadata log, replayed.
    MetadataRecords,
}

impl Kind {
    /// All of them.
    pub const ALL: &'static [Kind] = &[
        Kind::Checkpoint,
        Kind::LeaderEpochs,
        Kind::OffsetIndex,
        Kind::TimeIndex,
        Kind::ProducerSnapshot,
        Kind::ProducerSnapshotBody,
        Kind::MetaProperties,
        Kind::PartitionMetadata,
        Kind::PartitionDirName,
        Kind::MetadataRecords,
    ];

    /// Reads it; true if it was good.
    pub fn read(self, mut bytes: Bytes) -> bool {
        match self {
            Kind::Checkpoint => checkpoint_file::parse(&bytes).is_ok(),
            Kind::LeaderEpochs => LeaderEpochs::parse(&bytes).is_ok_and(|mut epochs| {
                for offset in [-1, 0, 100, i64::MAX] {
                    epochs.epoch_for_offset(offset);
                    epochs.end_offset_for(offset as i32, offset);
                }
                epochs.truncate_from_start(50);
                true
            }),
            Kind::OffsetIndex => base_offset(&mut bytes).is_some_and(|base| {
                // A file may have any name.
                offset_index(i64::MAX, &bytes);
                offset_index(base, &bytes)
            }),
            Kind::TimeIndex => base_offset(&mut bytes).is_some_and(|base| {
                time_index(i64::MAX, &bytes);
                time_index(base, &bytes)
            }),
            Kind::ProducerSnapshot => producer_snapshot::decode(&bytes).is_ok(),
            Kind::ProducerSnapshotBody => {
                let mut bytes = bytes.to_vec();
                if let Some((head, body)) = bytes.split_at_mut_checked(6) {
                    head[2..].copy_from_slice(&crc32c(body).to_be_bytes());
                }
                producer_snapshot::decode(&bytes).is_ok()
            }
            Kind::MetaProperties => MetaProperties::parse(&bytes).is_ok(),
            Kind::PartitionMetadata => partition_dir::parse_metadata(&bytes).is_ok(),
            Kind::PartitionDirName => {
                std::str::from_utf8(&bytes).is_ok_and(|name| PartitionName::parse(name).is_some())
            }
            Kind::MetadataRecords => replayed(bytes),
        }
    }
}

fn base_offset(bytes: &mut Bytes) -> Option<i64> {
    let base = i64::from_be_bytes(*bytes.first_chunk()?);
    *bytes = bytes.slice(8..);
    // A file's name has no sign.
    (base >= 0).then_some(base)
}

fn offset_index(base: i64, bytes: &[u8]) -> bool {
    OffsetIndex::decode(base, bytes).is_ok_and(|mut index| {
        for target in [0, base, i64::MAX] {
            index.lookup(target);
        }
        index.iter().for_each(drop);
        index.truncate_to(base.saturating_add(60));
        index.check_within(1 << 20, None).is_ok()
    })
}

fn time_index(base: i64, bytes: &[u8]) -> bool {
    TimeIndex::decode(base, bytes).is_ok_and(|mut index| {
        for target in [0, 1_700_000_000_005, i64::MAX] {
            index.lookup(target);
        }
        index.iter().for_each(drop);
        index.truncate_to(base.saturating_add(60));
        true
    })
}

/// Records that decode are replayed: what makes no sense must be refused there.
fn replayed(mut bytes: Bytes) -> bool {
    let mut records = Vec::new();
    while let Some(len) = bytes.first_chunk::<4>().map(|len| u32::from_be_bytes(*len)) {
        bytes = bytes.slice(4..);
        if len as usize > bytes.len() {
            return false;
        }
        match MetadataRecord::decode(bytes.split_to(len as usize)) {
            Ok(record) => records.push(record),
            Err(_) => return false,
        }
    }
    let mut replay = Replay::new(Image::empty(Uuid::from_u128(9), 1));
    let applied = replay.apply_batch(records, 10).is_ok();
    applied && bytes.is_empty()
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}
