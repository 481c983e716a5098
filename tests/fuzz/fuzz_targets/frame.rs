//! Fuzzes everything that reads a peer's bytes: the request header and every request
//! decoder, every response decoder, the batch reader, the decompressors.
//!
//! `cargo fuzz run --fuzz-dir tests/fuzz -s none frame` on stable Rust, with `-s address`
//! on nightly. The first byte chooses the reader and the second the version, so that
//! one corpus serves them all; a request has its own API key and version inside.

#![no_main]

#[path = "../../mutation/decoders.rs"]
mod decoders;

use bytes::Bytes;
use highwater::protocol::batch::{decompress, Batches, Compression};
use highwater::protocol::messages::LegacyProduceRequest;
use highwater::protocol::{ApiKey, Reader, RequestHeader, ResponseHeader};
use libfuzzer_sys::fuzz_target;

/// Decompressed bytes at most.
const LIMIT: usize = 1 << 20;
/// The first of the numbers that choose a response decoder; below it, from `REQUESTS` on, the
/// body of a request.
const RESPONSES: u8 = 128;
const REQUESTS: u8 = 6;

fuzz_target!(|data: &[u8]| {
    let [reader, version, rest @ ..] = data else {
        return;
    };
    let bytes = Bytes::copy_from_slice(rest);
    let version = i16::from(*version);
    match *reader {
        0 => request(bytes),
        1 => batches(bytes),
        codec @ 2..REQUESTS => {
            let codec = Compression::from_code(codec - 1).expect("1 to 4 are codecs");
            // An error is an answer as good as any here.
            drop(decompress(codec, rest, LIMIT));
        }
        key @ REQUESTS..RESPONSES => {
            // Those that are not served yet too.
            if let Some(key) = ApiKey::declared(i16::from(key - REQUESTS)) {
                drop(decoders::request(key, version, &mut Reader::new(bytes)));
            }
        }
        key => {
            if let Some(key) = ApiKey::declared(i16::from(key - RESPONSES)) {
                response(key, version, bytes);
            }
        }
    }
});

fn request(bytes: Bytes) {
    let mut r = Reader::new(bytes);
    let Ok(header) = RequestHeader::decode(&mut r) else {
        return;
    };
    let version = header.api_version;
    match header.served() {
        Ok(key) => drop(decoders::request(key, version, &mut r)),
        Err(_) => drop(LegacyProduceRequest::decode(&mut r, version)),
    }
}

fn response(key: ApiKey, version: i16, bytes: Bytes) {
    let mut r = Reader::new(bytes);
    if ResponseHeader::decode(&mut r, key, version).is_ok() {
        drop(decoders::response(key, version, &mut r));
    }
}

fn batches(bytes: Bytes) {
    decoders::batches(bytes.clone());
    for batch in Batches::new(bytes).flatten() {
        if let Ok(scan) = batch.scan(LIMIT) {
            scan.for_each(drop);
        }
    }
}
