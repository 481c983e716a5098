//! Direct reads of records that are in no memory, with what follows read ahead while an answer is sent.

use crate::floor::ring::{Buffer, Completion, Ring, Work, ALIGNMENT};
use anyhow::{ensure, Context, Result};
use bytes::Bytes;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

/// Reads ahead that are kept, one for each consumer that reads in sequence.
const AHEAD_MAX: usize = 8;
/// Read ahead beyond as much as was asked for last: batches differ in size.
const AHEAD_MORE_BYTES: usize = 64 << 10;

pub struct ColdReader {
    ring: Ring,
    free: Free,
    ahead: Vec<Ahead>,
    reads: u64,
}

/// Part of a file, being read or read.
struct Ahead {
    id: u64,
    file: Arc<File>,
    start: u64,
    len: usize,
    bytes: Option<Bytes>,
}

impl ColdReader {
    pub fn new() -> Result<ColdReader> {
        Ok(ColdReader {
            ring: Ring::new(AHEAD_MAX + 1)?,
            free: Free::default(),
            ahead: Vec::new(),
            reads: 0,
        })
    }

    /// Reads `len` bytes of a file that was opened for direct I/O; waits for them. Then begins to read what follows,
    /// up to `end`.
    pub fn read(&mut self, file: &Arc<File>, position: u64, len: usize, end: u64) -> Result<Bytes> {
        let last = position + len as u64;
        let covers = |ahead: &Ahead| {
            Arc::ptr_eq(&ahead.file, file)
                && ahead.start <= position
                && last <= ahead.start + ahead.len as u64
        };
        let id = match self.ahead.iter().find(|ahead| covers(ahead)) {
            Some(ahead) => ahead.id,
            None => self.begin(file, position, len)?,
        };
        let found = loop {
            let at = self.ahead.iter().position(|ahead| ahead.id == id);
            let at = at.context("a read that was begun")?;
            if let Some(bytes) = &self.ahead[at].bytes {
                let skipped = (position - self.ahead[at].start) as usize;
                ensure!(
                    bytes.len() >= skipped + len,
                    "the file of records is shorter than its index says"
                );
                let bytes = bytes.slice(skipped..skipped + len);
                self.ahead.swap_remove(at);
                break bytes;
            }
            let completion = self.ring.next_completed()?.context("nothing is read")?;
            self.take(completion)?;
        };
        let next = end
            .saturating_sub(last)
            .min((len + AHEAD_MORE_BYTES) as u64);
        if next > 0 {
            self.begin(file, last, next as usize)?;
            self.ring.submit()?;
        }
        Ok(found)
    }

    fn begin(&mut self, file: &Arc<File>, position: u64, len: usize) -> Result<u64> {
        if self.ahead.len() >= AHEAD_MAX {
            // The oldest: its consumer reads elsewhere now. One that is being read must end first.
            let oldest = (0..self.ahead.len()).min_by_key(|at| self.ahead[*at].id);
            let at = oldest.context("there are some")?;
            while self.ahead[at].bytes.is_none() {
                let completion = self.ring.next_completed()?.context("nothing is read")?;
                self.take(completion)?;
            }
            self.ahead.swap_remove(at);
        }
        let start = position - position % ALIGNMENT as u64;
        let len = ((position - start) as usize + len).next_multiple_of(ALIGNMENT);
        self.reads += 1;
        self.ahead.push(Ahead {
            id: self.reads,
            file: file.clone(),
            start,
            len,
            bytes: None,
        });
        let work = Work::Read {
            buffer: self.free.take(len)?,
            len,
            offset: start,
        };
        self.ring.push(self.reads, file, work)?;
        Ok(self.reads)
    }

    fn take(&mut self, completion: Completion) -> Result<()> {
        let len = completion.result.context("a direct read fails")?;
        let ahead = self
            .ahead
            .iter_mut()
            .find(|ahead| ahead.id == completion.id);
        if let (Some(ahead), Some(buffer)) = (ahead, completion.buffer) {
            let held = Held {
                buffer: Some(buffer),
                len,
                free: self.free.clone(),
            };
            ahead.bytes = Some(Bytes::from_owner(held));
        }
        Ok(())
    }
}

/// Buffers that are used again.
#[derive(Clone, Default)]
struct Free(Arc<Mutex<Vec<Buffer>>>);

const FREE_MAX: usize = 16;

impl Free {
    fn take(&self, bytes: usize) -> Result<Buffer> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match free.iter().position(|buffer| buffer.len() >= bytes) {
            Some(at) => Ok(free.swap_remove(at)),
            None => Buffer::new(bytes),
        }
    }
}

/// A buffer that goes back when its last slice is sent.
struct Held {
    buffer: Option<Buffer>,
    len: usize,
    free: Free,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.buffer
            .as_ref()
            .map_or(&[], |buffer| &buffer[..self.len])
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut free = self.free.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < FREE_MAX {
            free.extend(self.buffer.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor::tests::temp_dir;
    use nix::libc::O_DIRECT;

    #[test]
    fn any_part_is_read_in_any_order() {
        let dir = temp_dir();
        let path = dir.path().join("cold");
        let bytes: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = Arc::new(super::super::log::open(&path, O_DIRECT).unwrap());
        let mut reader = ColdReader::new().unwrap();
        let end = bytes.len() as u64;
        let mut at = 0;
        while at < 290_000 {
            let read = reader.read(&file, at, 9_000, end).unwrap();
            assert_eq!(read[..], bytes[at as usize..at as usize + 9_000]);
            at += 9_000;
        }
        // More places than are read ahead of, and back and forth.
        for n in 0..40 {
            let at = n * 7_919 % 250_000;
            let read = reader.read(&file, at, 40_000, end).unwrap();
            assert_eq!(read[..], bytes[at as usize..at as usize + 40_000]);
        }
        assert!(reader.ahead.len() <= AHEAD_MAX);
        let beyond = reader.read(&file, 299_000, 2_000, end).unwrap_err();
        assert!(beyond.to_string().contains("shorter"), "{beyond}");
        // It goes on after that.
        assert_eq!(reader.read(&file, 0, 10, end).unwrap()[..], bytes[..10]);
    }
}
