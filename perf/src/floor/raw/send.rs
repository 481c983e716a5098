//! Vectored sends: a header and slices of 64 KiB, as a fetch is answered, to a reader that throws all away.

use super::meter::{Cell, Meter};
use super::table::Printer;
use super::{size, Part, Plan};
use crate::floor::pin;
use anyhow::{bail, Context, Result};
use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const RESPONSE_BYTES: [usize; 6] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const HEADER_BYTES: usize = 64;
const SLICE_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 1 << 20;
/// No send takes longer.
const TIMEOUT: Duration = Duration::from_secs(60);

pub fn measure(plan: &Plan, printer: &mut Printer) -> Result<()> {
    for bytes in RESPONSE_BYTES {
        printer.add(one(plan, bytes)?);
    }
    Ok(())
}

fn one(plan: &Plan, bytes: usize) -> Result<Cell> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port to listen on")?;
    let reader = TcpStream::connect(listener.local_addr()?).context("no loopback")?;
    let (sender, _) = listener.accept()?;
    std::thread::scope(|scope| {
        // Each thread owns its socket, so that the end of one ends the other.
        let reader = scope.spawn(move || throw_away(reader, plan));
        let sender = scope.spawn(move || send(sender, plan, bytes));
        let cell = sender.join().expect("the sender has no panic");
        let read = reader.join().expect("the reader has no panic");
        let cell = cell?;
        read?;
        Ok(cell)
    })
}

fn throw_away(mut socket: TcpStream, plan: &Plan) -> Result<()> {
    pin(plan.cpus.client)?;
    let mut buffer = vec![0; READ_BYTES];
    while socket.read(&mut buffer)? > 0 {}
    Ok(())
}

fn send(mut socket: TcpStream, plan: &Plan, bytes: usize) -> Result<Cell> {
    pin(plan.cpus.broker)?;
    socket.set_nodelay(true)?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    let header = [1; HEADER_BYTES];
    let records = vec![2; bytes];
    let mut meter = Meter::start(plan, Part::Send, size(bytes));
    while meter.goes_on()? {
        let mut slices = vec![IoSlice::new(&header)];
        slices.extend(records.chunks(SLICE_BYTES).map(IoSlice::new));
        let begun = Instant::now();
        send_all(&mut socket, &mut slices)?;
        meter.took(begun, bytes);
    }
    Ok(meter.cell())
}

fn send_all(socket: &mut TcpStream, mut slices: &mut [IoSlice<'_>]) -> Result<()> {
    while !slices.is_empty() {
        match socket.write_vectored(slices)? {
            0 => bail!("the reader is gone"),
            sent => IoSlice::advance_slices(&mut slices, sent),
        }
    }
    Ok(())
}
