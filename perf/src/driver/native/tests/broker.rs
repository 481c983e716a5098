//! A broker of a few lines in this process, which can stall, fail and fall silent on demand.

use bytes::Bytes;
use highwater::protocol::batch::{stamp, BatchView};
use highwater::protocol::messages::{
    ApiVersion, ApiVersionsResponse, FetchRequest, FetchResponse, FetchableTopicResponse,
    ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse, MetadataRequest, MetadataResponse, MetadataResponseBroker,
    MetadataResponsePartition, MetadataResponseTopic, PartitionData, PartitionProduceResponse,
    ProduceRequest, ProduceResponse, TopicProduceResponse,
};
use highwater::protocol::{response_frame, ApiKey, Message, Reader, Records, RequestHeader};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is done with a produce request.
#[derive(Clone, Copy)]
pub enum Reply {
    Good,
    /// A good answer after that time, for which the connection is deaf.
    After(Duration),
    Code(i16),
    Close,
    /// No answer, now or later.
    Never,
}

pub struct Broker {
    pub addr: SocketAddr,
    state: Arc<State>,
}

struct State {
    partitions: u32,
    /// By the number of the produce request, from 0.
    reply: Box<dyn Fn(u64) -> Reply + Send + Sync>,
    produce_max: i16,
    requests: AtomicU64,
    logs: Mutex<HashMap<(String, i32), Log>>,
    is_over: AtomicBool,
}

/// A partition's batches, with the offsets after their last records.
#[derive(Default)]
struct Log {
    batches: Vec<(i64, Bytes)>,
}

impl Log {
    fn end(&self) -> i64 {
        self.batches.last().map_or(0, |(next, _)| *next)
    }
}

impl Broker {
    pub fn start(partitions: u32, reply: impl Fn(u64) -> Reply + Send + Sync + 'static) -> Broker {
        Broker::serving(partitions, 9, reply)
    }

    /// One that says that it serves Produce up to a version.
    pub fn serving(
        partitions: u32,
        produce_max: i16,
        reply: impl Fn(u64) -> Reply + Send + Sync + 'static,
    ) -> Broker {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let state = Arc::new(State {
            partitions,
            reply: Box::new(reply),
            produce_max,
            requests: AtomicU64::new(0),
            logs: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                if shared.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let state = shared.clone();
                // A client that goes away ends the thread of its connection.
                std::thread::spawn(move || state.serve(socket.unwrap()));
            }
        });
        Broker { addr, state }
    }

    /// Produce requests that have come.
    pub fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.addr);
    }
}

impl State {
    fn serve(&self, mut socket: TcpStream) -> Option<()> {
        socket.set_nodelay(true).ok()?;
        loop {
            let mut prefix = [0; 4];
            socket.read_exact(&mut prefix).ok()?;
            let mut frame = vec![0; i32::from_be_bytes(prefix) as usize];
            socket.read_exact(&mut frame).ok()?;
            let mut reader = Reader::new(Bytes::from(frame));
            let header = RequestHeader::decode(&mut reader).unwrap();
            let answer = match ApiKey::from_code(header.api_key)? {
                ApiKey::Metadata => of(&header, &self.metadata(&request(&mut reader, &header))),
                ApiKey::ListOffsets => of(&header, &self.offsets(&request(&mut reader, &header))),
                ApiKey::Fetch => of(&header, &self.fetch(&request(&mut reader, &header))),
                ApiKey::ApiVersions => of(&header, &self.versions()),
                ApiKey::Produce => {
                    let number = self.requests.fetch_add(1, Ordering::Relaxed);
                    let produced = self.produce(&request(&mut reader, &header));
                    match (self.reply)(number) {
                        Reply::Good => of(&header, &produced(0)),
                        Reply::Code(code) => of(&header, &produced(code)),
                        Reply::Close => return None,
                        Reply::Never => continue,
                        Reply::After(time) => {
                            std::thread::sleep(time);
                            of(&header, &produced(0))
                        }
                    }
                }
                _ => return None,
            };
            socket.write_all(&answer).ok()?;
        }
    }

