//! Tests of the write and read path over the simulator. Batches are real v2 batches
//! (header, CRC) around random bytes.

mod faults;
mod model;
mod paths;

use super::{Log, LogBatch, LogConfig, Storage, StorageLimits};
use crate::runtime::Rt;
use bytes::{BufMut, Bytes, BytesMut};

pub(in crate::storage) const DIR: &str = "/data/topic-0";

pub(in crate::storage) fn limits() -> StorageLimits {
    StorageLimits {
        cache_bytes: 1 << 20,
        cold_read_bytes: 4 << 20,
        write_bytes: 4 << 20,
        flushes_in_flight_max: 2,
        open_segments_max: 2,
    }
}

pub(in crate::storage) async fn create(
    rt: &Rt,
    dir: impl AsRef<std::path::Path>,
    limits: StorageLimits,
    config: LogConfig,
) -> Log {
    let storage = Storage::new(rt.clone(), limits);
    Log::create(&storage, rt.dir(dir), config)
        .await
        .expect("an empty directory takes a log")
}

/// A batch of `count` records, `payload_bytes` long after the header.
pub(in crate::storage) fn batch(
    base_offset: i64,
    count: u32,
    payload_bytes: usize,
    timestamp: i64,
) -> LogBatch {
    let mut out = BytesMut::with_capacity(61 + payload_bytes);
    out.put_i64(0);
    out.put_i32(49 + payload_bytes as i32);
    out.put_i32(-1);
    out.put_u8(2);
    out.put_u32(0);
    out.put_i16(0);
    out.put_i32(count as i32 - 1);
    out.put_i64(timestamp);
    out.put_i64(timestamp);
    out.put_i64(-1);
    out.put_i16(-1);
    out.put_i32(-1);
    out.put_i32(count as i32);
    for i in 0..payload_bytes {
        out.put_u8((base_offset as usize * 31 + i) as u8);
    }
    let crc = crc_fast::crc32_iscsi(&out[21..]);
    out[17..21].copy_from_slice(&crc.to_be_bytes());
    LogBatch {
        bytes: out.freeze(),
        base_offset,
        last_offset: base_offset + i64::from(count) - 1,
        leader_epoch: 3,
        max_timestamp: timestamp,
        producer: None,
    }
}

/// The batch as the log must give it back.
pub(in crate::storage) fn stamped(batch: &LogBatch) -> Bytes {
    let mut out = BytesMut::from(&batch.bytes[..]);
    super::batch::stamp(&mut out, batch.base_offset, batch.leader_epoch);
    out.freeze()
}
