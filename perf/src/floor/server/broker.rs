//! From frames to answers. It sees no socket: answers are gathered, each with its connection and its number there.

use super::admin;
use super::fetch::{Fetch, Waiting, Wanted};
use super::files::Files;
use super::inbox::{Frame, Pool};
use super::outbox::Outbox;
use super::produce::Produce;
use super::saved;
use super::store::{Batch, Found, Store};
use super::ServerArgs;
use anyhow::{ensure, Context, Result};
use bytes::{Bytes, BytesMut};
use highwater::protocol::batch::{stamp, BatchHeader};
use highwater::protocol::messages::{
    PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use highwater::protocol::{response_frame, ApiKey, ErrorCode, Message, Reader, RequestHeader, Str};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::RawFd;
use std::time::Instant;

/// Small records share memory of this size.
const ARENA_BYTES: usize = 1 << 20;

/// A connection; serials are not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnId {
    pub index: usize,
    pub serial: u64,
}

/// Where an answer goes.
#[derive(Debug, Clone, Copy)]
pub struct Asker {
    pub conn: ConnId,
    pub number: u64,
    pub version: i16,
    pub correlation: i32,
}

pub struct Broker {
    args: ServerArgs,
    addr: SocketAddr,
    pub store: Store,
    files: Files<Then>,
    pub pool: Pool,
    arena: BytesMut,
    produce: Produce,
    batches: Vec<Stamped>,
    waiting: Waiting,
    woken: Vec<(u64, u32, i32)>,
    /// Ready to be sent.
    pub answers: Vec<(ConnId, u64, Vec<Bytes>)>,
}

/// What happens once a turn is on the disk, or in the page cache.
enum Then {
    Visible {
        topic: u32,
        partition: i32,
        next: i64,
    },
    Acknowledge(Asker, Vec<Part>),
}

/// The answer for one partition.
struct Part {
    topic: Str,
    partition: i32,
    error: ErrorCode,
    base: i64,
}

/// A batch that has its offsets.
struct Stamped {
    topic: u32,
    partition: i32,
    flush: bool,
    base: i64,
    next: i64,
    range: Range<usize>,
}

impl Broker {
    pub fn open(args: &ServerArgs, addr: SocketAddr) -> Result<Broker> {
        let mut store = Store::new(args.window_bytes);
        let next = saved::load(&args.dir, &mut store)?;
        let mut files = Files::open(args, next)?;
        if store.topics().any(|topic| topic.flush) {
            files.make_flush()?;
        }
        Ok(Broker {
            args: args.clone(),
            addr,
            store,
            files,
            pool: Pool::default(),
            arena: BytesMut::new(),
            produce: Produce::default(),
            batches: Vec::new(),
            waiting: Waiting::default(),
            woken: Vec::new(),
            answers: Vec::new(),
        })
    }

    /// What becomes readable when a turn is flushed, from the first topic that is flushed on.
    pub fn flush_fd(&self) -> Option<RawFd> {
        self.files.flush_fd()
    }

    /// Whether no more frames can be taken before a turn has ended.
    pub fn is_full(&self) -> bool {
        self.files.is_full()
    }

    /// One request. An error closes the connection.
    pub fn take(&mut self, conn: ConnId, outbox: &mut Outbox, frame: Frame<'_>) -> Result<()> {
        let head: &[u8] = match &frame {
            Frame::Small(bytes) => bytes,
            Frame::Large(frame) => frame.as_ref(),
        };
        let Some(&[a, b, c, d]) = head.first_chunk() else {
            anyhow::bail!("a frame of {} bytes is no request", head.len());
        };
        let (api, version) = (i16::from_be_bytes([a, b]), i16::from_be_bytes([c, d]));
        match admin::is_served(api, version) {
            Some(ApiKey::Produce) => self.produce(conn, outbox, frame),
            Some(api) => {
                let bytes = match frame {
                    Frame::Small(bytes) => Bytes::copy_from_slice(bytes),
                    Frame::Large(frame) => frame.freeze(),
                };
                self.other(api, conn, outbox, bytes)
            }
            None if api == ApiKey::ApiVersions.code() => {
                // Newer than what is known: answered as version 0, so that the client asks again.
                let correlation = head.get(4..8).context("a frame without a correlation id")?;
                let asker = Asker {
                    conn,
                    number: outbox.number(),
                    version: 0,
                    correlation: i32::from_be_bytes(correlation.try_into()?),
                };
                self.answer(asker, &admin::api_versions(ErrorCode::UnsupportedVersion))
            }
            None => anyhow::bail!("API {api} version {version} is not served"),
        }
    }

