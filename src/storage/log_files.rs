//! The files of one partition's directory: their names, and what to do with those
//! that an interrupted operation left.
//!
//! Everything here may be repeated after a crash at any point: files are removed or
//! renamed only when what replaces them is durable.

use super::leader_epochs::LEADER_EPOCH_FILE;
use super::producer_snapshot::{self, ProducerEntry};
use super::scan::{BatchOrder, BatchScanner, ScanStep};
use super::small_file::{read_or_set_aside, Belief, SmallFile};
use super::unusable::set_aside_no_files;
use super::LoadError;
use crate::runtime::{Dir, DirEntry, IoError, IoErrorKind, OpenMode, Rt, SyncSite};
use std::collections::{BTreeMap, BTreeSet};

/// What a partition's directory holds, as far as a log is concerned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LogFiles {
    /// By base offset.
    pub(super) segments: BTreeMap<i64, SegmentFiles>,
    /// Offsets that have a producer snapshot.
    pub(super) snapshots: BTreeSet<i64>,
    /// Everything else with a name of the log's kind, to be removed or replaced.
    strays: Vec<Stray>,
}

/// The files of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SegmentFiles {
    /// The size of the `.log` in bytes.
    pub(super) log_bytes: u64,
    /// The size of the `.index` in bytes, if there is one.
    pub(super) index_bytes: Option<u64>,
    /// The size of the `.timeindex` in bytes, if there is one.
    pub(super) time_index_bytes: Option<u64>,
    /// Whether there is a `.txnindex`.
    pub(super) txn_index: bool,
}

/// A file that is not part of the log as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stray {
    name: String,
    base_offset: Option<i64>,
    kind: StrayKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StrayKind {
    /// `.deleted`: its removal was under way.
    Deleted,
    /// `.cleaned`: the compactor had not finished.
    Cleaned,
    /// `.swap`: complete, and meant to replace segments.
    Swap,
    /// `.tmp`: a small file that was being replaced.
    Temporary,
    /// An index without its log.
    Orphan,
}

/// The extensions of a segment's files.
pub(super) const LOG: &str = "log";
pub(super) const INDEX: &str = "index";
pub(super) const TIME_INDEX: &str = "timeindex";
pub(super) const TXN_INDEX: &str = "txnindex";
pub(super) const SNAPSHOT: &str = "snapshot";

impl SegmentFiles {
    /// Whether both indexes are there.
    pub(super) fn has_indexes(&self) -> bool {
        self.index_bytes.is_some() && self.time_index_bytes.is_some()
    }
}

impl LogFiles {
    /// Lists a directory. Changes nothing.
    pub(super) async fn list(dir: &Dir) -> Result<LogFiles, LoadError> {
        Ok(LogFiles::of(&dir.list().await?))
    }

    /// Sorts a listing.
    fn of(entries: &[DirEntry]) -> LogFiles {
        let mut files = LogFiles::default();
        for entry in entries.iter().filter(|e| e.is_file) {
            if let Some((base, LOG)) = parse_name(&entry.name) {
                files.segments.entry(base).or_default().log_bytes = entry.len;
            }
        }
        for entry in entries.iter().filter(|e| e.is_file) {
            files.sort_in(&entry.name, entry.len);
        }
        files
    }

    fn sort_in(&mut self, name: &str, len: u64) {
        let stray = |base_offset, kind| Stray {
            name: name.to_owned(),
            base_offset,
            kind,
        };
        if let Some((base, extension)) = parse_name(name) {
            match (extension, self.segments.get_mut(&base)) {
                (LOG, _) => {}
                (SNAPSHOT, _) => {
                    self.snapshots.insert(base);
                }
                (INDEX, Some(files)) => files.index_bytes = Some(len),
                (TIME_INDEX, Some(files)) => files.time_index_bytes = Some(len),
                (TXN_INDEX, Some(files)) => files.txn_index = true,
                (INDEX | TIME_INDEX | TXN_INDEX, None) => {
                    self.strays.push(stray(Some(base), StrayKind::Orphan));
                }
                _ => {}
            }
            return;
        }
        let Some((rest, suffix)) = name.rsplit_once('.') else {
            return;
        };
        let base = parse_name(rest).map(|(base, _)| base);
        match (suffix, base) {
            ("tmp", _) => self.strays.push(stray(base, StrayKind::Temporary)),
            ("deleted", Some(_)) => self.strays.push(stray(base, StrayKind::Deleted)),
            ("cleaned", Some(_)) => self.strays.push(stray(base, StrayKind::Cleaned)),
            ("swap", Some(_)) => self.strays.push(stray(base, StrayKind::Swap)),
            _ => {}
        }
    }

