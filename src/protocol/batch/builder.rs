//! [`BatchBuilder`]: records in, the bytes of one batch out.
//!
//! For clients, the broker's own logs and tests; what producers send is changed by
//! `rewrite.rs`, which keeps the records' bytes.

use bytes::Bytes;

use super::varint::{put_varint, put_varlong};
use super::view::crc;
use super::{
    at, compress, Attributes, Compression, TimestampType, HEADER_BYTES, LENGTH_OVERHEAD_BYTES,
    MAGIC,
};

/// Builds one batch.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    /// Header and records; the header is filled in at the end.
    bytes: Vec<u8>,
    /// The body of the record that is being added.
    scratch: Vec<u8>,
    base_offset: i64,
    leader_epoch: i32,
    attributes: Attributes,
    compression: Compression,
    producer: (i64, i16, i32),
    base_timestamp: i64,
    max_timestamp: i64,
    record_count: i32,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// An empty batch as a producer without idempotence sends it: base offset 0, leader
    /// epoch -1, create time, not compressed.
    pub fn new() -> Self {
        Self {
            bytes: vec![0; HEADER_BYTES],
            scratch: Vec::new(),
            base_offset: 0,
            leader_epoch: -1,
            attributes: Attributes::default(),
            compression: Compression::None,
            producer: (-1, -1, -1),
            base_timestamp: -1,
            max_timestamp: -1,
            record_count: 0,
        }
    }

    /// Offset of the first record.
    pub fn base_offset(mut self, base_offset: i64) -> Self {
        self.base_offset = base_offset;
        self
    }

    /// Epoch of the leader.
    pub fn leader_epoch(mut self, leader_epoch: i32) -> Self {
        self.leader_epoch = leader_epoch;
        self
    }

    /// Producer id, producer epoch and the first record's sequence number.
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.producer = (id, epoch, base_sequence);
        self
    }

    /// Makes it part of a transaction, or not.
    pub fn transactional(mut self, is_transactional: bool) -> Self {
        self.attributes = self.attributes.with_transactional(is_transactional);
        self
    }

    /// Makes it a control batch, or not.
    pub fn control(mut self, is_control: bool) -> Self {
        self.attributes = self.attributes.with_control(is_control);
        self
    }

    /// What its timestamps say.
    pub fn timestamp_type(mut self, timestamp_type: TimestampType) -> Self {
        self.attributes = self.attributes.with_timestamp_type(timestamp_type);
        self
    }

    /// How its records are compressed.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self.attributes = self.attributes.with_compression(compression);
        self
    }

    /// Adds a record without headers. `timestamp` in ms.
    pub fn push(&mut self, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) {
        self.push_with_headers(timestamp, key, value, &[]);
    }

    /// Adds a record. `timestamp` in ms.
    ///
    /// # Panics
    /// If a key, value, header or the batch grows beyond 2 GiB, which no batch may.
    pub fn push_with_headers(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&str, Option<&[u8]>)],
    ) {
        if self.record_count == 0 {
            self.base_timestamp = timestamp;
            self.max_timestamp = timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let body = &mut self.scratch;
        body.clear();
        body.push(0);
        put_varlong(body, timestamp.wrapping_sub(self.base_timestamp));
        put_varint(body, self.record_count);
        put_nullable(body, key);
        put_nullable(body, value);
        put_varint(body, length_of(headers.len()));
        for (key, value) in headers {
            put_nullable(body, Some(key.as_bytes()));
            put_nullable(body, *value);
        }
        put_varint(&mut self.bytes, length_of(body.len()));
        self.bytes.extend_from_slice(body);
        self.record_count += 1;
    }

    /// Records added so far.
    pub fn record_count(&self) -> usize {
        self.record_count as usize
    }

    /// Bytes of the batch so far, before compression.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The batch. Without a record it has count 0 and last offset delta -1, which no
    /// broker takes.
    ///
    /// # Panics
    /// If the batch is beyond 2 GiB.
    pub fn build(mut self) -> Bytes {
        if self.compression != Compression::None {
            let packed = compress(self.compression, &self.bytes[HEADER_BYTES..])
                .expect("compressing into memory cannot fail");
            self.bytes.truncate(HEADER_BYTES);
            self.bytes.extend(packed);
        }
        let length = length_of(self.bytes.len() - LENGTH_OVERHEAD_BYTES);
        let (producer_id, producer_epoch, base_sequence) = self.producer;
        self.set(at::BASE_OFFSET, self.base_offset.to_be_bytes());
        self.set(at::LENGTH, length.to_be_bytes());
        self.set(at::LEADER_EPOCH, self.leader_epoch.to_be_bytes());
        self.set(at::MAGIC, MAGIC.to_be_bytes());
        self.set(at::ATTRIBUTES, self.attributes.0.to_be_bytes());
        self.set(at::LAST_OFFSET_DELTA, (self.record_count - 1).to_be_bytes());
        self.set(at::BASE_TIMESTAMP, self.base_timestamp.to_be_bytes());
        self.set(at::MAX_TIMESTAMP, self.max_timestamp.to_be_bytes());
        self.set(at::PRODUCER_ID, producer_id.to_be_bytes());
        self.set(at::PRODUCER_EPOCH, producer_epoch.to_be_bytes());
        self.set(at::BASE_SEQUENCE, base_sequence.to_be_bytes());
        self.set(at::RECORD_COUNT, self.record_count.to_be_bytes());
        let crc = crc(&self.bytes);
        self.set(at::CRC, crc.to_be_bytes());
        self.bytes.into()
    }

    fn set<const N: usize>(&mut self, place: usize, value: [u8; N]) {
        self.bytes[place..place + N].copy_from_slice(&value);
    }
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            put_varint(out, length_of(bytes.len()));
            out.extend_from_slice(bytes);
        }
        None => put_varint(out, -1),
    }
}

fn length_of(length: usize) -> i32 {
    i32::try_from(length).expect("a batch is smaller than 2 GiB")
}
