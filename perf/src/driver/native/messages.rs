//! Produce and Fetch as the event loop writes and reads them: into reused buffers, and in place.
//!
//! What it is not: it does not judge an answer; errors are the reader's.

use super::cursor::Cursor;
use crate::wire::{FETCH_VERSION, PRODUCE_VERSION};
use crate::workload::{Acks, ConsumerPlan};
use anyhow::{ensure, Result};
use highwater::protocol::ApiKey;

/// What follows the records of a produce request's only batch: no tagged fields, three times.
pub const PRODUCE_TAIL: [u8; 3] = [0; 3];

/// A produce request of one batch up to its records; [`PRODUCE_TAIL`] follows them. Replaces what is in `out`.
pub fn produce_head(
    out: &mut Vec<u8>,
    correlation: i32,
    acks: Acks,
    (topic, partition): (&str, i32),
    batch_bytes: usize,
) {
    produce_front(out, correlation, acks, 1);
    put_text(out, topic);
    put_count(out, 1);
    out.extend(partition.to_be_bytes());
    put_count(out, batch_bytes);
    finish(out, batch_bytes + PRODUCE_TAIL.len());
}

/// A whole produce request of several batches, each with its topic and partition. Replaces what is in `out`.
///
/// Batches of one topic follow each other.
pub fn produce_request(
    out: &mut Vec<u8>,
    correlation: i32,
    acks: Acks,
    batches: &[(&str, i32, &[u8])],
) {
    let topics = || batches.chunk_by(|one, next| one.0 == next.0);
    produce_front(out, correlation, acks, topics().count());
    for partitions in topics() {
        put_text(out, partitions[0].0);
        put_count(out, partitions.len());
        for (_, partition, batch) in partitions {
            out.extend(partition.to_be_bytes());
            put_count(out, batch.len());
            out.extend_from_slice(batch);
            out.push(0);
        }
        out.push(0);
    }
    out.push(0);
    finish(out, 0);
}

fn produce_front(out: &mut Vec<u8>, correlation: i32, acks: Acks, topics: usize) {
    begin(out, ApiKey::Produce, PRODUCE_VERSION, correlation);
    // No transaction.
    put_null(out);
    let acks: i16 = match acks {
        Acks::Leader => 1,
        Acks::All => -1,
    };
    out.extend(acks.to_be_bytes());
    out.extend(PRODUCE_TIMEOUT_MS.to_be_bytes());
    put_count(out, topics);
}

/// A partition in the answer to a produce request.
#[derive(Debug, PartialEq)]
pub struct Produced<'a> {
    pub topic: &'a [u8],
    pub partition: i32,
    pub code: i16,
    pub base_offset: i64,
    /// What the broker says of the error.
    pub message: Option<&'a [u8]>,
}

