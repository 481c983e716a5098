//! Kafka's text checkpoint: a version line `0`, a count, then one
//! `topic partition offset` line each.
//!
//! Parsing proves the whole file (version, count, every field) or refuses it; there
//! is no partial result. Whether the file is there is the caller's to know: a
//! [`Checkpoint`] keeps *missing* and *malformed* apart. It does no I/O.

use std::collections::BTreeMap;

/// Offsets by (topic, partition).
pub type CheckpointEntries = BTreeMap<(String, i32), i64>;

/// What a checkpoint file was found to be at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checkpoint {
    /// There is no such file.
    Missing,
    /// There is one that cannot be used.
    Malformed(CheckpointFileError),
    /// Its entries.
    Read(CheckpointEntries),
}

/// Why a checkpoint file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointFileError {
    /// Not text.
    #[error("it is not UTF-8 text")]
    NotText,
    /// The first line is another version, or the file is empty.
    #[error("its first line is {found:?}, expected \"0\"")]
    Version {
        /// The line found.
        found: String,
    },
    /// The second line is not a count.
    #[error("its second line is {found:?}, expected the number of entries")]
    Count {
        /// The line found.
        found: String,
    },
    /// More or fewer lines than the count says.
    #[error("it says {expected} entries and holds {found}")]
    Entries {
        /// What the second line says.
        expected: usize,
        /// What follows.
        found: usize,
    },
    /// A line that is not what it should be.
    #[error("line {line} is malformed: {found:?}")]
    Line {
        /// The line's number, from 1.
        line: usize,
        /// The line found.
        found: String,
    },
    /// The same partition twice.
    #[error("line {line} repeats an entry: {found:?}")]
    Repeated {
        /// The line's number, from 1.
        line: usize,
        /// The line found.
        found: String,
    },
}

impl Checkpoint {
    /// The partition's offset, if the file was read and has it.
    pub fn get(&self, topic: &str, partition: i32) -> Option<i64> {
        match self {
            Checkpoint::Read(entries) => entries.get(&(topic.to_owned(), partition)).copied(),
            Checkpoint::Missing | Checkpoint::Malformed(_) => None,
        }
    }
}

/// The file's content. Topic names hold no white space (the broker refuses such
/// names at creation).
pub fn encode(entries: &CheckpointEntries) -> Vec<u8> {
    encode_lines(
        entries
            .iter()
            .map(|((topic, partition), offset)| format!("{topic} {partition} {offset}")),
    )
}

/// Reads a file's content.
pub fn parse(bytes: &[u8]) -> Result<CheckpointEntries, CheckpointFileError> {
    let mut entries = CheckpointEntries::new();
    for line in parse_lines::<3>(bytes)? {
        let [topic, partition, offset] = line.fields;
        let partition: i32 = line.non_negative(partition)?;
        let offset: i64 = line.non_negative(offset)?;
        if entries
            .insert((topic.to_owned(), partition), offset)
            .is_some()
        {
            return Err(line.repeated());
        }
    }
    Ok(entries)
}

/// Writes version, count and lines.
pub(super) fn encode_lines(lines: impl Iterator<Item = String>) -> Vec<u8> {
    let lines: Vec<String> = lines.collect();
    let mut out = format!("0\n{}\n", lines.len());
    for line in lines {
        out.push_str(&line);
        out.push('\n');
    }
    out.into_bytes()
}

/// An entry line of `N` fields.
pub(super) struct Line<'a, const N: usize> {
    number: usize,
    text: &'a str,
    pub(super) fields: [&'a str; N],
}

impl<const N: usize> Line<'_, N> {
    /// Parses a field that must be a number >= 0.
    pub(super) fn non_negative<T: std::str::FromStr + PartialOrd + Default>(
        &self,
        field: &str,
    ) -> Result<T, CheckpointFileError> {
        match field.parse::<T>() {
            Ok(n) if n >= T::default() => Ok(n),
            _ => Err(self.malformed()),
        }
    }

    pub(super) fn malformed(&self) -> CheckpointFileError {
        CheckpointFileError::Line {
            line: self.number,
            found: self.text.to_owned(),
        }
    }

    fn repeated(&self) -> CheckpointFileError {
        CheckpointFileError::Repeated {
            line: self.number,
            found: self.text.to_owned(),
        }
    }
}

/// Checks version and count, and splits each line that follows into `N` fields.
pub(super) fn parse_lines<const N: usize>(
    bytes: &[u8],
) -> Result<Vec<Line<'_, N>>, CheckpointFileError> {
    let text = std::str::from_utf8(bytes).map_err(|_| CheckpointFileError::NotText)?;
    let mut lines = text.lines();
    let version = lines.next().unwrap_or_default();
    if version != "0" {
        return Err(CheckpointFileError::Version {
            found: version.to_owned(),
        });
    }
    let count = lines.next().unwrap_or_default();
    let expected: usize = count.parse().map_err(|_| CheckpointFileError::Count {
        found: count.to_owned(),
    })?;
    let mut out = Vec::new();
    for (i, text) in lines.enumerate() {
        let number = i + 3;
        let parts: Vec<&str> = text.split_ascii_whitespace().collect();
        let fields = parts.try_into().map_err(|_| CheckpointFileError::Line {
            line: number,
            found: text.to_owned(),
        })?;
        out.push(Line {
            number,
            text,
            fields,
        });
    }
    if out.len() != expected {
        return Err(CheckpointFileError::Entries {
            expected,
            found: out.len(),
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_kafkas() {
        let entries = CheckpointEntries::from([
            (("b".to_owned(), 0), 7),
            (("a-topic".to_owned(), 12), i64::MAX),
        ]);
        let bytes = encode(&entries);
        assert_eq!(bytes, b"0\n2\na-topic 12 9223372036854775807\nb 0 7\n");
        assert_eq!(parse(&bytes), Ok(entries));
        assert_eq!(parse(b"0\n0\n"), Ok(CheckpointEntries::new()));
    }

    #[test]
    fn a_damaged_file_is_refused_whole() {
        let refused = |text: &str| parse(text.as_bytes()).unwrap_err();
        assert!(matches!(refused(""), CheckpointFileError::Version { .. }));
        assert!(matches!(
            refused("1\n0\n"),
            CheckpointFileError::Version { .. }
        ));
        assert!(matches!(refused("0\n"), CheckpointFileError::Count { .. }));
        assert!(matches!(
            refused("0\n-1\n"),
            CheckpointFileError::Count { .. }
        ));
        assert_eq!(
            refused("0\n2\na 0 1\n"),
            CheckpointFileError::Entries {
                expected: 2,
                found: 1
            }
        );
        for line in ["a 0", "a 0 1 2", "a x 1", "a 0 -1", "a -1 1", ""] {
            let text = format!("0\n1\n{line}\n");
            assert!(
                matches!(refused(&text), CheckpointFileError::Line { line: 3, .. }),
                "{text:?}"
            );
        }
        assert!(matches!(
            refused("0\n2\na 0 1\na 0 2\n"),
            CheckpointFileError::Repeated { line: 4, .. }
        ));
        assert_eq!(parse(&[0xFF, 0xFE]), Err(CheckpointFileError::NotText));
    }
}
