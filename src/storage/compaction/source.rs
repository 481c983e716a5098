//! Reading the batches of a segment whole, each with its CRC checked.

use super::pace::{Buffer, Halt, Pace};
use crate::protocol::batch::{BatchView, HEADER_BYTES};
use crate::runtime::File;
use crate::storage::scan::READ_BYTES;
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
        self.load(HEADER_BYTES as u64).await?;
        let header = checked_header(self.ahead(), rest, self.offset_min, self.end_offset);
        let header = header.map_err(|detail| self.damage(detail))?;
        self.load(u64::from(header.len)).await?;
        let start = (self.position - self.window_at) as usize;
        let bytes = self.window.slice(start..start + header.len as usize);
        let view = BatchView::parse(bytes).map_err(|e| self.damage(e.to_string()))?;
        view.validate_crc()
            .map_err(|e| self.damage(e.to_string()))?;
        self.position += u64::from(header.len);
        self.offset_min = header.last_offset + 1;
        Ok(Some(view))
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
        {
            let _io = self.pace.enter().await?;
            let _permit = self.pace.permit(wanted).await;
            self.window = self.file.read_at(self.position, wanted as usize).await?;
            self.window_at = self.position;
        }
        let have = self.window.len();
        if (have as u64) < bytes {
            return Err(self.damage(format!("the file ends after {have} of {bytes} bytes")));
        }
        let read = self.window.len();
        self.pace.holds(Buffer::Read, read);
        self.pace
            .bytes_read
            .set(self.pace.bytes_read.get() + read as u64);
        self.pace.moved(read as u64).await;
        Ok(())
    }
}