/// Reads the answer to a produce request (without its length); returns the correlation id.
pub fn read_produced(
    answer: &[u8],
    mut each: impl FnMut(Produced<'_>) -> Result<()>,
) -> Result<i32> {
    let mut cursor = Cursor::new(answer);
    let correlation = cursor.i32()?;
    cursor.skip_tags()?;
    for _ in 0..cursor.compact()?.unwrap_or(0) {
        let topic = cursor.compact_bytes()?.unwrap_or_default();
        for _ in 0..cursor.compact()?.unwrap_or(0) {
            let partition = cursor.i32()?;
            let code = cursor.i16()?;
            let base_offset = cursor.i64()?;
            // Append time and log start.
            cursor.take(16)?;
            for _ in 0..cursor.compact()?.unwrap_or(0) {
                cursor.i32()?;
                cursor.compact_bytes()?;
                cursor.skip_tags()?;
            }
            let message = cursor.compact_bytes()?;
            cursor.skip_tags()?;
            each(Produced {
                topic,
                partition,
                code,
                base_offset,
                message,
            })?;
        }
        cursor.skip_tags()?;
    }
    // The throttle time.
    cursor.i32()?;
    cursor.skip_tags()?;
    Ok(correlation)
}

/// A fetch request without a session. Replaces what is in `out`.
///
/// `topics`: names with partitions and the offsets from which they are read; beginning with another one each time
/// (`turn`), so that a limit of the answer's size starves none.
pub fn fetch_request(
    out: &mut Vec<u8>,
    correlation: i32,
    plan: &ConsumerPlan,
    topics: &[(&str, Vec<(i32, i64)>)],
    turn: usize,
) {
    let limit = |bytes: u32| i32::try_from(bytes).unwrap_or(i32::MAX);
    let fetch_bytes = limit(plan.fetch_bytes);
    begin(out, ApiKey::Fetch, FETCH_VERSION, correlation);
    // A consumer.
    out.extend((-1i32).to_be_bytes());
    out.extend(limit(plan.wait_ms).to_be_bytes());
    out.extend(limit(plan.min_bytes).to_be_bytes());
    out.extend(FETCH_BYTES_MAX.max(fetch_bytes).to_be_bytes());
    // Read uncommitted; session 0 of epoch -1, which is none.
    out.push(0);
    out.extend(0i32.to_be_bytes());
    out.extend((-1i32).to_be_bytes());
    put_count(out, topics.len());
    for (topic, partitions) in rotated(topics, turn) {
        put_text(out, topic);
        put_count(out, partitions.len());
        for (partition, offset) in rotated(partitions, turn) {
            out.extend(partition.to_be_bytes());
            out.extend((-1i32).to_be_bytes());
            out.extend(offset.to_be_bytes());
            out.extend((-1i32).to_be_bytes());
            out.extend((-1i64).to_be_bytes());
            out.extend(fetch_bytes.to_be_bytes());
            out.push(0);
        }
        out.push(0);
    }
    // No forgotten topics, no rack.
    put_count(out, 0);
    put_text(out, "");
    out.push(0);
    finish(out, 0);
}

fn rotated<T>(all: &[T], turn: usize) -> impl Iterator<Item = &T> {
    let (before, from) = all.split_at(turn.checked_rem(all.len()).unwrap_or(0));
    from.iter().chain(before)
}

/// A partition in the answer to a fetch request.
#[derive(Debug, PartialEq)]
pub struct Fetched<'a> {
    pub topic: &'a [u8],
    pub partition: i32,
    pub code: i16,
    pub high_watermark: i64,
    pub records: &'a [u8],
}

