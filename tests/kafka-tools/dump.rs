//! What Kafka's dump tool prints, read strictly: a line of a kind that is not known here is an error, because it is
//! how the tool reports what it finds wrong.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What was printed of each file.
#[derive(Debug, Default)]
pub struct Dump {
    pub files: BTreeMap<PathBuf, Printed>,
    /// What the tool complained of, line by line.
    pub complaints: Vec<String>,
}

/// What was printed of one file.
#[derive(Debug, Default)]
pub struct Printed {
    /// The lines of a `.log`: batches, and records, which begin with `|`.
    pub log: Vec<String>,
    /// The entries of an index or a snapshot.
    pub entries: Vec<String>,
}

impl Dump {
    /// Reads the tool's output.
    pub fn parse(output: &str) -> Dump {
        let mut dump = Dump::default();
        let mut current = PathBuf::new();
        let mut lines = output.lines().peekable();
        while let Some(line) = lines.next() {
            if let Some(file) = line.strip_prefix("Dumping ") {
                current = PathBuf::from(file);
                dump.files.entry(current.clone()).or_default();
                continue;
            }
            // The tool takes each segment but the first of a log to follow on offset -1.
            if let Some(file) = line.strip_prefix("Non-consecutive offsets in ") {
                let base = base_offset(Path::new(file));
                let follows = format!("  -1 is followed by {base}");
                if lines.next_if(|next| *next == follows).is_none() {
                    dump.complaints.push(line.to_owned());
                }
                continue;
            }
            let printed = dump.files.entry(current.clone()).or_default();
            let extension = current.extension().and_then(|e| e.to_str());
            let entry = match extension {
                Some("log") => line.starts_with("baseOffset: ") || line.starts_with("| "),
                Some("index") => line.starts_with("offset: "),
                Some("timeindex") => line.starts_with("timestamp: "),
                Some("snapshot") => line.starts_with("producerId: "),
                _ => false,
            };
            match extension {
                Some("log") if entry => printed.log.push(line.to_owned()),
                Some("log") if line.starts_with("Log starting offset: ") => {}
                _ if entry => printed.entries.push(line.to_owned()),
                _ if line == format!("{} is empty.", current.display()) => {}
                _ => dump.complaints.push(line.to_owned()),
            }
        }
        dump
    }

    /// The lines of all segments of a partition, in order.
    pub fn log_lines(&self, partition: &Path) -> Vec<&str> {
        let logs = self.files.iter().filter(|(file, _)| {
            file.parent() == Some(partition) && file.extension().is_some_and(|e| e == "log")
        });
        logs.flat_map(|(_, printed)| printed.log.iter().map(String::as_str))
            .collect()
    }

    /// The entries that were printed of files with that extension.
    pub fn entries(&self, extension: &str) -> usize {
        let files = self.files.iter();
        files
            .filter(|(file, _)| file.extension().is_some_and(|e| e == extension))
            .map(|(_, printed)| printed.entries.len())
            .sum()
    }
}

/// The fields of a batch's line.
pub struct BatchFields<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> BatchFields<'a> {
    pub fn parse(line: &'a str) -> BatchFields<'a> {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words.len().is_multiple_of(2), "names and values: {line}");
        let pairs = words.chunks(2).map(|pair| {
            let name = pair[0].strip_suffix(':').expect("a name before a colon");
            (name, pair[1])
        });
        BatchFields(pairs.collect())
    }

    pub fn text(&self, name: &str) -> &'a str {
        self.0
            .get(name)
            .unwrap_or_else(|| panic!("the line has no {name}"))
    }

    pub fn number(&self, name: &str) -> i64 {
        self.text(name)
            .parse()
            .unwrap_or_else(|_| panic!("{name}: {} is no number", self.text(name)))
    }
}

/// The lines of `highwater log dump`, without its own about whole segments.
pub fn highwater_lines(output: &str) -> Vec<&str> {
    let ours = |line: &&str| line.starts_with("baseOffset: ") || line.starts_with("| ");
    output.lines().filter(ours).collect()
}

/// Every file of a partition that the tool reads, in order of name.
pub fn files_of_partition(partition: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(partition)
        .unwrap_or_else(|error| panic!("{}: {error}", partition.display()))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let extension = path.extension().and_then(|e| e.to_str());
            matches!(extension, Some("log" | "index" | "timeindex" | "snapshot"))
        })
        .collect();
    files.sort();
    files
}

fn base_offset(file: &Path) -> i64 {
    file.file_stem()
        .and_then(|stem| stem.to_str()?.parse().ok())
        .unwrap_or_else(|| panic!("{} has no offset in its name", file.display()))
}
