//! Expired segments whose files become new segments of the same log.
//!
//! A flush of bytes that overwrite written blocks is cheaper than one of bytes that land in
//! reserved, never written ones: the file system has nothing of its own to record. So the
//! file of a segment that retention removed may serve again: once `file.delete.delay.ms` is
//! over it is overwritten with zeros, durably, in the background, and kept under its
//! `.deleted` name. The next roll renames it. A crash at any point leaves either a `.deleted`
//! file, which every load removes, or a segment that holds zeros behind its batches, as a
//! preallocated one does.
//!
//! Why zeros, and not the old batches: a load would refuse every *whole* old batch, which has
//! a lower base offset than the expected one. But a header's first 21 bytes are outside the
//! CRC, and a torn write may leave the first of them new, up to a sector's end, and all that
//! follows old. Where batches are of one size, old ones stand where the new ones
//! will, so that about one batch in thirty could be put together of a new base offset and
//! of an old batch's valid rest: a record that nobody produced there. No check of the
//! load's can tell; the old bytes have to be gone, durably, before a new one is written.
//!
//! Why nobody reads the file meanwhile: a file is only found through its segment, by someone
//! inside the log's gate. The segment has left the log, so once all who were inside at that
//! time have left the gate, nobody holds it. A log that was retired for a rebuild may still
//! have readers of its own (`retire.rs`): as long as it exists, nothing of its directory is
//! recycled. Buffers that were handed out are copies in memory.
//!
//! Not in a log that is or was compacted, and within one log only. The pool is small: spare
//! files are bytes on the disk that no setting of retention counts.

use super::gate::IoGate;
use super::log::LogShared;
use super::{LogConfig, Throttle};
use crate::runtime::local::Budget;
use crate::runtime::{Dir, File, IoError, IoErrorKind, OpenMode, Rt, SharedBuf, SyncSite};
use crate::runtime::{Queue, BLOCK_BYTES};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

/// What the logs of one shard share.
pub(super) struct RecyclePool {
    /// Bytes of spare files that may still be kept.
    room: Rc<Cell<u64>>,
    /// Files are overwritten one at a time.
    turn: Budget,
    throttle: Throttle,
    /// Logs that were retired, as long as somebody may read from them.
    retired: RefCell<Vec<(PathBuf, Weak<LogShared>)>>,
}

impl RecyclePool {
    pub(super) fn new(rt: Rt) -> RecyclePool {
        RecyclePool {
            room: Rc::new(Cell::new(SPARE_BYTES_MAX)),
            turn: Budget::new(1),
            throttle: Throttle::new(rt, WIPE_BYTES_PER_SECOND),
            retired: RefCell::new(Vec::new()),
        }
    }

    /// Notes a log whose readers go on while another one works in its directory.
    pub(super) fn note_retired(&self, log: &Rc<LogShared>) {
        let mut retired = self.retired.borrow_mut();
        retired.retain(|(_, log)| log.strong_count() > 0);
        retired.push((log.dir.path().to_owned(), Rc::downgrade(log)));
    }

    fn has_readers_of_old(&self, dir: &Path) -> bool {
        let mut retired = self.retired.borrow_mut();
        retired.retain(|(_, log)| log.strong_count() > 0);
        retired.iter().any(|(path, _)| path == dir)
    }
}

/// The spare files of one log.
pub(super) struct Recycler {
    pool: Rc<RecyclePool>,
    spares: RefCell<Vec<Spare>>,
    /// No file of this log is recycled any more.
    ended: Cell<bool>,
}

/// A file of zeros, durable as such.
struct Spare {
    name: String,
    bytes: u64,
    _room: Room,
}

/// Bytes taken from the pool's room, given back when dropped.
struct Room(Rc<Cell<u64>>, u64);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.set(self.0.get() + self.1);
    }
}

impl Recycler {
    pub(super) fn new(pool: Rc<RecyclePool>) -> Recycler {
        Recycler {
            pool,
            spares: RefCell::new(Vec::new()),
            ended: Cell::new(false),
        }
    }

    /// Recycles nothing from now on: the log is (or was) compacted, or it is retired. Files
    /// that were kept stay until the next load.
    pub(super) fn end(&self) {
        self.ended.set(true);
        self.spares.borrow_mut().clear();
    }

    /// How many files are kept.
    #[cfg(test)]
    pub(super) fn spares(&self) -> usize {
        self.spares.borrow().len()
    }

    fn wants(&self, config: &LogConfig) -> bool {
        let full = self.spares.borrow().len() >= SPARES_MAX;
        config.recycle_segments && !config.compacted && !self.ended.get() && !full
    }

