//! Record batches: built ahead and patched, and walked where they lie.

use super::cursor::Cursor;
use crate::driver::records::{due_of, set_due, Values, DUE_BYTES};
use crate::wire;
use crate::workload::{Keys, RecordPlan};
use anyhow::{bail, ensure, Context, Result};
use highwater::protocol::batch::{
    BatchBuilder, BatchHeader, Compression, Pieces, HEADER_BYTES, LENGTH_OVERHEAD_BYTES,
    RECORDS_BYTES_MAX,
};
use std::collections::VecDeque;

/// A whole batch of a partition without keys. One that is not compressed can be cut to fewer records and stamped anew.
pub struct Template {
    bytes: Vec<u8>,
    /// Of a batch that is not compressed: where each record ends.
    ends: Vec<usize>,
    value_bytes: usize,
    records: usize,
}

impl Template {
    /// A batch of `records` records that are due at 0.
    pub fn build(values: &mut Values, records: usize, codec: Compression) -> Template {
        let mut builder = BatchBuilder::new().compression(codec);
        let mut ends = Vec::with_capacity(records);
        let now = wire::now_ms();
        let mut value_bytes = 0;
        for _ in 0..records {
            let value = values.next(0);
            value_bytes = value.len();
            builder.push(now, None, Some(value));
            ends.push(builder.size_bytes());
        }
        if codec != Compression::None {
            ends = Vec::new();
        }
        Template {
            bytes: builder.build().into(),
            ends,
            value_bytes,
            records,
        }
    }

    /// The batch of the first `bytes` bytes.
    pub fn batch(&self, bytes: usize) -> &[u8] {
        &self.bytes[..bytes]
    }

    /// All of it, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn records(&self) -> usize {
        self.records
    }

    /// Makes it a batch of the first `records` records, the n-th due at `due(n)`; how many bytes it then has.
    ///
    /// # Panics
    /// If the template is compressed or has fewer records.
    pub fn stamp(&mut self, records: usize, mut due: impl FnMut(usize) -> u64) -> usize {
        for (n, end) in self.ends[..records].iter().enumerate() {
            // A record ends with its value and the count of its headers, 0.
            let value = end - 1 - self.value_bytes;
            set_due(&mut self.bytes[value..value + DUE_BYTES], due(n));
        }
        let size = self.ends[records - 1];
        let now = wire::now_ms();
        self.set(
            at::LENGTH,
            ((size - LENGTH_OVERHEAD_BYTES) as i32).to_be_bytes(),
        );
        self.set(at::LAST_OFFSET_DELTA, (records as i32 - 1).to_be_bytes());
        self.set(at::BASE_TIMESTAMP, now.to_be_bytes());
        self.set(at::MAX_TIMESTAMP, now.to_be_bytes());
        self.set(at::RECORD_COUNT, (records as i32).to_be_bytes());
        let crc = crc_fast::crc32_iscsi(&self.bytes[at::ATTRIBUTES..size]);
        self.set(at::CRC, crc.to_be_bytes());
        size
    }

    fn set<const N: usize>(&mut self, place: usize, value: [u8; N]) {
        self.bytes[place..place + N].copy_from_slice(&value);
    }
}

/// Where the fields of a batch are, in bytes.
mod at {
    pub const LENGTH: usize = 8;
    pub const CRC: usize = 17;
    pub const ATTRIBUTES: usize = 21;
    pub const LAST_OFFSET_DELTA: usize = 23;
    pub const BASE_TIMESTAMP: usize = 27;
    pub const MAX_TIMESTAMP: usize = 35;
    pub const RECORD_COUNT: usize = 57;
}

/// The templates of a thread. They take turns, so that a broker sees different bytes; one that is being written is with
/// its connection.
pub struct Templates {
    free: VecDeque<Template>,
    made: usize,
    made_max: usize,
    values: Values,
    records: usize,
    codec: Compression,
}

impl Templates {
    /// Of batches of `records` records; `seed` sets apart what threads send.
    pub fn new(plan: &RecordPlan, records: usize, seed: u64) -> Templates {
        let values = Values::new(plan, seed);
        Templates::bounded(values, records, plan.codec.compression(), WRITING_BYTES)
    }

    fn bounded(mut values: Values, records: usize, codec: Compression, bytes: usize) -> Templates {
        let first = Template::build(&mut values, records, codec);
        let fit = |bytes: usize| bytes / first.bytes.len();
        let (distinct, made_max) = (fit(AHEAD_BYTES).clamp(1, DISTINCT_MAX), fit(bytes));
        let mut templates = Templates {
            free: VecDeque::from([first]),
            made: distinct,
            made_max: made_max.max(DISTINCT_MAX),
            values,
            records,
            codec,
        };
        for _ in 1..distinct {
            let template = Template::build(&mut templates.values, records, codec);
            templates.free.push_back(template);
        }
        templates
    }

    /// One to be written; `None` while too many are being written.
    pub fn take(&mut self) -> Option<Template> {
        if self.free.is_empty() && self.made < self.made_max {
            self.made += 1;
            return Some(Template::build(&mut self.values, self.records, self.codec));
        }
        self.free.pop_front()
    }

