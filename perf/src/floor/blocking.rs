//! The machine's own floor: a server that does only what no broker can avoid.
//!
//! One thread, one connection: it reads a request, overwrites the next block of a file
//! whose blocks are all written (the cheapest flush there is), calls fdatasync if asked,
//! and answers with a fixed frame.

use anyhow::Result;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// The unit of writes, bytes.
const BLOCK_BYTES: usize = 4096;
/// Blocks of the file before it is used from the start again.
const BLOCKS: u64 = 16 * 1024;

pub struct Floor {
    pub addr: SocketAddr,
    path: PathBuf,
    thread: JoinHandle<Result<()>>,
}

impl Floor {
    /// Serves one connection.
    pub fn start(dir: &Path, flush: bool, answer: Vec<u8>) -> Result<Floor> {
        let path = dir.join(format!("perf-floor-{}", std::process::id()));
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(&path)?;
        let zeros = vec![0; BLOCK_BYTES * 256];
        for part in 0..BLOCKS / 256 {
            file.write_all_at(&zeros, part * zeros.len() as u64)?;
        }
        file.sync_all()?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let thread = std::thread::spawn(move || serve(&listener, &file, flush, &answer));
        Ok(Floor { addr, path, thread })
    }

    /// Waits for the client's end and removes the file.
    pub fn finish(self) -> Result<()> {
        let served = self.thread.join().expect("the floor's thread has no panic");
        std::fs::remove_file(&self.path)?;
        served
    }
}

fn serve(listener: &TcpListener, file: &File, flush: bool, answer: &[u8]) -> Result<()> {
    let (mut socket, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    let mut block = vec![0; BLOCK_BYTES];
    let mut next = 0;
    while read_request(&mut socket, &mut block)? {
        file.write_all_at(&block[..BLOCK_BYTES], next * BLOCK_BYTES as u64)?;
        next = (next + 1) % BLOCKS;
        if flush {
            file.sync_data()?;
        }
        socket.write_all(answer)?;
    }
    Ok(())
}

fn read_request(socket: &mut TcpStream, buf: &mut Vec<u8>) -> Result<bool> {
    let mut prefix = [0; 4];
    if socket.read_exact(&mut prefix).is_err() {
        return Ok(false);
    }
    let length = u32::from_be_bytes(prefix) as usize;
    if buf.len() < length {
        buf.resize(length, 0);
    }
    socket.read_exact(&mut buf[..length])?;
    Ok(true)
}
