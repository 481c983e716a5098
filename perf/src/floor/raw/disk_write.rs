//! Direct writes and how they become durable.
//!
//! One operation writes a block of each file and flushes each file; it has ended when all of that is done. Depth is
//! how many operations are under way at once. Blocks are *overwritten* (written before: nothing but data goes to the
//! disk), *unwritten* (preallocated by fallocate: the file system must note that they hold data now) or *new* (the
//! file grows: its length and blocks must be noted).

use super::meter::{Cell, Meter};
use super::scratch::{fill, Scratch};
use super::table::Printer;
use super::{size, Part, Plan};
use crate::floor::pin;
use crate::floor::ring::{Buffer, Ring, Then, Work};
use anyhow::{Context, Result};
use nix::fcntl::{fallocate, FallocateFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

const WRITE_BYTES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 1 << 20];
const FILES: [usize; 3] = [1, 4, 16];
const DEPTHS: [usize; 4] = [1, 2, 4, 8];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Overwritten,
    Unwritten,
    New,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    /// io_uring: the fdatasync is linked to the write.
    Linked,
    /// io_uring: the fdatasync is given to the kernel once the write is done.
    Separate,
    /// io_uring: one write with RWF_DSYNC.
    Dsync,
    /// pwrite and fdatasync.
    Syscalls,
    /// io_uring: a write that is not flushed.
    NoFlush,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spec {
    bytes: usize,
    files: usize,
    state: State,
    depth: usize,
    method: Method,
}

pub fn measure(plan: &Plan, scratch: &Scratch, printer: &mut Printer) -> Result<()> {
    for spec in specs(plan.quick) {
        plan.stop.check()?;
        let files = Files::make(scratch, &spec)?;
        let cell = std::thread::scope(|scope| {
            let write = || {
                pin(plan.cpus.broker)?;
                match spec.method {
                    Method::Syscalls => by_syscalls(plan, &spec, files),
                    _ => by_ring(plan, &spec, files),
                }
            };
            scope.spawn(write).join().expect("writing has no panic")
        });
        for n in 0..spec.files {
            scratch.remove(&format!("write-{n}"))?;
        }
        printer.add(cell?);
    }
    Ok(())
}

/// With `quick` one property is varied at a time, else size with each other one.
fn specs(quick: bool) -> Vec<Spec> {
    let base = Spec {
        bytes: WRITE_BYTES[0],
        files: 1,
        state: State::Overwritten,
        depth: 1,
        method: Method::Linked,
    };
    let methods = [
        Method::Separate,
        Method::Dsync,
        Method::Syscalls,
        Method::NoFlush,
    ];
    let states = [State::Unwritten, State::New];
    let mut specs: Vec<Spec> = WRITE_BYTES.map(|bytes| Spec { bytes, ..base }).into();
    for bytes in WRITE_BYTES {
        let base = Spec { bytes, ..base };
        if quick && bytes != WRITE_BYTES[0] {
            specs.extend((bytes == 1 << 20).then_some(Spec {
                method: Method::NoFlush,
                ..base
            }));
            continue;
        }
        specs.extend(methods.map(|method| Spec { method, ..base }));
        specs.extend(DEPTHS[1..].iter().map(|&depth| Spec { depth, ..base }));
        specs.extend(states.map(|state| Spec { state, ..base }));
        for &files in &FILES[1..] {
            specs.push(Spec { files, ..base });
            if !quick {
                specs.extend(states.map(|state| Spec {
                    state,
                    files,
                    ..base
                }));
            }
        }
    }
    specs
}

impl Spec {
    fn name(&self) -> String {
        let files = match self.files {
            1 => "1 file".to_owned(),
            files => format!("{files} files"),
        };
        let state = match self.state {
            State::Overwritten => "overwritten",
            State::Unwritten => "unwritten",
            State::New => "new",
        };
        let method = match self.method {
            Method::Linked => "linked fdatasync",
            Method::Separate => "then fdatasync",
            Method::Dsync => "RWF_DSYNC",
            Method::Syscalls => "pwrite, fdatasync",
            Method::NoFlush => "no flush",
        };
        let Spec { bytes, depth, .. } = *self;
        format!("{}, {files}, {state}, depth {depth}, {method}", size(bytes))
    }
}