    /// Gives one back that is written.
    pub fn give(&mut self, template: Template) {
        self.free.push_back(template);
    }

    /// The values of batches that no template can make.
    pub fn values(&mut self) -> &mut Values {
        &mut self.values
    }
}

/// Records of a full batch: with values of `batch_bytes`, at least one.
///
/// Up to 1 MiB the whole batch also fits what brokers take by default, so that "1 MiB" is a batch that they take.
pub fn batch_records(plan: &RecordPlan, batch_bytes: usize) -> usize {
    let records = (batch_bytes / plan.bytes.max(1)).max(1);
    if batch_bytes > MESSAGE_BYTES_MAX {
        return records;
    }
    // Attributes, timestamp delta, offset delta, key, value and the count of headers.
    let key = match plan.keys {
        Keys::None => 1,
        Keys::Uniform | Keys::Zipf => 9,
    };
    let varint = |value: usize| (usize::BITS - (value << 1 | 1).leading_zeros()).div_ceil(7);
    let body = 3 + varint(records) as usize + key + varint(plan.bytes) as usize + plan.bytes;
    let fits = (MESSAGE_BYTES_MAX - HEADER_BYTES) / (varint(body) as usize + body);
    records.min(fits).max(1)
}

/// Kafka's default of `max.message.bytes`.
const MESSAGE_BYTES_MAX: usize = 1_048_588;

/// What templates made ahead may take, bytes, and how many there are at most.
const AHEAD_BYTES: usize = 16 << 20;
const DISTINCT_MAX: usize = 8;
/// What templates may take that are being written on many connections, bytes.
const WRITING_BYTES: usize = 512 << 20;

/// A batch in the answer to a fetch.
pub struct Batch<'a> {
    pub header: BatchHeader,
    records: &'a [u8],
}

/// Takes the batch at the front of `bytes`; `None` at the end, also where the answer's limit has cut one off.
pub fn take_batch<'a>(bytes: &mut &'a [u8]) -> Result<Option<Batch<'a>>> {
    if bytes.len() < HEADER_BYTES {
        return Ok(None);
    }
    let header = BatchHeader::parse(bytes)?;
    let Some((batch, rest)) = bytes.split_at_checked(header.size_bytes()) else {
        return Ok(None);
    };
    *bytes = rest;
    Ok(Some(Batch {
        header,
        records: &batch[HEADER_BYTES..],
    }))
}

/// What is seen of a record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Of its value.
    pub bytes: usize,
    /// When it was due, nanoseconds.
    pub due: u64,
}

impl Batch<'_> {
    /// Of a transaction's end: no record of a producer.
    pub fn is_control(&self) -> bool {
        self.header.attributes.is_control()
    }

    /// The first record, of which only the beginning is decompressed.
    pub fn first(&self) -> Result<Seen> {
        let codec = self.header.attributes.compression()?;
        if codec == Compression::None {
            return front(self.records).map(|(seen, _)| seen);
        }
        let mut pieces = Pieces::new(codec, self.records, RECORDS_BYTES_MAX);
        front(pieces.next_piece()?).map(|(seen, _)| seen)
    }

    /// Every record.
    pub fn each(&self, mut see: impl FnMut(Seen)) -> Result<()> {
        let codec = self.header.attributes.compression()?;
        let decompressed;
        let mut rest = if codec == Compression::None {
            self.records
        } else {
            decompressed =
                highwater::protocol::batch::decompress(codec, self.records, RECORDS_BYTES_MAX)?;
            &decompressed[..]
        };
        for _ in 0..self.header.record_count {
            let (seen, bytes) = front(rest)?;
            see(seen);
            rest = rest.get(bytes..).context("a record is cut off")?;
        }
        Ok(())
    }
}

