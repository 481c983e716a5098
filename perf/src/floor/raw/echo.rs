//! Round trips to a server that does nothing: it reads a request and sends 64 bytes back.
//!
//! Both sides block in read, as most brokers and clients wait for their sockets.

use super::meter::{Cell, Meter};
use super::table::Printer;
use super::{size, Part, Plan};
use crate::floor::pin;
use anyhow::{Context, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const REQUEST_BYTES: [usize; 5] = [64, 1 << 10, 16 << 10, 64 << 10, 1 << 20];
const ANSWER_BYTES: usize = 64;
/// No round trip takes longer.
const TIMEOUT: Duration = Duration::from_secs(60);

pub fn measure(plan: &Plan, printer: &mut Printer) -> Result<()> {
    for bytes in REQUEST_BYTES {
        printer.add(one(plan, bytes, None)?);
        let rate = plan.rate.min(printer.last_per_second() / 2.0).max(1.0);
        printer.add(one(plan, bytes, Some(rate))?);
    }
    Ok(())
}

fn one(plan: &Plan, bytes: usize, rate: Option<f64>) -> Result<Cell> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port to listen on")?;
    let addr = listener.local_addr()?;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&listener, plan, bytes));
        let client = scope.spawn(|| {
            let socket = TcpStream::connect(addr).context("the echo can't be reached")?;
            round_trips(socket, plan, bytes, rate)
        });
        let cell = client.join().expect("the client has no panic");
        // Its socket is closed, which ends the server; unless there never was one.
        if cell.is_err() {
            drop(TcpStream::connect(addr));
        }
        let served = server.join().expect("the server has no panic");
        let cell = cell?;
        served?;
        Ok(cell)
    })
}

fn serve(listener: &TcpListener, plan: &Plan, bytes: usize) -> Result<()> {
    pin(plan.cpus.broker)?;
    let (mut socket, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    let mut request = vec![0; bytes];
    loop {
        match socket.read_exact(&mut request) {
            Ok(()) => socket.write_all(&[0; ANSWER_BYTES])?,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn round_trips(
    mut socket: TcpStream,
    plan: &Plan,
    bytes: usize,
    rate: Option<f64>,
) -> Result<Cell> {
    pin(plan.cpus.client)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    let request = vec![7; bytes];
    let mut answer = [0; ANSWER_BYTES];
    let pace = match rate {
        Some(rate) => format!("{rate:.0} a second"),
        None => "back to back".to_owned(),
    };
    let name = format!("{}, {pace}", size(bytes));
    let mut meter = Meter::start(plan, Part::Echo, name);
    let start = Instant::now();
    let mut sent = 0u64;
    while meter.goes_on()? {
        let due = match rate {
            Some(rate) => {
                let due = start + Duration::from_secs_f64(sent as f64 / rate);
                wait_until(due);
                due
            }
            None => Instant::now(),
        };
        socket.write_all(&request)?;
        socket.read_exact(&mut answer)?;
        meter.took(due, bytes);
        sent += 1;
    }
    Ok(meter.cell())
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