/// The files of a cell, written at the same place, one block after the other.
struct Files {
    files: Vec<Arc<File>>,
    state: State,
    file_bytes: u64,
    next: u64,
}

impl Files {
    fn make(scratch: &Scratch, spec: &Spec) -> Result<Files> {
        let open = |n| Ok(Arc::new(scratch.open(&format!("write-{n}"))?));
        let files = Files {
            files: (0..spec.files).map(open).collect::<Result<_>>()?,
            state: spec.state,
            file_bytes: scratch.file_bytes(),
            next: 0,
        };
        files.prepare()?;
        Ok(files)
    }

    fn prepare(&self) -> Result<()> {
        for file in &self.files {
            match self.state {
                State::Overwritten => fill(file, self.file_bytes)?,
                State::Unwritten => {
                    file.set_len(0)?;
                    fallocate(&**file, FallocateFlags::empty(), 0, self.file_bytes as i64)
                        .context("this file system can't preallocate")?;
                    file.sync_all()?;
                }
                State::New => {
                    file.set_len(0)?;
                    file.sync_all()?;
                }
            }
        }
        Ok(())
    }

    /// Whether the files must be made anew before so many bytes: their blocks are no longer in the state.
    fn are_used_up(&self, bytes: usize) -> bool {
        self.state != State::Overwritten && self.next + bytes as u64 > self.file_bytes
    }

    fn renew(&mut self, meter: &mut Meter<'_>) -> Result<()> {
        self.next = 0;
        meter.pause(|| self.prepare())
    }

    /// Where the next block of so many bytes goes.
    fn take(&mut self, bytes: usize) -> u64 {
        if self.next + bytes as u64 > self.file_bytes {
            self.next = 0;
        }
        let offset = self.next;
        self.next += bytes as u64;
        offset
    }
}

fn by_syscalls(plan: &Plan, spec: &Spec, mut files: Files) -> Result<Cell> {
    let buffer = filled(spec.bytes)?;
    let mut meter = Meter::start(plan, Part::Write, spec.name());
    while meter.goes_on()? {
        if files.are_used_up(spec.bytes) {
            files.renew(&mut meter)?;
        }
        let offset = files.take(spec.bytes);
        let begun = Instant::now();
        for file in &files.files {
            file.write_all_at(&buffer[..spec.bytes], offset)
                .context("a direct write fails")?;
            file.sync_data().context("a flush fails")?;
        }
        meter.took(begun, spec.bytes * spec.files);
    }
    Ok(meter.cell())
}

/// An operation under way.
struct Operation {
    begun: Instant,
    /// Of its files, those that are not done.
    left: usize,
    buffers: Vec<Buffer>,
}

fn by_ring(plan: &Plan, spec: &Spec, mut files: Files) -> Result<Cell> {
    let mut ring = Ring::new(spec.depth * spec.files)?;
    let mut buffers = (0..spec.depth * spec.files)
        .map(|_| filled(spec.bytes))
        .collect::<Result<Vec<_>>>()?;
    ring.register(&mut buffers);
    let mut operations: Vec<Operation> = (0..spec.depth)
        .map(|_| Operation {
            begun: Instant::now(),
            left: 0,
            buffers: buffers.split_off(buffers.len() - spec.files),
        })
        .collect();
    let mut idle: Vec<usize> = (0..spec.depth).collect();
    let mut meter = Meter::start(plan, Part::Write, spec.name());
    loop {
        if meter.goes_on()? {
            while let Some(&n) = idle.last() {
                if files.are_used_up(spec.bytes) {
                    if ring.in_flight() > 0 {
                        break;
                    }
                    files.renew(&mut meter)?;
                }
                idle.pop();
                begin(&mut ring, spec, &mut files, &mut operations[n], n as u64)?;
            }
            ring.submit()?;
        }
        let Some(completion) = ring.next_completed()? else {
            return Ok(meter.cell());
        };
        completion
            .result
            .context("a direct write or a flush fails")?;
        let (n, file) = (completion.id / FILE_IDS, completion.id % FILE_IDS);
        let operation = &mut operations[n as usize];
        if let Some(buffer) = completion.buffer {
            operation.buffers.push(buffer);
            if spec.method == Method::Separate {
                ring.push(completion.id, &files.files[file as usize], Work::Flush)?;
                continue;
            }
        }
        operation.left -= 1;
        if operation.left == 0 {
            meter.took(operation.begun, spec.bytes * spec.files);
            idle.push(n as usize);
        }
    }
}

