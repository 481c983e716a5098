use super::*;
use crate::floor::tests::temp_dir;
use crate::wire;
use bytes::Bytes;
use highwater::protocol::batch::{BatchBuilder, Batches};
use highwater::protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, FetchPartition, FetchRequest, FetchResponse,
    FetchTopic, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
    PartitionData, ProduceResponse,
};
use highwater::protocol::{request_frame, Str};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;

const FLUSH: bool = true;

/// A server on a thread of its own; stopped when it is dropped.
struct Running {
    addr: String,
    stop: Option<std::os::unix::net::UnixStream>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Running {
    fn start(dir: &Path) -> Running {
        Running::start_with(dir, |_| ())
    }

    fn start_with(dir: &Path, change: impl FnOnce(&mut ServerArgs)) -> Running {
        let mut args = ServerArgs {
            dir: dir.to_owned(),
            listen: "127.0.0.1:0".parse().unwrap(),
            cpu: None,
            window_bytes: 64 << 20,
            flush_bytes: 64 << 20,
            keep_bytes: 1 << 30,
            flush_by: FlushBy::Ring,
            depth: 2,
        };
        change(&mut args);
        let (stop, told) = std::os::unix::net::UnixStream::pair().unwrap();
        let (send, addr) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            serve(&args, told, |addr| send.send(addr).expect("the test waits"))
        });
        let addr = addr.recv().expect("it starts");
        Running {
            addr: addr.to_string(),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    fn connect(&self) -> TcpStream {
        wire::connect(&self.addr).unwrap()
    }

    fn create(&self, topic: &str, partitions: i32, flush: bool) {
        let config = (FLUSH_SETTING.to_owned(), flush.to_string());
        wire::create_topic(&self.addr, topic, partitions, &[config]).unwrap();
    }

    fn stop(mut self) {
        self.stop = None;
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

fn batch(values: &[Vec<u8>]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(wire::now_ms(), None, Some(value));
    }
    builder.build()
}

fn value(n: u32, bytes: usize) -> Vec<u8> {
    let mut value = n.to_be_bytes().to_vec();
    value.resize(bytes.max(4), n as u8);
    value
}

/// The base offset.
fn produced(socket: &mut TcpStream) -> i64 {
    let answer = wire::read_frame(socket).unwrap();
    let answer: ProduceResponse = wire::decode(answer, wire::PRODUCE_VERSION).unwrap();
    let partition = &answer.responses[0].partition_responses[0];
    assert_eq!(partition.error_code, 0);
    partition.base_offset
}

fn produce(socket: &mut TcpStream, topic: &str, partition: i32, values: &[Vec<u8>]) -> i64 {
    let frame = wire::produce_frame(topic, partition, -1, batch(values)).unwrap();
    socket.write_all(&frame).unwrap();
    produced(socket)
}

fn fetch_request(topic: &str, partitions: &[(i32, i64)], wait_ms: i32, min: i32) -> Vec<u8> {
    let partition = |&(partition, fetch_offset): &(i32, i64)| FetchPartition {
        partition,
        fetch_offset,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let request = FetchRequest {
        max_wait_ms: wait_ms,
        min_bytes: min,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: Str::from(topic.to_owned()),
            partitions: partitions.iter().map(partition).collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    wire::frame(wire::FETCH_VERSION, &request).unwrap()
}

fn fetched(socket: &mut TcpStream) -> Vec<PartitionData> {
    let answer = wire::read_frame(socket).unwrap();
    let mut answer: FetchResponse = wire::decode(answer, wire::FETCH_VERSION).unwrap();
    assert_eq!(answer.error_code, 0);
    answer.responses.remove(0).partitions
}

/// Offsets and values of what a partition answered, with every checksum seen to.
fn records(partition: &PartitionData) -> Vec<(i64, Vec<u8>)> {
    let mut records = Vec::new();
    let bytes = partition.records.clone().unwrap_or_default().to_bytes();
    for batch in Batches::new(bytes) {
        let batch = batch.unwrap();
        batch.validate_crc().unwrap();
        let base = batch.header().base_offset;
        for record in batch.records().unwrap() {
            let record = record.unwrap();
            let value = record.value.unwrap_or_default();
            records.push((base + i64::from(record.offset_delta), value.to_vec()));
        }
    }
    records
}

/// Reads from `offset` on until there are `count` records.
fn read_all(
    socket: &mut TcpStream,
    topic: &str,
    mut offset: i64,
    count: usize,
) -> Vec<(i64, Vec<u8>)> {
    let mut all = Vec::new();
    while all.len() < count {
        let request = fetch_request(topic, &[(0, offset)], 5_000, 1);
        socket.write_all(&request).unwrap();
        let partition = fetched(socket).remove(0);
        assert_eq!(partition.error_code, 0);
        let found = records(&partition);
        assert!(!found.is_empty(), "{} of {count} after 5 s", all.len());
        offset = found.last().unwrap().0 + 1;
        all.extend(found);
    }
    all
}

#[test]
fn consumers_get_exactly_what_was_produced() {
    for (flush, flush_by) in [
        (FLUSH, FlushBy::Ring),
        (FLUSH, FlushBy::Syscalls),
        (!FLUSH, FlushBy::Ring),
    ] {
        let dir = temp_dir();
        let server = Running::start_with(dir.path(), |args| args.flush_by = flush_by);
        server.create("t", 1, flush);
        // Sizes below and above what is read into memory of its own.
        let sizes = [10, 1000, 40_000, 300_000, 5, 100_000];
        let values: Vec<Vec<u8>> = (0..60).map(|n| value(n, sizes[n as usize % 6])).collect();
        let consumers: Vec<_> = (0..2)
            .map(|_| {
                let mut socket = server.connect();
                std::thread::spawn(move || read_all(&mut socket, "t", 0, 60))
            })
            .collect();
        let mut socket = server.connect();
        // Five requests in flight, of two records each.
        for five in values.chunks(10) {
            for two in five.chunks(2) {
                let frame = wire::produce_frame("t", 0, -1, batch(two)).unwrap();
                socket.write_all(&frame).unwrap();
            }
            let first = produced(&mut socket);
            for n in 1..5 {
                assert_eq!(produced(&mut socket), first + 2 * n);
            }
        }
        let want: Vec<(i64, Vec<u8>)> = (0..).zip(values).collect();
        for consumer in consumers {
            assert!(consumer.join().unwrap() == want);
        }
    }
}

#[test]
fn a_fetch_waits_for_records_and_no_longer_than_it_says() {
    let dir = temp_dir();
    let server = Running::start(dir.path());
    server.create("t", 3, !FLUSH);
    let mut consumer = server.connect();
    let mut producer = server.connect();
    consumer
        .write_all(&fetch_request("t", &[(0, 0), (1, 0), (2, 0)], 60_000, 1))
        .unwrap();
    // Two fetches of one connection: answered in order.
    consumer
        .write_all(&fetch_request("t", &[(2, 0)], 60_000, 1))
        .unwrap();
    produce(&mut producer, "t", 2, &[value(7, 10)]);
    let answer = fetched(&mut consumer);
    assert_eq!(records(&answer[2]), [(0, value(7, 10))]);
    assert!(records(&answer[0]).is_empty() && answer[0].error_code == 0);
    assert_eq!(answer[2].high_watermark, 1);
    assert_eq!(records(&fetched(&mut consumer)[0]).len(), 1);

    // Enough bytes come only with the third batch.
    consumer
        .write_all(&fetch_request("t", &[(1, 0)], 60_000, 2_500))
        .unwrap();
    for n in 0..3 {
        produce(&mut producer, "t", 1, &[value(n, 1000)]);
    }
    assert_eq!(records(&fetched(&mut consumer)[0]).len(), 3);

    // Nothing comes.
    consumer
        .write_all(&fetch_request("t", &[(0, 0)], 30, 1))
        .unwrap();
    assert!(records(&fetched(&mut consumer)[0]).is_empty());
    // Beyond the end, and of no topic.
    for (topic, partition, error) in [("t", 0, 1), ("t", 9, 3), ("u", 0, 3)] {
        consumer
            .write_all(&fetch_request(topic, &[(partition, 5)], 60_000, 1))
            .unwrap();
        assert_eq!(fetched(&mut consumer)[0].error_code, error);
    }
    // A topic that goes ends what waits for it.
    consumer
        .write_all(&fetch_request("t", &[(0, 0)], 60_000, 1))
        .unwrap();
    wire::delete_topic(&server.addr, "t").unwrap();
    assert_eq!(fetched(&mut consumer)[0].error_code, 3);
}

#[test]
fn many_connections_and_partitions_are_served_at_once() {
    let dir = temp_dir();
    let server = Running::start(dir.path());
    server.create("t", 1000, FLUSH);
    let mut sockets: Vec<TcpStream> = (0..150).map(|_| server.connect()).collect();
    for round in 0..2 {
        for (n, socket) in sockets.iter_mut().enumerate() {
            let frame =
                wire::produce_frame("t", n as i32 * 3, -1, batch(&[value(n as u32, 100)])).unwrap();
            socket.write_all(&frame).unwrap();
        }
        for socket in &mut sockets {
            assert_eq!(produced(socket), round);
        }
    }
    let all: Vec<(i32, i64)> = (0..1000).map(|partition| (partition, 1)).collect();
    let consumer = &mut sockets[0];
    consumer
        .write_all(&fetch_request("t", &all, 60_000, 0))
        .unwrap();
    let found = fetched(consumer);
    assert_eq!(found.len(), 1000);
    for (n, partition) in found.iter().enumerate() {
        // The others are shorter than the offset that is asked for.
        let want = if n % 3 == 0 && n < 450 {
            (0, 1)
        } else {
            (1, 0)
        };
        assert_eq!((partition.error_code, records(partition).len()), want);
    }
}

#[test]
fn bad_frames_close_their_connection_and_no_other() {
    let dir = temp_dir();
    let server = Running::start(dir.path());
    server.create("t", 1, FLUSH);
    let mut good = server.connect();
    produce(&mut good, "t", 0, &[value(1, 10)]);
    let framed = |frame: &[u8]| [&(frame.len() as u32).to_be_bytes(), frame].concat();
    let not_a_batch = wire::produce_frame("t", 0, -1, Bytes::from(vec![1; 200])).unwrap();
    let mut longer_than_it_is = batch(&[value(1, 100)]).to_vec();
    longer_than_it_is[10] = 0xff;
    let bad: Vec<Vec<u8>> = vec![
        (FRAME_BYTES_MAX as u32 + 1).to_be_bytes().to_vec(),
        u32::MAX.to_be_bytes().to_vec(),
        framed(b""),
        framed(b"abc"),
        framed(&[0xff; 100]),
        // Produce, and nothing after the correlation id.
        framed(&[0, 0, 0, 9, 0, 0, 0, 1]),
        // Fetch 12, cut off.
        framed(&[0, 1, 0, 12, 0, 0, 0, 1, 0xff]),
        not_a_batch,
        wire::produce_frame("t", 0, -1, longer_than_it_is.into()).unwrap(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    ];
    for bytes in bad {
        let mut socket = server.connect();
        socket.write_all(&bytes).unwrap();
        let mut rest = Vec::new();
        // A reset ends it too.
        let read = socket.read_to_end(&mut rest);
        assert!(rest.is_empty() && !matches!(read, Ok(1..)), "{bytes:?}");
    }
    // One that ends in the middle of a frame.
    let mut socket = server.connect();
    socket.write_all(&[0, 0, 1, 0, 1]).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(socket.read(&mut [0; 10]).unwrap(), 0);
    assert_eq!(produce(&mut good, "t", 0, &[value(2, 10)]), 1);
    let want = [(0, value(1, 10)), (1, value(2, 10))];
    assert_eq!(read_all(&mut good, "t", 0, 2), want);
}

#[test]
fn offsets_and_topics_are_told() {
    let dir = temp_dir();
    let server = Running::start(dir.path());
    server.create("t", 1, !FLUSH);
    let mut socket = server.connect();
    produce(&mut socket, "t", 0, &[value(1, 10), value(2, 10)]);
    for (timestamp, offset) in [(-1, 2), (-2, 0)] {
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic {
                name: Str::from("t"),
                partitions: vec![ListOffsetsPartition {
                    timestamp,
                    ..Default::default()
                }],
            }],
            ..Default::default()
        };
        let answer: ListOffsetsResponse = wire::call(&mut socket, 6, &request).unwrap();
        let partition = &answer.topics[0].partitions[0];
        assert_eq!((partition.error_code, partition.offset), (0, offset));
    }
    let exists = wire::create_topic(&server.addr, "t", 1, &[]).unwrap_err();
    assert!(exists.to_string().contains("error 36"), "{exists}");
    let config = [("flush.messages".to_owned(), "1".to_owned())];
    let config = wire::create_topic(&server.addr, "u", 1, &config).unwrap_err();
    assert!(config.to_string().contains(FLUSH_SETTING), "{config}");
    assert!(wire::delete_topic(&server.addr, "u").is_err());

    let ask = ApiVersionsRequest::default();
    let answer: ApiVersionsResponse = wire::call(&mut socket, 3, &ask).unwrap();
    assert_eq!(answer.error_code, 0);
    assert!(answer
        .api_keys
        .iter()
        .any(|api| api.api_key == 0 && api.max_version >= 9));
    // A version that is not known is answered as version 0.
    let mut frame = request_frame(9, None, 3, &ask).unwrap().concat();
    frame[7] = 99;
    socket.write_all(&frame).unwrap();
    let answer: ApiVersionsResponse =
        wire::decode(wire::read_frame(&mut socket).unwrap(), 0).unwrap();
    assert_eq!(answer.error_code, 35);
}

#[test]
fn what_is_not_in_memory_is_read_from_the_disk() {
    for flush in [FLUSH, !FLUSH] {
        let dir = temp_dir();
        let server = Running::start_with(dir.path(), |args| args.window_bytes = 100_000);
        server.create("t", 1, flush);
        let mut socket = server.connect();
        let values: Vec<Vec<u8>> = (0..40).map(|n| value(n, 20_000 + n as usize)).collect();
        for value in &values {
            produce(&mut socket, "t", 0, std::slice::from_ref(value));
        }
        let want: Vec<(i64, Vec<u8>)> = (0..).zip(values).collect();
        assert!(read_all(&mut socket, "t", 0, 40) == want);
    }
}

#[test]
fn a_restart_keeps_records_that_were_not_flushed_and_a_crash_only_the_topics() {
    let dir = temp_dir();
    let server = Running::start(dir.path());
    server.create("kept", 1, !FLUSH);
    server.create("flushed", 1, FLUSH);
    let mut socket = server.connect();
    let values: Vec<Vec<u8>> = (0..200).map(|n| value(n, 9_000 + n as usize)).collect();
    for two in values.chunks(2) {
        produce(&mut socket, "kept", 0, two);
    }
    produce(&mut socket, "flushed", 0, &[value(1, 10)]);
    server.stop();

    let server = Running::start(dir.path());
    let mut socket = server.connect();
    let more = value(1000, 30_000);
    assert_eq!(
        produce(&mut socket, "kept", 0, std::slice::from_ref(&more)),
        200
    );
    let mut want: Vec<(i64, Vec<u8>)> = (0..).zip(values).collect();
    want.push((200, more));
    for _ in 0..2 {
        assert!(read_all(&mut socket, "kept", 0, 201) == want);
    }
    assert_eq!(produce(&mut socket, "flushed", 0, &[value(2, 10)]), 1);
    assert_eq!(read_all(&mut socket, "flushed", 1, 1), [(1, value(2, 10))]);
    drop(socket);
    server.stop();

    // As a crash leaves it.
    std::fs::remove_file(dir.path().join("index.json")).unwrap();
    let server = Running::start(dir.path());
    let mut socket = server.connect();
    assert_eq!(produce(&mut socket, "kept", 0, &[value(3, 10)]), 0);
    assert_eq!(read_all(&mut socket, "kept", 0, 1), [(0, value(3, 10))]);
}
