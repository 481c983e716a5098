//! Kafka's producer snapshot: what is known of each producer up to an offset, in
//! the file `<that offset, 20 digits>.snapshot`.
//!
//! Format, version 1: i16 version, u32 CRC-32C of all that follows it, i32 count, then
//! the entries, with the last batch of each producer. Behind them stands a trailer of
//! our own, with the four batches before it, so that every one of the last five is known
//! for a duplicate after a restart too: the magic `HWPS`, u8 version 1, and for each
//! entry, in the same order, i64 wall clock of its last append, u8 number of earlier
//! batches, and those, the oldest first (i32 last sequence, i32 offset delta, i64 last
//! offset, i64 timestamp). Kafka checks the CRC to the end of the file and reads no
//! further than the entries, so it takes our files; a file without the trailer is one
//! of Kafka's.
//!
//! It does no I/O. The existence of a snapshot says more than its
//! content: it is written after everything below its offset was made durable, so a
//! recovery starts at the newest one (`recover.rs`). A snapshot that does not decode
//! proves nothing and costs the producers' state, which is then rebuilt from batches.

use super::producer_state::ProducedBatch;
use smallvec::SmallVec;

/// One producer's last state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerEntry {
    /// The producer's id.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// The sequence of its last record; -1 if none.
    pub last_sequence: i32,
    /// The offset of its last record; -1 if none.
    pub last_offset: i64,
    /// Last minus first offset of its last batch.
    pub offset_delta: i32,
    /// The largest timestamp of its last batch, milliseconds.
    pub timestamp: i64,
    /// The epoch of the transaction coordinator that wrote last; -1 if none.
    pub coordinator_epoch: i32,
    /// The first offset of its open transaction; -1 if none.
    pub current_txn_first_offset: i64,
    /// Wall clock of its last append, milliseconds; `None` in Kafka's files.
    pub active_ms: Option<i64>,
    /// The batches before its last one, the oldest first; none in Kafka's files.
    pub earlier: SmallVec<[ProducedBatch; 4]>,
}

/// Why a snapshot cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Fewer bytes than its header or its count need, or more.
    #[error("a producer snapshot of {len} bytes is not as long as it says")]
    Length {
        /// The length found.
        len: usize,
    },
    /// Another version.
    #[error("producer snapshot version {found}, expected 1")]
    Version {
        /// The version found.
        found: i16,
    },
    /// The checksum does not match.
    #[error("the producer snapshot's checksum does not match")]
    Checksum,
}

/// The file's name for a snapshot up to (not including) `offset`.
pub fn file_name(offset: i64) -> String {
    format!("{offset:020}.snapshot")
}

/// The file's content.
pub fn encode(entries: &[ProducerEntry]) -> Vec<u8> {
    let mut body = Vec::with_capacity(4 + entries.len() * (ENTRY_BYTES + TRAILER_ENTRY_BYTES_MAX));
    body.extend_from_slice(&(entries.len() as i32).to_be_bytes());
    for e in entries {
        body.extend_from_slice(&e.producer_id.to_be_bytes());
        body.extend_from_slice(&e.producer_epoch.to_be_bytes());
        body.extend_from_slice(&e.last_sequence.to_be_bytes());
        body.extend_from_slice(&e.last_offset.to_be_bytes());
        body.extend_from_slice(&e.offset_delta.to_be_bytes());
        body.extend_from_slice(&e.timestamp.to_be_bytes());
        body.extend_from_slice(&e.coordinator_epoch.to_be_bytes());
        body.extend_from_slice(&e.current_txn_first_offset.to_be_bytes());
    }
    if !entries.is_empty() {
        encode_trailer(&mut body, entries);
    }
    let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&crc_fast::crc32_iscsi(&body).to_be_bytes());
    out.extend_from_slice(&body);
    out
}

fn encode_trailer(body: &mut Vec<u8>, entries: &[ProducerEntry]) {
    body.extend_from_slice(TRAILER_HEAD);
    for e in entries {
        body.extend_from_slice(&e.active_ms.unwrap_or(UNKNOWN_MS).to_be_bytes());
        body.push(e.earlier.len() as u8);
        for batch in &e.earlier {
            body.extend_from_slice(&batch.last_sequence.to_be_bytes());
            body.extend_from_slice(&batch.offset_delta.to_be_bytes());
            body.extend_from_slice(&batch.last_offset.to_be_bytes());
            body.extend_from_slice(&batch.timestamp.to_be_bytes());
        }
    }
}

/// Reads a file's content.
pub fn decode(bytes: &[u8]) -> Result<Vec<ProducerEntry>, SnapshotError> {
    let length = SnapshotError::Length { len: bytes.len() };
    let mut fields = Fields(bytes);
    let version = i16::from_be_bytes(fields.take().ok_or(length)?);
    if version != VERSION {
        return Err(SnapshotError::Version { found: version });
    }
    let crc = u32::from_be_bytes(fields.take().ok_or(length)?);
    if crc != crc_fast::crc32_iscsi(fields.0) {
        return Err(SnapshotError::Checksum);
    }
    let count = i32::from_be_bytes(fields.take().ok_or(length)?);
    let count = usize::try_from(count).map_err(|_| length)?;
    if count > fields.0.len() / ENTRY_BYTES {
        return Err(length);
    }
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        entries.push(fields.entry().ok_or(length)?);
    }
    // What else may follow is not ours, and passed over as Kafka does.
    if fields.0.starts_with(TRAILER_HEAD) {
        fields.0 = &fields.0[TRAILER_HEAD.len()..];
        for entry in &mut entries {
            fields.trailer_entry(entry).ok_or(length)?;
        }
    }
    Ok(entries)
}

