//! Fuzzes everything that reads a peer's bytes: the request header and every request
//! decoder, every response decoder, the batch reader, the decompressors.
//!
//! `cargo fuzz run --fuzz-dir tests/fuzz -s none frame` on stable Rust, with `-s address`
//! on nightly. The first byte chooses the reader and the second the version, so that
//! one corpus serves them all; a request has its own API key and version inside.

#![no_main]

use bytes::Bytes;
use highwater::protocol::batch::{decompress, BatchView, Batches, Compression};
use highwater::protocol::messages::*;
use highwater::protocol::{ApiKey, Reader, RequestHeader, ResponseHeader};
use libfuzzer_sys::fuzz_target;

/// Decompressed bytes at most.
const LIMIT: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let [reader, version, rest @ ..] = data else {
        return;
    };
    let bytes = Bytes::copy_from_slice(rest);
    let version = i16::from(*version);
    match reader {
        0 => request(bytes),
        1 => batches(bytes),
        2..=5 => {
            let codec = Compression::from_code(reader - 1).expect("1 to 4 are codecs");
            // An error is an answer as good as any here.
            drop(decompress(codec, rest, LIMIT));
        }
        _ => {
            if let Some(key) = ApiKey::from_code(i16::from(reader - 6)) {
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
        Ok(ApiKey::Produce) => {
            let Ok(request) = ProduceRequest::decode(&mut r, version) else {
                return;
            };
            for partition in request.topic_data.iter().flat_map(|t| &t.partition_data) {
                if let Some(records) = &partition.records {
                    batches(records.to_bytes());
                }
            }
        }
        Ok(ApiKey::Fetch) => drop(FetchRequest::decode(&mut r, version)),
        Ok(ApiKey::ListOffsets) => drop(ListOffsetsRequest::decode(&mut r, version)),
        Ok(ApiKey::Metadata) => drop(MetadataRequest::decode(&mut r, version)),
        Ok(ApiKey::ApiVersions) => drop(ApiVersionsRequest::decode(&mut r, version)),
        Ok(ApiKey::CreateTopics) => drop(CreateTopicsRequest::decode(&mut r, version)),
        Ok(ApiKey::DeleteTopics) => drop(DeleteTopicsRequest::decode(&mut r, version)),
        Err(_) => drop(LegacyProduceRequest::decode(&mut r, version)),
    }
}

fn response(key: ApiKey, version: i16, bytes: Bytes) {
    let mut r = Reader::new(bytes);
    if ResponseHeader::decode(&mut r, key, version).is_err() {
        return;
    }
    match key {
        ApiKey::Produce => drop(ProduceResponse::decode(&mut r, version)),
        ApiKey::Fetch => drop(FetchResponse::decode(&mut r, version)),
        ApiKey::ListOffsets => drop(ListOffsetsResponse::decode(&mut r, version)),
        ApiKey::Metadata => drop(MetadataResponse::decode(&mut r, version)),
        ApiKey::ApiVersions => drop(ApiVersionsResponse::decode(&mut r, version)),
        ApiKey::CreateTopics => drop(CreateTopicsResponse::decode(&mut r, version)),
        ApiKey::DeleteTopics => drop(DeleteTopicsResponse::decode(&mut r, version)),
    }
}

fn batches(bytes: Bytes) {
    drop(BatchView::parse_produced(bytes.clone()));
    for batch in Batches::new(bytes).flatten() {
        if let Ok(scan) = batch.scan(LIMIT) {
            scan.for_each(drop);
        }
    }
}
