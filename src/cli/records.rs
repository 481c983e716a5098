//! The records of a batch, for `log dump --records`.
//!
//! The batch is read again from its file, whole, by its place: the tool's executor has nothing else to do meanwhile.
//! Bytes that are not printable ASCII are escaped, so that what a producer wrote cannot steer a terminal.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::protocol::batch::{BatchError, BatchView, Record, RecordIter, TimestampType};
use crate::storage::inspect::BatchInfo;

/// The most that the records of one batch may decompress to.
const DECOMPRESSED_BYTES_MAX: usize = 1 << 30;

/// Prints the records of a segment's batches.
pub(super) struct RecordPrinter {
    segment: File,
}

impl RecordPrinter {
    pub(super) fn open(segment: &Path) -> io::Result<RecordPrinter> {
        Ok(RecordPrinter {
            segment: File::open(segment)?,
        })
    }

    /// Prints the records of one batch. A batch whose records cannot be read is told, not an error: the segment's
    /// check counts it.
    pub(super) fn print(&mut self, out: &mut impl Write, batch: &BatchInfo) -> io::Result<()> {
        let printed = self.read(batch).map_err(|error| error.to_string());
        let printed =
            printed.and_then(|bytes| print_records(out, bytes).map_err(|error| error.to_string()));
        match printed {
            Ok(printed) => printed,
            Err(error) => writeln!(out, "| the records cannot be read: {error}"),
        }
    }

    fn read(&mut self, batch: &BatchInfo) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; batch.len as usize];
        self.segment.seek(SeekFrom::Start(batch.position))?;
        self.segment.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// The outer error is the batch's, the inner one the output's.
fn print_records(out: &mut impl Write, bytes: Vec<u8>) -> Result<io::Result<()>, BatchError> {
    let view = BatchView::parse(bytes.into())?;
    let header = view.header();
    let records = view.decompressed(DECOMPRESSED_BYTES_MAX)?;
    for record in RecordIter::new(&records, header.record_count) {
        let record = record?;
        let line = RecordLine {
            offset: header
                .base_offset
                .wrapping_add(i64::from(record.offset_delta)),
            timestamp: header.timestamp(record.timestamp_delta),
            sequence: match header.base_sequence {
                base if base < 0 => -1,
                base => i64::from(base)
                    .wrapping_add(i64::from(record.offset_delta))
                    .rem_euclid(1 << 31),
            },
            timestamp_type: header.attributes.timestamp_type(),
            is_control: header.attributes.is_control(),
            record,
        };
        if let Err(error) = writeln!(out, "{line}") {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

/// One record, in the words of Kafka's dump tool.
struct RecordLine<'a> {
    offset: i64,
    timestamp: i64,
    sequence: i64,
    timestamp_type: TimestampType,
    is_control: bool,
    record: Record<'a>,
}

impl fmt::Display for RecordLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record {
            key,
            value,
            headers,
            ..
        } = self.record;
        let size = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i64);
        let timestamp = match self.timestamp_type {
            TimestampType::CreateTime => "CreateTime",
            TimestampType::LogAppendTime => "LogAppendTime",
        };
        write!(
            f,
            "| offset: {} {timestamp}: {} ",
            self.offset, self.timestamp
        )?;
        write!(f, "keySize: {} valueSize: {} ", size(key), size(value))?;
        write!(f, "sequence: {} headerKeys: [", self.sequence)?;
        for (index, header) in headers.enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}", header.key.escape_ascii())?;
        }
        f.write_str("]")?;
        if let Some(marker) = self
            .is_control
            .then(|| EndMarker::of(&self.record))
            .flatten()
        {
            let EndMarker {
                outcome,
                coordinator_epoch,
            } = marker;
            return write!(
                f,
                " endTxnMarker: {outcome} coordinatorEpoch: {coordinator_epoch}"
            );
        }
        if let Some(key) = key {
            write!(f, " key: {}", key.escape_ascii())?;
        }
        if let Some(value) = value {
            write!(f, " payload: {}", value.escape_ascii())?;
        }
        Ok(())
    }
}

