//! The ledger as a file: lines that are only ever appended, each with a checksum of its own.
//!
//! ```text
//! highwater-drill 1 cluster=4L6g3nShT-eMCtK--X86sw prefix=drill-1f00 seed=7 ~0badcafe
//! topic drill-1f00-kept 3 keep promised ChX0Lx... ~...
//! sent drill-1f00-kept 0 -1 HASH:KEY HASH:KEY ~...       written before the records are sent
//! acknowledged drill-1f00-kept 0 BASE HASH:KEY ... ~...
//! seen drill-1f00-kept 0 OFFSET HASH:KEY ... ~...
//! end lost the broker closed the connection ~...
//! ```
//! No record is sent before its `sent` line is in the file (and, where asked for, flushed). So whatever a crash of the
//! ledger's own machine leaves, a record that is in no line was never sent: only the tail can be missing, and with it
//! acknowledgements, which then are not looked for.
//!
//! What it is not: a judge. Damage in the middle is refused, not guessed around.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ledger::{Entry, PartitionLedger, Policy};
use crate::cli::CliError;
use crate::client::PartitionKey;
use crate::protocol::Str;
use crate::runtime::local::Budget;
use crate::runtime::Rt;

/// A ledger file that is being written.
pub(super) struct LedgerWriter {
    path: PathBuf,
    file: Arc<File>,
    /// Whether lines are flushed to the disk as well.
    is_flushed: bool,
    waiting: RefCell<Vec<u8>>,
    lines: Cell<u64>,
    /// How many of the lines are in the file.
    secured: Cell<u64>,
    turn: Budget,
    /// After it, nothing more is written.
    error: RefCell<Option<String>>,
}

impl LedgerWriter {
    /// Makes the file, which must not be there.
    pub fn create(path: &Path, is_flushed: bool) -> io::Result<LedgerWriter> {
        let file = File::create_new(path)?;
        Ok(LedgerWriter {
            path: path.to_owned(),
            file: Arc::new(file),
            is_flushed,
            waiting: RefCell::default(),
            lines: Cell::new(0),
            secured: Cell::new(0),
            turn: Budget::new(1),
            error: RefCell::default(),
        })
    }

    /// A line, without its checksum. It waits until [`LedgerWriter::secure`].
    pub fn line(&self, text: &str) {
        debug_assert!(text.len() < LINE_BYTES_MAX - 16 && !text.contains('\n'));
        self.waiting.borrow_mut().extend(sealed(text).into_bytes());
        self.lines.set(self.lines.get() + 1);
    }

    /// A line about records of one partition that follow each other.
    pub fn entries(&self, what: &str, key: &PartitionKey, offset: i64, entries: &[Entry]) {
        self.line(&entries_line(what, key, offset, entries));
    }

    /// Resolves when every line so far is in the file. Those who wait share a write and a flush.
    ///
    /// # Errors
    /// The file cannot be written, now or before.
    pub async fn secure(&self, rt: &Rt) -> Result<(), CliError> {
        let wanted = self.lines.get();
        let _turn = self.turn.acquire(1).await;
        if self.error.borrow().is_none() && self.secured.get() < wanted {
            let (bytes, upto) = (self.waiting.take(), self.lines.get());
            let (file, is_flushed) = (self.file.clone(), self.is_flushed);
            let written = rt.spawn_blocking(move || {
                (&*file).write_all(&bytes)?;
                match is_flushed {
                    true => file.sync_data(),
                    false => Ok(()),
                }
            });
            let failed = match written.await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(panicked) => Some(panicked.to_string()),
            };
            self.secured.set(upto);
            *self.error.borrow_mut() = failed;
        }
        match &*self.error.borrow() {
            None => Ok(()),
            Some(error) => Err(CliError::Found(format!(
                "the ledger {} cannot be written: {error}",
                self.path.display()
            ))),
        }
    }
}

/// What the first line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// The cluster's id; a dash with a broker that has none.
    pub cluster: String,
    /// What the names of the topics begin with.
    pub prefix: String,
    pub seed: u64,
}

impl Header {
    pub fn line(&self) -> String {
        format!(
            "{MAGIC} {VERSION} cluster={} prefix={} seed={}",
            self.cluster, self.prefix, self.seed
        )
    }

