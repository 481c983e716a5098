//! The records of `__consumer_offsets`, byte for byte Kafka's (`OffsetCommitKey`,
//! `OffsetCommitValue`, `GroupMetadataKey`, `GroupMetadataValue`), and the way between
//! them and [`Entry`].
//!
//! Keys and values each begin with their version, an i16; a key's version says what kind
//! of record it is. Written are the versions that Kafka 4.1 writes, read are all. A kind
//! that is not known (of the consumer protocol of KIP-848, of share groups) is told, not
//! refused: an older Kafka passes over it too.
//!
//! What it is not: it knows no state, and no batch.

use crate::protocol::codec::{messages, Versioned};
use crate::protocol::{DecodeError, EncodeError, Reader, Str, Writer};
use bytes::Bytes;

/// A record to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetsRecord {
    /// The key.
    pub key: Bytes,
    /// The value; `None`: a tombstone.
    pub value: Option<Bytes>,
}

impl OffsetsRecord {
    /// A committed offset; `None` deletes it.
    ///
    /// # Errors
    /// A name longer than the format can say (32,767 bytes), which no request can carry.
    pub fn offset(
        group: &Str,
        topic: &Str,
        partition: i32,
        value: Option<&OffsetCommitValue>,
    ) -> Result<OffsetsRecord, EncodeError> {
        let key = OffsetCommitKey {
            group: group.clone(),
            topic: topic.clone(),
            partition,
        };
        Ok(OffsetsRecord {
            key: versioned(&key, OFFSET_KEY_VERSION)?,
            value: value
                .map(|value| versioned(value, value.version_written()))
                .transpose()?,
        })
    }

    /// A group's metadata; `None` deletes the group.
    ///
    /// # Errors
    /// As [`OffsetsRecord::offset`].
    pub fn group(
        group: &Str,
        value: Option<&GroupMetadataValue>,
    ) -> Result<OffsetsRecord, EncodeError> {
        let key = GroupMetadataKey {
            group: group.clone(),
        };
        Ok(OffsetsRecord {
            key: versioned(&key, GROUP_KEY_VERSION)?,
            value: value
                .map(|value| versioned(value, GROUP_VALUE_VERSION))
                .transpose()?,
        })
    }
}

/// What a record of `__consumer_offsets` says. Its strings share the record's memory.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// An offset was committed, or (`None`) is gone.
    Offset {
        /// Whose, and where.
        key: OffsetCommitKey,
        /// What was committed.
        value: Option<OffsetCommitValue>,
    },
    /// A group is in this generation, or (`None`) is gone.
    Group {
        /// The group's id.
        group: Str,
        /// Its members and their assignments.
        value: Option<GroupMetadataValue>,
    },
    /// A kind of record that this version does not know, by its key's version.
    Unknown(i16),
}

impl Entry {
    /// Reads a record.
    ///
    /// # Errors
    /// A kind that is known, and bytes that are not such a record.
    pub fn decode(key: Bytes, value: Option<Bytes>) -> Result<Entry, RecordFault> {
        let mut r = Reader::new(key);
        let version = r.read_i16()?;
        match version {
            0..=OFFSET_KEY_VERSION => Ok(Entry::Offset {
                key: OffsetCommitKey::decode(&mut r, version)?,
                value: value.map(value_of).transpose()?,
            }),
            GROUP_KEY_VERSION => Ok(Entry::Group {
                group: GroupMetadataKey::decode(&mut r, version)?.group,
                value: value.map(value_of).transpose()?,
            }),
            unknown => Ok(Entry::Unknown(unknown)),
        }
    }
}

/// A record, or the end of a transaction, as it is read back from the log, in its order.
#[derive(Debug, Clone, PartialEq)]
pub enum Replayed {
    /// A record.
    Record {
        /// Its offset.
        offset: i64,
        /// The producer id of its batch if the batch is transactional: what it says holds
        /// once the transaction is committed.
        transaction: Option<i64>,
        /// What it says.
        entry: Entry,
    },
    /// The control record that ends a transaction.
    EndTransaction {
        /// The producer id.
        producer_id: i64,
        /// Committed, or aborted.
        committed: bool,
    },
}

