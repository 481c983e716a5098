//! Hostile frames and damaged files: good ones are damaged in a million ways and read by
//! everything that reads a peer's bytes or the broker's own directory. Nothing may panic, and nothing may hold more memory
//! than the frame's budget at any moment, which a counting allocator sees.
//!
//! `HIGHWATER_SEED` and `HIGHWATER_MUTATIONS` set the seed and the number of frames;
//! a failure prints the seed and the frame, which alone reproduce it.

#[path = "mutation/corpus.rs"]
mod corpus;
#[path = "mutation/counting.rs"]
mod counting;
#[path = "mutation/decoders.rs"]
mod decoders;
#[path = "mutation/disk.rs"]
mod disk;
#[path = "mutation/disk_corpus.rs"]
mod disk_corpus;
#[path = "mutation/mutate.rs"]
mod mutate;

use bytes::Bytes;
use highwater::protocol::batch::decompress;
use highwater::protocol::codec::{BUDGET_BASE_BYTES, BUDGET_FACTOR};
use highwater::protocol::messages::LegacyProduceRequest;
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
fn damaged_files_neither_panic_nor_take_more_than_their_size_allows() {
    // A line of six bytes becomes an entry of a list and of a map.
    const FACTOR: usize = 64;
    const BASE_BYTES: usize = 16 * 1024;
    let corpus: Vec<Bytes> = disk::Kind::ALL
        .iter()
        .map(|kind| disk_corpus::good(*kind))
        .collect();
    let (seed, count) = (
        number("HIGHWATER_SEED", 1),
        number("HIGHWATER_MUTATIONS", 1_000_000) / 5,
    );
    let mut read = vec![(0u64, 0u64); corpus.len()];
    for index in 0..count {
        let case = Case::new(seed, index);
        let mut rng = Rng::new(seed, index);
        let which = rng.below(corpus.len());
        let kind = disk::Kind::ALL[which];
        let other = &corpus[rng.below(corpus.len())];
        let bytes = Bytes::from(mutate::damaged(&corpus[which], other, &mut rng));
        let length = bytes.len();
        let (is_good, peak) = counting::peak_of(|| kind.read(bytes));
        let bound = length * FACTOR + BASE_BYTES;
        assert!(peak <= bound, "{kind:?}: {peak} bytes held for {length}");
        let (good, bad) = &mut read[which];
        *if is_good { good } else { bad } += 1;
        case.passed();
    }
    for (kind, (good, bad)) in disk::Kind::ALL.iter().zip(read) {
        // No damage gets past a checksum.
        let expects_good = *kind != disk::Kind::ProducerSnapshot;
        assert!(
            bad > 0 && (good > 0 || !expects_good),
            "{kind:?}: {good} good, {bad} bad"
        );
        println!("seed {seed}: {kind:?}: {good} were read, {bad} refused");
    }
}

#[test]
fn the_corpus_is_good_and_the_allocator_counts() {
    for Frame { kind, bytes } in corpus::frames() {
        assert!(read(kind, bytes.clone()), "{kind:?}");
    }
    for (codec, input) in corpus::compressed() {
        assert!(decompress(codec, &input, 1 << 20).is_ok(), "{codec:?}");
    }
    for kind in disk::Kind::ALL {
        assert!(kind.read(disk_corpus::good(*kind)), "{kind:?}");
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
        Kind::RequestBody(key, version) => {
            told(decoders::request(key, version, &mut Reader::new(bytes)))
        }
        Kind::Response(key, version) => told(read_response(key, version, bytes)),
        Kind::Batches => decoders::batches(bytes),
    }
}

fn read_request(bytes: Bytes) -> bool {
    let mut r = Reader::new(bytes);
    let Ok(header) = RequestHeader::decode(&mut r) else {
        return false;
    };
    match header.served() {
        Ok(key) => told(decoders::request(key, header.api_version, &mut r)),
        // The one that is answered nevertheless.
        Err(_) => {
            let is_legacy = header.api_key == ApiKey::Produce.code();
            is_legacy && LegacyProduceRequest::decode(&mut r, header.api_version).is_ok()
        }
    }
}

fn read_response(key: ApiKey, version: i16, bytes: Bytes) -> Result<(), DecodeError> {
    let mut r = Reader::new(bytes);
    ResponseHeader::decode(&mut r, key, version)?;
    decoders::response(key, version, &mut r)
}

/// True if it was read; every refusal can be told.
fn told(read: Result<(), DecodeError>) -> bool {
    if let Err(error) = &read {
        assert!(error.field.is_some(), "{error}");
    }
    read.is_ok()
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
