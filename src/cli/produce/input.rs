//! Lines in, records out.
//!
//! Lines are read on a helper thread, as many as there are at once, so that what a person types is sent at once and a
//! file in large pieces. The length of a line is bounded.
//!
//! What it is not: it knows no partition and no broker.

use std::io::{self, BufRead, BufReader, Read};

use base64::prelude::{Engine, BASE64_STANDARD};
use clap::ValueEnum;
use serde_json::Value;

/// How records stand in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum InputFormat {
    /// A line is a value, or a key, the separator and a value.
    Lines,
    /// A line is a JSON object as `consume --json` prints it: key, value, headers, partition, timestamp.
    Json,
    /// As lines, key and value in hexadecimal digits.
    Hex,
    /// As lines, key and value in Base64.
    Base64,
    /// The whole input is one value.
    Raw,
}

/// A header's name and value.
pub(super) type InputHeader = (String, Option<Vec<u8>>);

/// A record to be produced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct InputRecord {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<InputHeader>,
    pub partition: Option<i32>,
    /// Milliseconds since the Unix epoch; the time of sending if not given.
    pub timestamp: Option<i64>,
}

impl InputRecord {
    /// Bytes of content.
    pub fn size_bytes(&self) -> usize {
        let of = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
        let headers = self
            .headers
            .iter()
            .map(|(key, value)| key.len() + of(value));
        of(&self.key) + of(&self.value) + headers.sum::<usize>()
    }
}

/// Makes records of lines.
#[derive(Debug, Clone)]
pub(super) struct Parser {
    pub format: InputFormat,
    /// Between key and value.
    pub key_separator: Option<String>,
    /// The text that stands for null.
    pub null: Option<String>,
}

impl Parser {
    /// The record of a line without its end; `None` for one that holds none.
    pub fn parse(&self, line: Vec<u8>) -> Result<Option<InputRecord>, String> {
        match self.format {
            InputFormat::Json if line.iter().all(u8::is_ascii_whitespace) => Ok(None),
            InputFormat::Json => json_record(&line).map(Some),
            InputFormat::Raw => Ok(Some(InputRecord {
                value: Some(line),
                ..Default::default()
            })),
            InputFormat::Lines | InputFormat::Hex | InputFormat::Base64 => {
                self.pair(line).map(Some)
            }
        }
    }

    fn pair(&self, line: Vec<u8>) -> Result<InputRecord, String> {
        let (key, value) = match &self.key_separator {
            None => (None, line),
            Some(separator) => {
                let at = find(&line, separator.as_bytes());
                let at = at.ok_or_else(|| format!("there is no key separator {separator:?}"))?;
                (
                    Some(line[..at].to_vec()),
                    line[at + separator.len()..].to_vec(),
                )
            }
        };
        let key = key.map(|key| self.decoded(key)).transpose()?;
        Ok(InputRecord {
            key: key.flatten(),
            value: self.decoded(value)?,
            ..Default::default()
        })
    }

    fn decoded(&self, bytes: Vec<u8>) -> Result<Option<Vec<u8>>, String> {
        if self
            .null
            .as_ref()
            .is_some_and(|null| null.as_bytes() == bytes)
        {
            return Ok(None);
        }
        match self.format {
            InputFormat::Hex => from_hex(&bytes).map(Some),
            InputFormat::Base64 => from_base64(&bytes).map(Some),
            _ => Ok(Some(bytes)),
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len().max(1))
        .position(|window| window == needle)
}

fn from_hex(text: &[u8]) -> Result<Vec<u8>, String> {
    let text = text.trim_ascii();
    let digit = |byte: u8| (byte as char).to_digit(16).ok_or("not hexadecimal digits");
    if !text.len().is_multiple_of(2) {
        return Err("an odd number of hexadecimal digits".to_owned());
    }
    let pair = |pair: &[u8]| Ok((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
    text.chunks_exact(2).map(pair).collect()
}

fn from_base64(text: &[u8]) -> Result<Vec<u8>, String> {
    BASE64_STANDARD
        .decode(text.trim_ascii())
        .map_err(|error| format!("not Base64: {error}"))
}

fn json_record(line: &[u8]) -> Result<InputRecord, String> {
    let parsed: Value =
        serde_json::from_slice(line).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Object(fields) = parsed else {
        return Err("not a JSON object".to_owned());
    };
    let mut record = InputRecord::default();
    for (name, value) in fields {
        match name.as_str() {
            "key" => record.key = json_bytes(value),
            "value" => record.value = json_bytes(value),
            "key_base64" => record.key = json_base64(&value)?,
            "value_base64" => record.value = json_base64(&value)?,
            "headers" => record.headers = json_headers(value)?,
            "partition" => {
                let partition = value.as_i64().and_then(|number| i32::try_from(number).ok());
                record.partition = Some(partition.ok_or("the partition is not a number")?);
            }
            "timestamp" => {
                record.timestamp = Some(
                    value
                        .as_i64()
                        .ok_or("the timestamp is not a number of milliseconds")?,
                );
            }
            // Where a record that `consume` printed came from.
            "topic" | "offset" | "timestamp_type" => {}
            other => return Err(format!("no field {other:?} is known")),
        }
    }
    Ok(record)
}

/// A string is its text, null is null, and anything else is its JSON.
fn json_bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.into_bytes()),
        other => Some(other.to_string().into_bytes()),
    }
}

