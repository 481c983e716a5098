//! Hostile frames: good frames are damaged in a million ways and read by everything
//! that reads a peer's bytes. Nothing may panic, and nothing may hold more memory
//! than the frame's budget at any moment, which a counting allocator sees.
//!
//! `HIGHWATER_SEED` and `HIGHWATER_MUTATIONS` set the seed and the number of frames;
//! a failure prints the seed and the frame, which alone reproduce it.

#[path = "mutation/corpus.rs"]
mod corpus;
#[path = "mutation/counting.rs"]
mod counting;
#[path = "mutation/mutate.rs"]
mod mutate;

use bytes::Bytes;
use highwater::protocol::batch::{decompress, BatchView, Batches, Compression};
use highwater::protocol::codec::{BUDGET_BASE_BYTES, BUDGET_FACTOR};
use highwater::protocol::messages::*;
use highwater::protocol::{ApiKey, DecodeError, Reader, RequestHeader, ResponseHeader};

use corpus::{Frame, Kind};
use mutate::Rng;

/// What `Bytes` takes to share a frame, which is not charged to the budget.
const SLACK_BYTES: usize = 256;

#[test]
fn a_million_damaged_frames_neither_panic_nor_take_more_than_their_budget() {
    let corpus = corpus::frames();
    let (seed, count) = (
        number("HIGHWATER_SEED", 1),
        number("HIGHWATER_MUTATIONS", 1_000_000),
    );
    let (mut good, mut bad) = (0u64, 0u64);
    for index in 0..count {
        let case = Case::new(seed, index);
        let mut rng = Rng::new(seed, index);
        let frame = &corpus[rng.below(corpus.len())];
        let other = &corpus[rng.below(corpus.len())];
        let bytes = Bytes::from(mutate::damaged(&frame.bytes, &other.bytes, &mut rng));
        // Mostly as what it was, sometimes as something else.
        let kind = if rng.below(8) == 0 {
            other.kind
        } else {
            frame.kind
        };

        let length = bytes.len();
        let (is_good, peak) = counting::peak_of(|| read(kind, bytes));
        let bound = length * BUDGET_FACTOR + BUDGET_BASE_BYTES + SLACK_BYTES;
        assert!(
            peak <= bound,
            "{kind:?}: {peak} bytes held for a frame of {length}"
        );
        *if is_good { &mut good } else { &mut bad } += 1;
        case.passed();
    }
    // Both must happen often, or the damage is too small or too large to find anything.
    assert!(
        good > count / 20 && bad > count / 5,
        "{good} good, {bad} bad"
    );
    println!("seed {seed}: {good} frames were read, {bad} refused");
}

#[test]
fn damaged_compressed_records_neither_panic_nor_take_more_than_their_limit() {
    const LIMIT: usize = 64 * 1024;
    // The decompressors' own windows: 4 MiB blocks in and out for LZ4, 8 MiB for zstd.
    const WINDOWS: usize = 12 << 20;
    let corpus = corpus::compressed();
    let (seed, count) = (
        number("HIGHWATER_SEED", 1),
        number("HIGHWATER_MUTATIONS", 1_000_000) / 50,
    );
    let (mut good, mut bad) = (0u64, 0u64);
    for index in 0..count {
        let case = Case::new(seed, index);
        let mut rng = Rng::new(seed, index);
        let (codec, input) = &corpus[rng.below(corpus.len())];
        let (_, other) = &corpus[rng.below(corpus.len())];
        let bytes = mutate::damaged(input, other, &mut rng);
        let (got, peak) =
            counting::peak_of(|| decompress(*codec, &bytes, LIMIT).map(|out| out.len()));
        assert!(peak <= LIMIT + WINDOWS, "{codec:?}: {peak} bytes held");
        assert!(
            got.as_ref().map_or(true, |length| *length <= LIMIT),
            "{codec:?}: {got:?}"
        );
        *if got.is_ok() { &mut good } else { &mut bad } += 1;
        case.passed();
    }
    assert!(
        good > count / 50 && bad > count / 5,
        "{good} good, {bad} bad"
    );
    println!("seed {seed}: {good} were decompressed, {bad} refused");
}

#[test]
fn the_corpus_is_good_and_the_allocator_counts() {
    for Frame { kind, bytes } in corpus::frames() {
        assert!(read(kind, bytes.clone()), "{kind:?}");
    }
    for (codec, input) in corpus::compressed() {
        assert!(decompress(codec, &input, 1 << 20).is_ok(), "{codec:?}");
    }
    let (_, peak) = counting::peak_of(|| {
        drop(vec![0u8; 1000]);
        vec![0u8; 500]
    });
    assert_eq!(peak, 1000);
}

