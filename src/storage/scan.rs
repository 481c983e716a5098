//! Reading a segment batch by batch, and rebuilding its indexes on the way.
//!
//! [`BatchScanner`] proves each batch on its own (header, size, CRC), and with a
//! [`BatchOrder`] that it follows those before it; [`scan_segment`] keeps indexes, too. Reads are [`READ_BYTES`] at a time; a batch may be as long
//! as the file: its CRC is computed over as many reads as it takes, so memory is
//! bounded by one read. Between reads other tasks run.
//!
//! The end of a segment, where that is short, is read twice at once: a log that is loaded goes on
//! writing there. What looks wrong is read again, a few times, before it counts: a bit that
//! came wrong from the device for once must not cost what was flushed.
//!
//! What it is not: it changes no file, and takes no decision on what it finds.

use super::batch::{BatchHeader, CRC_FROM, HEADER_BYTES};
use super::index::{OffsetIndex, TimeIndex};
use super::producer_replay::ProducerReplay;
use crate::protocol::batch::BatchHeader as ProtocolHeader;
use crate::runtime::{File, IoError, IoErrorKind, Rt, BLOCK_BYTES};
use bytes::Bytes;

/// Walks the batches of a file.
pub(super) struct BatchScanner<'a> {
    rt: &'a Rt,
    file: &'a File,
    end: u64,
    position: u64,
    window: Bytes,
    window_at: u64,
    /// Two reads gave the window.
    window_is_sure: bool,
    /// Where what is left is short, it is read twice.
    surely: bool,
}

/// What stands at the scanner's position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScanStep {
    /// A whole batch.
    Batch(ScannedBatch),
    /// No batch; the scanner stays where it is.
    Bad(BadBatch),
    /// The end of the file, right after a batch.
    End,
}

/// A whole batch with a sane header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScannedBatch {
    pub(super) position: u64,
    pub(super) header: BatchHeader,
    /// All fields of the header.
    pub(super) fields: ProtocolHeader,
    /// Whether the CRC stored is that of the content.
    pub(super) crc_valid: bool,
}

/// Bytes that are no batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BadBatch {
    pub(super) position: u64,
    /// What is wrong, a sentence.
    pub(super) detail: String,
    /// Only zeros where a header should be: preallocated, never written.
    pub(super) zeros: bool,
}