fn json_base64(value: &Value) -> Result<Option<Vec<u8>>, String> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => from_base64(text.as_bytes()).map(Some),
        _ => Err("a Base64 field is not a string".to_owned()),
    }
}

/// An object, or a list of objects with `key` and `value` (a key may come twice).
fn json_headers(value: Value) -> Result<Vec<InputHeader>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Object(fields) => Ok(fields
            .into_iter()
            .map(|(key, value)| (key, json_bytes(value)))
            .collect()),
        Value::Array(list) => list.into_iter().map(json_header).collect(),
        _ => Err("the headers are neither an object nor a list".to_owned()),
    }
}

fn json_header(value: Value) -> Result<InputHeader, String> {
    let wrong = || "a header is not an object with key and value".to_owned();
    let Value::Object(mut fields) = value else {
        return Err(wrong());
    };
    let Some(Value::String(key)) = fields.remove("key") else {
        return Err(wrong());
    };
    match fields.remove("value_base64") {
        Some(encoded) => Ok((key, json_base64(&encoded)?)),
        None => Ok((key, json_bytes(fields.remove("value").unwrap_or_default()))),
    }
}

/// Where lines come from; it moves to a helper thread and back.
pub(super) struct Source {
    reader: BufReader<Box<dyn Read + Send>>,
    /// All of it is one line.
    is_whole: bool,
    at_end: bool,
    /// What came after lines that were read, and is told by the next read.
    failure: Option<io::Error>,
}

/// Lines without their ends.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub lines: Vec<Vec<u8>>,
    /// Nothing follows.
    pub is_last: bool,
}

impl Source {
    pub fn new(reader: Box<dyn Read + Send>, is_whole: bool) -> Source {
        Source {
            reader: BufReader::with_capacity(CHUNK_BYTES, reader),
            is_whole,
            at_end: false,
            failure: None,
        }
    }

    /// Waits for a line and takes with it those that are there already.
    pub fn read(&mut self) -> io::Result<Chunk> {
        let mut chunk = Chunk::default();
        let mut bytes = 0;
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        while !self.at_end && bytes < CHUNK_BYTES {
            let mut line = match self.read_line() {
                Ok(line) => line,
                Err(error) if chunk.lines.is_empty() => return Err(error),
                Err(error) => {
                    self.failure = Some(error);
                    break;
                }
            };
            bytes += line.len();
            self.at_end = self.is_whole || line.last() != Some(&b'\n');
            let has_line = if self.is_whole {
                true
            } else {
                !line.is_empty()
            };
            if !self.is_whole && line.last() == Some(&b'\n') {
                line.pop();
            }
            if has_line {
                chunk.lines.push(line);
            }
            if !self.reader.buffer().contains(&b'\n') {
                break;
            }
        }
        chunk.is_last = self.at_end;
        Ok(chunk)
    }

    /// One line with its end, if it has one.
    fn read_line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        let mut limited = (&mut self.reader).take(LINE_BYTES_MAX + 1);
        match self.is_whole {
            true => limited.read_to_end(&mut line)?,
            false => limited.read_until(b'\n', &mut line)?,
        };
        if line.len() as u64 > LINE_BYTES_MAX {
            let sentence = format!("a line is longer than {LINE_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, sentence));
        }
        Ok(line)
    }
}

