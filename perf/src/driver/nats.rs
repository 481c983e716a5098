//! NATS JetStream, by NATS's own protocol.
//!
//! A topic is a stream, a partition one of its subjects: `topic.0`. A record is a `PUB` with an inbox to which
//! JetStream acknowledges. A consumer is an ordered push consumer: ephemeral, without acknowledgements, with flow
//! control, and with a number in each delivery by which a gap is noticed.

mod frames;
#[cfg(test)]
mod tests;

use super::records::due_of;
use super::single::{self, Event, Producer, Protocol, Session};
use super::{Driver, Job};
use crate::measure::Measured;
use anyhow::{bail, ensure, Context, Result};
use frames::{parse, Frame, Message};
use serde_json::{json, Value};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

/// See [`super::nats`].
pub struct NatsDriver;

impl Driver for NatsDriver {
    fn run(&self, job: &Job<'_>) -> Result<Measured> {
        let case = job.case;
        let mut control = Control::connect(job.endpoint.addr)?;
        ensure!(
            case.records.bytes <= control.payload_max,
            "NATS takes at most {} bytes in a record, and records.bytes is {}",
            control.payload_max,
            case.records.bytes
        );
        let mut topics = Vec::new();
        for topic in job.topics {
            let stream = stream_name(topic);
            let info = control.ask(&format!("$JS.API.STREAM.INFO.{stream}"), &json!({}))?;
            let last = info["state"]["last_seq"].as_u64();
            let last = last.with_context(|| format!("NATS tells no end of stream {stream}"))?;
            topics.push((stream, last));
        }
        let streams = Streams {
            topics,
            partitions: case.topic.partitions,
            run: unique(),
        };
        single::run(job, &streams)
    }
}

/// A topic's stream: its name may hold no dots.
pub fn stream_name(topic: &str) -> String {
    topic.replace('.', "_")
}

/// What a topic's stream is made with: files, one replica, all that was appended is kept.
pub fn stream_config(topic: &str) -> Value {
    let stream = stream_name(topic);
    json!({
        "name": stream,
        "subjects": [format!("{stream}.*")],
        "retention": "limits",
        "storage": "file",
        "num_replicas": 1,
        "discard": "new",
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
    })
}

/// What the sessions of a measurement have in common.
struct Streams {
    /// Stream, and the number of the last record that was there before.
    topics: Vec<(String, u64)>,
    /// Of each.
    partitions: u32,
    /// Sets apart the inboxes of this run.
    run: String,
}

impl Protocol for Streams {
    fn producer(&self, producer: u32) -> Box<dyn Producer> {
        let subjects = self.topics.iter().flat_map(|(stream, _)| {
            (0..self.partitions).map(move |partition| format!("{stream}.{partition}"))
        });
        Box::new(Publisher {
            subjects: subjects.collect(),
            inbox: format!("_INBOX.{}.{producer}", self.run),
        })
    }

    fn consumer(&self, partitions: &[u32]) -> Box<dyn Session> {
        let inbox = format!("_INBOX.{}", unique());
        let mut streams = Vec::new();
        for (n, (stream, last)) in (0..).zip(&self.topics) {
            let first = n * self.partitions;
            let mine = partitions
                .iter()
                .filter(|partition| (first..first + self.partitions).contains(partition));
            let subjects: Vec<String> = mine
                .map(|partition| format!("{stream}.{}", partition - first))
                .collect();
            if subjects.is_empty() {
                continue;
            }
            let mut config = json!({
                "deliver_subject": format!("{inbox}.data.{n}"),
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": last + 1,
                "ack_policy": "none",
                "max_deliver": 1,
                "replay_policy": "instant",
                "flow_control": true,
                "idle_heartbeat": HEARTBEAT.as_nanos() as u64,
                "mem_storage": true,
                "num_replicas": 1,
            });
            if subjects.len() < self.partitions as usize {
                config["filter_subjects"] = json!(subjects);
            }
            streams.push(Watched {
                stream: stream.clone(),
                config,
                delivered: 0,
            });
        }
        Box::new(Subscriber {
            inbox,
            streams,
            made: 0,
        })
    }
}

