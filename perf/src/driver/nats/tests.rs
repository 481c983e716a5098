use super::*;
use proptest::prelude::*;

const INFO: &[u8] = b"INFO {\"server_id\":\"x\",\"max_payload\":1048576} \r\n";

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

fn streams() -> Streams {
    Streams {
        topics: vec![("a".to_owned(), 0), ("b".to_owned(), 41)],
        partitions: 2,
        run: "run".to_owned(),
    }
}

/// A subscriber of all of stream a and half of stream b, whose consumers are made.
fn subscriber() -> Subscriber {
    let mut subscriber = Subscriber {
        inbox: "_INBOX.me".to_owned(),
        streams: ["a", "b"]
            .map(|stream| Watched {
                stream: stream.to_owned(),
                config: json!({}),
                delivered: 0,
            })
            .into(),
        made: 0,
    };
    let made = "MSG _INBOX.me.made.0 1 13\r\n{\"type\":\"ok\"}\r\n".repeat(2);
    let (events, _) = feed(&mut subscriber, made.as_bytes(), &[]).unwrap();
    assert_eq!(events, [Event::Ready]);
    subscriber
}

/// A delivery to the subscription of a stream.
fn delivery_of(id: u32, number: u64, value: &[u8]) -> Vec<u8> {
    let reply = format!("$JS.ACK.a.c.1.9.{number}.1700000000000000000.0");
    let mut out = format!("MSG a.0 {id} {reply} {}\r\n", value.len()).into_bytes();
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    out
}

/// A value that was due then, with bytes that look like protocol.
fn value(due: u64) -> Vec<u8> {
    let mut value = due.to_be_bytes().to_vec();
    value.extend(b"\r\nMSG a 1 5\r\n-ERR");
    value
}

fn status(words: &str, headers: &str, reply: &str) -> Vec<u8> {
    let block = format!("NATS/1.0 {words}\r\n{headers}\r\n");
    let length = block.len();
    format!("HMSG _INBOX.me.data.0 2{reply} {length} {length}\r\n{block}\r\n").into_bytes()
}

