//! Where the records lie in a Produce request (versions 3 to 12), found in place: no copy, no allocation but the list.
//!
//! What it is not: it looks at no batch and decides nothing.

use anyhow::{bail, ensure, Context, Result};
use std::ops::Range;

pub const VERSION_MIN: i16 = 3;
pub const VERSION_MAX: i16 = 12;
const FLEXIBLE_FROM: i16 = 9;

#[derive(Debug, Default, PartialEq)]
pub struct Produce {
    pub version: i16,
    pub correlation: i32,
    pub acks: i16,
    pub parts: Vec<Part>,
}

/// The records for a partition; ranges are within the frame.
#[derive(Debug, PartialEq)]
pub struct Part {
    pub topic: Range<usize>,
    pub partition: i32,
    pub records: Range<usize>,
}

impl Produce {
    /// Reads a frame without its length into `self`, whose list is used again.
    pub fn read(&mut self, frame: &[u8]) -> Result<()> {
        self.parts.clear();
        let mut at = Place { frame, at: 0 };
        let _api_key = at.i16()?;
        self.version = at.i16()?;
        ensure!(
            (VERSION_MIN..=VERSION_MAX).contains(&self.version),
            "Produce version {} is not served",
            self.version
        );
        let flexible = self.version >= FLEXIBLE_FROM;
        self.correlation = at.i32()?;
        // The client id is never compact.
        at.text(false)?;
        at.tags(flexible)?;
        let _transactional_id = at.text(flexible)?;
        self.acks = at.i16()?;
        let _timeout_ms = at.i32()?;
        for _ in 0..at.count(flexible)? {
            let topic = at.text(flexible)?;
            for _ in 0..at.count(flexible)? {
                let partition = at.i32()?;
                let length = at.count(flexible)?;
                self.parts.push(Part {
                    topic: topic.clone(),
                    partition,
                    records: at.skip(length)?,
                });
                at.tags(flexible)?;
            }
            at.tags(flexible)?;
        }
        at.tags(flexible)
    }
}

struct Place<'a> {
    frame: &'a [u8],
    at: usize,
}

impl Place<'_> {
    fn skip(&mut self, count: usize) -> Result<Range<usize>> {
        let end = self
            .at
            .checked_add(count)
            .filter(|end| *end <= self.frame.len());
        let range = self.at..end.context("a Produce request is shorter than it says")?;
        self.at = range.end;
        Ok(range)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let range = self.skip(N)?;
        Ok(self.frame[range].try_into()?)
    }

    fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn uvarint(&mut self) -> Result<usize> {
        let mut value = 0;
        for shift in (0..35).step_by(7) {
            let [byte] = self.array()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        bail!("a varint of more than five bytes")
    }

    /// Of an array or bytes; null counts as empty.
    fn count(&mut self, flexible: bool) -> Result<usize> {
        let count = if flexible {
            self.uvarint()?.saturating_sub(1)
        } else {
            usize::try_from(self.i32()?).unwrap_or(0)
        };
        ensure!(
            count <= self.frame.len() - self.at,
            "a Produce request is shorter than it says"
        );
        Ok(count)
    }

    fn text(&mut self, flexible: bool) -> Result<Range<usize>> {
        let length = if flexible {
            self.count(true)?
        } else {
            usize::try_from(self.i16()?).unwrap_or(0)
        };
        self.skip(length)
    }

    fn tags(&mut self, flexible: bool) -> Result<()> {
        if flexible {
            for _ in 0..self.uvarint()? {
                self.uvarint()?;
                let length = self.uvarint()?;
                self.skip(length)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use highwater::protocol::messages::{PartitionProduceData, ProduceRequest, TopicProduceData};
    use highwater::protocol::{request_frame, Records, Str};

    fn frame(version: i16) -> Vec<u8> {
        let part = |index, records: &'static [u8]| PartitionProduceData {
            index,
            records: Some(Records::from(Bytes::from_static(records))),
        };
        let topic = |name: &'static str, partition_data| TopicProduceData {
            name: Str::from(name),
            partition_data,
            ..Default::default()
        };
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 1000,
            topic_data: vec![
                topic("one", vec![part(0, b"first"), part(7, &[9; 300])]),
                topic("another", vec![part(3, b"last")]),
            ],
            ..Default::default()
        };
        let chunks = request_frame(42, Some(&Str::from("me")), version, &request).unwrap();
        chunks.concat()[4..].to_vec()
    }

    #[test]
    fn records_are_found_in_every_version() {
        for version in VERSION_MIN..=VERSION_MAX {
            let frame = frame(version);
            let mut read = Produce::default();
            read.read(&frame).unwrap();
            assert_eq!(
                (read.version, read.correlation, read.acks),
                (version, 42, -1)
            );
            let found: Vec<_> = read
                .parts
                .iter()
                .map(|part| {
                    let topic = &frame[part.topic.clone()];
                    (topic, part.partition, &frame[part.records.clone()])
                })
                .collect();
            let want: [(&[u8], i32, &[u8]); 3] = [
                (b"one", 0, b"first"),
                (b"one", 7, &[9; 300]),
                (b"another", 3, b"last"),
            ];
            assert_eq!(found, want, "version {version}");
        }
    }

    #[test]
    fn a_frame_that_is_cut_off_is_an_error_and_nothing_panics() {
        for version in [VERSION_MIN, VERSION_MAX] {
            let whole = frame(version);
            for length in 0..whole.len() {
                assert!(Produce::default().read(&whole[..length]).is_err());
            }
            for at in 4..whole.len() {
                let mut bent = whole.clone();
                bent[at] = 0xff;
                // Whatever comes of it, its ranges are within the frame.
                let mut read = Produce::default();
                if read.read(&bent).is_ok() {
                    for part in &read.parts {
                        assert!(part.records.end <= bent.len() && part.topic.end <= bent.len());
                    }
                }
            }
        }
        assert!(Produce::default().read(&[0, 0, 0, 99, 0, 0, 0, 1]).is_err());
    }
}
