//! Reads the NATS client protocol frame by frame.

use anyhow::{bail, ensure, Context, Result};

/// What a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// JSON.
    Info(&'a [u8]),
    Ping,
    Pong,
    Ok,
    Error(&'a [u8]),
    Message(Message<'a>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    pub subject: &'a [u8],
    /// Of the subscription.
    pub id: u32,
    /// Where an answer goes.
    pub reply: Option<&'a [u8]>,
    /// With `NATS/1.0` and an inline status in front; empty if there are none.
    pub headers: &'a [u8],
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// A status (`503 No Responders`) that is in the place of a record.
    pub fn status(&self) -> Option<&'a [u8]> {
        let line = self.headers.strip_prefix(b"NATS/1.0 ")?;
        let end = line.iter().position(|byte| *byte == b'\r')?;
        Some(&line[..end])
    }

    /// The value of a header; a server's have one space behind the colon.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        let mut lines = self.headers.split(|byte| *byte == b'\n');
        lines.find_map(|line| {
            let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b":")?;
            Some(value.trim_ascii())
        })
    }
}

/// The first frame of `input` and its bytes; `None` if it is not whole yet.
///
/// An error if this is not the protocol, or a frame is larger than any that is asked for here.
pub fn parse(input: &[u8]) -> Result<Option<(Frame<'_>, usize)>> {
    let Some(end) = line_end(input)? else {
        return Ok(None);
    };
    let line = &input[..end];
    let used = end + 2;
    let (word, rest) = match line.iter().position(|byte| byte.is_ascii_whitespace()) {
        Some(space) => (&line[..space], line[space..].trim_ascii()),
        None => (line, &[][..]),
    };
    // Most frames are messages.
    let has_headers = word.eq_ignore_ascii_case(b"HMSG");
    if has_headers || word.eq_ignore_ascii_case(b"MSG") {
        return message(input, rest, used, has_headers);
    }
    let frame = if word.eq_ignore_ascii_case(b"PING") {
        Frame::Ping
    } else if word.eq_ignore_ascii_case(b"PONG") {
        Frame::Pong
    } else if word.eq_ignore_ascii_case(b"+OK") {
        Frame::Ok
    } else if word.eq_ignore_ascii_case(b"-ERR") {
        Frame::Error(rest)
    } else if word.eq_ignore_ascii_case(b"INFO") {
        Frame::Info(rest)
    } else {
        bail!(
            "this is not the protocol of NATS: it sent {:?}",
            String::from_utf8_lossy(&line[..line.len().min(80)])
        );
    };
    Ok(Some((frame, used)))
}

/// `SUBJECT ID [REPLY] [HEADER BYTES] BYTES`.
fn message<'a>(
    input: &'a [u8],
    words: &'a [u8],
    used: usize,
    has_headers: bool,
) -> Result<Option<(Frame<'a>, usize)>> {
    let mut list = [&[][..]; 5];
    let mut count = 0;
    for word in words.split(u8::is_ascii_whitespace) {
        if !word.is_empty() {
            ensure!(
                count < list.len(),
                "NATS sent a message with too many words"
            );
            list[count] = word;
            count += 1;
        }
    }
    let sizes = if has_headers { 2 } else { 1 };
    let reply = match count.checked_sub(2 + sizes) {
        Some(0) => None,
        Some(1) => Some(list[2]),
        _ => bail!("NATS sent a message with too few or too many words"),
    };
    let total = number(list[count - 1])? as usize;
    let header_bytes = match has_headers {
        true => number(list[count - 2])? as usize,
        false => 0,
    };
    ensure!(
        header_bytes <= total && total <= PAYLOAD_MAX,
        "NATS sent a message of an impossible size"
    );
    let Some(body) = input.get(used..used + total + 2) else {
        return Ok(None);
    };
    ensure!(
        body.ends_with(b"\r\n"),
        "NATS sent a message of another size than it said"
    );
    let (headers, payload) = body[..total].split_at(header_bytes);
    let message = Message {
        subject: list[0],
        id: number(list[1])?,
        reply,
        headers,
        payload,
    };
    Ok(Some((Frame::Message(message), used + total + 2)))
}

fn line_end(input: &[u8]) -> Result<Option<usize>> {
    match input.iter().position(|byte| *byte == b'\n') {
        Some(at) if at > 0 && input[at - 1] == b'\r' => Ok(Some(at - 1)),
        Some(_) => bail!("NATS ended a line without a carriage return"),
        None => {
            ensure!(
                input.len() <= LINE_MAX,
                "this is not the protocol of NATS: a line does not end"
            );
            Ok(None)
        }
    }
}

fn number(word: &[u8]) -> Result<u32> {
    let text = std::str::from_utf8(word).ok();
    text.and_then(|text| text.parse().ok())
        .with_context(|| format!("NATS sent {:?} for a number", String::from_utf8_lossy(word)))
}

/// Bytes: INFO's JSON is the longest line.
const LINE_MAX: usize = 256 << 10;
const PAYLOAD_MAX: usize = 128 << 20;
