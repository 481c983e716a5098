//! Reading the batches of a segment whole, each with its CRC checked.
//!
//! What is read is written again, so a bit that came wrong for once must not become the data:
//! what looks wrong is read again, a few times, before it counts. Base offset and leader epoch
//! are outside the CRC: where the first leaves a gap, or the second is not the one that the
//! log knows, two reads must agree.

use super::pace::{Buffer, Halt, Pace};
use super::CompactionError;
use crate::protocol::batch::{BatchView, HEADER_BYTES};
use crate::runtime::File;
use crate::storage::batch::BatchHeader;
use crate::storage::scan::{READS_MAX, READ_BYTES};
use crate::storage::segment::Segment;
use crate::storage::walk::{checked_header, corrupt};
use crate::storage::ReadError;
use bytes::Bytes;
use std::rc::Rc;

/// The batches of one segment from its start on.
pub(super) struct Source<'a> {
    pace: &'a Pace<'a>,
    file: File,
    len: u64,
    end_offset: i64,
    offset_min: i64,
    position: u64,
    window: Bytes,
    window_at: u64,
    /// Two reads gave the same window.
    is_sure: bool,
}

impl<'a> Source<'a> {
    /// Opens a sealed segment.
    pub(super) async fn open(pace: &'a Pace<'a>, segment: &Rc<Segment>) -> Result<Self, Halt> {
        let _io = pace.enter().await?;
        let file = match pace.log.open_file(segment).await {
            // It left the log first: by retention, or by a cut.
            Err(ReadError::OutOfRange { .. }) => return Err(Halt::Early),
            opened => opened?,
        };
        let extent = segment.extent();
        Ok(Source {
            pace,
            file,
            len: extent.len,
            end_offset: extent.next_offset,
            offset_min: segment.base_offset,
            position: 0,
            window: Bytes::new(),
            window_at: 0,
            is_sure: false,
        })
    }

    /// The next batch; `None` at the segment's end.
    pub(super) async fn next(&mut self) -> Result<Option<BatchView>, Halt> {
        self.pace.log.storage.rt().yield_if_needed().await;
        let rest = self.len - self.position;
        if rest == 0 {
            self.pace.holds(Buffer::Read, 0);
            return Ok(None);
        }
        if rest < HEADER_BYTES as u64 {
            return Err(self.damage(format!("{rest} bytes are left, too few for a batch")));
        }
        let mut reads = 1;
        loop {
            match self.batch(rest).await {
                Err(Halt::Failed(CompactionError::Corrupt { .. })) if reads < READS_MAX => {
                    reads += 1;
                    self.window = Bytes::new();
                    self.window_at = self.position;
                }
                Err(halt) => return Err(halt),
                Ok(view) => {
                    self.position += view.bytes().len() as u64;
                    self.offset_min = view.header().next_offset();
                    return Ok(Some(view));
                }
            }
        }
    }

    /// The batch at the position, of which `rest` bytes are left at most.
    async fn batch(&mut self, rest: u64) -> Result<BatchView, Halt> {
        self.load(HEADER_BYTES as u64).await?;
        let header = checked_header(self.ahead(), rest, self.offset_min, self.end_offset);
        let header = header.map_err(|detail| self.damage(detail))?;
        self.load(u64::from(header.len)).await?;
        let start = (self.position - self.window_at) as usize;
        let bytes = self.window.slice(start..start + header.len as usize);
        let view = BatchView::parse(bytes).map_err(|e| self.damage(e.to_string()))?;
        view.validate_crc()
            .map_err(|e| self.damage(e.to_string()))?;
        if self.is_doubtful(&header) && !self.reads_the_same().await? {
            return Err(self.damage("two reads give two headers".to_owned()));
        }
        Ok(view)
    }

    /// Whether what the CRC does not cover may be wrong.
    fn is_doubtful(&self, header: &BatchHeader) -> bool {
        let known = {
            let state = self.pace.log.state.borrow();
            state.epochs.epoch_for_offset(header.base_offset)
        };
        header.base_offset > self.offset_min
            || known.is_some_and(|epoch| epoch != header.leader_epoch)
    }

    /// Reads the window again, unless that was done.
    async fn reads_the_same(&mut self) -> Result<bool, Halt> {
        if !self.is_sure {
            let again = self.read(self.window_at, self.window.len()).await?;
            self.is_sure = again == self.window;
        }
        Ok(self.is_sure)
    }

    /// Whether the batch that was given last is the segment's last.
    pub(super) fn is_at_end(&self) -> bool {
        self.position == self.len
    }

    /// An error for damage in the batch at the position, or in the one before it that was
    /// given last (`view`).
    pub(super) fn damage_in(&self, view: &BatchView, detail: String) -> Halt {
        let position = self.position - view.bytes().len() as u64;
        corrupt(&self.file, position, detail).into()
    }

    fn damage(&self, detail: String) -> Halt {
        corrupt(&self.file, self.position, detail).into()
    }

    fn ahead(&self) -> &[u8] {
        &self.window[(self.position - self.window_at) as usize..]
    }

    /// Sees to it that `bytes` bytes from the position on are in memory.
    async fn load(&mut self, bytes: u64) -> Result<(), Halt> {
        let window_end = self.window_at + self.window.len() as u64;
        if self.position + bytes <= window_end {
            return Ok(());
        }
        self.window = Bytes::new();
        let wanted = (self.len - self.position).min(READ_BYTES.max(bytes));
        self.window = self.read(self.position, wanted as usize).await?;
        self.window_at = self.position;
        self.is_sure = false;
        let have = self.window.len();
        if (have as u64) < bytes {
            return Err(self.damage(format!("the file ends after {have} of {bytes} bytes")));
        }
        Ok(())
    }

    async fn read(&self, position: u64, len: usize) -> Result<Bytes, Halt> {
        let bytes = {
            let _io = self.pace.enter().await?;
            let _permit = self.pace.permit(len as u64).await;
            let read = self.file.read_at(position, len).await;
            read.map_err(ReadError::from)?
        };
        let pace = self.pace;
        pace.holds(Buffer::Read, self.window.len() + bytes.len());
        pace.bytes_read
            .set(pace.bytes_read.get() + bytes.len() as u64);
        pace.moved(bytes.len() as u64).await;
        Ok(bytes)
    }
}