    fn parse(text: &str) -> Result<Header, LedgerError> {
        let mut words = text.split(' ');
        if words.next() != Some(MAGIC) {
            return Err(LedgerError::NotOne);
        }
        let version = words.next().unwrap_or_default();
        if version != VERSION {
            return Err(LedgerError::Version(version.to_owned()));
        }
        let mut named = |name: &str| {
            let word = words.next()?.strip_prefix(name)?.strip_prefix('=')?;
            (!word.is_empty()).then(|| word.to_owned())
        };
        let header = (named("cluster"), named("prefix"), named("seed"));
        match header {
            (Some(cluster), Some(prefix), Some(seed)) => Ok(Header {
                cluster,
                prefix,
                seed: seed.parse().map_err(|_| LedgerError::NotOne)?,
            }),
            _ => Err(LedgerError::NotOne),
        }
    }
}

/// A topic as the ledger knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LedgerTopic {
    pub name: Str,
    pub partitions: i32,
    pub policy: Policy,
    pub promised: bool,
    /// Its id in the cluster, as text: one that was deleted and made again is another.
    pub id: String,
}

impl LedgerTopic {
    pub fn line(&self) -> String {
        let promised = match self.promised {
            true => "promised",
            false => "unpromised",
        };
        format!(
            "topic {} {} {} {promised} {}",
            self.name,
            self.partitions,
            self.policy.name(),
            self.id
        )
    }

    fn parse(words: &[&str]) -> Option<LedgerTopic> {
        let [name, partitions, policy, promised, id] = words else {
            return None;
        };
        let partitions = partitions.parse().ok()?;
        Some(LedgerTopic {
            name: Str::from((*name).to_owned()),
            partitions: Some(partitions).filter(|count| (1..=PARTITIONS_MAX).contains(count))?,
            policy: Policy::parse(policy)?,
            promised: match *promised {
                "promised" => true,
                "unpromised" => false,
                _ => return None,
            },
            id: (*id).to_owned(),
        })
    }
}

/// A ledger that was read from its file.
#[derive(Debug, Clone)]
pub(super) struct LedgerRead {
    pub header: Header,
    pub topics: Vec<LedgerTopic>,
    pub partitions: BTreeMap<PartitionKey, PartitionLedger>,
    /// Acknowledged with and without a promise of a flush.
    pub promised_records: u64,
    pub unpromised_records: u64,
    /// How its drill ended; none if that was not written any more.
    pub end: Option<String>,
    /// Bytes at the end that are no whole line, and were left out.
    pub torn_bytes: u64,
}

/// Why a file is no ledger that can be judged by.
#[derive(Debug, thiserror::Error)]
pub(super) enum LedgerError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is empty")]
    Empty,
    #[error("it is no ledger of a drill")]
    NotOne,
    #[error("it is of version {0}, and this highwater knows {VERSION}")]
    Version(String),
    #[error("line {line} is damaged ({why}), and later ones are not: nothing can be judged by it")]
    Damaged { line: u64, why: &'static str },
    #[error("line {line} tells of more than a drill has ({LEDGER_RECORDS_MAX} records, {TOPICS_MAX} topics)")]
    TooMuch { line: u64 },
}

