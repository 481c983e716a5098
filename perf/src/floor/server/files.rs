//! The files of a server, and where records are read from when they are in no memory.

use super::cold::ColdReader;
use super::inbox::Pool;
use super::log::{open, CacheLog, FlushLog, Log};
use super::ServerArgs;
use anyhow::{Context, Result};
use bytes::Bytes;
use nix::libc::O_DIRECT;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const FLUSHED: &str = "flushed.log";
const CACHED: &str = "cached.log";

/// `T` is what is told once a turn is written.
pub struct Files<T> {
    args: ServerArgs,
    /// From the first topic that is flushed on: its file is written whole beforehand.
    pub flush: Option<FlushLog<T>>,
    pub cache: CacheLog<T>,
    /// The same file as `cache`'s, for direct reads.
    cache_direct: Option<Arc<File>>,
    cold: Option<ColdReader>,
}

impl<T> Files<T> {
    /// `next` as in [`CacheLog::open`].
    pub fn open(args: &ServerArgs, next: u64) -> Result<Files<T>> {
        Ok(Files {
            args: args.clone(),
            flush: None,
            cache: CacheLog::open(&args.dir.join(CACHED), args.keep_bytes, next)?,
            cache_direct: None,
            cold: None,
        })
    }

    /// Before the first topic that is flushed; takes as long as it takes to write the file.
    pub fn make_flush(&mut self) -> Result<()> {
        if self.flush.is_none() {
            let path = self.args.dir.join(FLUSHED);
            let ServerArgs {
                flush_bytes,
                flush_by,
                depth,
                ..
            } = self.args;
            self.flush = Some(FlushLog::make(&path, flush_bytes, flush_by, depth)?);
        }
        Ok(())
    }

    /// What becomes readable when a turn is flushed, from the first topic that is flushed on.
    pub fn flush_fd(&self) -> Option<RawFd> {
        self.flush.as_ref().map(|flush| flush.as_raw_fd())
    }

    /// Whether no more records can be taken before a turn has ended.
    pub fn is_full(&self) -> bool {
        self.cache.is_full() || self.flush.as_ref().is_some_and(FlushLog::is_full)
    }

    /// Gives a batch to the turn that is gathered, with what is to be told of it; its place.
    pub fn push(&mut self, is_flushed: bool, bytes: &Bytes, then: T) -> Result<u64> {
        if is_flushed {
            let flush = self.flush.as_mut().context("a flushed topic has a file")?;
            let place = flush.push(bytes)?;
            flush.then(then);
            Ok(place)
        } else {
            let place = self.cache.push(bytes.clone());
            self.cache.then(then);
            Ok(place)
        }
    }

    /// The file of a topic.
    pub fn log(&self, is_flushed: bool) -> &Log {
        match &self.flush {
            Some(flush) if is_flushed => flush.log(),
            _ => self.cache.log(),
        }
    }

    /// Reads what is in no memory: from the page cache what this process has copied there, else from the disk.
    pub fn read(&mut self, is_flushed: bool, place: u64, len: usize, pool: &Pool) -> Result<Bytes> {
        let log = self.log(is_flushed);
        let position = log.position(place);
        if is_flushed {
            let file = log.file.clone();
            return self
                .cold()?
                .read(&file, position, len, position + len as u64);
        }
        if let Some(left) = self.cache.cold_bytes(place) {
            let end = (position + left).min(self.args.keep_bytes);
            let file = match &self.cache_direct {
                Some(file) => file.clone(),
                None => {
                    let file = Arc::new(open(&self.args.dir.join(CACHED), O_DIRECT)?);
                    self.cache_direct.insert(file).clone()
                }
            };
            return self.cold()?.read(&file, position, len, end);
        }
        let mut bytes = pool.take(len);
        log.file
            .read_exact_at(bytes.bytes_mut(), position)
            .context("the file of records can't be read")?;
        Ok(bytes.freeze())
    }

    fn cold(&mut self) -> Result<&mut ColdReader> {
        match &mut self.cold {
            Some(cold) => Ok(cold),
            none => Ok(none.insert(ColdReader::new()?)),
        }
    }
}
