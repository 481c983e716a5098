//! Reads RESP2 token by token, however its bytes are split.

use anyhow::{bail, ensure, Result};
use std::fmt;

/// One token. An array's elements follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Integer(i64),
    Bulk(&'a [u8]),
    /// An empty one has no elements, and is whole.
    Array(u32),
    /// A string or an array that is not there.
    Nil,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lossy = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        match self {
            Token::Error(text) => write!(f, "an error: {}", lossy(text)),
            Token::Simple(text) => write!(f, "{:?}", lossy(text)),
            Token::Integer(number) => write!(f, "the number {number}"),
            Token::Bulk(text) => write!(f, "a string of {} bytes", text.len()),
            Token::Array(count) => write!(f, "an array of {count}"),
            Token::Nil => write!(f, "nil"),
        }
    }
}

/// Where in an answer a reader is.
#[derive(Debug, Default)]
pub struct Reader {
    /// The arrays that are open: which element the last token was of (from 0), and how many there are.
    open: Vec<(u32, u32)>,
    /// Of the last token: its place in each array around it.
    path: Vec<u32>,
}

impl Reader {
    /// The first token of `input` and its bytes; `None` if it is not whole yet.
    ///
    /// An error if this is no RESP2, or a string or a nesting is larger than any that is asked for here.
    pub fn next<'i>(&mut self, input: &'i [u8]) -> Result<Option<(Token<'i>, usize)>> {
        let Some((token, used)) = parse(input)? else {
            return Ok(None);
        };
        // Arrays that are through close, the innermost first; then this token is the next of the one around it.
        self.close();
        if let Some((place, count)) = self.open.last_mut() {
            *place = place.wrapping_add(1);
            debug_assert!(*place < *count);
        }
        self.path.clear();
        self.path.extend(self.open.iter().map(|(place, _)| *place));
        if let Token::Array(count @ 1..) = token {
            ensure!(self.open.len() < DEPTH_MAX, "Redis nests too deeply");
            self.open.push((u32::MAX, count));
        }
        Ok(Some((token, used)))
    }

    /// Whether the last token was an answer's end.
    pub fn is_whole(&self) -> bool {
        self.open.iter().all(|array| is_through(*array))
    }

    /// The place of the last token in each array around it, from 0, the outermost first.
    pub fn path(&self) -> &[u32] {
        &self.path
    }

    fn close(&mut self) {
        while self.open.last().is_some_and(|array| is_through(*array)) {
            self.open.pop();
        }
    }
}

fn is_through((place, count): (u32, u32)) -> bool {
    place.wrapping_add(1) == count
}

fn parse(input: &[u8]) -> Result<Option<(Token<'_>, usize)>> {
    let Some((&kind, rest)) = input.split_first() else {
        return Ok(None);
    };
    ensure!(
        b"+-:$*".contains(&kind),
        "this is not Redis's protocol: it answered with the byte {kind:#04x}"
    );
    let Some(end) = rest.iter().position(|byte| *byte == b'\r') else {
        ensure!(
            rest.len() <= LINE_MAX,
            "Redis answered with a line that does not end"
        );
        return Ok(None);
    };
    let line = &rest[..end];
    match rest.get(end + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => bail!("Redis ended a line with half of a line's end"),
    }
    let used = 1 + end + 2;
    let token = match kind {
        b'+' => Token::Simple(line),
        b'-' => Token::Error(line),
        b':' => Token::Integer(number(line)?),
        b'*' => match number(line)? {
            -1 => Token::Nil,
            count => {
                let count = u32::try_from(count).ok().filter(|n| *n <= ARRAY_MAX);
                match count {
                    Some(count) => Token::Array(count),
                    None => bail!("Redis answered with an array of an impossible length"),
                }
            }
        },
        _ => match number(line)? {
            -1 => Token::Nil,
            length => {
                let length = usize::try_from(length).ok().filter(|n| *n <= BULK_MAX);
                let Some(length) = length else {
                    bail!("Redis answered with a string of an impossible length");
                };
                let Some(body) = input.get(used..used + length + 2) else {
                    return Ok(None);
                };
                let (text, end) = body.split_at(length);
                ensure!(
                    end == b"\r\n",
                    "Redis answered with a string of another length than it said"
                );
                return Ok(Some((Token::Bulk(text), used + length + 2)));
            }
        },
    };
    Ok(Some((token, used)))
}

fn number(line: &[u8]) -> Result<i64> {
    let text = std::str::from_utf8(line).ok();
    match text.and_then(|text| text.parse().ok()) {
        Some(number) => Ok(number),
        None => bail!(
            "Redis answered {:?} where a number should be",
            String::from_utf8_lossy(line)
        ),
    }
}

/// Bytes: of a status, an error or a number.
const LINE_MAX: usize = 64 << 10;
const BULK_MAX: usize = 128 << 20;
const ARRAY_MAX: u32 = 1 << 24;
/// XREAD answers with five.
const DEPTH_MAX: usize = 8;