/// Why a record can't be read back. It was written by something else, or is damaged in a
/// way that its batch's checksum does not show.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RecordFault {
    /// The bytes are not such a record.
    #[error("the record cannot be read: {0}")]
    Malformed(#[from] DecodeError),
}

impl OffsetCommitValue {
    /// Only version 1 has an expire timestamp, and only from 3 on there is a leader epoch.
    fn version_written(&self) -> i16 {
        match self.expire_timestamp {
            NO_TIMESTAMP => OFFSET_VALUE_VERSION,
            _ => OFFSET_VALUE_VERSION_EXPIRING,
        }
    }
}

fn versioned<V: Versioned>(value: &V, version: i16) -> Result<Bytes, EncodeError> {
    let mut w = Writer::new();
    w.put_i16(version);
    value.encode_versioned(&mut w, version)?;
    let chunks = w.finish();
    match <[Bytes; 1]>::try_from(chunks) {
        Ok([one]) => Ok(one),
        Err(chunks) => Ok(Bytes::from(chunks.concat())),
    }
}

/// What follows the value is a later version's, as Kafka has it.
fn value_of<V: Versioned>(value: Bytes) -> Result<V, RecordFault> {
    let mut r = Reader::new(value);
    let version = r.read_i16()?;
    Ok(V::decode_prefix(&mut r, version)?)
}

messages! {
    /// Whose offset it is, and of which partition.
    record OffsetCommitKey versions 0..=1 flexible 32767 {
        group: Str,
        topic: Str,
        partition: i32,
    }
    /// A committed offset. Timestamps in ms since the Unix epoch.
    record OffsetCommitValue versions 0..=4 flexible 4 {
        offset: i64,
        leader_epoch: i32 => { versions: 3.., default: -1, ignorable },
        metadata: Str,
        commit_timestamp: i64,
        expire_timestamp: i64 => { versions: 1..=1, default: -1, ignorable },
    }
    /// Which group it is.
    record GroupMetadataKey versions 2..=2 flexible 32767 {
        group: Str,
    }
    /// A generation of a group.
    record GroupMetadataValue versions 0..=4 flexible 4 {
        protocol_type: Str,
        generation: i32,
        protocol: Option<Str>,
        leader: Option<Str>,
        current_state_timestamp: i64 => { versions: 2.., default: -1, ignorable },
        members: Vec<MemberMetadata>,
    }
    /// A member of it. Timeouts in ms.
    struct MemberMetadata {
        member_id: Str,
        group_instance_id: Option<Str> => { versions: 3.., nullable: 3.., ignorable },
        client_id: Str,
        client_host: Str,
        rebalance_timeout: i32 => { versions: 1.., default: -1, ignorable },
        session_timeout: i32,
        subscription: Bytes,
        assignment: Bytes,
    }
}