/// A producer's connection.
struct Publisher {
    /// By partition.
    subjects: Vec<String>,
    /// An acknowledgement comes to this, a dot and the record's number.
    inbox: String,
}

impl Session for Publisher {
    fn greet(&mut self, out: &mut Vec<u8>) {
        greet(out);
        let _ = write!(out, "SUB {}.* {ID}\r\nPING\r\n", self.inbox);
    }

    fn read(&mut self, input: &[u8], out: &mut Vec<u8>, events: &mut Vec<Event>) -> Result<usize> {
        let mut used = 0;
        while let Some((frame, bytes)) = parse(&input[used..])? {
            used += bytes;
            match frame {
                Frame::Pong => events.push(Event::Ready),
                Frame::Message(message) => {
                    check_acknowledgement(&message)?;
                    let token = message
                        .subject
                        .strip_prefix(self.inbox.as_bytes())
                        .and_then(|rest| rest.strip_prefix(b"."));
                    let token = token.and_then(|token| std::str::from_utf8(token).ok());
                    let number = token
                        .and_then(|token| token.parse().ok())
                        .context("NATS acknowledged what was not sent")?;
                    events.push(Event::Acknowledged(number));
                }
                other => answer(other, out)?,
            }
        }
        Ok(used)
    }
}

impl Producer for Publisher {
    fn append(&mut self, partition: u32, number: u64, value: &[u8], out: &mut Vec<u8>) {
        let subject = &self.subjects[partition as usize];
        let (inbox, length) = (&self.inbox, value.len());
        // A Vec takes everything.
        let _ = write!(out, "PUB {subject} {inbox}.{number} {length}\r\n");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

/// An error unless JetStream says that the record is kept.
fn check_acknowledgement(message: &Message<'_>) -> Result<()> {
    if let Some(status) = message.status() {
        bail!(
            "no stream of NATS took a record: {}",
            String::from_utf8_lossy(status)
        );
    }
    // `{"stream":"name","seq":1}`, and nothing else if all is well.
    if message.payload.starts_with(br#"{"stream":"#) {
        return Ok(());
    }
    let answer: Value = serde_json::from_slice(message.payload)
        .ok()
        .context("NATS acknowledged a record with something that is no JSON")?;
    check_answer(&answer, "a record")?;
    ensure!(
        answer["seq"].is_u64(),
        "NATS acknowledged a record without its number: {answer}"
    );
    Ok(())
}

/// An error if a JetStream answer is one.
fn check_answer(answer: &Value, what: &str) -> Result<()> {
    let error = &answer["error"];
    if !error.is_null() {
        let text = error["description"].as_str().unwrap_or("no description");
        bail!("NATS answered {what} with error {}: {text}", error["code"]);
    }
    Ok(())
}

/// A consumer's connection.
struct Subscriber {
    inbox: String,
    streams: Vec<Watched>,
    /// Consumers that the server has made.
    made: usize,
}

struct Watched {
    stream: String,
    config: Value,
    /// Records, as the server counts them for its consumer.
    delivered: u64,
}

impl Session for Subscriber {
    fn greet(&mut self, out: &mut Vec<u8>) {
        greet(out);
        // First: the server makes no consumer that nobody listens to.
        for (n, watched) in self.streams.iter().enumerate() {
            let (inbox, stream) = (&self.inbox, &watched.stream);
            let _ = write!(out, "SUB {inbox}.data.{n} {}\r\n", ID + 1 + n as u32);
            let _ = write!(out, "SUB {inbox}.made.{n} {ID}\r\n");
            let request = json!({"stream_name": stream, "config": watched.config}).to_string();
            let subject = format!("$JS.API.CONSUMER.CREATE.{stream}");
            let length = request.len();
            let _ = write!(
                out,
                "PUB {subject} {inbox}.made.{n} {length}\r\n{request}\r\n"
            );
        }
    }

    fn read(&mut self, input: &[u8], out: &mut Vec<u8>, events: &mut Vec<Event>) -> Result<usize> {
        let mut used = 0;
        let before = events.len();
        while let Some((frame, bytes)) = parse(&input[used..])? {
            used += bytes;
            match frame {
                Frame::Message(message) if message.id == ID => {
                    self.made(&message)?;
                    if self.made == self.streams.len() {
                        events.push(Event::Ready);
                    }
                }
                Frame::Message(message) => self.delivered(&message, out, events)?,
                other => answer(other, out)?,
            }
        }
        // A server pushes; what came together counts as one answer.
        let is_record = |event: &Event| matches!(event, Event::Record { .. });
        if events[before..].iter().any(is_record) {
            events.push(Event::Fetched);
        }
        Ok(used)
    }
}

impl Subscriber {
    fn made(&mut self, message: &Message<'_>) -> Result<()> {
        if let Some(status) = message.status() {
            bail!(
                "NATS makes no consumers: {}",
                String::from_utf8_lossy(status)
            );
        }
        let answer: Value = serde_json::from_slice(message.payload)
            .ok()
            .context("NATS answered a new consumer with something that is no JSON")?;
        check_answer(&answer, "a new consumer")?;
        self.made += 1;
        Ok(())
    }

    fn delivered(
        &mut self,
        message: &Message<'_>,
        out: &mut Vec<u8>,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        if let Some(status) = message.status() {
            ensure!(
                status.starts_with(b"100"),
                "NATS ended a delivery: {}",
                String::from_utf8_lossy(status)
            );
            // Flow control is answered at once; a heartbeat may say that an answer is missing.
            let asked = message.reply.or(message.header("Nats-Consumer-Stalled"));
            if let Some(subject) = asked {
                out.extend_from_slice(b"PUB ");
                out.extend_from_slice(subject);
                out.extend_from_slice(b" 0\r\n\r\n");
            }
            return Ok(());
        }
        let watched = (message.id as usize)
            .checked_sub(ID as usize + 1)
            .and_then(|n| self.streams.get_mut(n))
            .context("NATS delivered what was not subscribed to")?;
        let count = delivery(message.reply)?;
        ensure!(
            count == watched.delivered + 1,
            "NATS left out {} records of stream {} on their way to a consumer that was too slow",
            count.saturating_sub(watched.delivered + 1),
            watched.stream
        );
        watched.delivered = count;
        let due =
            due_of(message.payload).context("a record in NATS is too short to be of this run")?;
        let bytes = message.payload.len();
        events.push(Event::Record { due, bytes });
        Ok(())
    }
}

/// The how manieth delivery of its consumer a record is:
/// `$JS.ACK.<stream>.<consumer>.<tries>.<number in the stream>.<delivery>.<time>.<pending>`.
fn delivery(reply: Option<&[u8]>) -> Result<u64> {
    let reply = reply.context("NATS delivered a record without its number")?;
    let text = std::str::from_utf8(reply).unwrap_or_default();
    let count = text.rsplit('.').nth(2).and_then(|word| word.parse().ok());
    count
        .filter(|_| text.starts_with("$JS.ACK."))
        .with_context(|| format!("NATS delivered a record with the number {text:?}"))
}

/// What a server says about the connection itself.
fn answer(frame: Frame<'_>, out: &mut Vec<u8>) -> Result<()> {
    match frame {
        Frame::Ping => out.extend_from_slice(b"PONG\r\n"),
        Frame::Error(text) => bail!(
            "NATS answered with an error: {}",
            String::from_utf8_lossy(text)
        ),
        Frame::Info(_) | Frame::Ok | Frame::Pong | Frame::Message(_) => {}
    }
    Ok(())
}

fn greet(out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"CONNECT {\"verbose\":false,\"pedantic\":false,\"tls_required\":false,\"name\":\"perf\",\"lang\":\"rust\",\
          \"version\":\"0\",\"protocol\":1,\"headers\":true,\"no_responders\":true}\r\n",
    );
}

/// A name that no other client of a server has.
fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let since = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let count = COUNT.fetch_add(1, Relaxed);
    format!("{:x}-{since:x}-{count:x}", std::process::id())
}

