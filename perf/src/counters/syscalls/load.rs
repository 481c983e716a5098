//! Fixed loads: so many records, by so many connections, on blocking sockets.

use crate::payload::Random;
use crate::stop::Stop;
use crate::wire;
use anyhow::{bail, ensure, Context, Result};
use bytes::Bytes;
use highwater::protocol::batch::BatchBuilder;
use highwater::protocol::messages::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use highwater::protocol::Str;
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

/// A number of records, and how they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// As in names of figures.
    pub name: &'static str,
    pub title: &'static str,
    pub connections: usize,
    /// Records of 1 KiB in each request.
    pub batch_records: usize,
    /// Requests of a connection without an answer.
    pub in_flight: usize,
    /// A consumer waits for each record before the next is sent.
    pub tail: bool,
    /// All records together.
    pub records: usize,
}

pub const LOADS: [Load; 4] = [
    Load {
        name: "produce-1",
        title: "1 connection, 1 record a request, one at a time",
        connections: 1,
        batch_records: 1,
        in_flight: 1,
        tail: false,
        records: 2_000,
    },
    Load {
        name: "produce-200",
        title: "200 connections, 1 record a request, one at a time each",
        connections: 200,
        batch_records: 1,
        in_flight: 1,
        tail: false,
        records: 20_000,
    },
    Load {
        name: "produce-batches",
        title: "1 connection, 16 records a request (16 KiB), 5 in flight",
        connections: 1,
        batch_records: 16,
        in_flight: 5,
        tail: false,
        records: 32_000,
    },
    Load {
        name: "tail",
        title: "1 record a request, each fetched by a waiting consumer before the next",
        connections: 1,
        batch_records: 1,
        in_flight: 1,
        tail: true,
        records: 2_000,
    },
];

impl Load {
    /// A fifth of the records.
    pub fn quick(mut self) -> Load {
        self.records /= 5;
        self
    }
}

/// A load whose topic exists and whose connections stand. Its topic is deleted when it is dropped.
pub struct Prepared<'a> {
    load: Load,
    broker: &'a str,
    topic: String,
    frame: Vec<u8>,
    producers: Vec<TcpStream>,
    consumer: Option<Consumer>,
    stop: &'a Stop,
}

struct Consumer {
    socket: TcpStream,
    next_offset: i64,
}