/// The version of an offset's key that is written.
const OFFSET_KEY_VERSION: i16 = 1;
/// The version of a group's key that is written: the only one.
const GROUP_KEY_VERSION: i16 = 2;
/// The version of a committed offset that is written.
const OFFSET_VALUE_VERSION: i16 = 3;
/// The same where it has an expire timestamp.
const OFFSET_VALUE_VERSION_EXPIRING: i16 = 1;
/// The version of a group's metadata that is written.
const GROUP_VALUE_VERSION: i16 = 3;
/// No timestamp.
pub const NO_TIMESTAMP: i64 = -1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::codec::sample::{Sample, Source};
    use proptest::prelude::*;

    fn drawn<V: Versioned + Sample>(bytes: &[u8], version: i16) -> V {
        V::sample(&mut Source(bytes), V::context(version))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            bytes in prop::collection::vec(any::<u8>(), 0..400), is_tombstone: bool
        ) {
            let key: OffsetCommitKey = drawn(&bytes, 1);
            let mut value: OffsetCommitValue = drawn(&bytes, 3);
            if bytes.first().is_some_and(|byte| byte % 2 == 0) {
                (value.leader_epoch, value.expire_timestamp) = (-1, 77);
            }
            let value = (!is_tombstone).then_some(value);
            let record = OffsetsRecord::offset(&key.group, &key.topic, key.partition, value.as_ref());
            let record = record.unwrap();
            prop_assert_eq!(Entry::decode(record.key, record.value), Ok(Entry::Offset { key, value }));

            let group = drawn::<GroupMetadataKey>(&bytes, 2).group;
            let value = drawn::<GroupMetadataValue>(&bytes, 3);
            let value = (!is_tombstone).then_some(value);
            let record = OffsetsRecord::group(&group, value.as_ref()).unwrap();
            prop_assert_eq!(Entry::decode(record.key, record.value), Ok(Entry::Group { group, value }));
        }

        #[test]
        fn every_version_is_read(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            for version in OffsetCommitValue::VERSIONS {
                let value: OffsetCommitValue = drawn(&bytes, version);
                prop_assert_eq!(value_of(versioned(&value, version).unwrap()), Ok(value));
            }
            for version in GroupMetadataValue::VERSIONS {
                let value: GroupMetadataValue = drawn(&bytes, version);
                prop_assert_eq!(value_of(versioned(&value, version).unwrap()), Ok(value));
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            key in prop::collection::vec(any::<u8>(), 0..40),
            value in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            // It may only not panic.
            let _ = Entry::decode(key.into(), Some(value.into()));
        }
    }

    #[test]
    fn the_bytes_are_kafkas() {
        let value = OffsetCommitValue {
            offset: 5,
            leader_epoch: 7,
            metadata: "m".into(),
            commit_timestamp: 9,
            ..Default::default()
        };
        let record = OffsetsRecord::offset(&"g".into(), &"t".into(), 3, Some(&value)).unwrap();
        assert_eq!(&record.key[..], b"\0\x01\0\x01g\0\x01t\0\0\0\x03");
        let expected = b"\0\x03\0\0\0\0\0\0\0\x05\0\0\0\x07\0\x01m\0\0\0\0\0\0\0\x09";
        assert_eq!(&record.value.unwrap()[..], expected);
        // An expire timestamp costs the leader epoch, as in Kafka.
        let value = OffsetCommitValue {
            expire_timestamp: 11,
            ..value
        };
        let record = OffsetsRecord::offset(&"g".into(), &"t".into(), 3, Some(&value)).unwrap();
        let expected = b"\0\x01\0\0\0\0\0\0\0\x05\0\x01m\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x0b";
        assert_eq!(&record.value.unwrap()[..], expected);
        let tombstone = OffsetsRecord::group(&"g".into(), None).unwrap();
        assert_eq!(
            (&tombstone.key[..], tombstone.value),
            (&b"\0\x02\0\x01g"[..], None)
        );
    }

    #[test]
    fn kinds_that_are_not_known_are_told_and_broken_ones_refused() {
        for kind in [3i16, 9, 15, -1] {
            let key = [&kind.to_be_bytes()[..], b"whatever"].concat();
            assert_eq!(Entry::decode(key.into(), None), Ok(Entry::Unknown(kind)));
        }
        let key = Bytes::from_static(b"\0\x01\0\x05g");
        assert!(Entry::decode(key, None).is_err());
        assert!(Entry::decode(Bytes::new(), None).is_err());
        let key = Bytes::from_static(b"\0\x02\0\x01g");
        let later = Bytes::from_static(b"\0\x05");
        assert!(Entry::decode(key, Some(later)).is_err());
    }
}
