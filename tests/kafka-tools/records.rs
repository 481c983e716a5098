//! Records that tests produce, all different and the same in every run, and the lines of a dump tool that they must
//! become.

use bytes::Bytes;
use highwater::protocol::batch::{BatchBuilder, Compression};

/// Every codec, with its name in a dump and in `compression.type`.
pub const CODECS: [(Compression, &str); 5] = [
    (Compression::None, "none"),
    (Compression::Gzip, "gzip"),
    (Compression::Snappy, "snappy"),
    (Compression::Lz4, "lz4"),
    (Compression::Zstd, "zstd"),
];

/// A producer's id, epoch and the sequence of a batch's first record.
pub type Sequence = (i64, i16, i32);

/// One record. Its text has no spaces and needs no escapes, so that tools print it alike.
#[derive(Debug, Clone)]
pub struct Sent {
    pub timestamp: i64,
    pub key: Option<String>,
    pub value: Option<String>,
    pub headers: Vec<(&'static str, Option<String>)>,
}

/// Makes records: with and without key, value and headers, and timestamps that go back at times.
pub struct Source {
    state: u64,
    made: u64,
    value_bytes_max: usize,
    all_keyed: bool,
}

impl Source {
    pub fn new(seed: u64, value_bytes_max: usize) -> Source {
        Source {
            state: seed.wrapping_mul(2).wrapping_add(1),
            made: 0,
            value_bytes_max,
            all_keyed: false,
        }
    }

    /// Gives every record a key, as a compacted topic wants it.
    pub fn all_keyed(mut self) -> Source {
        self.all_keyed = true;
        self
    }

    pub fn records(&mut self, count: usize) -> Vec<Sent> {
        (0..count).map(|_| self.record()).collect()
    }

    fn record(&mut self) -> Sent {
        self.made += 1;
        let n = self.made;
        let back = self.random(40);
        let headers = match n % 4 {
            0 => vec![("trace", Some(self.text(16))), ("empty", None)],
            1 => vec![("trace", Some(String::new()))],
            _ => vec![],
        };
        let value_bytes = 1 + self.random(self.value_bytes_max as u64) as usize;
        Sent {
            timestamp: FIRST_TIMESTAMP + (n * 10 - back.min(n * 10)) as i64,
            key: (self.all_keyed || !n.is_multiple_of(3)).then(|| format!("key-{}", n % 17)),
            value: (!n.is_multiple_of(7)).then(|| self.text(value_bytes)),
            headers,
        }
    }

    /// Hexadecimal digits: text that compresses to about half.
    fn text(&mut self, len: usize) -> String {
        let mut text = String::with_capacity(len + 16);
        while text.len() < len {
            text += &format!("{:016x}", self.next());
        }
        text.truncate(len);
        text
    }

    fn random(&mut self, below: u64) -> u64 {
        self.next() % below
    }

    /// splitmix64
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The batch of some records.
pub fn batch(records: &[Sent], codec: Compression, producer: Option<Sequence>) -> Bytes {
    let mut builder = BatchBuilder::new().compression(codec);
    if let Some((id, epoch, sequence)) = producer {
        builder = builder.producer(id, epoch, sequence);
    }
    for record in records {
        let headers: Vec<(&str, Option<&[u8]>)> = record
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_ref().map(String::as_bytes)))
            .collect();
        builder.push_with_headers(
            record.timestamp,
            record.key.as_ref().map(String::as_bytes),
            record.value.as_ref().map(String::as_bytes),
            &headers,
        );
    }
    builder.build()
}

/// The lines of the records of a batch that begins at an offset, as both dump tools print them.
pub fn record_lines(records: &[Sent], base_offset: i64, producer: Option<Sequence>) -> Vec<String> {
    let size = |text: &Option<String>| text.as_ref().map_or(-1, |text| text.len() as i64);
    let line = |(n, record): (usize, &Sent)| {
        let sequence = producer.map_or(-1, |(_, _, first)| i64::from(first) + n as i64);
        let headers: Vec<&str> = record.headers.iter().map(|(name, _)| *name).collect();
        let mut line = format!(
            "| offset: {} CreateTime: {} keySize: {} valueSize: {} sequence: {sequence} headerKeys: [{}]",
            base_offset + n as i64,
            record.timestamp,
            size(&record.key),
            size(&record.value),
            headers.join(",")
        );
        if let Some(key) = &record.key {
            line += &format!(" key: {key}");
        }
        if let Some(value) = &record.value {
            line += &format!(" payload: {value}");
        }
        line
    };
    records.iter().enumerate().map(line).collect()
}

const FIRST_TIMESTAMP: i64 = 1_700_000_000_000;