/// Reads the answer to a fetch request (without its length); returns the correlation id and the error of the whole.
pub fn read_fetched(
    answer: &[u8],
    mut each: impl FnMut(Fetched<'_>) -> Result<()>,
) -> Result<(i32, i16)> {
    let mut cursor = Cursor::new(answer);
    let correlation = cursor.i32()?;
    cursor.skip_tags()?;
    // The throttle time.
    cursor.i32()?;
    let code = cursor.i16()?;
    let session = cursor.i32()?;
    ensure!(
        session == 0,
        "the broker made a fetch session that was not asked for"
    );
    for _ in 0..cursor.compact()?.unwrap_or(0) {
        let topic = cursor.compact_bytes()?.unwrap_or_default();
        for _ in 0..cursor.compact()?.unwrap_or(0) {
            let partition = cursor.i32()?;
            let code = cursor.i16()?;
            let high_watermark = cursor.i64()?;
            // Last stable offset and log start.
            cursor.take(16)?;
            for _ in 0..cursor.compact()?.unwrap_or(0) {
                cursor.take(16)?;
                cursor.skip_tags()?;
            }
            // The preferred replica.
            cursor.i32()?;
            let records = cursor.compact_bytes()?.unwrap_or_default();
            cursor.skip_tags()?;
            each(Fetched {
                topic,
                partition,
                code,
                high_watermark,
                records,
            })?;
        }
        cursor.skip_tags()?;
    }
    cursor.skip_tags()?;
    Ok((correlation, code))
}

fn begin(out: &mut Vec<u8>, api: ApiKey, version: i16, correlation: i32) {
    out.clear();
    // The length, see `finish`.
    out.extend([0; LENGTH_BYTES]);
    out.extend(api.code().to_be_bytes());
    out.extend(version.to_be_bytes());
    out.extend(correlation.to_be_bytes());
    out.extend((CLIENT_ID.len() as i16).to_be_bytes());
    out.extend_from_slice(CLIENT_ID.as_bytes());
    out.push(0);
}

/// Writes the frame's length: `more` bytes follow that are not in `out`.
fn finish(out: &mut [u8], more: usize) {
    let length = (out.len() - LENGTH_BYTES + more) as i32;
    out[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
}

/// The count of a compact array, or the length of compact bytes.
fn put_count(out: &mut Vec<u8>, count: usize) {
    let mut raw = count as u64 + 1;
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

fn put_null(out: &mut Vec<u8>) {
    out.push(0);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_count(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// Bytes of the length before a frame.
pub const LENGTH_BYTES: usize = 4;
const CLIENT_ID: &str = "perf";
const PRODUCE_TIMEOUT_MS: i32 = 30_000;
/// Kafka's default of `fetch.max.bytes`.
const FETCH_BYTES_MAX: i32 = 52_428_800;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use highwater::protocol::messages::{
        BatchIndexAndErrorMessage, FetchRequest, FetchResponse, FetchableTopicResponse,
        PartitionData, PartitionProduceResponse, ProduceRequest, ProduceResponse,
        TopicProduceResponse,
    };
    use highwater::protocol::{response_frame, Message, Reader, Records, RequestHeader, Str};

    /// Reads a request as a broker does.
    fn decoded<M: Message>(frame: &[u8], version: i16) -> (i32, M) {
        let length = i32::from_be_bytes(*frame.first_chunk().unwrap());
        assert_eq!(length as usize, frame.len() - LENGTH_BYTES);
        let mut reader = Reader::new(Bytes::copy_from_slice(&frame[LENGTH_BYTES..]));
        let header = RequestHeader::decode(&mut reader).unwrap();
        assert_eq!(
            (header.api_key, header.api_version),
            (M::KEY.code(), version)
        );
        let message = M::decode_versioned(&mut reader, version).unwrap();
        reader.finish().unwrap();
        (header.correlation_id, message)
    }

    #[test]
    fn a_broker_reads_a_request_of_one_batch() {
        let mut frame = vec![9; 99];
        let batch = [7; 300];
        produce_head(&mut frame, 5, Acks::Leader, ("a-topic", 3), batch.len());
        frame.extend(batch);
        frame.extend(PRODUCE_TAIL);
        let (correlation, request) = decoded::<ProduceRequest>(&frame, PRODUCE_VERSION);
        assert_eq!((correlation, request.acks), (5, 1));
        let partition = &request.topic_data[0].partition_data[0];
        assert_eq!(request.topic_data[0].name.as_str(), "a-topic");
        assert_eq!(partition.index, 3);
        assert_eq!(
            partition.records.as_ref().unwrap().to_bytes().as_ref(),
            batch
        );
    }

    #[test]
    fn a_broker_reads_a_request_of_several_batches() {
        let mut frame = Vec::new();
        let batches: [(&str, i32, &[u8]); 3] =
            [("a", 0, &[1; 10]), ("a", 4, &[2; 200]), ("b", 1, &[3; 5])];
        produce_request(&mut frame, 6, Acks::All, &batches);
        let (correlation, request) = decoded::<ProduceRequest>(&frame, PRODUCE_VERSION);
        assert_eq!((correlation, request.acks), (6, -1));
        let mut read = Vec::new();
        for topic in &request.topic_data {
            for partition in &topic.partition_data {
                let records = partition.records.as_ref().unwrap().to_bytes();
                read.push((topic.name.to_string(), partition.index, records));
            }
        }
        assert_eq!(request.topic_data.len(), 2);
        for (read, sent) in read.iter().zip(batches) {
            assert_eq!((read.0.as_str(), read.1, read.2.as_ref()), sent);
        }
    }

    #[test]
    fn a_broker_reads_a_fetch_and_the_partitions_take_turns() {
        let plan = ConsumerPlan {
            fetch_bytes: 1234,
            wait_ms: 77,
            min_bytes: 5,
            ..Default::default()
        };
        let topics = [("a", vec![(0, 10), (1, 11), (2, 12)]), ("b", vec![(5, 50)])];
        let mut frame = Vec::new();
        fetch_request(&mut frame, 8, &plan, &topics, 1);
        let (correlation, request) = decoded::<FetchRequest>(&frame, FETCH_VERSION);
        assert_eq!((correlation, request.replica_id), (8, -1));
        assert_eq!((request.max_wait_ms, request.min_bytes), (77, 5));
        assert_eq!((request.session_id, request.session_epoch), (0, -1));
        let read: Vec<(String, Vec<(i32, i64)>)> = request
            .topics
            .iter()
            .map(|topic| {
                let offsets = topic.partitions.iter();
                let offsets =
                    offsets.map(|partition| (partition.partition, partition.fetch_offset));
                (topic.topic.to_string(), offsets.collect())
            })
            .collect();
        let expected = [
            ("b".to_owned(), vec![(5, 50)]),
            ("a".to_owned(), vec![(1, 11), (2, 12), (0, 10)]),
        ];
        assert_eq!(read, expected);
        assert_eq!(request.topics[0].partitions[0].partition_max_bytes, 1234);
    }

    fn answer<M: Message>(version: i16, message: &M) -> Vec<u8> {
        response_frame(42, version, message).unwrap().concat()[LENGTH_BYTES..].to_vec()
    }

    #[test]
    fn a_produce_answer_is_read_whole() {
        let partition = |index, error_code| PartitionProduceResponse {
            index,
            error_code,
            base_offset: 100 + i64::from(index),
            record_errors: vec![BatchIndexAndErrorMessage {
                batch_index: 1,
                batch_index_error_message: Some(Str::from_static("no")),
            }],
            error_message: (error_code != 0).then(|| Str::from_static("bad")),
            ..Default::default()
        };
        let response = ProduceResponse {
            responses: vec![TopicProduceResponse {
                name: Str::from_static("a"),
                partition_responses: vec![partition(1, 0), partition(2, 6)],
                ..Default::default()
            }],
            ..Default::default()
        };
        let answer = answer(PRODUCE_VERSION, &response);
        let mut read = Vec::new();
        let correlation = read_produced(&answer, |partition| {
            assert_eq!(partition.topic, b"a");
            let message = partition.message.map(<[u8]>::to_vec);
            read.push((
                partition.partition,
                partition.code,
                partition.base_offset,
                message,
            ));
            Ok(())
        });
        assert_eq!(correlation.unwrap(), 42);
        assert_eq!(
            read,
            [(1, 0, 101, None), (2, 6, 102, Some(b"bad".to_vec()))]
        );
        for cut in 0..answer.len() {
            assert!(read_produced(&answer[..cut], |_| Ok(())).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_fetch_answer_is_read_in_place() {
        let partition = |index, records: &'static [u8]| PartitionData {
            partition_index: index,
            high_watermark: 9,
            records: Some(Records::from(Bytes::from_static(records))),
            ..Default::default()
        };
        let response = FetchResponse {
            responses: vec![FetchableTopicResponse {
                topic: Str::from_static("a"),
                partitions: vec![partition(0, b"abc"), partition(1, b"")],
                ..Default::default()
            }],
            ..Default::default()
        };
        let answer = answer(FETCH_VERSION, &response);
        let mut read = Vec::new();
        let whole = read_fetched(&answer, |partition| {
            read.push((
                partition.partition,
                partition.high_watermark,
                partition.records.to_vec(),
            ));
            Ok(())
        });
        assert_eq!(whole.unwrap(), (42, 0));
        assert_eq!(read, [(0, 9, b"abc".to_vec()), (1, 9, Vec::new())]);
    }
}