impl<'a> BatchScanner<'a> {
    /// Starts at `position`, which must be a batch's start, in a file of `end` bytes.
    pub(super) fn new(rt: &'a Rt, file: &'a File, position: u64, end: u64) -> BatchScanner<'a> {
        BatchScanner {
            rt,
            file,
            end,
            position,
            window: Bytes::new(),
            window_at: position,
            window_is_sure: false,
            surely: false,
        }
    }

    /// The same; what it reads is read twice where little is left, so that bytes outside any CRC
    /// need not be read again.
    fn surely(self) -> BatchScanner<'a> {
        BatchScanner {
            surely: true,
            ..self
        }
    }

    /// The batch at the position; moves past it if it is whole, its CRC right or not.
    pub(super) async fn next(&mut self) -> Result<ScanStep, IoError> {
        self.rt.yield_if_needed().await;
        let position = self.position;
        if position >= self.end {
            return Ok(ScanStep::End);
        }
        let bad = |detail: String, zeros| {
            Ok(ScanStep::Bad(BadBatch {
                position,
                detail,
                zeros,
            }))
        };
        let head = self.bytes_at(position, HEADER_BYTES).await?;
        let zeros = head[..head.len().min(HEADER_BYTES)].iter().all(|b| *b == 0);
        if head.len() < HEADER_BYTES {
            return bad(format!("{} bytes are no batch", head.len()), zeros);
        }
        let fields = match ProtocolHeader::parse(&head) {
            Ok(fields) => fields,
            Err(error) => return bad(error.to_string(), zeros),
        };
        let header = match BatchHeader::check(&fields) {
            Ok(header) => header,
            Err(detail) => return bad(detail, zeros),
        };
        let len = u64::from(header.len);
        if len > self.end - position {
            let rest = self.end - position;
            return bad(
                format!("a batch of {len} bytes, of which {rest} are there"),
                false,
            );
        }
        let crc_valid = match self.crc(position + CRC_FROM as u64, position + len).await? {
            Some(computed) => computed == fields.crc,
            None => return bad("the file became shorter while it was read".into(), false),
        };
        self.position = position + len;
        Ok(ScanStep::Batch(ScannedBatch {
            position,
            header,
            fields,
            crc_valid,
        }))
    }

    /// As [`BatchScanner::next`], but a batch only if its CRC is right and it may follow
    /// `order`, which takes it in. What looks wrong is read again, a few times, before it is
    /// given back as bad; the scanner stays there.
    pub(super) async fn next_in_order(
        &mut self,
        order: &mut BatchOrder,
    ) -> Result<ScanStep, IoError> {
        let at = self.position;
        Ok(match self.next_judged(order).await? {
            (ScanStep::Batch(_), Some(detail)) => {
                self.position = at;
                ScanStep::Bad(BadBatch {
                    position: at,
                    detail,
                    zeros: false,
                })
            }
            (ScanStep::Batch(batch), None) => {
                order.follow(&batch);
                ScanStep::Batch(batch)
            }
            (other, _) => other,
        })
    }

    /// The next step, and for a batch why it may not follow `order`: a sentence. What looks
    /// wrong is read again, a few times.
    pub(super) async fn next_judged(
        &mut self,
        order: &BatchOrder,
    ) -> Result<(ScanStep, Option<String>), IoError> {
        let at = self.position;
        let mut reads = 1;
        loop {
            let step = self.next().await?;
            let refusal = match &step {
                ScanStep::Batch(batch) => self.refusal(order, batch).await?,
                ScanStep::Bad(_) | ScanStep::End => None,
            };
            let is_bad = matches!(&step, ScanStep::Bad(bad) if !bad.zeros) || refusal.is_some();
            if !is_bad || reads == READS_MAX {
                return Ok((step, refusal));
            }
            self.read_again(at);
            reads += 1;
        }
    }

    /// Why a whole batch is not the next one. Base offset and leader epoch are outside the CRC:
    /// an epoch that rises and an offset behind a gap are read a second time, because all
    /// batches behind are held against them.
    async fn refusal(
        &self,
        order: &BatchOrder,
        batch: &ScannedBatch,
    ) -> Result<Option<String>, IoError> {
        let header = &batch.header;
        let header_end = batch.position + HEADER_BYTES as u64;
        let is_sure = self.sure_bytes(batch.position, header_end).is_some();
        if !is_sure && (header.leader_epoch > order.epoch || header.base_offset > order.end) {
            let again = self.file.read_at(batch.position, HEADER_BYTES).await?;
            let again = ProtocolHeader::parse(&again).ok();
            let same = |h: &ProtocolHeader| {
                (h.base_offset, h.leader_epoch) == (header.base_offset, header.leader_epoch)
            };
            if !again.as_ref().is_some_and(same) {
                return Ok(Some("two reads give two headers".into()));
            }
        }
        Ok(order.refusal(batch))
    }

    /// Goes back to `position` and forgets what was read from there on.
    fn read_again(&mut self, position: u64) {
        self.position = position;
        self.window = Bytes::new();
        self.window_at = position;
        self.window_is_sure = false;
    }

    /// The bytes from `from` to `to`, if two reads gave them.
    fn sure_bytes(&self, from: u64, to: u64) -> Option<Bytes> {
        let start = from.checked_sub(self.window_at)? as usize;
        let end = start + (to - from) as usize;
        (self.window_is_sure && end <= self.window.len()).then(|| self.window.slice(start..end))
    }

    /// The CRC-32C of the bytes from `from` to `to`; `None` if the file ends before.
    async fn crc(&mut self, from: u64, to: u64) -> Result<Option<u32>, IoError> {
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        let mut at = from;
        while at < to {
            let bytes = self.bytes_at(at, 1).await?;
            let take = bytes.len().min((to - at) as usize);
            if take == 0 {
                return Ok(None);
            }
            digest.update(&bytes[..take]);
            at += take as u64;
            self.rt.yield_if_needed().await;
        }
        Ok(Some(digest.finalize() as u32))
    }

    /// What the window holds from `at` on; reads if that is less than `len_min`.
    /// Fewer bytes only at the end of the file.
    async fn bytes_at(&mut self, at: u64, len_min: usize) -> Result<Bytes, IoError> {
        let window_end = self.window_at + self.window.len() as u64;
        if at < self.window_at || at + len_min as u64 > window_end {
            // From the block's start, which costs nothing: a log writes that block again.
            let from = match self.surely {
                true => at - at % BLOCK_BYTES as u64,
                false => at,
            };
            let len = READ_BYTES.min(self.end.saturating_sub(from)) as usize;
            self.window = self.file.read_at(from, len).await?;
            self.window_at = from;
            self.window_is_sure = false;
            if self.surely && len <= READ_TWICE_BYTES_MAX {
                let first = std::mem::take(&mut self.window);
                self.window = self.file.read_at(from, len).await?;
                self.window_is_sure = self.window == first;
            }
        }
        let start = (at - self.window_at) as usize;
        Ok(self.window.slice(start.min(self.window.len())..))
    }
}

