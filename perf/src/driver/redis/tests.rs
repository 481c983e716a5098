use super::*;
use proptest::prelude::*;

/// Gives a session its input cut at these places, as the event loop does.
fn feed(session: &mut dyn Session, input: &[u8], cuts: &[usize]) -> Result<(Vec<Event>, Vec<u8>)> {
    let (mut events, mut out, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    let mut start = 0;
    for end in cuts.iter().copied().chain([input.len()]) {
        rest.extend_from_slice(&input[start..end]);
        let used = session.read(&rest, &mut out, &mut events)?;
        rest.drain(..used);
        start = end;
    }
    assert_eq!(rest, b"", "left over");
    Ok((events, out))
}

fn byte_by_byte(input: &[u8]) -> Vec<usize> {
    (1..input.len()).collect()
}

fn streams(keys: &[&str]) -> Streams {
    let stream = |key: &&str| (key.as_bytes().to_vec(), b"0".to_vec());
    Streams {
        streams: keys.iter().map(stream).collect(),
        count: 7,
        wait_ms: 500,
    }
}

fn bulk(text: &[u8]) -> Vec<u8> {
    let mut out = format!("${}\r\n", text.len()).into_bytes();
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
    out
}

/// Id and value.
type Entry = (&'static str, Vec<u8>);

/// The answer to XREAD: keys, each with its entries.
fn answer(streams: &[(&str, &[Entry])]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", streams.len()).into_bytes();
    for (key, entries) in streams {
        out.extend(b"*2\r\n");
        out.extend(bulk(key.as_bytes()));
        out.extend(format!("*{}\r\n", entries.len()).into_bytes());
        for (id, value) in *entries {
            out.extend(b"*2\r\n");
            out.extend(bulk(id.as_bytes()));
            out.extend(b"*2\r\n");
            out.extend(bulk(b"v"));
            out.extend(bulk(value));
        }
    }
    out
}

/// A value that was due then, with bytes that look like protocol.
fn value(due: u64) -> Vec<u8> {
    let mut value = due.to_be_bytes().to_vec();
    value.extend(b"\r\n$5\r\n*2\r\n-ERR\r\n");
    value
}

#[test]
fn a_producer_is_acknowledged_in_order_however_answers_are_split() {
    let input = b"+PONG\r\n$3\r\n1-0\r\n$3\r\n1-1\r\n$4\r\n20-0\r\n";
    let expected = [
        Event::Ready,
        Event::Acknowledged(0),
        Event::Acknowledged(1),
        Event::Acknowledged(2),
    ];
    for cuts in [vec![], byte_by_byte(input)] {
        let mut producer = streams(&["t.0"]).producer(0);
        let (mut out, mut appended) = (Vec::new(), Vec::new());
        producer.greet(&mut out);
        assert_eq!(out, b"*1\r\n$4\r\nPING\r\n");
        producer.append(0, 0, b"abc", &mut appended);
        assert_eq!(
            appended,
            b"*5\r\n$4\r\nXADD\r\n$3\r\nt.0\r\n$1\r\n*\r\n$1\r\nv\r\n$3\r\nabc\r\n"
        );
        let (events, out) = feed(&mut *producer, input, &cuts).unwrap();
        assert_eq!(events, expected);
        assert_eq!(out, b"");
    }
}

#[test]
fn a_refused_record_is_an_error_with_redis_s_words() {
    for (input, says) in [
        (
            &b"+PONG\r\n-OOM command not allowed\r\n"[..],
            "OOM command not allowed",
        ),
        (b"-LOADING Redis is loading\r\n", "LOADING"),
        (b"+PONG\r\n$-1\r\n", "nil"),
        (b"+PONG\r\n:7\r\n", "the number 7"),
        (b"+PONG\r\n*1\r\n", "an array"),
        (b"$3\r\n1-0\r\n", "a string"),
    ] {
        let mut producer = streams(&["t.0"]).producer(0);
        let error = feed(&mut *producer, input, &[]).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_consumer_reads_records_and_asks_for_what_comes_after_them() {
    let mut input = b"+PONG\r\n".to_vec();
    input.extend(answer(&[
        ("t.1", &[("5-0", value(1)), ("5-1", value(2))]),
        ("t.0", &[("9-9", value(3))]),
    ]));
    // Nothing within the time.
    input.extend(b"*-1\r\n");
    let bytes = value(0).len();
    let record = |due| Event::Record { due, bytes };
    for cuts in [vec![], byte_by_byte(&input)] {
        let mut consumer = streams(&["t.0", "t.1"]).consumer(&[0, 1]);
        let (events, out) = feed(&mut *consumer, &input, &cuts).unwrap();
        assert_eq!(
            events,
            [
                Event::Ready,
                record(1),
                record(2),
                record(3),
                Event::Fetched
            ]
        );
        let mut expected = Vec::new();
        for ids in [["0", "0"], ["9-9", "5-1"], ["9-9", "5-1"]] {
            let words: Vec<&[u8]> = [
                "XREAD", "COUNT", "7", "BLOCK", "500", "STREAMS", "t.0", "t.1",
            ]
            .iter()
            .chain(&ids)
            .map(|word| word.as_bytes())
            .collect();
            command(&mut expected, &words);
        }
        assert_eq!(
            String::from_utf8_lossy(&out),
            String::from_utf8_lossy(&expected)
        );
    }
}

#[test]
fn what_a_consumer_cannot_read_is_an_error() {
    let stranger = answer(&[("other", &[("1-0", value(1))])]);
    let short = answer(&[("t.0", &[("1-0", b"short".to_vec())])]);
    for input in [
        &stranger[..],
        &short,
        b"-WRONGTYPE it is a list\r\n",
        b"*1\r\n$3\r\nt.0\r\n",
        b"*1\r\n*3\r\n$3\r\nt.0\r\n*0\r\n$1\r\nx\r\n",
        b":1\r\n",
    ] {
        let mut consumer = streams(&["t.0"]).consumer(&[0]);
        feed(&mut *consumer, b"+PONG\r\n", &[]).unwrap();
        let text = String::from_utf8_lossy(input).into_owned();
        assert!(feed(&mut *consumer, input, &[]).is_err(), "{text}");
    }
}

#[test]
fn what_is_not_redis_s_protocol_is_an_error_and_not_waited_for() {
    let endless = [b"+".to_vec(), vec![b'x'; 70_000]].concat();
    for input in [
        &b"HTTP/1.1 400 Bad Request\r\n"[..],
        b"\0\0\0\x10",
        b"$-2\r\n",
        b"$99999999999\r\n",
        b"$200000000\r\n",
        b"*99999999\r\n",
        b"*x\r\n",
        b":\r\n",
        b"+a\rb\n",
        b"$1\r\nabc",
        b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
        &endless,
    ] {
        let mut reader = Reader::default();
        let mut rest = input;
        let failed = loop {
            match reader.next(rest) {
                Err(_) => break true,
                Ok(None) => break false,
                Ok(Some((_, used))) => rest = &rest[used..],
            }
        };
        let shown = &input[..input.len().min(40)];
        assert!(failed, "{}", String::from_utf8_lossy(shown));
    }
}

#[test]
fn an_answer_is_whole_when_all_its_arrays_are() {
    let input = b"*3\r\n*0\r\n*2\r\n$1\r\na\r\n*-1\r\n:5\r\n+OK\r\n";
    let mut reader = Reader::default();
    let mut rest = &input[..];
    let mut seen = Vec::new();
    while let Some((_, used)) = reader.next(rest).unwrap() {
        rest = &rest[used..];
        seen.push((reader.path().to_vec(), reader.is_whole()));
    }
    let expected: [(&[u32], bool); 7] = [
        (&[], false),
        (&[0], false),
        (&[1], false),
        (&[1, 0], false),
        (&[1, 1], false),
        (&[2], true),
        (&[], true),
    ];
    let expected: Vec<_> = expected.iter().map(|(p, w)| (p.to_vec(), *w)).collect();
    assert_eq!(seen, expected);
}

proptest! {
    #[test]
    fn no_input_panics(input in prop::collection::vec(prop_oneof![
        any::<u8>(),
        prop::sample::select(b"*$+-:0123456789\r\n".to_vec()),
    ], 0..200)) {
        let mut producer = streams(&["t.0"]).producer(0);
        let _ = producer.read(&input, &mut Vec::new(), &mut Vec::new());
        let mut consumer = streams(&["t.0"]).consumer(&[0]);
        let _ = consumer.read(&[b"+PONG\r\n", &input[..]].concat(), &mut Vec::new(), &mut Vec::new());
    }
}