/// What remains to be read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn entry(&mut self) -> Option<ProducerEntry> {
        Some(ProducerEntry {
            producer_id: i64::from_be_bytes(self.take()?),
            producer_epoch: i16::from_be_bytes(self.take()?),
            last_sequence: i32::from_be_bytes(self.take()?),
            last_offset: i64::from_be_bytes(self.take()?),
            offset_delta: i32::from_be_bytes(self.take()?),
            timestamp: i64::from_be_bytes(self.take()?),
            coordinator_epoch: i32::from_be_bytes(self.take()?),
            current_txn_first_offset: i64::from_be_bytes(self.take()?),
            active_ms: None,
            earlier: SmallVec::new(),
        })
    }

    /// What the trailer says of `entry`.
    fn trailer_entry(&mut self, entry: &mut ProducerEntry) -> Option<()> {
        let active_ms = i64::from_be_bytes(self.take()?);
        entry.active_ms = (active_ms != UNKNOWN_MS).then_some(active_ms);
        let [count] = self.take()?;
        for _ in 0..count {
            entry.earlier.push(ProducedBatch {
                last_sequence: i32::from_be_bytes(self.take()?),
                offset_delta: i32::from_be_bytes(self.take()?),
                last_offset: i64::from_be_bytes(self.take()?),
                timestamp: i64::from_be_bytes(self.take()?),
            });
        }
        Some(())
    }
}

const VERSION: i16 = 1;
const HEADER_BYTES: usize = 6;
const ENTRY_BYTES: usize = 46;

/// How our trailer begins: its magic and its version.
const TRAILER_HEAD: &[u8; 5] = b"HWPS\x01";
const TRAILER_ENTRY_BYTES_MAX: usize = 8 + 1 + 4 * 24;
/// Stands for an unknown time.
const UNKNOWN_MS: i64 = i64::MIN;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(producer_id: i64) -> ProducerEntry {
        ProducerEntry {
            producer_id,
            producer_epoch: 2,
            last_sequence: 3,
            last_offset: 4,
            offset_delta: 5,
            timestamp: 6,
            coordinator_epoch: -1,
            current_txn_first_offset: -1,
            active_ms: Some(7),
            earlier: SmallVec::new(),
        }
    }

    fn batch(last_offset: i64) -> ProducedBatch {
        ProducedBatch {
            last_sequence: 1,
            offset_delta: 2,
            last_offset,
            timestamp: 8,
        }
    }

    #[test]
    fn entries_survive_the_file() {
        let with_earlier = ProducerEntry {
            earlier: (0..4).map(batch).collect(),
            ..entry(5)
        };
        let of_kafka = ProducerEntry {
            active_ms: None,
            ..entry(6)
        };
        let all = vec![entry(1), with_earlier, of_kafka, entry(i64::MAX)];
        for entries in [vec![], vec![entry(1)], all] {
            assert_eq!(decode(&encode(&entries)), Ok(entries));
        }
        let bytes = encode(&[entry(1)]);
        assert_eq!(bytes.len(), 6 + 4 + 46 + 5 + 9);
        assert_eq!(bytes[..2], [0, 1]);
        assert_eq!(bytes[6..10], [0, 0, 0, 1], "the count follows the checksum");
        assert_eq!(
            bytes[56..61],
            *b"HWPS\x01",
            "the trailer follows the entries"
        );
    }

    fn with_checksum(body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 1];
        bytes.extend_from_slice(&crc_fast::crc32_iscsi(body).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn kafkas_files_are_read_and_what_somebody_else_put_behind_the_entries_is_passed_over() {
        let ours = encode(&[entry(1)]);
        let plain = ProducerEntry {
            active_ms: None,
            ..entry(1)
        };
        let kafkas = with_checksum(&ours[6..56]);
        assert_eq!(decode(&kafkas), Ok(vec![plain.clone()]));
        let foreign = with_checksum(&[&ours[6..56], b"something"].concat());
        assert_eq!(decode(&foreign), Ok(vec![plain]));
        let cut = with_checksum(&ours[6..ours.len() - 1]);
        assert_eq!(decode(&cut), Err(SnapshotError::Length { len: cut.len() }));
    }

    #[test]
    fn damage_is_refused() {
        let good = encode(&[entry(1), entry(2)]);
        assert_eq!(decode(&[]), Err(SnapshotError::Length { len: 0 }));
        assert_eq!(
            decode(&vec![0; good.len()]),
            Err(SnapshotError::Version { found: 0 })
        );
        for at in 2..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(decode(&bad), Err(SnapshotError::Checksum), "byte {at}");
        }
        let mut body = 1_000_000i32.to_be_bytes().to_vec();
        let mut lies = vec![0, 1];
        lies.extend_from_slice(&crc_fast::crc32_iscsi(&body).to_be_bytes());
        lies.append(&mut body);
        assert_eq!(decode(&lies), Err(SnapshotError::Length { len: 10 }));
    }

    #[test]
    fn names_have_twenty_digits() {
        assert_eq!(file_name(42), "00000000000000000042.snapshot");
    }
}
