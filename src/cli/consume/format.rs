//! How a record is printed.
//!
//! Bytes are printed as they are, but for JSON, where what is not text is Base64 in a field of another name; `produce
//! --format json` reads it back.

use std::io::{self, Write};

use base64::prelude::{Engine, BASE64_STANDARD};
use serde_json::{json, Map, Value};

use crate::cli::when;
use crate::protocol::batch::{Record, TimestampType};

/// A record and where it lies.
pub(super) struct Placed<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    pub timestamp: i64,
    pub timestamp_type: TimestampType,
    pub record: Record<'a>,
}

/// How records are printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Format {
    pieces: Vec<Piece>,
    /// What stands for null.
    null: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Topic,
    Partition,
    Offset,
    Timestamp,
    /// The timestamp as RFC 3339.
    Date,
    Headers,
    Key(Encoding),
    Value(Encoding),
    KeyBytes,
    ValueBytes,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Plain,
    Hex,
    Base64,
}

impl Format {
    /// A name (`value`, `key-value`, `json`, `hex`, `base64`) or a template such as `%t %p %o %k %v\n`. The key is
    /// printed before a value that stands alone if a separator is given.
    pub fn parse(text: &str, separator: Option<&str>, null: &str) -> Result<Format, String> {
        let encoded = |encoding, separator: Option<&str>| {
            let mut pieces = vec![Piece::Value(encoding), Piece::Text(b"\n".to_vec())];
            if let Some(separator) = separator {
                let key = [
                    Piece::Key(encoding),
                    Piece::Text(separator.as_bytes().to_vec()),
                ];
                pieces.splice(0..0, key);
            }
            pieces
        };
        let pieces = match text {
            "value" => encoded(Encoding::Plain, separator),
            "key-value" => encoded(Encoding::Plain, Some(separator.unwrap_or("\t"))),
            "hex" => encoded(Encoding::Hex, separator),
            "base64" => encoded(Encoding::Base64, separator),
            "json" => vec![Piece::Json, Piece::Text(b"\n".to_vec())],
            template if template.contains('%') => pieces(template)?,
            other => {
                return Err(format!(
                    "there is no format {other:?}; write value, key-value, json, hex, base64, or a template with % such as '%o %v\\n'"
                ))
            }
        };
        Ok(Format {
            pieces,
            null: null.as_bytes().to_vec(),
        })
    }

    pub fn print(&self, out: &mut impl Write, placed: &Placed<'_>) -> io::Result<()> {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.write_all(text)?,
                Piece::Topic => out.write_all(placed.topic.as_bytes())?,
                Piece::Partition => write!(out, "{}", placed.partition)?,
                Piece::Offset => write!(out, "{}", placed.offset)?,
                Piece::Timestamp => write!(out, "{}", placed.timestamp)?,
                Piece::Date => out.write_all(when::shown(placed.timestamp).as_bytes())?,
                Piece::Headers => self.headers(out, placed)?,
                Piece::Key(encoding) => self.bytes(out, placed.record.key, *encoding)?,
                Piece::Value(encoding) => self.bytes(out, placed.record.value, *encoding)?,
                Piece::KeyBytes => write!(out, "{}", length(placed.record.key))?,
                Piece::ValueBytes => write!(out, "{}", length(placed.record.value))?,
                Piece::Json => write!(out, "{}", json_of(placed))?,
            }
        }
        Ok(())
    }

    fn bytes(
        &self,
        out: &mut impl Write,
        bytes: Option<&[u8]>,
        encoding: Encoding,
    ) -> io::Result<()> {
        let Some(bytes) = bytes else {
            return out.write_all(&self.null);
        };
        match encoding {
            Encoding::Plain => out.write_all(bytes),
            Encoding::Hex => bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}")),
            Encoding::Base64 => out.write_all(BASE64_STANDARD.encode(bytes).as_bytes()),
        }
    }

    /// `name=value,name=value`.
    fn headers(&self, out: &mut impl Write, placed: &Placed<'_>) -> io::Result<()> {
        for (place, header) in placed.record.headers.enumerate() {
            if place > 0 {
                out.write_all(b",")?;
            }
            out.write_all(header.key)?;
            out.write_all(b"=")?;
            self.bytes(out, header.value, Encoding::Plain)?;
        }
        Ok(())
    }
}

/// The length of what may be null; -1 if it is.
fn length(bytes: Option<&[u8]>) -> i64 {
    bytes.map_or(-1, |bytes| bytes.len() as i64)
}