/// An operation's number times this, and a file's, make an id.
const FILE_IDS: u64 = 1 << 16;

fn begin(
    ring: &mut Ring,
    spec: &Spec,
    files: &mut Files,
    operation: &mut Operation,
    n: u64,
) -> Result<()> {
    let offset = files.take(spec.bytes);
    operation.begun = Instant::now();
    operation.left = spec.files;
    for (at, file) in files.files.iter().enumerate() {
        let work = Work::Write {
            buffer: operation.buffers.pop().context("a buffer for each file")?,
            len: spec.bytes,
            offset,
            then: match spec.method {
                Method::Linked => Then::Flush,
                Method::Dsync => Then::Dsync,
                _ => Then::Nothing,
            },
        };
        ring.push(n * FILE_IDS + at as u64, file, work)?;
    }
    Ok(())
}

fn filled(bytes: usize) -> Result<Buffer> {
    let mut buffer = Buffer::new(bytes)?;
    buffer.fill(0xa5);
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor::raw::{table, Cpus};
    use crate::stop::Stop;
    use std::time::Duration;

    #[test]
    fn every_way_to_write_is_measured_also_over_the_end_of_the_files() {
        let dir = crate::floor::tests::temp_dir();
        let plan = Plan {
            cpus: Cpus {
                broker: None,
                client: None,
            },
            time: Duration::from_millis(5),
            rate: 1.0,
            quick: true,
            stop: Stop::default(),
        };
        let scratch = Scratch::make(dir.path(), true).unwrap();
        let mut cells = Vec::new();
        let mut printer = table::Printer::new(Part::Write, &mut cells);
        for state in [State::Overwritten, State::Unwritten, State::New] {
            for method in [
                Method::Linked,
                Method::Separate,
                Method::Dsync,
                Method::Syscalls,
            ] {
                let spec = Spec {
                    bytes: 1 << 20,
                    files: if method == Method::Syscalls { 1 } else { 2 },
                    state,
                    depth: if method == Method::Syscalls { 1 } else { 3 },
                    method,
                };
                let mut files = Files::make(&scratch, &spec).unwrap();
                // Two blocks are left.
                files.next = files.file_bytes - (2 << 20);
                let cell = match method {
                    Method::Syscalls => by_syscalls(&plan, &spec, files),
                    _ => by_ring(&plan, &spec, files),
                };
                let cell = cell.unwrap();
                assert!(cell.operations > 0, "{}", cell.name);
                assert_eq!(cell.bytes, (cell.operations * spec.files as u64) << 20);
                assert_eq!(cell.latency.samples(), cell.operations);
                printer.add(cell);
            }
        }
        assert_eq!(cells.len(), 12);
    }

    #[test]
    fn no_cell_is_there_twice() {
        for (quick, count) in [(true, 16), (false, 64)] {
            let specs = specs(quick);
            assert_eq!(specs.len(), count);
            for (n, spec) in specs.iter().enumerate() {
                assert!(!specs[..n].contains(spec), "{spec:?}");
            }
        }
    }
}