    fn other(
        &mut self,
        api: ApiKey,
        conn: ConnId,
        outbox: &mut Outbox,
        bytes: Bytes,
    ) -> Result<()> {
        let mut reader = Reader::new(bytes);
        let header = RequestHeader::decode(&mut reader)?;
        let version = header.api_version;
        let asker = Asker {
            conn,
            number: outbox.number(),
            version,
            correlation: header.correlation_id,
        };
        match api {
            ApiKey::Fetch => {
                let request = decode(&mut reader, version)?;
                let fetch = Fetch::new(asker, request, &self.store, Instant::now());
                self.fetch(fetch)
            }
            ApiKey::Metadata => {
                let request = decode(&mut reader, version)?;
                let answer = admin::metadata(&self.store, &request, version, self.addr);
                self.answer(asker, &answer)
            }
            ApiKey::ListOffsets => {
                let request = decode(&mut reader, version)?;
                let answer = admin::list_offsets(&self.store, &request);
                self.answer(asker, &answer)
            }
            ApiKey::CreateTopics => {
                let request = decode(&mut reader, version)?;
                if admin::wants_flush(&request) {
                    self.files.make_flush()?;
                }
                let answer = admin::create_topics(&mut self.store, &request);
                saved::save_topics(&self.args.dir, &self.store)?;
                self.answer(asker, &answer)
            }
            ApiKey::DeleteTopics => {
                let request = decode(&mut reader, version)?;
                let (answer, gone) = admin::delete_topics(&mut self.store, &request);
                for topic in gone {
                    for (n, partition) in topic.partitions.into_iter().enumerate() {
                        let woken = partition.waiters.into_iter();
                        self.woken.extend(woken.map(|id| (id, u32::MAX, n as i32)));
                    }
                }
                saved::save_topics(&self.args.dir, &self.store)?;
                self.written()?;
                if self.store.topics().all(|topic| topic.flush) {
                    self.files.cache.empty()?;
                }
                self.answer(asker, &answer)
            }
            _ => self.answer(asker, &admin::api_versions(ErrorCode::None)),
        }
    }

    fn produce(&mut self, conn: ConnId, outbox: &mut Outbox, mut frame: Frame<'_>) -> Result<()> {
        let bytes: &mut [u8] = match &mut frame {
            Frame::Small(bytes) => bytes,
            Frame::Large(frame) => frame.bytes_mut(),
        };
        self.produce.read(bytes)?;
        self.batches.clear();
        let mut parts = Vec::with_capacity(self.produce.parts.len());
        for part in &self.produce.parts {
            let name = std::str::from_utf8(&bytes[part.topic.clone()])?;
            let mut answer = Part {
                topic: Str::default(),
                partition: part.partition,
                error: ErrorCode::UnknownTopicOrPartition,
                base: -1,
            };
            match self.store.id(name) {
                None => answer.topic = Str::from(name.to_owned()),
                Some(id) => {
                    let topic = self.store.topic(id).context("a topic with an id")?;
                    let flush = topic.flush;
                    answer.topic = topic.name.clone();
                    if let Some(partition) = self.store.partition_mut(id, part.partition) {
                        answer.error = ErrorCode::None;
                        answer.base = partition.next;
                        for (base, range) in batches(bytes, &part.records, &mut partition.next)? {
                            self.batches.push(Stamped {
                                topic: id,
                                partition: part.partition,
                                flush,
                                base: base.start,
                                next: base.end,
                                range,
                            });
                        }
                    }
                }
            }
            parts.push(answer);
        }
        let (acks, version, correlation) = (
            self.produce.acks,
            self.produce.version,
            self.produce.correlation,
        );
        self.keep(frame)?;
        if acks == 0 {
            return Ok(());
        }
        let asker = Asker {
            conn,
            number: outbox.number(),
            version,
            correlation,
        };
        let waits_for_flush = self.batches.iter().any(|batch| batch.flush);
        match &mut self.files.flush {
            Some(flush) if waits_for_flush => flush.then(Then::Acknowledge(asker, parts)),
            _ => self.files.cache.then(Then::Acknowledge(asker, parts)),
        }
        Ok(())
    }