impl LedgerRead {
    /// Reads a ledger. A tail that is no whole line is left out: no record was sent of which it would have told first.
    pub fn read(mut from: impl BufRead) -> Result<LedgerRead, LedgerError> {
        let mut ledger: Option<LedgerRead> = None;
        let mut records = 0;
        // The first line that cannot be read, why, and the bytes since.
        let mut torn: Option<(u64, &'static str, u64)> = None;
        let mut line = Vec::new();
        let mut number = 0;
        while next_line(&mut from, &mut line)? {
            number += 1;
            let text = match (unsealed(&line), &mut torn) {
                (Err(why), torn) => {
                    torn.get_or_insert((number, why, 0)).2 += line.len() as u64;
                    continue;
                }
                (Ok(_), Some((line, why, _))) => {
                    return Err(LedgerError::Damaged { line: *line, why })
                }
                (Ok(text), None) => text,
            };
            match &mut ledger {
                None => ledger = Some(LedgerRead::new(Header::parse(text)?)),
                Some(ledger) => ledger.take(text, number, &mut records)?,
            }
        }
        match (ledger, torn) {
            (Some(mut ledger), torn) => {
                ledger.torn_bytes = torn.map_or(0, |(_, _, bytes)| bytes);
                Ok(ledger)
            }
            (None, None) => Err(LedgerError::Empty),
            (None, Some(_)) => Err(LedgerError::NotOne),
        }
    }

    fn new(header: Header) -> LedgerRead {
        LedgerRead {
            header,
            topics: Vec::new(),
            partitions: BTreeMap::new(),
            promised_records: 0,
            unpromised_records: 0,
            end: None,
            torn_bytes: 0,
        }
    }

    /// A line whose checksum is right.
    fn take(&mut self, text: &str, line: u64, records: &mut u64) -> Result<(), LedgerError> {
        let damaged = |why| LedgerError::Damaged { line, why };
        let (what, rest) = text.split_once(' ').unwrap_or((text, ""));
        let words: Vec<&str> = rest.split(' ').collect();
        match what {
            "end" => self.end = Some(rest.to_owned()),
            "topic" => {
                let topic = LedgerTopic::parse(&words).ok_or(damaged("it is no topic"))?;
                if self.topics.len() >= TOPICS_MAX {
                    return Err(LedgerError::TooMuch { line });
                }
                for partition in 0..topic.partitions {
                    let ledger = PartitionLedger::new(topic.policy, topic.promised);
                    let key = (topic.name.clone(), partition);
                    self.partitions.insert(key, ledger);
                }
                self.topics.push(topic);
            }
            _ => {
                let (key, offset, entries) =
                    parsed_entries(&words).ok_or(damaged("it names no records"))?;
                *records += entries.len() as u64;
                if *records > 3 * LEDGER_RECORDS_MAX {
                    return Err(LedgerError::TooMuch { line });
                }
                let ledger = self.partitions.get_mut(&key);
                let ledger = ledger.ok_or(damaged("it is of no topic of the ledger"))?;
                match what {
                    "sent" => entries.iter().for_each(|entry| ledger.sent(*entry)),
                    "seen" => (offset..)
                        .zip(entries)
                        .for_each(|(offset, entry)| ledger.seen(offset, entry)),
                    "acknowledged" => {
                        ledger.acknowledged(offset, &entries);
                        match ledger.is_promised() {
                            true => self.promised_records += entries.len() as u64,
                            false => self.unpromised_records += entries.len() as u64,
                        }
                    }
                    _ => return Err(damaged("it says nothing that is known")),
                }
            }
        }
        Ok(())
    }
}

/// `TOPIC PARTITION OFFSET HASH:KEY ...`
fn parsed_entries(words: &[&str]) -> Option<(PartitionKey, i64, Vec<Entry>)> {
    let [topic, partition, offset, entries @ ..] = words else {
        return None;
    };
    let offset: i64 = offset.parse().ok()?;
    let entry = |word: &&str| {
        let (hash, key) = word.split_once(':')?;
        Some(Entry {
            hash: u64::from_str_radix(hash, 16).ok()?,
            key: u64::from_str_radix(key, 16).ok()?,
        })
    };
    let entries: Vec<Entry> = entries.iter().map(entry).collect::<Option<_>>()?;
    // The last offset must be one, too.
    offset.checked_add(entries.len() as i64)?;
    let key = (Str::from((*topic).to_owned()), partition.parse().ok()?);
    Some((key, offset, entries))
}

fn entries_line(what: &str, key: &PartitionKey, offset: i64, entries: &[Entry]) -> String {
    let mut text = format!("{what} {} {} {offset}", key.0, key.1);
    for entry in entries {
        text += &format!(" {:016x}:{:016x}", entry.hash, entry.key);
    }
    text
}

/// A line with its checksum.
fn sealed(text: &str) -> String {
    format!("{text} ~{:08x}\n", crc_fast::crc32_iscsi(text.as_bytes()))
}

/// The text of a whole line; otherwise why it is none.
fn unsealed(line: &[u8]) -> Result<&str, &'static str> {
    let line = line
        .strip_suffix(b"\n")
        .ok_or("it has no end, or is too long")?;
    let line = std::str::from_utf8(line).map_err(|_| "it is no text")?;
    let (text, crc) = line.rsplit_once(" ~").ok_or("it has no checksum")?;
    let expected = format!("{:08x}", crc_fast::crc32_iscsi(text.as_bytes()));
    match crc == expected {
        true => Ok(text),
        false => Err("its checksum is wrong"),
    }
}

