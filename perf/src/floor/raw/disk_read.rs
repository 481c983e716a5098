//! Direct reads of a file that was written before. What the disk itself, or its host, keeps in memory is not known.

use super::meter::{Cell, Meter};
use super::scratch::{fill, Scratch};
use super::table::Printer;
use super::{size, Part, Plan};
use crate::floor::pin;
use crate::floor::ring::{Buffer, Ring, Work};
use anyhow::{ensure, Context, Result};
use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

const READ_BYTES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
const DEPTHS: [usize; 3] = [1, 4, 16];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    Random,
    Sequence,
}

pub fn measure(plan: &Plan, scratch: &Scratch, printer: &mut Printer) -> Result<()> {
    let file = Arc::new(scratch.open("read")?);
    fill(&file, scratch.read_bytes())?;
    for order in [Order::Random, Order::Sequence] {
        for bytes in READ_BYTES {
            for depth in DEPTHS {
                plan.stop.check()?;
                let cell = std::thread::scope(|scope| {
                    let read = || one(plan, &file, scratch.read_bytes(), bytes, depth, order);
                    scope.spawn(read).join().expect("reading has no panic")
                });
                printer.add(cell?);
            }
        }
    }
    scratch.remove("read")
}

fn one(
    plan: &Plan,
    file: &Arc<File>,
    file_bytes: u64,
    bytes: usize,
    depth: usize,
    order: Order,
) -> Result<Cell> {
    pin(plan.cpus.broker)?;
    let mut ring = Ring::new(depth)?;
    let mut buffers = (0..depth)
        .map(|_| Buffer::new(bytes))
        .collect::<Result<Vec<_>>>()?;
    ring.register(&mut buffers);
    let blocks = file_bytes / bytes as u64;
    let mut offsets = Offsets {
        blocks,
        next: 0,
        order,
    };
    let mut begun = vec![Instant::now(); depth];
    let order = match order {
        Order::Random => "at random",
        Order::Sequence => "in sequence",
    };
    let name = format!("{}, {order}, depth {depth}", size(bytes));
    let mut meter = Meter::start(plan, Part::Read, name);
    for (slot, buffer) in buffers.into_iter().enumerate() {
        push(
            &mut ring,
            file,
            slot,
            buffer,
            bytes,
            &mut offsets,
            &mut begun,
        )?;
    }
    while let Some(completion) = ring.next_completed()? {
        let read = completion.result.context("a direct read fails")?;
        ensure!(read == bytes, "{read} of {bytes} bytes were read");
        let slot = completion.id as usize;
        meter.took(begun[slot], bytes);
        let buffer = completion.buffer.context("a read has a buffer")?;
        if meter.goes_on()? {
            push(
                &mut ring,
                file,
                slot,
                buffer,
                bytes,
                &mut offsets,
                &mut begun,
            )?;
            ring.submit()?;
        }
    }
    Ok(meter.cell())
}

fn push(
    ring: &mut Ring,
    file: &Arc<File>,
    slot: usize,
    buffer: Buffer,
    len: usize,
    offsets: &mut Offsets,
    begun: &mut [Instant],
) -> Result<()> {
    begun[slot] = Instant::now();
    let work = Work::Read {
        buffer,
        len,
        offset: offsets.draw() * len as u64,
    };
    ring.push(slot as u64, file, work)
}

struct Offsets {
    blocks: u64,
    next: u64,
    order: Order,
}

impl Offsets {
    /// A block's number.
    fn draw(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        match self.order {
            Order::Sequence => self.next % self.blocks,
            Order::Random => {
                // splitmix64.
                let mut z = self.next.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                (z ^ (z >> 31)) % self.blocks
            }
        }
    }
}
