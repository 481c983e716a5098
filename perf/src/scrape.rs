//! What a scrape of `/metrics` costs: its time, its bytes, the broker's CPU, and what
//! producers notice of it.

use crate::measure::Recorder;
use crate::report::columns;
use crate::target::cost::cpu_time;
use crate::target::listener::listener_owner;
use crate::wire;
use anyhow::{bail, Context, Result};
use clap::Args;
use highwater::protocol::batch::BatchBuilder;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct ScrapeArgs {
    /// The broker's address.
    #[arg(long, default_value = "127.0.0.1:9092")]
    broker: String,
    /// Its admin HTTP.
    #[arg(long, default_value = "127.0.0.1:9644")]
    admin: String,
    /// Partitions of the topic that is made for this.
    #[arg(long, default_value_t = 1000)]
    partitions: i32,
    /// Scrapes that are timed on a quiet broker.
    #[arg(long, default_value_t = 200)]
    scrapes: usize,
    /// Seconds of produce, once without scrapes and once with one each second.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The broker's process; without it, the one that listens on the address.
    #[arg(long)]
    pid: Option<u32>,
}

/// The pause between scrapes beside produce: 15 times as often as usual.
const PAUSE: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(60);
const RECORD_BYTES: usize = 1024;

pub fn run(args: &ScrapeArgs) -> Result<()> {
    let pid = match args.pid {
        Some(pid) => pid,
        None => listener_owner(&args.broker)?,
    };
    let topic = format!("perf-scrape-{}", std::process::id());
    wire::create_topic(&args.broker, &topic, args.partitions, &[])?;
    let outcome = measure(args, pid, &topic);
    wire::delete_topic(&args.broker, &topic)?;
    outcome
}

fn measure(args: &ScrapeArgs, pid: u32, topic: &str) -> Result<()> {
    // The first registers what later ones find.
    scrape(&args.admin)?;
    let mut times = Recorder::default();
    let begun = Instant::now();
    let mut bytes = 0;
    let cpu_before = cpu_time(pid)?;
    for _ in 0..args.scrapes {
        let start = Instant::now();
        bytes = scrape(&args.admin)?;
        times.record(start - begun, start.elapsed());
    }
    let cpu = cpu_time(pid)? - cpu_before;
    println!(
        "{} scrapes of a broker with {} partitions more: {} KiB, {:.2} ms of CPU each",
        args.scrapes,
        args.partitions,
        bytes / 1024,
        cpu.as_secs_f64() * 1e3 / args.scrapes as f64
    );
    columns("us", &["p50", "p99", "max"]);
    row("scrape", &times);

    let span = Duration::from_secs(args.seconds);
    let quiet = produce(&args.broker, topic, span)?;
    row("produce", &quiet);
    let done = AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        let scraper = scope.spawn(|| -> Result<()> {
            while !done.load(Ordering::Relaxed) {
                scrape(&args.admin)?;
                std::thread::sleep(PAUSE);
            }
            Ok(())
        });
        let produced = produce(&args.broker, topic, span);
        done.store(true, Ordering::Relaxed);
        scraper.join().expect("the scraper does not panic")?;
        produced
    })?;
    row("produce, scraped", &beside);
    Ok(())
}

fn row(name: &str, times: &Recorder) {
    let longest = times.max_us();
    let (median, high) = (times.percentile_us(50.0), times.percentile_us(99.0));
    crate::report::row(name, [median, high, longest]);
}

/// One scrape; the bytes of the page.
fn scrape(admin: &str) -> Result<usize> {
    let mut socket = TcpStream::connect(admin)
        .with_context(|| format!("no admin HTTP at {admin} (admin.listener)"))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer)?;
    if !answer.starts_with(b"HTTP/1.1 200 ") || !answer.ends_with(b"# EOF\n") {
        bail!(
            "not a page of metrics: {}",
            String::from_utf8_lossy(&answer)
        );
    }
    Ok(answer.len())
}

/// Produces one record after the other with acks=all; the time of each.
fn produce(broker: &str, topic: &str, span: Duration) -> Result<Recorder> {
    let mut socket = wire::connect(broker)?;
    let mut times = Recorder::default();
    let begun = Instant::now();
    while begun.elapsed() < span {
        let mut batch = BatchBuilder::new();
        batch.push(wire::now_ms(), None, Some(&[7; RECORD_BYTES]));
        let frame = wire::produce_frame(topic, 0, -1, batch.build())?;
        let start = Instant::now();
        socket.write_all(&frame)?;
        wire::check_produced(wire::read_frame(&mut socket)?)?;
        times.record(start - begun, start.elapsed());
    }
    Ok(times)
}