/// What the batches of a segment were up to some place in it, and so which one may follow.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchOrder {
    segment_base: i64,
    end: i64,
    epoch: i32,
    gaps: bool,
}

impl BatchOrder {
    /// In the segment at `segment_base`, where the batches before end at `end` and the last of
    /// them is of `epoch` (-1: unknown). `gaps`: of a log that may be compacted.
    pub(super) fn new(segment_base: i64, end: i64, epoch: i32, gaps: bool) -> BatchOrder {
        BatchOrder {
            segment_base,
            end,
            epoch,
            gaps,
        }
    }

    /// The same log's next segment begins.
    pub(super) fn enter(&mut self, segment_base: i64) {
        self.segment_base = segment_base;
        self.end = segment_base;
    }

    /// The offset after the last batch.
    pub(super) fn end(&self) -> i64 {
        self.end
    }

    /// Why a whole batch may not be the next one: a sentence.
    pub(super) fn refusal(&self, batch: &ScannedBatch) -> Option<String> {
        let header = &batch.header;
        let (base, end) = (header.base_offset, self.end);
        if !batch.crc_valid {
            Some("the batch's CRC does not match its content".into())
        } else if base < end || (base > end && !self.gaps) {
            Some(format!("a batch starts at offset {base}, expected {end}"))
        } else if header.leader_epoch < self.epoch {
            Some(format!(
                "a batch of leader epoch {} follows one of {}",
                header.leader_epoch, self.epoch
            ))
        } else if header.last_offset - self.segment_base > i64::from(i32::MAX)
            || batch.position > i32::MAX as u64
        {
            Some("the batch lies beyond what a segment can hold".into())
        } else {
            None
        }
    }

    /// Takes in the next batch. One that may not follow is passed over where it stands below
    /// those before it.
    pub(super) fn follow(&mut self, batch: &ScannedBatch) {
        let header = &batch.header;
        self.end = self.end.max(header.last_offset.saturating_add(1));
        self.epoch = self.epoch.max(header.leader_epoch);
    }
}

/// Where the scan of a segment starts: at its first byte, or at the batch that the
/// last kept index entry points at.
pub(super) struct ScanStart {
    index: OffsetIndex,
    time_index: TimeIndex,
    producers: Option<ProducerReplay>,
    /// Batches need not adjoin.
    gaps: bool,
}

/// How a segment was scanned, and what it holds.
#[derive(Debug)]
pub(super) struct SegmentScan {
    /// Bytes of whole batches, valid and in order.
    pub(super) len: u64,
    /// The offset after the last of them.
    pub(super) next_offset: i64,
    /// The indexes of what was scanned, with the kept prefix.
    pub(super) index: OffsetIndex,
    pub(super) time_index: TimeIndex,
    /// The largest timestamp of the first batch.
    pub(super) first_batch_timestamp: Option<i64>,
    /// The largest timestamp, and the last offset of the batch that brought it; -1
    /// and the base offset if there is none.
    pub(super) max_timestamp: (i64, i64),
    /// (leader epoch, first offset) as they were met, increasing.
    pub(super) epochs: Vec<(i32, i64)>,
    /// Why it ended before the file's end.
    pub(super) bad: Option<BadBatch>,
    /// Bytes that were read and checked.
    pub(super) scanned_bytes: u64,
    /// The kept index entry pointed at no such batch, so all was scanned.
    pub(super) prefix_refused: bool,
    /// The producers as of its end, if the scan was to keep them.
    pub(super) producers: Option<ProducerReplay>,
    /// What stands in the last, partial block, where two reads gave it.
    tail: Option<Vec<u8>>,
}