    /// Takes over the file `name`, which was renamed away from the log: overwrites it with
    /// zeros and keeps it. False if it is not wanted; then the caller removes it.
    pub(super) async fn keep(
        &self,
        dir: &Dir,
        gate: &IoGate,
        config: &LogConfig,
        name: &str,
    ) -> Result<bool, IoError> {
        if !self.wants(config) {
            return Ok(false);
        }
        gate.grace().await;
        // While another file has its turn, those behind it would stay for long.
        let Some(_turn) = self.pool.turn.try_acquire(1) else {
            return Ok(false);
        };
        if !self.wants(config) || self.pool.has_readers_of_old(dir.path()) {
            return Ok(false);
        }
        // Else its old name may come back with the zeros.
        dir.sync(SyncSite::SegmentRecycle).await?;
        let file = dir.open(name, OpenMode::ReadWrite).await?;
        let bytes = file.size().await?.next_multiple_of(BLOCK_BYTES as u64);
        let segment_bytes = u64::from(config.segment_bytes);
        let fits = bytes >= segment_bytes / 2
            && bytes <= segment_bytes.next_multiple_of(BLOCK_BYTES as u64);
        let Some(room) = self.pool.room.get().checked_sub(bytes).filter(|_| fits) else {
            return Ok(false);
        };
        self.pool.room.set(room);
        let room = Room(self.pool.room.clone(), bytes);
        if !self.wipe(gate, &file, bytes).await? {
            return Ok(false);
        }
        let name = name.to_owned();
        self.spares.borrow_mut().push(Spare {
            name,
            bytes,
            _room: room,
        });
        Ok(true)
    }

    /// Overwrites a file with zeros, durably. False if the log ended meanwhile.
    async fn wipe(&self, gate: &IoGate, file: &File, bytes: u64) -> Result<bool, IoError> {
        let zeros = self.zeros();
        let mut position = 0;
        while position < bytes {
            {
                let Ok(_io) = gate.enter().await else {
                    return Ok(false);
                };
                if self.ended.get() {
                    return Ok(false);
                }
                // The last write may reach beyond the file's end; the rest is cut below.
                file.write_at(&zeros, position).await?;
            }
            position += WIPE_BYTES as u64;
            self.pool.throttle.moved(WIPE_BYTES as u64).await;
        }
        let Ok(_io) = gate.enter().await else {
            return Ok(false);
        };
        if self.ended.get() {
            return Ok(false);
        }
        if !bytes.is_multiple_of(WIPE_BYTES as u64) {
            file.truncate(bytes).await?;
        }
        file.sync_data(SyncSite::SegmentRecycle).await?;
        Ok(!self.ended.get())
    }

    fn zeros(&self) -> SharedBuf {
        let mut buf = self.pool.throttle.rt().write_buf(WIPE_BYTES);
        buf.as_mut_slice().fill(0);
        buf.freeze()
    }

    /// Gives a spare file the name of a new segment, durably; the file and the bytes that it
    /// has. `None` if there is none.
    pub(super) async fn take(
        &self,
        dir: &Dir,
        config: &LogConfig,
        name: &str,
    ) -> Result<Option<(File, u64)>, IoError> {
        if !config.recycle_segments || config.compacted || self.ended.get() {
            return Ok(None);
        }
        let Some(spare) = self.spares.borrow_mut().pop() else {
            return Ok(None);
        };
        match dir.rename(&spare.name, name).await {
            Ok(()) => {}
            Err(error) if error.kind == IoErrorKind::NotFound => {
                tracing::warn!("{error}; a new file is created");
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        // Before the first byte: under its old name a load removes the file.
        dir.sync(SyncSite::SegmentRecycle).await?;
        let file = dir.open(name, OpenMode::ReadWrite).await?;
        Ok(Some((file, spare.bytes)))
    }

    /// Removes the spare files, in the background, where the setting was turned off.
    pub(super) fn drop_spares(&self, rt: &Rt, dir: &Dir) {
        let spares = std::mem::take(&mut *self.spares.borrow_mut());
        if spares.is_empty() {
            return;
        }
        let dir = dir.clone();
        rt.spawn(Queue::Background, async move {
            for spare in spares {
                if let Err(error) = super::log_files::remove_if_there(&dir, &spare.name).await {
                    tracing::warn!("{error}; the file stays until the next start");
                }
            }
        });
    }
}

/// Spare files of one log.
const SPARES_MAX: usize = 2;
/// Bytes of the spare files of one shard.
const SPARE_BYTES_MAX: u64 = 4 << 30;
/// One write of zeros.
const WIPE_BYTES: usize = 256 << 10;
/// How fast one shard overwrites spare files.
const WIPE_BYTES_PER_SECOND: u64 = 32 << 20;