/// The record at the front of uncompressed records, of which the end may be missing, and the bytes that it takes.
fn front(records: &[u8]) -> Result<(Seen, usize)> {
    let mut cursor = Cursor::new(records);
    let length = usize::try_from(cursor.varint()?).context("a record of a negative length")?;
    let before = records.len() - cursor.rest().len();
    // Attributes, timestamp and offset.
    cursor.take(1)?;
    cursor.varint()?;
    cursor.varint()?;
    if let Ok(key) = usize::try_from(cursor.varint()?) {
        cursor.take(key)?;
    }
    let Ok(bytes) = usize::try_from(cursor.varint()?) else {
        bail!("a record without a value, which this client did not produce");
    };
    ensure!(
        bytes <= length,
        "a record's value is longer than the record"
    );
    let due = due_of(&cursor.rest()[..cursor.rest().len().min(bytes)]);
    let due = due
        .context("a record is too short to say when it was due: this client did not produce it")?;
    Ok((Seen { bytes, due }, before + length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use highwater::protocol::batch::BatchView;
    use proptest::prelude::*;

    fn values(bytes: usize) -> Values {
        let plan = RecordPlan {
            bytes,
            ..Default::default()
        };
        Values::pooled(&plan, 1, 64 << 10)
    }

    /// What a broker makes of a batch: the due times of its records.
    fn received(bytes: &[u8]) -> Vec<u64> {
        let batch = BatchView::parse_produced(Bytes::copy_from_slice(bytes)).unwrap();
        let records = batch.records().unwrap();
        records
            .map(|record| due_of(record.unwrap().value.unwrap()).unwrap())
            .collect()
    }

    proptest! {
        #[test]
        fn a_stamped_template_is_a_good_batch(
            bytes in 16usize..3000,
            records in 1usize..200,
            cuts in prop::collection::vec((1usize..200, any::<u64>()), 1..4),
        ) {
            let mut template = Template::build(&mut values(bytes), records, Compression::None);
            prop_assert_eq!(received(template.batch(template.size_bytes())), vec![0; records]);
            for (cut, start) in cuts {
                let cut = cut.min(records);
                let due = |n| start.wrapping_add(n as u64 * 1000);
                let size = template.stamp(cut, due);
                let expected: Vec<u64> = (0..cut).map(due).collect();
                prop_assert_eq!(received(template.batch(size)), expected);
            }
        }

        #[test]
        fn batches_are_walked_and_a_cut_one_is_left(
            counts in prop::collection::vec(1usize..20, 1..5),
            cut in 1usize..200,
        ) {
            let mut all = Vec::new();
            let mut last = 0;
            for count in &counts {
                let mut template = Template::build(&mut values(100), *count, Compression::None);
                last = template.stamp(*count, |n| n as u64);
                all.extend_from_slice(template.batch(last));
            }
            // Into the last batch, never beyond it.
            let cut = cut.min(last - 1);
            let mut rest = &all[..all.len() - cut];
            let mut walked = Vec::new();
            while let Some(batch) = take_batch(&mut rest).unwrap() {
                let mut dues = Vec::new();
                batch.each(|seen| dues.push(seen)).unwrap();
                prop_assert_eq!(batch.first().unwrap(), dues[0]);
                let expected = (0..dues.len() as u64).map(|due| Seen { bytes: 100, due });
                prop_assert!(dues.iter().copied().eq(expected));
                walked.push(dues.len());
            }
            prop_assert_eq!(&walked[..], &counts[..counts.len() - 1]);
        }

        #[test]
        fn damage_does_not_panic(place in 0usize..500, byte: u8) {
            let mut template = Template::build(&mut values(100), 4, Compression::None);
            let size = template.stamp(4, |_| 1);
            let mut bytes = template.batch(size).to_vec();
            let place = place % bytes.len();
            bytes[place] = byte;
            let mut rest = &bytes[..];
            while let Ok(Some(batch)) = take_batch(&mut rest) {
                let _ = (batch.first(), batch.each(|_| ()));
            }
        }
    }

    #[test]
    fn a_compressed_batch_s_records_are_seen() {
        for codec in Compression::ALL {
            for bytes in [100, 300_000] {
                let template = Template::build(&mut values(bytes), 5, codec);
                let mut all = template.batch(template.size_bytes());
                let batch = take_batch(&mut all).unwrap().unwrap();
                assert_eq!(batch.first().unwrap(), Seen { bytes, due: 0 });
                let mut count = 0;
                batch
                    .each(|seen| count += usize::from(seen == Seen { bytes, due: 0 }))
                    .unwrap();
                assert_eq!(count, 5, "{codec:?}");
            }
        }
    }

    #[test]
    fn a_batch_of_a_mebibyte_is_one_that_brokers_take() {
        for bytes in [16, 100, 1024, 10_000, 600_000, 2_000_000] {
            let plan = RecordPlan {
                bytes,
                ..Default::default()
            };
            let records = batch_records(&plan, 1 << 20);
            let template = Template::build(&mut values(bytes), records, Compression::None);
            let size = template.size_bytes();
            assert!(size <= MESSAGE_BYTES_MAX || records == 1, "{bytes}: {size}");
            // Not one record too few, but for varints that are shorter.
            let full = (records + 1) * (bytes + 8);
            assert!(full > (1 << 20) * 9 / 10, "{bytes}: {records}");
        }
        let plan = RecordPlan::default();
        assert_eq!(batch_records(&plan, 16 << 10), 16);
        assert_eq!(batch_records(&plan, 2047), 1);
        assert_eq!(batch_records(&plan, 0), 1);
        assert_eq!(batch_records(&plan, 4 << 20), 4096);
    }

    #[test]
    fn templates_take_turns_and_are_bounded() {
        let values = values(1 << 10);
        let mut templates = Templates::bounded(values, 1, Compression::None, 1 << 10);
        let mut taken: Vec<Template> = std::iter::from_fn(|| templates.take()).take(20).collect();
        assert_eq!(taken.len(), DISTINCT_MAX);
        assert!(templates.take().is_none());
        templates.give(taken.pop().unwrap());
        assert!(templates.take().is_some());
    }
}