impl SegmentScan {
    /// Of a segment without batches.
    pub(super) fn empty(base_offset: i64) -> SegmentScan {
        let start = ScanStart::segment_start(base_offset);
        Builder::new(start, 0, -1).scan
    }

    /// What stands in the last, partial block: the log writes it again.
    pub(super) async fn last_block(&self, file: &File) -> Result<Vec<u8>, IoError> {
        let block = self.len - self.len % BLOCK_BYTES as u64;
        match &self.tail {
            // As the scan has proved it.
            Some(tail) => Ok(tail.clone()),
            None if block == self.len => Ok(Vec::new()),
            None => Ok(read_surely(file, block, (self.len - block) as usize)
                .await?
                .to_vec()),
        }
    }

    /// The time index with the last entry that a complete segment has.
    pub(super) fn complete_time_index(&self) -> TimeIndex {
        let mut time_index = self.time_index.clone();
        time_index.maybe_append(self.max_timestamp.0, self.max_timestamp.1);
        time_index
    }
}

impl ScanStart {
    /// From the segment's first byte.
    pub(super) fn segment_start(base_offset: i64) -> ScanStart {
        ScanStart {
            index: OffsetIndex::new(base_offset),
            time_index: TimeIndex::new(base_offset),
            producers: None,
            gaps: false,
        }
    }

    /// The same of a log that was compacted, if `gaps`: a batch may begin above the end of
    /// the one before it.
    pub(super) fn with_gaps(self, gaps: bool) -> ScanStart {
        ScanStart { gaps, ..self }
    }

    /// The same, following the producers of the batches too.
    pub(super) fn with_producers(self, producers: ProducerReplay) -> ScanStart {
        ScanStart {
            producers: Some(producers),
            ..self
        }
    }

    /// Where in the segment the scan begins, if the index holds what it says.
    pub(super) fn position(&self) -> u64 {
        let last = self.index.last();
        last.map_or(0, |(_, position)| u64::from(position))
    }

    /// From the last batch below `offset` that the index knows. What the indexes hold
    /// from there on is dropped, to be found again.
    pub(super) fn below(
        mut index: OffsetIndex,
        mut time_index: TimeIndex,
        offset: i64,
    ) -> ScanStart {
        index.truncate_to(offset);
        match index.last() {
            Some((last, _)) => time_index.truncate_to(last + 1),
            None => time_index = TimeIndex::new(time_index.base_offset()),
        }
        ScanStart {
            index,
            time_index,
            producers: None,
            gaps: false,
        }
    }
}

/// Scans the segment at `base_offset` from `start` to the first bytes that are no
/// valid batch in order, or to the end of the file of `size` bytes.
/// `epoch_min` is the leader epoch of the batch before the segment's first (-1: unknown).
pub(super) async fn scan_segment(
    rt: &Rt,
    file: &File,
    base_offset: i64,
    size: u64,
    mut start: ScanStart,
    index_interval_bytes: u32,
    epoch_min: i32,
) -> Result<SegmentScan, IoError> {
    let mut whole = ScanStart::segment_start(base_offset).with_gaps(start.gaps);
    let from = start.position();
    let mut scanner = BatchScanner::new(rt, file, from, size).surely();
    let Some((entry_offset, _)) = start.index.last() else {
        whole.producers = start.producers;
        return Builder::new(whole, index_interval_bytes, epoch_min)
            .run(scanner, base_offset)
            .await;
    };
    if let ScanStep::Batch(first) = scanner.next().await? {
        // Both indexes get their entries together, so the time index knows this batch.
        let time_known = start
            .time_index
            .last()
            .map_or(-1, |(timestamp, _)| timestamp);
        if first.crc_valid
            && first.header.last_offset == entry_offset
            && first.header.records_max_timestamp() <= time_known
        {
            let first_timestamp = first_batch_timestamp(file).await?;
            let mut builder = Builder::new(start, index_interval_bytes, epoch_min);
            builder.scan.first_batch_timestamp = first_timestamp;
            scanner.position = from;
            return builder.run(scanner, first.header.base_offset).await;
        }
    }
    whole.producers = start.producers.take();
    scanner.read_again(0);
    let mut scan = Builder::new(whole, index_interval_bytes, epoch_min)
        .run(scanner, base_offset)
        .await?;
    scan.prefix_refused = true;
    Ok(scan)
}