/// The next line with its end, or the next [`LINE_BYTES_MAX`] bytes of a longer one. False after the last.
fn next_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = io::Read::take(&mut *from, LINE_BYTES_MAX as u64).read_until(b'\n', line)?;
    Ok(read > 0)
}

const MAGIC: &str = "highwater-drill";
const VERSION: &str = "1";
/// A batch of records takes less than 2 KiB.
const LINE_BYTES_MAX: usize = 64 << 10;
const TOPICS_MAX: usize = 16;
const PARTITIONS_MAX: i32 = 64;
/// Records that are sent; each may be acknowledged and seen. About 200 bytes of memory each.
const LEDGER_RECORDS_MAX: u64 = 2_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::drill::ReadBack;
    use proptest::prelude::*;

    fn entry(n: u64) -> Entry {
        Entry::of(Some(b"k"), Some(&n.to_be_bytes()))
    }

    fn key() -> PartitionKey {
        (Str::from("drill-1-kept"), 0)
    }

    /// A ledger of ten records, of which the last two were not acknowledged.
    fn lines() -> Vec<String> {
        let header = Header {
            cluster: "abc".to_owned(),
            prefix: "drill-1".to_owned(),
            seed: 7,
        };
        let topic = LedgerTopic {
            name: key().0,
            partitions: 1,
            policy: Policy::Keep,
            promised: true,
            id: "xyz".to_owned(),
        };
        let mut lines = vec![sealed(&header.line()), sealed(&topic.line())];
        for n in 0..5 {
            let entries = [entry(2 * n), entry(2 * n + 1)];
            let line = |what, offset| sealed(&entries_line(what, &key(), offset, &entries));
            lines.push(line("sent", -1));
            if n < 4 {
                lines.push(line("acknowledged", 2 * n as i64));
                lines.push(line("seen", 2 * n as i64));
            }
        }
        lines.push(sealed("end lost it closed the connection"));
        lines
    }

    fn read(bytes: &[u8]) -> Result<LedgerRead, LedgerError> {
        LedgerRead::read(bytes)
    }

    fn error(bytes: &[u8]) -> String {
        read(bytes).unwrap_err().to_string()
    }

    #[test]
    fn what_was_written_is_read() {
        let ledger = read(lines().concat().as_bytes()).unwrap();
        assert_eq!(
            (ledger.header.cluster.as_str(), ledger.header.seed),
            ("abc", 7)
        );
        assert_eq!((ledger.promised_records, ledger.unpromised_records), (8, 0));
        assert_eq!(ledger.end.as_deref(), Some("lost it closed the connection"));
        assert_eq!(ledger.torn_bytes, 0);
        assert_eq!(ledger.topics[0].id, "xyz");
        let kept = &ledger.partitions[&key()];
        assert_eq!((kept.acknowledged_count(), kept.seen_count()), (8, 8));
        let log = |n: u64| ReadBack {
            log_start: 0,
            end: n as i64,
            records: (0..).zip((0..n).map(entry)).collect(),
        };
        assert_eq!(kept.judge(&log(10)).fault_count, 0);
        assert_eq!(kept.judge(&log(7)).fault_count, 1);
        assert_eq!(kept.judge(&log(11)).fault_count, 1, "one was never sent");
    }

    #[test]
    fn a_torn_end_is_left_out_and_told() {
        let lines = lines();
        let whole = lines.concat();
        let cut = whole.len() - 3;
        let ledger = read(&whole.as_bytes()[..cut]).unwrap();
        assert_eq!(ledger.torn_bytes as usize, lines[lines.len() - 1].len() - 3);
        assert_eq!((ledger.end, ledger.promised_records), (None, 8));
        // As a file system leaves one whose length came first.
        let mut zeros = whole.clone().into_bytes();
        zeros.extend([0; 5000]);
        assert_eq!(read(&zeros).unwrap().torn_bytes, 5000);
        // More than a line can have.
        zeros.extend([0; 3 * LINE_BYTES_MAX]);
        assert_eq!(
            read(&zeros).unwrap().torn_bytes as usize,
            5000 + 3 * LINE_BYTES_MAX
        );
    }

    #[test]
    fn what_is_no_ledger_is_refused() {
        assert_eq!(error(b""), "it is empty");
        assert_eq!(error(b"hello\n"), "it is no ledger of a drill");
        assert_eq!(error(&[0xff; 100_000]), "it is no ledger of a drill");
        assert_eq!(
            error(sealed("something else").as_bytes()),
            "it is no ledger of a drill"
        );
        assert_eq!(
            error(sealed("highwater-drill 1 cluster=a prefix=b seed=x").as_bytes()),
            "it is no ledger of a drill"
        );
        assert_eq!(
            error(sealed("highwater-drill 2 cluster=a").as_bytes()),
            "it is of version 2, and this highwater knows 1"
        );
    }

    #[test]
    fn damage_in_the_middle_is_refused() {
        let mut lines = lines();
        lines[3] = lines[3].replace(" 0 ", " 1 ");
        let damaged = |why: &str, line: u64| {
            format!(
                "line {line} is damaged ({why}), and later ones are not: nothing can be judged by it"
            )
        };
        assert_eq!(
            error(lines.concat().as_bytes()),
            damaged("its checksum is wrong", 4)
        );
        let with = |line: &str| {
            let mut lines = super::tests::lines();
            lines.insert(2, sealed(line));
            error(lines.concat().as_bytes())
        };
        let cases = [
            ("sent other 0 -1 1:2", "it is of no topic of the ledger"),
            (
                "sent drill-1-kept 1 -1 1:2",
                "it is of no topic of the ledger",
            ),
            ("sent drill-1-kept 0 -1 1", "it names no records"),
            ("sent drill-1-kept 0", "it names no records"),
            (
                "acknowledged drill-1-kept 0 9223372036854775807 1:2 3:4",
                "it names no records",
            ),
            (
                "heard drill-1-kept 0 0 1:2",
                "it says nothing that is known",
            ),
            ("topic x 0 keep promised y", "it is no topic"),
            ("topic x 1 keep perhaps y", "it is no topic"),
            ("topic x 1 hold promised y", "it is no topic"),
        ];
        for (line, why) in cases {
            assert_eq!(with(line), damaged(why, 3), "{line}");
        }
        let many: String = (0..=TOPICS_MAX)
            .map(|n| sealed(&format!("topic t{n} 1 keep promised y")))
            .collect();
        let text = super::tests::lines()[0].clone() + &many;
        assert!(error(text.as_bytes()).starts_with("line 18 tells of more than a drill has"));
    }

    proptest! {
        /// Wherever the writer's machine ends, what is left is read, and says no more than the whole.
        #[test]
        fn any_prefix_says_no_more(cut in 0usize..3000) {
            let whole = lines().concat();
            let cut = cut.min(whole.len());
            let header = lines()[0].len();
            match read(&whole.as_bytes()[..cut]) {
                Ok(ledger) => {
                    prop_assert!(cut >= header);
                    prop_assert!(ledger.promised_records <= 8);
                    prop_assert!(ledger.torn_bytes as usize <= cut);
                }
                Err(error) => {
                    prop_assert!(cut < header);
                    let expected = if cut == 0 { "it is empty" } else { "it is no ledger of a drill" };
                    prop_assert_eq!(error.to_string(), expected);
                }
            }
        }

        /// A flipped bit is never taken for what was written.
        #[test]
        fn a_flip_is_noticed(at in 0usize..3000, bit in 0u8..8) {
            let mut bytes = lines().concat().into_bytes();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            if let Ok(ledger) = read(&bytes) {
                prop_assert!(ledger.torn_bytes > 0);
                // In the last line, or the end of the one before, which then takes it in.
                prop_assert!(at + 1 >= bytes.len() - lines().last().unwrap().len());
            }
        }
    }
}
