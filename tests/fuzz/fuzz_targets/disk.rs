//! Fuzzes everything that reads the broker's own directory but record batches (target
//! `frame`): checkpoints, epochs, indexes, snapshots, properties, metadata records.
//!
//! The first byte chooses the reader.

#![no_main]

#[path = "../../mutation/disk.rs"]
mod disk;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [reader, rest @ ..] = data else {
        return;
    };
    if let Some(kind) = disk::Kind::ALL.get(usize::from(*reader)) {
        kind.read(Bytes::copy_from_slice(rest));
    }
});