/// The control record that ends a transaction.
#[derive(Debug, PartialEq, Eq)]
struct EndMarker {
    outcome: &'static str,
    coordinator_epoch: i32,
}

impl EndMarker {
    /// Its key is a version and a type (i16 both), its value a version (i16) and the coordinator's epoch (i32). `None`
    /// for any other control record.
    fn of(record: &Record<'_>) -> Option<EndMarker> {
        let outcome = match record.key?.get(2..4)? {
            [0, 0] => "ABORT",
            [0, 1] => "COMMIT",
            _ => return None,
        };
        let epoch = record.value?.get(2..6)?.try_into().ok()?;
        Some(EndMarker {
            outcome,
            coordinator_epoch: i32::from_be_bytes(epoch),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::batch::{BatchBuilder, Compression};

    fn lines(bytes: Vec<u8>) -> Result<String, BatchError> {
        let mut out = Vec::new();
        print_records(&mut out, bytes)?.expect("a Vec takes it");
        Ok(String::from_utf8(out).expect("what is printed is ASCII"))
    }

    #[test]
    fn records_are_printed_as_kafkas_tool_prints_them() {
        for compression in [Compression::None, Compression::Zstd] {
            let mut builder = BatchBuilder::new().base_offset(7).compression(compression);
            builder.push(1000, None, Some(b"hello\n\x1b"));
            builder.push_with_headers(1005, Some(b"k"), None, &[("a", None), ("b", None)]);
            assert_eq!(
                lines(builder.build().to_vec()).unwrap(),
                "| offset: 7 CreateTime: 1000 keySize: -1 valueSize: 7 sequence: -1 headerKeys: [] \
                 payload: hello\\n\\x1b\n\
                 | offset: 8 CreateTime: 1005 keySize: 1 valueSize: -1 sequence: -1 headerKeys: [a,b] \
                 key: k\n"
            );
        }
    }

    #[test]
    fn records_of_a_producer_have_sequences_that_wrap() {
        let mut builder = BatchBuilder::new().producer(1, 0, i32::MAX);
        builder.push(0, None, None);
        builder.push(0, None, None);
        let lines = lines(builder.build().to_vec()).unwrap();
        assert!(
            lines.contains("sequence: 2147483647 ") && lines.contains("sequence: 0 "),
            "{lines}"
        );
    }

    #[test]
    fn a_log_append_time_is_told_from_a_create_time() {
        let mut builder = BatchBuilder::new().timestamp_type(TimestampType::LogAppendTime);
        builder.push(5, None, None);
        let lines = lines(builder.build().to_vec()).unwrap();
        assert!(
            lines.starts_with("| offset: 0 LogAppendTime: 5 "),
            "{lines}"
        );
    }

    #[test]
    fn the_end_of_a_transaction_is_printed_as_kafkas_tool_prints_it() {
        let marker = |key: &[u8], value: &[u8]| {
            let mut builder = BatchBuilder::new().control(true);
            builder.push(0, Some(key), Some(value));
            lines(builder.build().to_vec()).unwrap()
        };
        let epoch = [0, 0, 0, 0, 0, 7];
        assert!(marker(&[0, 0, 0, 1], &epoch)
            .ends_with("headerKeys: [] endTxnMarker: COMMIT coordinatorEpoch: 7\n"));
        assert!(marker(&[0, 0, 0, 0], &epoch).contains(" endTxnMarker: ABORT "));
        // Another kind, and what only claims to be one.
        assert!(marker(&[0, 0, 0, 2], &epoch).contains(" payload: "));
        assert!(marker(&[0, 0, 0, 1], &epoch[..5]).contains(" payload: "));
        assert!(marker(&[0, 0, 0], &epoch).contains(" payload: "));
    }

    #[test]
    fn what_is_no_batch_is_told() {
        assert!(lines(vec![0; 61]).is_err());
        let mut builder = BatchBuilder::new();
        builder.push(0, None, Some(b"value"));
        let mut bytes = builder.build().to_vec();
        bytes[61] = 0xff;
        assert!(lines(bytes).is_err());
    }
}
