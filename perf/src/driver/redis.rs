//! Redis Streams, by Redis's own protocol (RESP2).
//!
//! A partition is a stream, its key the topic's name and the partition's number: `topic.0`. A record is
//! `XADD topic.0 * v <value>`. A consumer asks by `XREAD COUNT n BLOCK ms STREAMS ...` for what comes after the last
//! entry that it has, and is answered as soon as there is one.

mod resp;
#[cfg(test)]
mod tests;

use super::records::due_of;
use super::single::{self, Event, Producer, Protocol, Session};
use super::{Driver, Job};
use crate::measure::Measured;
use anyhow::{bail, ensure, Context, Result};
use resp::{Reader, Token};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// See [`super::redis`].
pub struct RedisDriver;

impl Driver for RedisDriver {
    fn run(&self, job: &Job<'_>) -> Result<Measured> {
        let case = job.case;
        let mut control = Control::connect(job.endpoint.addr)?;
        let mut streams = Vec::new();
        for topic in job.topics {
            for partition in 0..case.topic.partitions {
                let key = stream_key(topic, partition);
                let last = match case.has_consumers() {
                    true => control.last_id(&key)?,
                    false => Vec::new(),
                };
                streams.push((key.into_bytes(), last));
            }
        }
        let count = case.consumers.fetch_bytes as usize / case.records.bytes;
        let streams = Streams {
            streams,
            count: count.max(1),
            wait_ms: case.consumers.wait_ms.max(1),
        };
        single::run(job, &streams)
    }
}

/// The key of a partition's stream.
pub fn stream_key(topic: &str, partition: u32) -> String {
    format!("{topic}.{partition}")
}

/// What the sessions of a measurement have in common.
struct Streams {
    /// Key, and the id of the last entry that was there before.
    streams: Vec<(Vec<u8>, Vec<u8>)>,
    /// Entries that an answer has at most, of each stream.
    count: usize,
    wait_ms: u32,
}

impl Protocol for Streams {
    fn producer(&self, _producer: u32) -> Box<dyn Producer> {
        Box::new(Appender {
            keys: self.streams.iter().map(|(key, _)| key.clone()).collect(),
            reader: Reader::default(),
            is_greeted: false,
            answered: 0,
        })
    }

    fn consumer(&self, partitions: &[u32]) -> Box<dyn Session> {
        let mine = partitions.iter().map(|n| self.streams[*n as usize].clone());
        Box::new(Tail::new(mine.collect(), self.count, self.wait_ms))
    }
}

/// A producer's connection. Answers come in the order of the requests.
struct Appender {
    keys: Vec<Vec<u8>>,
    reader: Reader,
    is_greeted: bool,
    /// Records.
    answered: u64,
}

impl Session for Appender {
    fn greet(&mut self, out: &mut Vec<u8>) {
        command(out, &[b"PING"]);
    }

    fn read(&mut self, input: &[u8], _out: &mut Vec<u8>, events: &mut Vec<Event>) -> Result<usize> {
        let mut used = 0;
        while let Some((token, bytes)) = self.reader.next(&input[used..])? {
            used += bytes;
            match token {
                Token::Simple(b"PONG") if !self.is_greeted => {
                    self.is_greeted = true;
                    events.push(Event::Ready);
                }
                Token::Bulk(_) if self.is_greeted => {
                    events.push(Event::Acknowledged(self.answered));
                    self.answered += 1;
                }
                other => bail!("Redis answered a record with {other}"),
            }
        }
        Ok(used)
    }
}

impl Producer for Appender {
    fn append(&mut self, partition: u32, _number: u64, value: &[u8], out: &mut Vec<u8>) {
        let key = &self.keys[partition as usize];
        command(out, &[b"XADD", key, b"*", b"v", value]);
    }
}

/// A consumer's connection: one question at a time.
struct Tail {
    /// Key, and the id of the last entry that was read.
    streams: Vec<(Vec<u8>, Vec<u8>)>,
    by_key: HashMap<Vec<u8>, usize>,
    count: usize,
    wait_ms: u32,
    reader: Reader,
    is_greeted: bool,
    /// The stream whose entries are being read.
    stream: usize,
    has_records: bool,
}

impl Tail {
    fn new(streams: Vec<(Vec<u8>, Vec<u8>)>, count: usize, wait_ms: u32) -> Tail {
        let named = |(n, (key, _)): (usize, &(Vec<u8>, Vec<u8>))| (key.clone(), n);
        Tail {
            by_key: streams.iter().enumerate().map(named).collect(),
            streams,
            count,
            wait_ms,
            reader: Reader::default(),
            is_greeted: false,
            stream: 0,
            has_records: false,
        }
    }