    /// Gives the stamped batches of a frame to their files, and keeps them for consumers.
    fn keep(&mut self, frame: Frame<'_>) -> Result<()> {
        let frozen = match frame {
            Frame::Large(frame) => Ok(frame.freeze()),
            Frame::Small(bytes) => Err(bytes),
        };
        for stamped in self.batches.iter() {
            let range = stamped.range.clone();
            let len = range.len();
            let bytes = match &frozen {
                Ok(frame) => frame.slice(range),
                Err(small) => {
                    if self.arena.capacity() < len {
                        self.arena = BytesMut::with_capacity(ARENA_BYTES.max(len));
                    }
                    self.arena.extend_from_slice(&small[range]);
                    self.arena.split().freeze()
                }
            };
            let visible = Then::Visible {
                topic: stamped.topic,
                partition: stamped.partition,
                next: stamped.next,
            };
            let place = self.files.push(stamped.flush, &bytes, visible)?;
            let batch = Batch {
                base: stamped.base,
                next: stamped.next,
                place,
                len: len as u32,
                bytes: Some(bytes),
            };
            self.store.append(stamped.topic, stamped.partition, batch);
        }
        Ok(())
    }

    /// Ends a turn: writes, flushes, and tells what that brings about.
    pub fn turn(&mut self) -> Result<()> {
        self.written()?;
        if let Some(mut flush) = self.files.flush.take() {
            flush.submit()?;
            while let Some(turn) = flush.flushed()? {
                self.tell(turn)?;
                flush.submit()?;
            }
            self.files.flush = Some(flush);
        }
        self.wake()
    }

    fn written(&mut self) -> Result<()> {
        let turn = self.files.cache.write()?;
        self.tell(turn)
    }

    fn tell(&mut self, turn: Vec<Then>) -> Result<()> {
        for then in turn {
            match then {
                Then::Visible {
                    topic,
                    partition,
                    next,
                } => {
                    if let Some(it) = self.store.partition_mut(topic, partition) {
                        it.visible = it.visible.max(next);
                        let woken = it.waiters.drain(..);
                        self.woken.extend(woken.map(|id| (id, topic, partition)));
                    }
                }
                Then::Acknowledge(asker, parts) => self.answer(asker, &acknowledgement(parts))?,
            }
        }
        Ok(())
    }

    fn answer<M: Message>(&mut self, asker: Asker, answer: &M) -> Result<()> {
        let frame = response_frame(asker.correlation, asker.version, answer)?;
        self.answers.push((asker.conn, asker.number, frame));
        Ok(())
    }

    fn fetch(&mut self, fetch: Fetch) -> Result<()> {
        if fetch.is_ready(&self.store) {
            return self.answer_fetch(fetch);
        }
        self.waiting.add(fetch, &mut self.store);
        Ok(())
    }

    /// Answers fetches for which enough is there now.
    fn wake(&mut self) -> Result<()> {
        while let Some((id, topic, partition)) = self.woken.pop() {
            if let Some(fetch) = self.waiting.wake(id, topic, partition, &mut self.store) {
                self.answer_fetch(fetch)?;
            }
        }
        Ok(())
    }

    /// Answers fetches that have waited for long enough.
    pub fn expire(&mut self, now: Instant) -> Result<()> {
        while let Some(fetch) = self.waiting.expired(now) {
            self.answer_fetch(fetch)?;
        }
        Ok(())
    }