impl<'a> Prepared<'a> {
    /// Makes the topic, connects, and sends a tenth of the load, so that what is made once is made.
    pub fn new(
        load: Load,
        broker: &'a str,
        topic: String,
        topic_configs: &[(String, String)],
        stop: &'a Stop,
    ) -> Result<Prepared<'a>> {
        wire::create_topic(broker, &topic, 1, topic_configs)?;
        let mut prepared = Prepared {
            load,
            broker,
            frame: wire::produce_frame(&topic, 0, -1, batch(load.batch_records))?,
            topic,
            producers: Vec::new(),
            consumer: None,
            stop,
        };
        for _ in 0..load.connections {
            prepared.producers.push(wire::connect(broker)?);
        }
        if load.tail {
            prepared.consumer = Some(Consumer {
                socket: wire::connect(broker)?,
                next_offset: 0,
            });
        }
        prepared.first_request()?;
        prepared.send(load.records / 10)?;
        Ok(prepared)
    }

    /// A leader that is announced may not serve yet: it is asked again for a while.
    fn first_request(&mut self) -> Result<()> {
        let producer = self.producers.first_mut().context("a producer")?;
        let start = Instant::now();
        loop {
            producer.write_all(&self.frame)?;
            match wire::check_produced(wire::read_frame(producer)?) {
                Ok(()) => break,
                Err(_) if start.elapsed() < SERVES_AFTER_MAX => {
                    self.stop.sleep(Duration::from_millis(100))?;
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(consumer) = &mut self.consumer {
            consumer.next_offset = self.load.batch_records as i64;
        }
        Ok(())
    }

    /// The whole load.
    pub fn run(&mut self) -> Result<()> {
        self.send(self.load.records)
    }

    fn send(&mut self, records: usize) -> Result<()> {
        let requests = (records / self.load.batch_records / self.load.connections).max(1);
        if let Some(consumer) = &mut self.consumer {
            let producer = self.producers.first_mut().context("a producer")?;
            for _ in 0..requests {
                self.stop.check()?;
                consumer.ask(&self.topic)?;
                producer.write_all(&self.frame)?;
                wire::check_produced(wire::read_frame(producer)?)?;
                consumer.take(&self.topic, self.stop)?;
            }
            return Ok(());
        }
        let (frame, in_flight, stop) = (&self.frame, self.load.in_flight, self.stop);
        thread::scope(|scope| {
            let threads = self.producers.iter_mut().map(|socket| {
                thread::Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || {
                        produce(socket, frame, requests, in_flight, stop)
                    })
            });
            let threads: Vec<_> = threads.collect::<Result<_, _>>()?;
            for thread in threads {
                let produced = thread.join();
                produced.map_err(|_| anyhow::anyhow!("a producer panicked"))??;
            }
            Ok(())
        })
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        if let Err(error) = wire::delete_topic(self.broker, &self.topic) {
            eprintln!("topic {} is left behind: {error:#}", self.topic);
        }
    }
}

fn produce(
    socket: &mut TcpStream,
    frame: &[u8],
    requests: usize,
    in_flight: usize,
    stop: &Stop,
) -> Result<()> {
    let mut sent = 0;
    for answered in 0..requests {
        stop.check()?;
        while sent < requests && sent < answered + in_flight {
            socket.write_all(frame)?;
            sent += 1;
        }
        wire::check_produced(wire::read_frame(socket)?)?;
    }
    Ok(())
}

impl Consumer {
    /// Asks for what comes next, without waiting for the answer.
    fn ask(&mut self, topic: &str) -> Result<()> {
        let request = FetchRequest {
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: 1 << 20,
            session_epoch: -1,
            topics: vec![FetchTopic {
                topic: Str::from(topic.to_owned()),
                partitions: vec![FetchPartition {
                    fetch_offset: self.next_offset,
                    partition_max_bytes: 1 << 20,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let frame = wire::frame(wire::FETCH_VERSION, &request)?;
        Ok(self.socket.write_all(&frame)?)
    }

    /// Waits until the record that was produced is there.
    fn take(&mut self, topic: &str, stop: &Stop) -> Result<()> {
        for _ in 0..POLLS_MAX {
            stop.check()?;
            let answer = wire::read_frame(&mut self.socket)?;
            let response: FetchResponse = wire::decode(answer, wire::FETCH_VERSION)?;
            let partition = response
                .responses
                .first()
                .and_then(|t| t.partitions.first());
            let partition =
                partition.context("the broker answered a fetch without its partition")?;
            let error = match response.error_code {
                0 => partition.error_code,
                error => error,
            };
            ensure!(
                error == 0,
                "a fetch failed: the broker answered error {error}"
            );
            let bytes = partition.records.as_ref().map_or(0, |r| r.to_bytes().len());
            if bytes > 0 {
                self.next_offset += 1;
                return Ok(());
            }
            // It waited as long as it may.
            self.ask(topic)?;
        }
        bail!("a record that was acknowledged did not come to a waiting consumer")
    }
}

fn batch(records: usize) -> Bytes {
    let mut random = Random(1);
    let mut builder = BatchBuilder::new();
    for _ in 0..records {
        builder.push(wire::now_ms(), None, Some(&random.value(RANDOM_PART)));
    }
    builder.build()
}

/// The part of each record that no codec can compress.
const RANDOM_PART: f64 = 0.25;
/// There may be 200 of these threads.
const STACK_BYTES: usize = 256 << 10;
const SERVES_AFTER_MAX: Duration = Duration::from_secs(10);
/// Of half a second each.
const POLLS_MAX: usize = 60;