/// One question at a time, for what is not measured.
pub struct Control {
    stream: TcpStream,
    input: Vec<u8>,
    inbox: String,
    asked: u64,
    /// Bytes of a message that the server takes.
    payload_max: usize,
}

impl Control {
    pub fn connect(addr: SocketAddr) -> Result<Control> {
        let stream = TcpStream::connect_timeout(&addr, PATIENCE)
            .with_context(|| format!("NATS at {addr} can't be connected to"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut control = Control {
            stream,
            input: Vec::new(),
            inbox: format!("_INBOX.{}", unique()),
            asked: 0,
            payload_max: 0,
        };
        let mut out = Vec::new();
        greet(&mut out);
        write!(out, "SUB {}.* {ID}\r\nPING\r\n", control.inbox)?;
        control.stream.write_all(&out)?;
        let mut is_ready = false;
        while !is_ready {
            control.take(|frame, payload_max| {
                match frame {
                    Frame::Info(text) => {
                        let info: Value = serde_json::from_slice(text)
                            .ok()
                            .context("NATS greeted with something that is no JSON")?;
                        let max = info["max_payload"].as_u64();
                        *payload_max = max.context("NATS tells no max_payload")? as usize;
                    }
                    Frame::Pong => is_ready = true,
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(control)
    }

    /// JetStream's answer; an error if it is one.
    pub fn ask(&mut self, subject: &str, request: &Value) -> Result<Value> {
        self.asked += 1;
        let reply = format!("{}.{}", self.inbox, self.asked);
        let request = request.to_string();
        let length = request.len();
        let text = format!("PUB {subject} {reply} {length}\r\n{request}\r\n");
        self.stream
            .write_all(text.as_bytes())
            .with_context(|| format!("NATS took no {subject}"))?;
        let mut answer = None;
        while answer.is_none() {
            self.take(|frame, _| {
                if let Frame::Message(message) = frame {
                    if let Some(status) = message.status() {
                        bail!(
                            "JetStream does not answer: {}",
                            String::from_utf8_lossy(status)
                        );
                    }
                    if message.subject == reply.as_bytes() {
                        let json = serde_json::from_slice(message.payload).ok();
                        answer = Some(json.context("JetStream answered no JSON")?);
                    }
                }
                Ok(())
            })
            .with_context(|| subject.to_owned())?;
        }
        let answer: Value = answer.unwrap_or_default();
        check_answer(&answer, subject)?;
        Ok(answer)
    }

    /// Reads once and gives each frame that is whole.
    fn take(
        &mut self,
        mut on_frame: impl FnMut(Frame<'_>, &mut usize) -> Result<()>,
    ) -> Result<()> {
        let mut chunk = [0; 16 << 10];
        let count = self
            .stream
            .read(&mut chunk)
            .context("NATS did not answer")?;
        ensure!(count > 0, "NATS closed the connection");
        self.input.extend_from_slice(&chunk[..count]);
        let mut out = Vec::new();
        let mut used = 0;
        while let Some((frame, bytes)) = parse(&self.input[used..])? {
            used += bytes;
            answer(frame, &mut out)?;
            on_frame(frame, &mut self.payload_max)?;
        }
        self.input.drain(..used);
        self.stream.write_all(&out)?;
        Ok(())
    }
}

/// Of the subscription to answers; those to records follow.
const ID: u32 = 1;
const PATIENCE: Duration = Duration::from_secs(60);
const HEARTBEAT: Duration = Duration::from_secs(5);