/// Reads the bytes as `kind`; true if all of it was good.
fn read(kind: Kind, bytes: Bytes) -> bool {
    match kind {
        Kind::Request => read_request(bytes),
        Kind::Response(key, version) => read_response(key, version, bytes),
        Kind::Batches => read_batches(bytes),
    }
}

fn read_request(bytes: Bytes) -> bool {
    let mut r = Reader::new(bytes);
    let Ok(header) = RequestHeader::decode(&mut r) else {
        return false;
    };
    let Ok(key) = header.served() else {
        // The one that is answered nevertheless.
        let is_legacy = header.api_key == ApiKey::Produce.code();
        return is_legacy && LegacyProduceRequest::decode(&mut r, header.api_version).is_ok();
    };
    let version = header.api_version;
    match key {
        ApiKey::Produce => ProduceRequest::decode(&mut r, version).map(read_produced),
        ApiKey::Fetch => FetchRequest::decode(&mut r, version).map(|_| true),
        ApiKey::ListOffsets => ListOffsetsRequest::decode(&mut r, version).map(|_| true),
        ApiKey::Metadata => MetadataRequest::decode(&mut r, version).map(|_| true),
        ApiKey::ApiVersions => ApiVersionsRequest::decode(&mut r, version).map(|_| true),
        ApiKey::CreateTopics => CreateTopicsRequest::decode(&mut r, version).map(|_| true),
        ApiKey::DeleteTopics => DeleteTopicsRequest::decode(&mut r, version).map(|_| true),
    }
    .unwrap_or_else(refused)
}

/// The batches inside go through the reader of batches too; only their frame counts as good or bad.
fn read_produced(request: ProduceRequest) -> bool {
    for partition in request.topic_data.iter().flat_map(|t| &t.partition_data) {
        if let Some(records) = &partition.records {
            read_batches(records.to_bytes());
        }
    }
    true
}

fn read_response(key: ApiKey, version: i16, bytes: Bytes) -> bool {
    let mut r = Reader::new(bytes);
    if let Err(error) = ResponseHeader::decode(&mut r, key, version) {
        return refused(error);
    }
    match key {
        ApiKey::Produce => ProduceResponse::decode(&mut r, version).map(drop),
        ApiKey::Fetch => FetchResponse::decode(&mut r, version).map(drop),
        ApiKey::ListOffsets => ListOffsetsResponse::decode(&mut r, version).map(drop),
        ApiKey::Metadata => MetadataResponse::decode(&mut r, version).map(drop),
        ApiKey::ApiVersions => ApiVersionsResponse::decode(&mut r, version).map(drop),
        ApiKey::CreateTopics => CreateTopicsResponse::decode(&mut r, version).map(drop),
        ApiKey::DeleteTopics => DeleteTopicsResponse::decode(&mut r, version).map(drop),
    }
    .map_or_else(refused, |()| true)
}

/// Without decompression, and beyond a wrong CRC, which would hide everything else.
fn read_batches(bytes: Bytes) -> bool {
    let mut is_good = BatchView::parse_produced(bytes.clone()).is_ok();
    for batch in Batches::new(bytes) {
        let Ok(batch) = batch else {
            return false;
        };
        is_good |= batch.validate_crc().is_ok() && batch.header().validate_count().is_ok();
        if batch.header().attributes.compression() == Ok(Compression::None) {
            let scan = batch.scan(usize::MAX).expect("a known compression");
            is_good &= scan.fold(true, |is_good, record| is_good & record.is_ok());
            for record in batch.records().into_iter().flatten().flatten() {
                is_good &= record.headers.count() == record.headers.len();
            }
        }
    }
    is_good
}

/// Every refusal can be told.
fn refused(error: DecodeError) -> bool {
    assert!(error.field.is_some(), "{error}");
    false
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// Tells on a panic which case it was.
struct Case {
    seed: u64,
    index: u64,
    is_passed: bool,
}

impl Case {
    fn new(seed: u64, index: u64) -> Self {
        let is_passed = false;
        Self {
            seed,
            index,
            is_passed,
        }
    }

    fn passed(mut self) {
        self.is_passed = true;
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        if !self.is_passed {
            eprintln!(
                "failed with HIGHWATER_SEED={}, frame {}",
                self.seed, self.index
            );
        }
    }
}