#[test]
fn a_producer_s_records_are_acknowledged_by_their_number_however_answers_are_split() {
    let mut input = INFO.to_vec();
    input.extend(b"PING\r\nPONG\r\n");
    // Streams may answer in another order.
    for (number, answer) in [
        (1, r#"{"stream":"b","seq":9}"#),
        (0, r#"{"stream":"a", "seq":7}"#),
        (12, r#"{"seq":7,"stream":"a"}"#),
    ] {
        let length = answer.len();
        input.extend(format!("MSG _INBOX.run.3.{number} 1 {length}\r\n{answer}\r\n").bytes());
    }
    for cuts in [vec![], byte_by_byte(&input)] {
        let mut producer = streams().producer(3);
        let (events, out) = feed(&mut *producer, &input, &cuts).unwrap();
        assert_eq!(out, b"PONG\r\n");
        assert_eq!(
            events,
            [
                Event::Ready,
                Event::Acknowledged(1),
                Event::Acknowledged(0),
                Event::Acknowledged(12)
            ]
        );
    }
}

#[test]
fn a_record_goes_to_the_subject_of_its_partition() {
    let mut producer = streams().producer(3);
    let (mut greeting, mut out) = (Vec::new(), Vec::new());
    producer.greet(&mut greeting);
    let greeting = String::from_utf8(greeting).unwrap();
    assert!(greeting.starts_with("CONNECT {"), "{greeting}");
    assert!(
        greeting.ends_with("\r\nSUB _INBOX.run.3.* 1\r\nPING\r\n"),
        "{greeting}"
    );
    for partition in 0..4 {
        producer.append(partition, u64::from(partition), b"xyz", &mut out);
    }
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "PUB a.0 _INBOX.run.3.0 3\r\nxyz\r\nPUB a.1 _INBOX.run.3.1 3\r\nxyz\r\n\
         PUB b.0 _INBOX.run.3.2 3\r\nxyz\r\nPUB b.1 _INBOX.run.3.3 3\r\nxyz\r\n"
    );
}

#[test]
fn a_refused_record_is_an_error_with_the_server_s_words() {
    let error = r#"{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"a","seq":0}"#;
    let first = r#"{"stream":"a","seq":1}"#;
    let message =
        |payload: &str| format!("MSG _INBOX.run.0.0 1 {}\r\n{payload}\r\n", payload.len());
    for (input, says) in [
        (message(error), "error 503: maximum bytes exceeded"),
        (message("{}"), "without its number"),
        (message("no"), "no JSON"),
        (message(""), "no JSON"),
        (
            "HMSG _INBOX.run.0.0 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n".to_owned(),
            "no stream of NATS took a record: 503",
        ),
        (
            "-ERR 'Maximum Payload Violation'\r\n".to_owned(),
            "Maximum Payload Violation",
        ),
        (
            format!("MSG _INBOX.run.0.x 1 {}\r\n{first}\r\n", first.len()),
            "what was not sent",
        ),
        (
            format!("MSG other.0 1 {}\r\n{first}\r\n", first.len()),
            "what was not sent",
        ),
    ] {
        let mut producer = streams().producer(0);
        let error = feed(&mut *producer, input.as_bytes(), &[])
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_consumer_subscribes_before_it_asks_and_is_ready_when_all_its_consumers_are_made() {
    // Partition 1 and 3 of 4: the second of either stream.
    let mut consumer = streams().consumer(&[1, 3]);
    let mut out = Vec::new();
    consumer.greet(&mut out);
    let text = String::from_utf8(out).unwrap();
    let at = |word: &str| {
        text.find(word)
            .unwrap_or_else(|| panic!("{word} in {text}"))
    };
    assert!(at("data.0 2\r\n") < at("$JS.API.CONSUMER.CREATE.a "));
    assert!(at("data.1 3\r\n") < at("$JS.API.CONSUMER.CREATE.b "));
    at("\"filter_subjects\":[\"a.1\"]");
    at("\"filter_subjects\":[\"b.1\"]");
    at("\"opt_start_seq\":42");
    let ok = "MSG x.made.0 1 2\r\n{}\r\n";
    assert_eq!(feed(&mut *consumer, ok.as_bytes(), &[]).unwrap().0, []);
    assert_eq!(
        feed(&mut *consumer, ok.as_bytes(), &[]).unwrap().0,
        [Event::Ready]
    );
    // All partitions of a stream need no filter.
    let mut whole = streams().consumer(&[0, 1]);
    let mut out = Vec::new();
    whole.greet(&mut out);
    let text = String::from_utf8(out).unwrap();
    assert!(
        !text.contains("filter") && !text.contains("CREATE.b"),
        "{text}"
    );
}

#[test]
fn a_consumer_that_cannot_be_made_is_an_error() {
    let refused = r#"{"error":{"code":404,"description":"stream not found"}}"#;
    for (input, says) in [
        (
            format!("MSG i.made.0 1 {}\r\n{refused}\r\n", refused.len()),
            "stream not found",
        ),
        (
            "HMSG i.made.0 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n".to_owned(),
            "makes no consumers: 503",
        ),
    ] {
        let mut consumer = streams().consumer(&[0]);
        let error = feed(&mut *consumer, input.as_bytes(), &[])
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn records_of_each_stream_are_counted_and_flow_control_is_answered() {
    let mut input = delivery_of(2, 1, &value(5));
    input.extend(delivery_of(3, 1, &value(6)));
    input.extend(status("100 FlowControl Request", "", " $JS.FC.a.c.x"));
    input.extend(status(
        "100 Idle Heartbeat",
        "Nats-Last-Consumer: 1\r\n",
        "",
    ));
    input.extend(status(
        "100 Idle Heartbeat",
        "Nats-Last-Consumer: 1\r\nNats-Consumer-Stalled: $JS.FC.a.c.y\r\n",
        "",
    ));
    input.extend(delivery_of(2, 2, &value(7)));
    let bytes = value(0).len();
    let record = |due| Event::Record { due, bytes };
    let answers = "PUB $JS.FC.a.c.x 0\r\n\r\nPUB $JS.FC.a.c.y 0\r\n\r\n";

    let (events, out) = feed(&mut subscriber(), &input, &[]).unwrap();
    assert_eq!(events, [record(5), record(6), record(7), Event::Fetched]);
    assert_eq!(String::from_utf8_lossy(&out), answers);

    let (events, out) = feed(&mut subscriber(), &input, &byte_by_byte(&input)).unwrap();
    let records = events.into_iter().filter(|event| *event != Event::Fetched);
    assert_eq!(
        records.collect::<Vec<_>>(),
        [record(5), record(6), record(7)]
    );
    assert_eq!(String::from_utf8_lossy(&out), answers);
}

#[test]
fn a_gap_between_deliveries_is_an_error() {
    let gap = [delivery_of(2, 1, &value(5)), delivery_of(2, 4, &value(6))].concat();
    let error = feed(&mut subscriber(), &gap, &[]).unwrap_err().to_string();
    assert!(error.contains("left out 2 records of stream a"), "{error}");
}

#[test]
fn what_a_consumer_cannot_read_is_an_error() {
    let no_number = b"MSG a.0 2 5\r\nhello\r\n".to_vec();
    for input in [
        no_number,
        b"MSG a.0 2 some.reply 5\r\nhello\r\n".to_vec(),
        delivery_of(2, 1, b"short"),
        delivery_of(9, 1, &value(1)),
        delivery_of(0, 1, &value(1)),
        status("409 Consumer Deleted", "", ""),
    ] {
        let text = String::from_utf8_lossy(&input).into_owned();
        assert!(feed(&mut subscriber(), &input, &[]).is_err(), "{text}");
    }
}

#[test]
fn what_is_not_the_protocol_of_nats_is_an_error_and_not_waited_for() {
    let endless = vec![b'x'; 300_000];
    for input in [
        &b"HTTP/1.1 400 Bad Request\r\n"[..],
        b"\0\0\0\x10\n",
        b"PING\n",
        b"MSG\r\n",
        b"MSG a 1\r\n",
        b"MSG a 1 b 5 6\r\n",
        b"MSG a x 5\r\n12345\r\n",
        b"MSG a 1 -5\r\n",
        b"MSG a 1 200000000\r\n",
        b"MSG a 1 99999999999999999999\r\n",
        b"MSG a 1 2\r\nabcd",
        b"HMSG a 1 9 5\r\n",
        b"MSG a b c d e f g\r\n",
        &endless,
    ] {
        let shown = String::from_utf8_lossy(&input[..input.len().min(40)]);
        assert!(parse(input).is_err(), "{shown}");
    }
}

#[test]
fn names_have_no_dots_and_one_subject_for_each_partition() {
    let config = stream_config("a.b.c");
    assert_eq!(config["name"], "a_b_c");
    assert_eq!(config["subjects"], json!(["a_b_c.*"]));
}

proptest! {
    #[test]
    fn no_input_panics(input in prop::collection::vec(prop_oneof![
        any::<u8>(),
        prop::sample::select(b"MSGHPINOK+-ER 0123456789\r\n".to_vec()),
    ], 0..200)) {
        let _ = streams().producer(0).read(&input, &mut Vec::new(), &mut Vec::new());
        let _ = subscriber().read(&input, &mut Vec::new(), &mut Vec::new());
        let _ = subscriber().read(&[b"HMSG a 2 ", &input[..]].concat(), &mut Vec::new(), &mut Vec::new());
    }
}