    /// Removes what interrupted operations left, completes interrupted replacements
    /// of segments, and lists what remains. `gaps`: the log may be compacted. The sizes of
    /// indexes are not looked at: 0.
    pub(super) async fn clean_up(rt: &Rt, dir: &Dir, gaps: bool) -> Result<LogFiles, LoadError> {
        let is_log = |name: &str| matches!(parse_name(name), Some((_, LOG)));
        let entries = dir.list_measuring(is_log).await?;
        let segment = |entry: &&DirEntry| matches!(parse_name(&entry.name), Some((_, LOG)));
        if let Some(entry) = entries.iter().filter(segment).find(|e| !e.is_file) {
            let detail = "it is no regular file; restore the segment, or move it away and lose it";
            return Err(damaged(dir, &entry.name, 0, detail));
        }
        if set_aside_no_files(dir, &entries, is_beside_a_log).await? {
            dir.sync(SyncSite::PartitionDir).await?;
        }
        let files = LogFiles::of(&entries);
        if files.strays.is_empty() {
            return Ok(files);
        }
        let cleaned: BTreeSet<i64> = files.stray_bases(StrayKind::Cleaned).collect();
        let mut undone = BTreeSet::new();
        for base in files.stray_bases(StrayKind::Swap) {
            // With a part of the same segment still `.cleaned`, what it is to replace is all
            // there. Any other `.cleaned` says so only of one segment that was split into
            // several: what this one is to replace may be gone, and then it is all there is.
            let split = cleaned.range(..base).next().is_some();
            if cleaned.contains(&base) || (split && files.reaches_past(rt, dir, base).await?) {
                undone.insert(base);
            }
        }
        let is_undone = |base: Option<i64>| base.is_some_and(|base| undone.contains(&base));
        let discarded = |stray: &Stray| match stray.kind {
            StrayKind::Swap => is_undone(stray.base_offset),
            // An index that had its final name before its segment had: the old one went, or
            // goes for a `.swap` of it.
            StrayKind::Orphan if stray.is_index() => {
                is_undone(stray.base_offset) || !files.is_swapped_in(stray.base_offset)
            }
            _ => true,
        };
        // Those that are undone go before the `.cleaned` that says so: a `.swap` of an index alone
        // is what is left of a swap that won.
        for undone_ones in [true, false] {
            let is_now = |s: &&Stray| discarded(s) && (s.kind == StrayKind::Swap) == undone_ones;
            let names: Vec<&str> = files
                .strays
                .iter()
                .filter(is_now)
                .map(|s| s.name.as_str())
                .collect();
            for name in &names {
                remove_if_there(dir, name).await?;
            }
            if !names.is_empty() {
                dir.sync(SyncSite::PartitionDir).await?;
            }
        }
        let swaps: Vec<&Stray> = files
            .strays
            .iter()
            .filter(|s| s.kind == StrayKind::Swap && !discarded(s))
            .collect();
        complete_swaps(rt, dir, &files, &swaps, gaps).await?;
        LogFiles::list(dir).await
    }

