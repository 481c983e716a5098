//! Open-loop produce latency.

use crate::floor::Floor;
use crate::report::{self, histogram, percentile_us, PERCENTILES};
use crate::wire;
use anyhow::{bail, Result};
use clap::Args;
use hdrhistogram::Histogram;
use highwater::protocol::batch::BatchBuilder;
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct LatencyArgs {
    /// The broker's address.
    #[arg(long, default_value = "127.0.0.1:9092")]
    broker: String,
    /// Requests a second, one record each.
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Bytes of a record's value.
    #[arg(long, default_value_t = 1024)]
    size: usize,
    /// -1 (all) or 1.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    acks: i16,
    /// Measured seconds of each turn.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Seconds at the start of each turn that do not count.
    #[arg(long, default_value_t = 2)]
    warmup: u32,
    /// Turns of the broker, each followed by one of the floor.
    #[arg(long, default_value_t = 3)]
    turns: u32,
    /// Settings of the topic that is made, `name=value`; may be repeated.
    #[arg(long = "topic-config")]
    topic_configs: Vec<String>,
    /// Name the stalls: when answers took longer than this many milliseconds.
    #[arg(long)]
    stalls_ms: Option<u64>,
    /// The floor writes and does not flush.
    #[arg(long)]
    no_flush: bool,
    /// Where the floor keeps its file: the file system of the broker's data.
    #[arg(long, default_value = ".")]
    floor_dir: PathBuf,
}

/// The histograms of one side.
struct Side {
    latency: Histogram<u64>,
    /// How late requests left: the client's own fault.
    delay: Histogram<u64>,
}

impl Side {
    fn new() -> Side {
        Side {
            latency: histogram(),
            delay: histogram(),
        }
    }

    fn add(&mut self, turn: &Side) -> Result<()> {
        self.latency.add(&turn.latency)?;
        self.delay.add(&turn.delay)?;
        Ok(())
    }
}

pub fn run(args: &LatencyArgs) -> Result<()> {
    if args.acks == 0 {
        bail!("--acks 0 has no answer to wait for: use 1 or -1");
    }
    let configs = wire::topic_configs(&args.topic_configs)?;
    let topic = format!("perf-latency-{}", std::process::id());
    wire::create_topic(&args.broker, &topic, 1, &configs)?;
    let mut batch = BatchBuilder::new();
    batch.push(now_ms(), None, Some(&vec![b'x'; args.size]));
    let request = wire::produce_frame(&topic, 0, args.acks, batch.build())?;
    let answer = first_answer(&args.broker, &request)?;

    let mut broker = Side::new();
    let mut floor = Side::new();
    for turn in 1..=args.turns {
        eprintln!("turn {turn} of {}: broker, then floor", args.turns);
        let turn = open_loop(wire::connect(&args.broker)?, &request, args, true)?;
        broker.add(&turn)?;
        let server = Floor::start(&args.floor_dir, !args.no_flush, answer.clone())?;
        let turn = open_loop(
            wire::connect(&server.addr.to_string())?,
            &request,
            args,
            false,
        )?;
        server.finish()?;
        floor.add(&turn)?;
    }
    print(args, &broker, &floor);
    Ok(())
}

/// One request and its whole answer frame, which the floor then gives too.
fn first_answer(broker: &str, request: &[u8]) -> Result<Vec<u8>> {
    let mut socket = wire::connect(broker)?;
    socket.write_all(request)?;
    let answer = wire::read_frame(&mut socket)?;
    wire::check_produced(answer.clone())?;
    let mut framed = (answer.len() as u32).to_be_bytes().to_vec();
    framed.extend(answer);
    Ok(framed)
}

fn open_loop(
    socket: TcpStream,
    request: &[u8],
    args: &LatencyArgs,
    check_answers: bool,
) -> Result<Side> {
    let total = u64::from(args.rate) * u64::from(args.seconds + args.warmup);
    let warmup = u64::from(args.rate) * u64::from(args.warmup);
    let interval = Duration::from_secs(1) / args.rate;
    let (sent, in_flight) = mpsc::channel::<Instant>();
    let mut reader = socket.try_clone()?;
    let mut stalls = args.stalls_ms.map(Stalls::new);
    let start = Instant::now();
    let answers = std::thread::spawn(move || -> Result<Histogram<u64>> {
        let mut latency = histogram();
        for (n, intended) in in_flight.into_iter().enumerate() {
            let answer = wire::read_frame(&mut reader)?;
            let took = intended.elapsed();
            if check_answers {
                wire::check_produced(answer)?;
            }
            if let Some(stalls) = &mut stalls {
                stalls.see(intended - start, took);
            }
            if n as u64 >= warmup {
                latency.saturating_record(took.as_nanos() as u64);
            }
        }
        Ok(latency)
    });
    let mut delay = histogram();
    let mut socket = socket;
    for n in 0..total {
        let intended = start + interval * n as u32;
        wait_until(intended);
        if n >= warmup {
            delay.saturating_record(intended.elapsed().as_nanos() as u64);
        }
        if sent.send(intended).is_err() {
            break;
        }
        socket.write_all(request)?;
    }
    drop(sent);
    let latency = answers.join().expect("the reading thread has no panic")?;
    Ok(Side { latency, delay })
}

/// Prints each stretch of slow answers as one stall.
struct Stalls {
    slow: Duration,
    /// When the current one began, its worst answer, how many there were.
    current: Option<(Duration, Duration, u64)>,
}

impl Stalls {
    fn new(slow_ms: u64) -> Stalls {
        Stalls {
            slow: Duration::from_millis(slow_ms),
            current: None,
        }
    }

    fn see(&mut self, at: Duration, took: Duration) {
        if took >= self.slow {
            let (_, worst, answers) = self.current.get_or_insert((at, took, 0));
            *worst = took.max(*worst);
            *answers += 1;
        } else if let Some((at, worst, answers)) = self.current.take() {
            eprintln!(
                "stall at {:.3} s: {answers} answers, the worst after {:.1} ms",
                at.as_secs_f64(),
                worst.as_secs_f64() * 1e3
            );
        }
    }
}

/// Sleeps, then spins for the last stretch, which a sleep would overshoot.
fn wait_until(time: Instant) {
    const SPIN: Duration = Duration::from_micros(80);
    let left = time.saturating_duration_since(Instant::now());
    if left > SPIN {
        std::thread::sleep(left - SPIN);
    }
    while Instant::now() < time {
        std::hint::spin_loop();
    }
}

fn print(args: &LatencyArgs, broker: &Side, floor: &Side) {
    println!(
        "{} bytes, acks {}, {}/s, {} turns of {} s in alternation; microseconds from the intended send time",
        args.size, args.acks, args.rate, args.turns, args.seconds
    );
    let floor_name = if args.no_flush {
        "floor: loopback + pwrite"
    } else {
        "floor: + pwrite + fdatasync"
    };
    let values = |histogram: &Histogram<u64>| PERCENTILES.map(|p| percentile_us(histogram, p));
    report::head();
    report::row("broker", values(&broker.latency));
    report::row(floor_name, values(&floor.latency));
    let ratios = PERCENTILES
        .map(|p| Some(percentile_us(&broker.latency, p)? / percentile_us(&floor.latency, p)?));
    report::row("ratio", ratios);
    report::row("late sends, broker", values(&broker.delay));
    report::row("late sends, floor", values(&floor.delay));
    println!(
        "{} broker samples, {} floor samples",
        broker.latency.len(),
        floor.latency.len()
    );
}

fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as i64)
}
