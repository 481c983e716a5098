//! Kafka's producer snapshot: what is known of each producer up to an offset, in
//! the file `<that offset, 20 digits>.snapshot`.
//!
//! Format, version 1: i16 version, u32 CRC-32C of what follows it, i32 count, then
//! the entries. It does no I/O. The existence of a snapshot says more than its
//! content: it is written after everything below its offset was made durable, so a
//! recovery starts at the newest one (`recover.rs`). A snapshot that does not decode
//! proves nothing and costs the producers' state, which is then rebuilt from batches.

/// One producer's last state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    let mut body = Vec::with_capacity(4 + entries.len() * ENTRY_BYTES);
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
    let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&crc_fast::crc32_iscsi(&body).to_be_bytes());
    out.extend_from_slice(&body);
    out
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
    if usize::try_from(count)
        .ok()
        .and_then(|n| n.checked_mul(ENTRY_BYTES))
        != Some(fields.0.len())
    {
        return Err(length);
    }
    let mut entries = Vec::with_capacity(fields.0.len() / ENTRY_BYTES);
    while !fields.0.is_empty() {
        entries.push(fields.entry().ok_or(length)?);
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
        })
    }
}

const VERSION: i16 = 1;
const HEADER_BYTES: usize = 6;
const ENTRY_BYTES: usize = 46;

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
        }
    }

    #[test]
    fn entries_survive_the_file() {
        for entries in [vec![], vec![entry(1), entry(i64::MAX)]] {
            assert_eq!(decode(&encode(&entries)), Ok(entries));
        }
        let bytes = encode(&[entry(1)]);
        assert_eq!(bytes.len(), 6 + 4 + 46);
        assert_eq!(bytes[..2], [0, 1]);
        assert_eq!(bytes[6..10], [0, 0, 0, 1], "the count follows the checksum");
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