    fn ask(&self, out: &mut Vec<u8>) {
        let count = self.count.to_string();
        let wait = self.wait_ms.to_string();
        let mut words: Vec<&[u8]> = vec![b"XREAD", b"COUNT", count.as_bytes()];
        words.extend([b"BLOCK", wait.as_bytes(), b"STREAMS"]);
        words.extend(self.streams.iter().map(|(key, _)| &key[..]));
        words.extend(self.streams.iter().map(|(_, last)| &last[..]));
        command(out, &words);
    }

    /// A string within an answer: `[[key, [[id, [field, value]], ...]], ...]`.
    fn string(&mut self, text: &[u8], path: &[u32], events: &mut Vec<Event>) -> Result<()> {
        match *path {
            [_, 0] => {
                let stream = self.by_key.get(text).copied();
                self.stream =
                    stream.context("Redis answered with a stream that was not asked for")?;
            }
            [_, 1, _, 0] => text.clone_into(&mut self.streams[self.stream].1),
            [_, 1, _, 1, 0] => {}
            [_, 1, _, 1, 1] => {
                let due =
                    due_of(text).context("a record in Redis is too short to be of this run")?;
                let bytes = text.len();
                events.push(Event::Record { due, bytes });
                self.has_records = true;
            }
            _ => bail!("Redis answered XREAD in an unknown form"),
        }
        Ok(())
    }
}

impl Session for Tail {
    fn greet(&mut self, out: &mut Vec<u8>) {
        command(out, &[b"PING"]);
    }

    fn read(&mut self, input: &[u8], out: &mut Vec<u8>, events: &mut Vec<Event>) -> Result<usize> {
        let mut used = 0;
        while let Some((token, bytes)) = self.reader.next(&input[used..])? {
            used += bytes;
            match token {
                Token::Simple(b"PONG") if !self.is_greeted => {
                    self.is_greeted = true;
                    events.push(Event::Ready);
                }
                Token::Nil | Token::Array(_) if self.is_greeted => {}
                Token::Bulk(text) if self.is_greeted => {
                    let path = self.reader.path().to_vec();
                    self.string(text, &path, events)?;
                }
                other => bail!("Redis answered XREAD with {other}"),
            }
            if self.reader.is_whole() {
                if std::mem::take(&mut self.has_records) {
                    events.push(Event::Fetched);
                }
                self.ask(out);
            }
        }
        Ok(used)
    }
}

/// Appends a command of these words.
fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    // A Vec takes everything.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// One question at a time, for what is not measured.
pub struct Control {
    stream: TcpStream,
    reader: Reader,
}

impl Control {
    pub fn connect(addr: SocketAddr) -> Result<Control> {
        let stream = TcpStream::connect_timeout(&addr, PATIENCE)
            .with_context(|| format!("Redis at {addr} can't be connected to"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Control {
            stream,
            reader: Reader::default(),
        })
    }

    /// The words of the answer, without its structure.
    pub fn ask(&mut self, words: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
        let name = String::from_utf8_lossy(words[0]).into_owned();
        let mut out = Vec::new();
        command(&mut out, words);
        self.stream
            .write_all(&out)
            .with_context(|| format!("Redis took no {name}"))?;
        let mut input = Vec::new();
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            let mut used = 0;
            let mut is_whole = false;
            while let Some((token, bytes)) = self.reader.next(&input[used..])? {
                used += bytes;
                match token {
                    Token::Error(text) => {
                        bail!(
                            "Redis answered {name} with {}",
                            String::from_utf8_lossy(text)
                        )
                    }
                    Token::Bulk(text) | Token::Simple(text) => answer.push(text.to_vec()),
                    Token::Integer(number) => answer.push(number.to_string().into_bytes()),
                    Token::Array(_) | Token::Nil => {}
                }
                is_whole = self.reader.is_whole();
            }
            input.drain(..used);
            if is_whole {
                ensure!(input.is_empty(), "Redis answered {name} twice");
                return Ok(answer);
            }
            let count = self
                .stream
                .read(&mut chunk)
                .with_context(|| format!("Redis did not answer {name}"))?;
            ensure!(count > 0, "Redis closed the connection at {name}");
            input.extend_from_slice(&chunk[..count]);
        }
    }

    /// The id of a stream's last entry; `0` if it has none.
    fn last_id(&mut self, key: &str) -> Result<Vec<u8>> {
        let words: [&[u8]; 6] = [b"XREVRANGE", key.as_bytes(), b"+", b"-", b"COUNT", b"1"];
        let mut answer = self.ask(&words)?;
        Ok(match answer.is_empty() {
            true => b"0".to_vec(),
            false => answer.swap_remove(0),
        })
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