    /// When the next fetch has waited for long enough.
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.deadline()
    }

    /// A connection has ended.
    pub fn closed(&mut self, conn: ConnId) {
        self.waiting.remove_conn(conn);
    }

    fn answer_fetch(&mut self, fetch: Fetch) -> Result<()> {
        let answer = fetch.answer(|wanted| self.find(wanted))?;
        self.answer(fetch.asker, &answer)
    }

    /// Batches from memory or the disk.
    fn find(&mut self, wanted: Wanted) -> Result<Seen> {
        let Wanted {
            topic: id,
            partition,
            offset,
            bytes_max,
            at_least_one,
        } = wanted;
        let unknown = || Ok(Seen::nothing(ErrorCode::UnknownTopicOrPartition));
        let Some(topic) = self.store.topic(id) else {
            return unknown();
        };
        let is_flushed = topic.flush;
        let log = self.files.log(is_flushed);
        let holds = |place| log.holds(place);
        let found = self.store.find(id, partition, offset, bytes_max, holds);
        let Some(seen) = self.store.partition(id, partition) else {
            return unknown();
        };
        let mut seen = Seen {
            error: ErrorCode::None,
            records: Vec::new(),
            visible: seen.visible,
            start: seen.start(),
        };
        match found {
            Found::Nothing => {}
            Found::OutOfRange => seen.error = ErrorCode::OffsetOutOfRange,
            Found::Memory(records) => seen.records = records,
            Found::Disk { len, .. } if len > bytes_max && !at_least_one => {}
            Found::Disk { place, len } => {
                seen.records = vec![self.files.read(is_flushed, place, len, &self.pool)?];
            }
        }
        Ok(seen)
    }

    /// A clean end: what is written is found again at the next start.
    pub fn close(mut self) -> Result<()> {
        self.written()?;
        let log = self.files.cache.log();
        log.file.sync_all().context("records can't be flushed")?;
        saved::save_index(&self.args.dir, &self.store, log.next(), |place| {
            log.holds(place)
        })
    }
}

/// What one partition answers to a fetch.
pub struct Seen {
    pub error: ErrorCode,
    pub records: Vec<Bytes>,
    pub visible: i64,
    pub start: i64,
}

impl Seen {
    pub fn nothing(error: ErrorCode) -> Seen {
        Seen {
            error,
            records: Vec::new(),
            visible: -1,
            start: -1,
        }
    }
}

fn decode<M: Message>(reader: &mut Reader, version: i16) -> Result<M> {
    Ok(M::decode_versioned(reader, version)?)
}

/// Gives each batch of a partition's records its offsets, and says where it is.
fn batches(
    frame: &mut [u8],
    records: &Range<usize>,
    next: &mut i64,
) -> Result<Vec<(Range<i64>, Range<usize>)>> {
    let mut found = Vec::with_capacity(1);
    let mut at = records.start;
    while at < records.end {
        let header = BatchHeader::parse(&frame[at..records.end])?;
        let end = at + header.size_bytes();
        ensure!(
            end <= records.end && header.last_offset_delta >= 0,
            "a batch that is longer than the records it is in, or has a negative count"
        );
        let base = *next;
        stamp(&mut frame[at..end], base, 0);
        *next = base + i64::from(header.last_offset_delta) + 1;
        found.push((base..*next, at..end));
        at = end;
    }
    Ok(found)
}

fn acknowledgement(parts: Vec<Part>) -> ProduceResponse {
    let mut responses: Vec<TopicProduceResponse> = Vec::with_capacity(1);
    for part in parts {
        let response = PartitionProduceResponse {
            index: part.partition,
            error_code: part.error.code(),
            base_offset: part.base,
            ..Default::default()
        };
        match responses.last_mut() {
            Some(topic) if topic.name == part.topic => topic.partition_responses.push(response),
            _ => responses.push(TopicProduceResponse {
                name: part.topic,
                partition_responses: vec![response],
                ..Default::default()
            }),
        }
    }
    ProduceResponse {
        responses,
        ..Default::default()
    }
}