fn pieces(template: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut text = Vec::new();
    let mut chars = template.chars();
    while let Some(c) = chars.next() {
        match c {
            '%' => {
                let piece = match chars.next() {
                    Some('%') => {
                        text.push(b'%');
                        continue;
                    }
                    Some('t') => Piece::Topic,
                    Some('p') => Piece::Partition,
                    Some('o') => Piece::Offset,
                    Some('T') => Piece::Timestamp,
                    Some('D') => Piece::Date,
                    Some('h') => Piece::Headers,
                    Some('k') => Piece::Key(Encoding::Plain),
                    // kcat's letter for the payload, too.
                    Some('v' | 's') => Piece::Value(Encoding::Plain),
                    Some('K') => Piece::KeyBytes,
                    Some('V' | 'S') => Piece::ValueBytes,
                    other => {
                        let what =
                            other.map_or_else(|| "a % at the end".to_owned(), |c| format!("%{c}"));
                        return Err(format!(
                            "the format has {what}; known are %t topic, %p partition, %o offset, %T timestamp, %D its date, %h headers, %k key, %v value, %K and %V their lengths, %%"
                        ));
                    }
                };
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                pieces.push(piece);
            }
            '\\' => text.push(escape(&mut chars)?),
            c => text.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

fn escape(chars: &mut std::str::Chars<'_>) -> Result<u8, String> {
    let wrong =
        || "the format has an unknown escape; known are \\n \\r \\t \\0 \\\\ \\xFF".to_owned();
    match chars.next() {
        Some('n') => Ok(b'\n'),
        Some('r') => Ok(b'\r'),
        Some('t') => Ok(b'\t'),
        Some('0') => Ok(0),
        Some('\\') => Ok(b'\\'),
        Some('x') => {
            let mut digit = || chars.next().and_then(|c| c.to_digit(16)).ok_or_else(wrong);
            Ok((digit()? << 4 | digit()?) as u8)
        }
        _ => Err(wrong()),
    }
}

fn json_of(placed: &Placed<'_>) -> Value {
    let Placed { record, .. } = placed;
    let mut fields = Map::new();
    fields.insert("topic".to_owned(), json!(placed.topic));
    fields.insert("partition".to_owned(), json!(placed.partition));
    fields.insert("offset".to_owned(), json!(placed.offset));
    fields.insert("timestamp".to_owned(), json!(placed.timestamp));
    let timestamp_type = match placed.timestamp_type {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    };
    fields.insert("timestamp_type".to_owned(), json!(timestamp_type));
    insert(&mut fields, "key", record.key);
    insert(&mut fields, "value", record.value);
    let header = |header: crate::protocol::batch::Header<'_>| {
        let mut fields = Map::new();
        fields.insert("key".to_owned(), json!(String::from_utf8_lossy(header.key)));
        insert(&mut fields, "value", header.value);
        Value::Object(fields)
    };
    fields.insert("headers".to_owned(), record.headers.map(header).collect());
    Value::Object(fields)
}

/// A field of text, or one of Base64 where the bytes are none.
fn insert(fields: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(std::str::from_utf8) {
        None => fields.insert(name.to_owned(), Value::Null),
        Some(Ok(text)) => fields.insert(name.to_owned(), json!(text)),
        Some(Err(_)) => {
            let encoded = BASE64_STANDARD.encode(bytes.unwrap_or_default());
            fields.insert(format!("{name}_base64"), json!(encoded))
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::batch::{BatchBuilder, BatchView};

    type Parts<'a> = (
        Option<&'a [u8]>,
        Option<&'a [u8]>,
        &'a [(&'a str, Option<&'a [u8]>)],
    );

    fn printed(format: &Format, (key, value, headers): Parts<'_>) -> String {
        let mut builder = BatchBuilder::new();
        builder.push_with_headers(5, key, value, headers);
        let view = BatchView::parse(builder.build()).unwrap();
        let record = view.records().unwrap().next().unwrap().unwrap();
        let placed = Placed {
            topic: "t",
            partition: 3,
            offset: 7,
            timestamp: 5,
            timestamp_type: TimestampType::CreateTime,
            record,
        };
        let mut out = Vec::new();
        format.print(&mut out, &placed).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn format(text: &str) -> Format {
        Format::parse(text, None, "NULL").unwrap()
    }

    const RECORD: Parts<'static> = (Some(b"k"), Some(b"v"), &[("a", Some(b"1")), ("b", None)]);

    #[test]
    fn named_formats_end_each_record_with_a_line_end() {
        assert_eq!(printed(&format("value"), RECORD), "v\n");
        assert_eq!(printed(&format("key-value"), RECORD), "k\tv\n");
        assert_eq!(printed(&format("hex"), RECORD), "76\n");
        assert_eq!(printed(&format("base64"), RECORD), "dg==\n");
        let separated = Format::parse("hex", Some(" "), "").unwrap();
        assert_eq!(printed(&separated, RECORD), "6b 76\n");
        assert_eq!(
            printed(&format("key-value"), (None, None, &[])),
            "NULL\tNULL\n"
        );
    }

    #[test]
    fn templates_print_the_parts_of_a_record() {
        let all = format(r"%t %p %o %T %k=%v [%h] %K %V 100%%\t\x41\\\n");
        assert_eq!(
            printed(&all, RECORD),
            "t 3 7 5 k=v [a=1,b=NULL] 1 1 100%\tA\\\n"
        );
        assert_eq!(printed(&format("%D"), RECORD), "1970-01-01T00:00:00.005Z");
        assert_eq!(printed(&format("%K %S"), (None, None, &[])), "-1 -1");
        for bad in ["%", "%z", r"%v\q", r"%v\x4", "values"] {
            assert!(Format::parse(bad, None, "").is_err(), "{bad}");
        }
    }

    #[test]
    fn json_has_every_part_and_base64_for_what_is_no_text() {
        assert_eq!(
            printed(&format("json"), RECORD),
            "{\"topic\":\"t\",\"partition\":3,\"offset\":7,\"timestamp\":5,\"timestamp_type\":\"CreateTime\",\
             \"key\":\"k\",\"value\":\"v\",\"headers\":[{\"key\":\"a\",\"value\":\"1\"},{\"key\":\"b\",\"value\":null}]}\n"
        );
        let odd = printed(&format("json"), (None, Some(&[255]), &[]));
        assert!(
            odd.contains("\"key\":null,\"value_base64\":\"/w==\",\"headers\":[]"),
            "{odd}"
        );
    }
}