/// Reads bytes that will be written again, as the last partial block of a log is: two reads must
/// give the same, so that a bit that came wrong for once does not become the data.
pub(super) async fn read_surely(file: &File, position: u64, len: usize) -> Result<Bytes, IoError> {
    let mut before = file.read_at(position, len).await?;
    for _ in 0..READS_MAX {
        let again = file.read_at(position, len).await?;
        if again == before {
            return Ok(again);
        }
        before = again;
    }
    Err(IoError::new(
        "read",
        file.path(),
        IoErrorKind::Device,
        format!("each read of {len} bytes at {position} gives something else"),
    ))
}

/// The largest timestamp of the batch at the start of a segment.
async fn first_batch_timestamp(file: &File) -> Result<Option<i64>, IoError> {
    let head = file.read_at(0, HEADER_BYTES).await?;
    if head.len() < HEADER_BYTES {
        return Ok(None);
    }
    let header = BatchHeader::parse(&head).ok();
    Ok(header.map(|h| h.records_max_timestamp()))
}

/// Follows the batches of a segment, and keeps its indexes.
struct Builder {
    scan: SegmentScan,
    index_interval_bytes: u64,
    bytes_since_index: u64,
    order: BatchOrder,
}

impl Builder {
    fn new(start: ScanStart, index_interval_bytes: u32, epoch_min: i32) -> Builder {
        let ScanStart {
            index,
            time_index,
            producers,
            gaps,
        } = start;
        let base = index.base_offset();
        Builder {
            order: BatchOrder::new(base, base, epoch_min, gaps),
            scan: SegmentScan {
                len: 0,
                next_offset: index.base_offset(),
                first_batch_timestamp: None,
                max_timestamp: time_index.last().unwrap_or((-1, index.base_offset())),
                index,
                time_index,
                epochs: Vec::new(),
                bad: None,
                scanned_bytes: 0,
                prefix_refused: false,
                producers,
                tail: None,
            },
            index_interval_bytes: u64::from(index_interval_bytes),
            bytes_since_index: 0,
        }
    }

    async fn run(
        mut self,
        mut scanner: BatchScanner<'_>,
        next_offset: i64,
    ) -> Result<SegmentScan, IoError> {
        let position = scanner.position;
        self.scan.len = position;
        self.scan.next_offset = next_offset;
        self.order.end = next_offset;
        loop {
            match scanner.next_in_order(&mut self.order).await? {
                ScanStep::End => break,
                ScanStep::Batch(batch) => self.add(&batch),
                ScanStep::Bad(bad) => {
                    self.scan.bad = Some(bad);
                    break;
                }
            }
        }
        self.scan.scanned_bytes = self.scan.len - position;
        let block = self.scan.len - self.scan.len % BLOCK_BYTES as u64;
        let tail = scanner.sure_bytes(block, self.scan.len);
        // A copy: many scans may be held, and a slice would hold the whole window.
        self.scan.tail = tail.map(|tail| tail.to_vec());
        Ok(self.scan)
    }

    /// Takes in the next batch in order.
    fn add(&mut self, batch: &ScannedBatch) {
        let header = &batch.header;
        let scan = &mut self.scan;
        if let Some(producers) = &mut scan.producers {
            producers.add(batch);
        }
        let known = scan.epochs.last().map(|(epoch, _)| *epoch);
        if known.is_none_or(|known| header.leader_epoch > known) {
            scan.epochs.push((header.leader_epoch, header.base_offset));
        }
        let max_timestamp = header.records_max_timestamp();
        if max_timestamp > scan.max_timestamp.0 {
            scan.max_timestamp = (max_timestamp, header.last_offset);
        }
        scan.first_batch_timestamp.get_or_insert(max_timestamp);
        if self.bytes_since_index > self.index_interval_bytes {
            scan.index.append(header.last_offset, batch.position as u32);
            scan.time_index
                .maybe_append(scan.max_timestamp.0, scan.max_timestamp.1);
            self.bytes_since_index = 0;
        }
        let len = u64::from(header.len);
        self.bytes_since_index += len;
        scan.len = batch.position + len;
        scan.next_offset = header.last_offset + 1;
    }
}

/// How often bytes are read that look wrong, or until two reads give the same.
pub(super) const READS_MAX: usize = 3;
/// What a scan reads twice if no more is left: what stands behind the last index entry, mostly.
const READ_TWICE_BYTES_MAX: usize = 64 << 10;
/// The size of a read.
pub(super) const READ_BYTES: u64 = 1 << 20;