    fn metadata(&self, request: &MetadataRequest) -> MetadataResponse {
        let partition = |index| MetadataResponsePartition {
            partition_index: index,
            leader_id: 7,
            ..Default::default()
        };
        let topics = request.topics.iter().flatten();
        MetadataResponse {
            // Where it cannot be reached: a broker that is alone need not be found.
            brokers: vec![MetadataResponseBroker {
                node_id: 7,
                port: 1,
                ..Default::default()
            }],
            topics: topics
                .map(|topic| MetadataResponseTopic {
                    name: topic.name.clone(),
                    partitions: (0..self.partitions as i32).map(partition).collect(),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }
    }

    fn offsets(&self, request: &ListOffsetsRequest) -> ListOffsetsResponse {
        let mut logs = self.logs.lock().unwrap();
        let topics = request.topics.iter().map(|topic| {
            let mut partition = |index, timestamp| ListOffsetsPartitionResponse {
                partition_index: index,
                offset: match timestamp {
                    -2 => 0,
                    _ => logs
                        .entry((topic.name.to_string(), index))
                        .or_default()
                        .end(),
                },
                ..Default::default()
            };
            let asked = topic.partitions.iter();
            ListOffsetsTopicResponse {
                name: topic.name.clone(),
                partitions: asked
                    .map(|asked| partition(asked.partition_index, asked.timestamp))
                    .collect(),
            }
        });
        ListOffsetsResponse {
            topics: topics.collect(),
            ..Default::default()
        }
    }

    /// Appends, and how the request is answered with a code.
    fn produce(&self, request: &ProduceRequest) -> impl Fn(i16) -> ProduceResponse {
        let mut logs = self.logs.lock().unwrap();
        let mut answered = Vec::new();
        for topic in &request.topic_data {
            for partition in &topic.partition_data {
                let records = partition.records.as_ref().unwrap().to_bytes();
                let count = i64::from(
                    BatchView::parse_produced(records.clone())
                        .unwrap()
                        .header()
                        .record_count,
                );
                let log = logs
                    .entry((topic.name.to_string(), partition.index))
                    .or_default();
                let base = log.end();
                let mut records = records.to_vec();
                stamp(&mut records, base, 0);
                log.batches.push((base + count, records.into()));
                answered.push((topic.name.clone(), partition.index, base));
            }
        }
        move |error_code| ProduceResponse {
            responses: answered
                .iter()
                .map(|(topic, index, base_offset)| TopicProduceResponse {
                    name: topic.clone(),
                    partition_responses: vec![PartitionProduceResponse {
                        index: *index,
                        error_code,
                        base_offset: *base_offset,
                        ..Default::default()
                    }],
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }
    }

    fn fetch(&self, request: &FetchRequest) -> FetchResponse {
        for _ in 0..20 {
            let response = self.read(request);
            let mut partitions = response
                .responses
                .iter()
                .flat_map(|topic| &topic.partitions);
            if partitions.any(|partition| partition.records.is_some()) {
                return response;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.read(request)
    }

    fn read(&self, request: &FetchRequest) -> FetchResponse {
        let mut logs = self.logs.lock().unwrap();
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let log = logs
                    .entry((topic.topic.to_string(), asked.partition))
                    .or_default();
                // Batches whose ends lie beyond the offset; the answer's limit cuts the last one off.
                let wanted = log
                    .batches
                    .partition_point(|(next, _)| *next <= asked.fetch_offset);
                let mut records = Vec::new();
                for (_, batch) in &log.batches[wanted..] {
                    let is_first = records.is_empty();
                    records.extend_from_slice(batch);
                    if records.len() > asked.partition_max_bytes as usize {
                        let limit = asked.partition_max_bytes as usize;
                        records.truncate(if is_first { batch.len() } else { limit });
                        break;
                    }
                }
                PartitionData {
                    partition_index: asked.partition,
                    high_watermark: log.end(),
                    records: (!records.is_empty()).then(|| Records::from(Bytes::from(records))),
                    ..Default::default()
                }
            });
            FetchableTopicResponse {
                topic: topic.topic.clone(),
                partitions: partitions.collect(),
                ..Default::default()
            }
        });
        FetchResponse {
            responses: topics.collect(),
            ..Default::default()
        }
    }

    fn versions(&self) -> ApiVersionsResponse {
        let served = [
            (ApiKey::Produce, self.produce_max),
            (ApiKey::Fetch, 12),
            (ApiKey::ListOffsets, 6),
            (ApiKey::Metadata, 9),
        ];
        let version = |(api, max_version): (ApiKey, i16)| ApiVersion {
            api_key: api.code(),
            min_version: 0,
            max_version,
        };
        ApiVersionsResponse {
            api_keys: served.into_iter().map(version).collect(),
            ..Default::default()
        }
    }
}

fn request<M: Message>(reader: &mut Reader, header: &RequestHeader) -> M {
    M::decode_versioned(reader, header.api_version).unwrap()
}

fn of<M: Message>(header: &RequestHeader, answer: &M) -> Vec<u8> {
    response_frame(header.correlation_id, header.api_version, answer)
        .unwrap()
        .concat()
}