const CHUNK_BYTES: usize = 256 << 10;
/// As much as a request can carry.
const LINE_BYTES_MAX: u64 = 100 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn parser(format: InputFormat, separator: Option<&str>) -> Parser {
        Parser {
            format,
            key_separator: separator.map(str::to_owned),
            null: Some("NULL".to_owned()),
        }
    }

    /// A key and a value.
    type Pair = (Option<Vec<u8>>, Option<Vec<u8>>);

    fn pair(parser: &Parser, line: &str) -> Result<Pair, String> {
        let record = parser.parse(line.as_bytes().to_vec())?.expect("a record");
        Ok((record.key, record.value))
    }

    fn some(text: &str) -> Option<Vec<u8>> {
        Some(text.as_bytes().to_vec())
    }

    #[test]
    fn a_line_is_a_value_or_a_key_and_a_value() {
        let plain = parser(InputFormat::Lines, None);
        assert_eq!(pair(&plain, "a:b"), Ok((None, some("a:b"))));
        assert_eq!(pair(&plain, ""), Ok((None, some(""))));
        assert_eq!(pair(&plain, "NULL"), Ok((None, None)));
        let keyed = parser(InputFormat::Lines, Some("::"));
        assert_eq!(pair(&keyed, "k::v::w"), Ok((some("k"), some("v::w"))));
        assert_eq!(pair(&keyed, "::"), Ok((some(""), some(""))));
        assert_eq!(pair(&keyed, "NULL::NULL"), Ok((None, None)));
        assert!(pair(&keyed, "k:v").is_err());
    }

    #[test]
    fn encoded_lines_are_decoded_or_refused() {
        let hex = parser(InputFormat::Hex, Some(" "));
        assert_eq!(pair(&hex, "00fF 61"), Ok((Some(vec![0, 255]), some("a"))));
        assert!(pair(&hex, "0 61").is_err() && pair(&hex, "zz 61").is_err());
        let base64 = parser(InputFormat::Base64, None);
        assert_eq!(pair(&base64, "YWI="), Ok((None, some("ab"))));
        assert!(pair(&base64, "YWI").is_err());
    }

    #[test]
    fn json_has_every_part_of_a_record() {
        let json = parser(InputFormat::Json, None);
        let line = br#"{"topic":"t","key":"k","value":{"a":1},"partition":3,"timestamp":5,
            "headers":[{"key":"h","value":"x"},{"key":"h","value":null},{"key":"b","value_base64":"AA=="}]}"#;
        let record = json.parse(line.to_vec()).unwrap().unwrap();
        assert_eq!(record.key, some("k"));
        assert_eq!(record.value, some(r#"{"a":1}"#));
        assert_eq!((record.partition, record.timestamp), (Some(3), Some(5)));
        let header = |key: &str, value| (key.to_owned(), value);
        assert_eq!(
            record.headers,
            [
                header("h", some("x")),
                header("h", None),
                header("b", Some(vec![0]))
            ]
        );
        let record = json.parse(br#"{"value_base64":"/w==","headers":{"a":"b"}}"#.to_vec());
        let record = record.unwrap().unwrap();
        assert_eq!(record.value, Some(vec![255]));
        assert_eq!(record.headers, [header("a", some("b"))]);
        assert_eq!(json.parse(b"  ".to_vec()), Ok(None));
        for bad in [
            "{",
            "[]",
            r#"{"val":1}"#,
            r#"{"partition":"x"}"#,
            r#"{"headers":[1]}"#,
        ] {
            assert!(json.parse(bad.as_bytes().to_vec()).is_err(), "{bad}");
        }
    }

    #[test]
    fn lines_are_read_to_the_end_with_or_without_a_last_line_end() {
        for (text, expected) in [
            ("a\n\nb", vec!["a", "", "b"]),
            ("a\nb\n", vec!["a", "b"]),
            ("", vec![]),
        ] {
            let mut source = Source::new(Box::new(text.as_bytes()), false);
            let mut lines = Vec::new();
            loop {
                let chunk = source.read().unwrap();
                lines.extend(chunk.lines);
                if chunk.is_last {
                    break;
                }
            }
            let lines: Vec<&str> = lines
                .iter()
                .map(|l| std::str::from_utf8(l).unwrap())
                .collect();
            assert_eq!(lines, expected);
        }
        let mut source = Source::new(Box::new("a\nb\n".as_bytes()), true);
        let chunk = source.read().unwrap();
        assert_eq!(
            (chunk.lines, chunk.is_last),
            (vec![b"a\nb\n".to_vec()], true)
        );
    }
}