    /// Whether a segment that begins below the offset `base` ends above it.
    async fn reaches_past(&self, rt: &Rt, dir: &Dir, base: i64) -> Result<bool, LoadError> {
        let Some((holder, _)) = self.segments.range(..base).next_back() else {
            return Ok(false);
        };
        match swap_end(rt, dir, &file_name(*holder, LOG), *holder).await {
            Ok(end) => Ok(end > base),
            Err(LoadError::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the segment at a base offset is one whose replacement was interrupted.
    fn is_swapped_in(&self, base: Option<i64>) -> bool {
        let is_its_log = |s: &Stray| {
            let target = s.target().and_then(parse_name);
            s.kind == StrayKind::Swap && target.is_some() && target == base.map(|b| (b, LOG))
        };
        self.strays.iter().any(is_its_log)
    }

    fn stray_bases(&self, kind: StrayKind) -> impl Iterator<Item = i64> + '_ {
        self.strays
            .iter()
            .filter(move |s| s.kind == kind)
            .filter_map(|s| s.base_offset)
    }

    /// The names of files that an interrupted operation left.
    pub(super) fn interrupted(&self) -> impl Iterator<Item = &str> {
        let strays = self.strays.iter();
        let left = strays.filter(|s| s.kind != StrayKind::Orphan);
        left.map(|s| s.name.as_str())
    }

    /// The names of indexes without a segment.
    pub(super) fn orphans(&self) -> impl Iterator<Item = &str> {
        let strays = self.strays.iter();
        let orphans = strays.filter(|s| s.kind == StrayKind::Orphan);
        orphans.map(|s| s.name.as_str())
    }

    /// The base offset of the segment after the one at `base`.
    pub(super) fn base_after(&self, base: i64) -> Option<i64> {
        self.segments.range(base + 1..).next().map(|(b, _)| *b)
    }

    /// The greatest offset with a snapshot that decodes.
    pub(super) async fn newest_proof(&self, dir: &Dir) -> Result<Option<i64>, LoadError> {
        let newest = self.newest_snapshot(dir, i64::MAX).await?;
        Ok(newest.map(|(offset, _)| offset))
    }

    /// The newest snapshot that decodes, up to the one at `offset_max`.
    pub(super) async fn newest_snapshot(
        &self,
        dir: &Dir,
        offset_max: i64,
    ) -> Result<Option<(i64, Vec<ProducerEntry>)>, LoadError> {
        for offset in self.snapshots.range(..=offset_max).rev() {
            if let Some(entries) = read_snapshot(dir, *offset).await? {
                return Ok(Some((*offset, entries)));
            }
        }
        Ok(None)
    }

    /// Whether a snapshot up to `offset` is there and decodes: everything below was
    /// durable when it was written.
    pub(super) async fn proves_flushed(&self, dir: &Dir, offset: i64) -> Result<bool, LoadError> {
        Ok(self.snapshots.contains(&offset) && read_snapshot(dir, offset).await?.is_some())
    }
}

/// Reads the snapshot at `offset`; `None` if it does not decode.
async fn read_snapshot(dir: &Dir, offset: i64) -> Result<Option<Vec<ProducerEntry>>, LoadError> {
    let name = producer_snapshot::file_name(offset);
    let (belief, decode) = (Belief::Proven, producer_snapshot::decode);
    match read_or_set_aside(dir, &name, SNAPSHOT_BYTES_MAX, belief, decode).await? {
        SmallFile::Read(entries) => Ok(Some(entries)),
        SmallFile::Malformed(error) => {
            tracing::warn!("{}/{name} is not used: {error}", dir.path().display());
            Ok(None)
        }
        SmallFile::Missing | SmallFile::Unusable(_) => Ok(None),
    }
}

/// Whether a name is of a file that a log can find again, or do without.
fn is_beside_a_log(name: &str) -> bool {
    let suffixes = [".tmp", ".deleted", ".cleaned", ".swap"];
    match parse_name(name) {
        Some((_, extension)) => [INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT].contains(&extension),
        None => name == LEADER_EPOCH_FILE || suffixes.iter().any(|s| name.ends_with(s)),
    }
}

/// Puts `.swap` segments in the place of those whose offsets they cover.
async fn complete_swaps(
    rt: &Rt,
    dir: &Dir,
    files: &LogFiles,
    swaps: &[&Stray],
    gaps: bool,
) -> Result<(), LoadError> {
    for stray in swaps {
        let Some((base, LOG)) = stray.target().and_then(parse_name) else {
            continue;
        };
        let end = swap_end(rt, dir, &stray.name, base).await?;
        // It never replaces the segment that is written to, and where offsets have no gaps it
        // ends where another begins. No CRC says so: none covers a batch's offset, or how many
        // there are.
        let behind = files.segments.range(end.max(base + 1)..).next();
        let next = behind.map(|(base, _)| *base);
        if next.is_none_or(|next| next != end && !gaps) {
            let detail = match next {
                Some(next) => format!("it ends at offset {end}, the next segment begins at {next}"),
                None => format!("it ends at offset {end}, where no segment follows"),
            };
            return Err(damaged(dir, &stray.name, 0, &detail));
        }
        for (covered, _) in files.segments.range(base..end.max(base + 1)) {
            for extension in [INDEX, TIME_INDEX, TXN_INDEX] {
                remove_if_there(dir, &file_name(*covered, extension)).await?;
            }
            // The one with the swap's own base is replaced by the rename.
            if *covered != base {
                remove_if_there(dir, &file_name(*covered, LOG)).await?;
            }
        }
        // No covered segment may come back once the swap has its final name.
        dir.sync(SyncSite::PartitionDir).await?;
        dir.rename(&stray.name, &file_name(base, LOG)).await?;
        // Before its indexes: beside the old segment they would be taken for that one's.
        dir.sync(SyncSite::PartitionDir).await?;
    }
    for stray in swaps {
        match stray.target() {
            Some(name) if matches!(parse_name(name), Some((_, LOG))) => {}
            Some(name) => dir.rename(&stray.name, name).await?,
            None => {}
        }
    }
    if !swaps.is_empty() {
        dir.sync(SyncSite::PartitionDir).await?;
    }
    Ok(())
}

/// The offset after the last batch of a `.swap`, which was flushed whole before it
/// got its name.
async fn swap_end(rt: &Rt, dir: &Dir, name: &str, base: i64) -> Result<i64, LoadError> {
    let file = dir.open(name, OpenMode::Read).await?;
    let size = file.size().await?;
    let mut scanner = BatchScanner::new(rt, &file, 0, size);
    let mut order = BatchOrder::new(base, base, -1, true);
    loop {
        match scanner.next_in_order(&mut order).await? {
            ScanStep::Batch(_) => {}
            ScanStep::Bad(bad) => return Err(damaged(dir, name, bad.position, &bad.detail)),
            ScanStep::End => return Ok(order.end()),
        }
    }
}

impl Stray {
    /// Whether its name is that of an offset or a time index.
    fn is_index(&self) -> bool {
        matches!(parse_name(&self.name), Some((_, INDEX | TIME_INDEX)))
    }

    /// The name that a `.swap` gets.
    fn target(&self) -> Option<&str> {
        self.name.strip_suffix(".swap")
    }
}

/// An error for data that was durable once.
pub(super) fn damaged(dir: &Dir, name: &str, position: u64, detail: &str) -> LoadError {
    LoadError::Damaged {
        file: dir.path().join(name).display().to_string(),
        position,
        detail: detail.to_owned(),
    }
}

/// Removes a file; no error if it is not there.
pub(super) async fn remove_if_there(dir: &Dir, name: &str) -> Result<(), IoError> {
    match dir.remove_file(name).await {
        Err(e) if e.kind != IoErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// `00000000000000000042.log` and its kind.
pub(super) fn file_name(offset: i64, extension: &str) -> String {
    format!("{offset:020}.{extension}")
}

/// Reads `<20 digits>.<extension>`.
pub(super) fn parse_name(name: &str) -> Option<(i64, &str)> {
    let (stem, extension) = name.split_once('.')?;
    if stem.len() != 20 || !stem.bytes().all(|b| b.is_ascii_digit()) || extension.contains('.') {
        return None;
    }
    Some((stem.parse().ok()?, extension))
}

const SNAPSHOT_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_twenty_digits_and_an_extension() {
        assert_eq!(parse_name("00000000000000000042.log"), Some((42, "log")));
        for bad in [
            "42.log",
            "0000000000000000004x.log",
            "00000000000000000042",
            "00000000000000000042.log.swap",
            "99999999999999999999.log",
        ] {
            assert_eq!(parse_name(bad), None, "{bad}");
        }
    }

    #[test]
    fn files_are_sorted_by_what_they_are() {
        let mut files = LogFiles::default();
        files.segments.insert(5, SegmentFiles::default());
        for (name, len) in [
            ("00000000000000000005.index", 8),
            ("00000000000000000006.timeindex", 12),
            ("00000000000000000007.snapshot", 1),
            ("00000000000000000005.log.swap", 1),
            ("00000000000000000005.log.cleaned", 1),
            ("00000000000000000005.index.deleted", 1),
            ("leader-epoch-checkpoint.tmp", 1),
            ("partition.metadata", 1),
        ] {
            files.sort_in(name, len);
        }
        assert_eq!(files.segments[&5].index_bytes, Some(8));
        assert!(files.snapshots.contains(&7));
        let kinds: Vec<_> = files.strays.iter().map(|s| s.kind).collect();
        use StrayKind::*;
        assert_eq!(kinds, [Orphan, Swap, Cleaned, Deleted, Temporary]);
    }
}
