//! The event loop against a small server with a protocol of its own: frames of a letter and numbers of 8 bytes.

use super::*;
use crate::driver::records::due_of;
use crate::driver::Edge;
use crate::stop::Stop;
use crate::target::{self, Endpoint};
use crate::workload::{parse, Case};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

/// What the server does with records.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Acknowledge,
    /// It answers an error to the tenth of a connection.
    Refuse,
    /// It closes at the tenth of a connection.
    Close,
    /// It never says that a connection is ready.
    Silent,
}

struct Server {
    endpoint: Endpoint,
    log: Arc<Mutex<Log>>,
    /// The most records that a connection sent without an answer.
    in_flight_max: Arc<AtomicU64>,
}

/// What the server keeps.
#[derive(Default)]
struct Log {
    /// As consumers get them.
    records: Vec<u8>,
    consumers: Vec<TcpStream>,
}

impl Server {
    fn start(mode: Mode) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server {
            endpoint: Endpoint {
                protocol: target::Protocol::Redis,
                addr: listener.local_addr().unwrap(),
            },
            log: Arc::default(),
            in_flight_max: Arc::default(),
        };
        let log = server.log.clone();
        let max = server.in_flight_max.clone();
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, max) = (log.clone(), max.clone());
                std::thread::spawn(move || serve(stream.unwrap(), mode, &log, &max));
            }
        });
        server
    }
}

fn serve(mut stream: TcpStream, mode: Mode, log: &Mutex<Log>, max: &AtomicU64) {
    let mut kind = [0];
    if stream.read_exact(&mut kind).is_err() {
        return;
    }
    if kind == *b"C" {
        let mut log = log.lock().unwrap();
        stream.write_all(b"R").unwrap();
        // One that comes late gets what is there.
        stream.write_all(&log.records).unwrap();
        log.consumers.push(stream);
        return;
    }
    if mode != Mode::Silent {
        stream.write_all(b"R").unwrap();
    }
    let mut input = vec![0; 4096];
    let mut records = 0;
    let mut have = 0;
    while let Ok(count @ 1..) = stream.read(&mut input[have..]) {
        have += count;
        let whole = have / RECORD * RECORD;
        max.fetch_max((whole / RECORD) as u64, Relaxed);
        let mut out = Vec::new();
        for record in input[..whole].chunks(RECORD) {
            records += 1;
            match mode {
                Mode::Refuse if records == 10 => out.push(b'E'),
                Mode::Close if records == 10 => return,
                _ => {
                    out.push(b'A');
                    out.extend_from_slice(&record[1..9]);
                }
            }
            let delivery = [b"D", &record[9..17]].concat();
            let mut log = log.lock().unwrap();
            log.records.extend_from_slice(&delivery);
            for consumer in &mut log.consumers {
                // It may have left.
                let _ = consumer.write_all(&delivery);
            }
        }
        if stream.write_all(&out).is_err() {
            return;
        }
        input.copy_within(whole..have, 0);
        have -= whole;
    }
}

/// Bytes of a producer's frame.
const RECORD: usize = 17;

struct Fake;

struct Side(u8);

impl Protocol for Fake {
    fn producer(&self, _producer: u32) -> Box<dyn Producer> {
        Box::new(Side(b'P'))
    }

    fn consumer(&self, _partitions: &[u32]) -> Box<dyn Session> {
        Box::new(Side(b'C'))
    }
}

impl Session for Side {
    fn greet(&mut self, out: &mut Vec<u8>) {
        out.push(self.0);
    }

    fn read(&mut self, input: &[u8], _out: &mut Vec<u8>, events: &mut Vec<Event>) -> Result<usize> {
        let mut rest = input;
        loop {
            match (rest.first(), rest.get(1..9).and_then(due_of)) {
                (Some(b'R'), _) => {
                    events.push(Event::Ready);
                    rest = &rest[1..];
                    continue;
                }
                (Some(b'A'), Some(number)) => events.push(Event::Acknowledged(number)),
                (Some(b'D'), Some(due)) => events.push(Event::Record { due, bytes: 16 }),
                (Some(b'E'), _) => bail!("refused"),
                _ => return Ok(input.len() - rest.len()),
            }
            rest = &rest[9..];
        }
    }
}

impl Producer for Side {
    fn append(&mut self, _partition: u32, number: u64, value: &[u8], out: &mut Vec<u8>) {
        out.push(b'W');
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&value[..8]);
    }
}

fn case(text: &str) -> Case {
    let text = format!("name = \"t\"\ntitle = \"t\"\n[case]\nrecords = {{ bytes = 16 }}\n{text}");
    parse(&text, "test", false).unwrap().cases.remove(0)
}

fn run_until(server: &Server, case: &Case, cpus: &[usize], stop: &Stop) -> Result<Measured> {
    let edges = Mutex::new(Vec::new());
    let load = &case.loads[0];
    let measured = run(
        &Job {
            endpoint: &server.endpoint,
            case,
            load,
            rate: load.rate,
            topics: &["t".to_owned()],
            timing: &case.timing,
            cpus,
            stop,
            on_measure: &|edge| edges.lock().unwrap().push(edge),
        },
        &Fake,
    )?;
    assert_eq!(edges.into_inner().unwrap(), [Edge::Start, Edge::End]);
    Ok(measured)
}

fn run_on(server: &Server, case: &Case) -> Result<Measured> {
    run_until(server, case, &[], &Stop::default())
}

#[test]
fn a_window_is_kept_full_and_not_more_than_that() {
    let server = Server::start(Mode::Acknowledge);
    let case = case(
        "producers = { count = 4, in_flight = 3 }\ntiming = { warmup_s = 0.05, measure_s = 0.2 }",
    );
    // Two threads, each with two of the producers.
    let measured = run_until(&server, &case, &[0, 0], &Stop::default()).unwrap();
    assert_eq!(server.in_flight_max.load(Relaxed), 3);
    assert!(measured.produced.records > 0);
    assert_eq!(measured.produced.requests, measured.produced.records);
    assert_eq!(measured.produced.bytes, measured.produced.records * 16);
    assert!(!measured.acknowledged.is_empty());
    assert!(measured.schedule_delay.is_empty());
    assert_eq!(measured.unacknowledged, 0);
    assert!(measured.client_busy.is_some());
}

#[test]
fn an_open_loop_sends_what_is_due_and_each_set_of_consumers_has_it() {
    let server = Server::start(Mode::Acknowledge);
    let case = case(
        "producers = { count = 3, in_flight = 2 }\nconsumers = { sets = 2 }\n\
         timing = { warmup_s = 0.1, measure_s = 0.3 }\nloads = [{ name = \"l\", rate = 1000.0 }]",
    );
    let measured = run_on(&server, &case).unwrap();
    let acknowledged = measured.acknowledged.samples();
    assert_eq!(acknowledged + measured.unacknowledged, 300);
    assert_eq!(measured.schedule_delay.samples(), acknowledged);
    assert_eq!(measured.delivered.samples(), 2 * acknowledged);
    assert_eq!(measured.drained_after_s, None);
}

#[test]
fn enough_bytes_end_it() {
    let server = Server::start(Mode::Acknowledge);
    let case = case("timing = { warmup_s = 0.0, measure_s = 600.0, bytes_max = 1600 }");
    let measured = run_on(&server, &case).unwrap();
    // The one that was the last ends the time, so it is after it.
    assert_eq!(measured.produced.records, 99);
    assert!(measured.produced.seconds < 600.0);
}

#[test]
fn late_consumers_drain_what_was_produced_before_them() {
    let server = Server::start(Mode::Acknowledge);
    let case_of = |load| {
        case(&format!(
            "consumers = {{ sets = 2 }}\ntiming = {{ warmup_s = 9.0, measure_s = 0.3 }}\n\
             loads = [{{ name = \"l\", {load}, drain = {{ backlog_s = 0.1 }} }}]"
        ))
    };
    // With a rate the producers go on: 100 records before the consumers, 300 beside them.
    let measured = run_on(&server, &case_of("rate = 1000.0")).unwrap();
    assert!(measured.drained_after_s.is_some());
    assert_eq!(
        measured.acknowledged.samples() + measured.unacknowledged,
        300
    );
    assert!(measured.consumed.records > 300);
}

#[test]
fn a_drain_at_saturation_ends_when_all_consumers_have_caught_up() {
    let server = Server::start(Mode::Acknowledge);
    let case = case(
        "consumers = { sets = 2 }\ntiming = { measure_s = 600.0, bytes_max = 1600 }\n\
         loads = [{ name = \"l\", saturate = true, drain = { backlog_s = 0.1 } }]",
    );
    let measured = run_on(&server, &case).unwrap();
    assert!(measured.drained_after_s.unwrap() < 600.0);
    // Nothing is produced from then on; that is why it ends.
    assert_eq!(measured.produced.records, 0);
    assert!(
        measured.consumed.records >= 199,
        "{}",
        measured.consumed.records
    );
}

#[test]
fn what_a_broker_does_wrong_ends_it_with_an_error() {
    let timing = "producers = { count = 2 }\ntiming = { warmup_s = 0.0, measure_s = 600.0 }";
    for (mode, says) in [
        (Mode::Refuse, "refused"),
        (Mode::Close, "closed a connection"),
    ] {
        let server = Server::start(mode);
        // With a thread for each producer, the error is that of the one that has it.
        for cpus in [&[][..], &[0, 0]] {
            let error = run_until(&server, &case(timing), cpus, &Stop::default());
            let error = error.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}

#[test]
fn a_stop_ends_it_while_a_broker_is_silent() {
    let server = Server::start(Mode::Silent);
    let stop = Stop::default();
    let asker = stop.clone();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        asker.ask();
    });
    let error = run_until(&server, &case(""), &[], &stop).unwrap_err();
    assert!(error.to_string().contains("signal"), "{error}");
    thread.join().unwrap();
}

#[test]
fn nobody_who_listens_is_told() {
    let server = Server {
        endpoint: Endpoint {
            protocol: target::Protocol::Redis,
            // Bound, so that nobody else listens there, and closed again.
            addr: TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap(),
        },
        log: Arc::default(),
        in_flight_max: Arc::default(),
    };
    let error = run_on(&server, &case("")).unwrap_err().to_string();
    assert!(error.contains("can't be connected to"), "{error}");
}
