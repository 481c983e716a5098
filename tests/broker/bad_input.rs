//! What a broken or hostile peer sends: an error code or a closed connection,
//! bounded memory, and everyone else served.

use super::broker::Broker;
use super::client::{
    batch_of, create_topic, fetch, fetch_all, list_offset, produce, produce_ok, with,
};
use super::{data_dir, launch};
use bytes::Bytes;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Sends bytes and insists that the broker closes without an answer.
fn closes(broker: &Broker, bytes: &[u8], what: &str) {
    let mut socket = connect(broker);
    socket.write_all(bytes).expect("the bytes can be sent");
    let mut answer = [0; 1];
    // A closed socket reads as an end, or as a reset if unread bytes were left.
    match socket.read_exact(&mut answer) {
        Ok(()) => panic!("{what}: answered"),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{what}: not closed: {error}"),
    }
}

fn connect(broker: &Broker) -> TcpStream {
    let socket = TcpStream::connect(broker.addr()).expect("a connection");
    socket
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("a timeout can be set");
    socket
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as i32).to_be_bytes().to_vec();
    frame.extend(body);
    frame
}

fn serves(broker: &Broker) {
    with(broker.addr(), move |c| async move {
        assert_eq!(list_offset(&c, "good", 0, -1).await.error_code, 0);
        produce_ok(&c, "good", 0, batch_of("still served")).await;
    });
}

fn start(dir: &std::path::Path) -> Broker {
    let broker = launch(dir).set("request.memory.bytes=67108864").start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "good", 3, &[]).await;
    });
    broker
}

#[test]
fn given_bad_frames_then_the_connection_closes_and_others_are_served() {
    let dir = data_dir();
    let broker = start(dir.path());
    closes(&broker, &(-1i32).to_be_bytes(), "a negative length");
    closes(&broker, &i32::MIN.to_be_bytes(), "the most negative length");
    closes(&broker, &i32::MAX.to_be_bytes(), "2 GiB");
    closes(&broker, b"GET / HTTP/1.1\r\n\r\n", "HTTP");
    closes(&broker, &framed(&[]), "an empty frame");
    closes(&broker, &framed(&[0, 3, 0, 0]), "half a header");
    closes(
        &broker,
        &framed(&[0x27, 0x0f, 0, 0, 0, 0, 0, 1, 0xff, 0xff]),
        "API 9999",
    );
    closes(
        &broker,
        &framed(&[0, 3, 0, 99, 0, 0, 0, 1, 0xff, 0xff]),
        "Metadata v99",
    );
    closes(
        &broker,
        &framed(&[0, 3, 0xff, 0xff, 0, 0, 0, 1, 0xff, 0xff]),
        "Metadata v-1",
    );
    // Metadata v1 with 2^31-1 topics.
    let many = [0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff];
    closes(&broker, &framed(&many), "a count beyond the frame");
    serves(&broker);
    broker.stop();
}

#[test]
fn given_a_newer_api_versions_request_then_the_answer_is_version_0_with_35() {
    let dir = data_dir();
    let broker = start(dir.path());
    let mut socket = connect(&broker);
    socket
        .write_all(&framed(&[0, 18, 0, 99, 0, 0, 0, 42, 0xff, 0xff]))
        .expect("the bytes can be sent");
    let mut head = [0; 14];
    socket.read_exact(&mut head).expect("an answer");
    assert_eq!(head[4..8], 42i32.to_be_bytes());
    assert_eq!(head[8..10], 35i16.to_be_bytes());
    let apis = i32::from_be_bytes(head[10..14].try_into().expect("four bytes"));
    let length = i32::from_be_bytes(head[..4].try_into().expect("four bytes"));
    assert_eq!(length, 10 + 6 * apis, "keys, minima and maxima follow");
    broker.stop();
}

/// As Kafka does, and as librdkafka needs it.
#[test]
fn given_bytes_behind_a_request_then_it_is_answered() {
    let dir = data_dir();
    let broker = start(dir.path());
    let mut socket = connect(&broker);
    // Metadata v1 of no topics.
    let request = [0, 3, 0, 1, 0, 0, 0, 9, 0xff, 0xff, 0, 0, 0, 0, 1, 2, 3];
    socket
        .write_all(&framed(&request))
        .expect("the bytes can be sent");
    let mut head = [0; 8];
    socket.read_exact(&mut head).expect("an answer");
    assert_eq!(head[4..], 9i32.to_be_bytes());
    broker.stop();
}

#[test]
fn given_peers_that_stall_inside_frames_then_memory_is_bounded_and_others_are_served() {
    let dir = data_dir();
    let broker = start(dir.path());
    let before = broker.resident_bytes();
    let stalled: Vec<TcpStream> = (0..200)
        .map(|n| {
            let mut socket = connect(&broker);
            // Claims 2 MiB, sends a part. Some stop inside the length.
            let prefix = (2i32 << 20).to_be_bytes();
            let sent: &[u8] = if n % 10 == 0 { &prefix[..2] } else { &prefix };
            socket.write_all(sent).expect("the bytes can be sent");
            if n % 10 != 0 {
                socket.write_all(&[0; 100]).expect("the bytes can be sent");
            }
            socket
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    serves(&broker);
    let grown = broker.resident_bytes().saturating_sub(before);
    assert!(grown < 128 << 20, "{grown} bytes for stalled frames");
    drop(stalled);
    serves(&broker);
    broker.stop();
}

#[test]
fn given_bad_batches_then_each_gets_kafkas_code_and_nothing_is_stored() {
    let dir = data_dir();
    let broker = start(dir.path());
    with(broker.addr(), move |c| async move {
        let good = batch_of("good");
        let changed = |position: usize, bytes: &[u8]| -> Bytes {
            let mut batch = good.to_vec();
            batch[position..position + bytes.len()].copy_from_slice(bytes);
            Bytes::from(batch)
        };
        let crc = |mut batch: Vec<u8>| -> Bytes {
            let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &batch[21..]) as u32;
            batch[17..21].copy_from_slice(&crc.to_be_bytes());
            Bytes::from(batch)
        };
        let last = good.len() - 3;
        let cases = [
            ("a flipped byte", changed(last, &[0xee]), 2),
            ("a wrong CRC", changed(17, &[1, 2, 3, 4]), 2),
            (
                "a wrong count",
                crc(changed(57, &7i32.to_be_bytes()).to_vec()),
                87,
            ),
            (
                "a wrong last delta",
                crc(changed(23, &9i32.to_be_bytes()).to_vec()),
                87,
            ),
            ("half a batch", good.slice(..good.len() / 2), 87),
            ("no bytes", Bytes::new(), 87),
            (
                "two batches",
                Bytes::from([&good[..], &good[..]].concat()),
                87,
            ),
            ("a control batch", crc(changed(21, &[0, 0x20]).to_vec()), 87),
        ];
        for (what, batch, code) in cases {
            let answer = produce(&c, "good", 1, -1, batch).await;
            assert_eq!(
                answer.error_code, code,
                "{what}: {:?}",
                answer.error_message
            );
            assert_eq!(answer.base_offset, -1, "{what}");
        }
        assert_eq!(list_offset(&c, "good", 1, -1).await.offset, 0);
        let large = batch_of(&"x".repeat(2 << 20));
        assert_eq!(produce(&c, "good", 1, -1, large).await.error_code, 10);
        assert_eq!(produce(&c, "good", 1, 7, good.clone()).await.error_code, 21);
        assert_eq!(produce(&c, "good", 3, -1, good.clone()).await.error_code, 3);
        assert_eq!(
            produce(&c, "good", -1, -1, good.clone()).await.error_code,
            3
        );
        assert_eq!(
            produce(&c, "absent", 0, -1, good.clone()).await.error_code,
            3
        );
        assert_eq!(fetch(&c, "good", 9, 0, 0, 1000).await.error_code, 3);
        assert_eq!(fetch(&c, "good", 1, 1, 0, 1000).await.error_code, 1);
        assert_eq!(fetch(&c, "good", 1, -5, 0, 1000).await.error_code, 1);
        assert_eq!(list_offset(&c, "absent", 0, -1).await.error_code, 3);
        assert_eq!(fetch_all(&c, "good", 1, 0).await, []);
        assert_eq!(produce_ok(&c, "good", 1, good.clone()).await, 0);
    });
    broker.stop();
}

#[test]
fn given_acks_0_that_fails_then_the_connection_closes() {
    let dir = data_dir();
    let broker = start(dir.path());
    with(broker.addr(), move |c| async move {
        let request = super::client::produce_request("absent", 0, 0, batch_of("lost"));
        // Version 12 has the topic's name, so the broker can tell that it is absent.
        let wait = c.start_as(&request, 12).await.expect("the request is sent");
        assert!(
            wait.await.is_err(),
            "acks=0 has no answer, and its error closes"
        );
    });
    serves(&broker);
    broker.stop();
}

#[test]
fn given_bad_topics_then_each_gets_kafkas_code() {
    let dir = data_dir();
    let broker = start(dir.path());
    with(broker.addr(), move |c| async move {
        let long = "x".repeat(250);
        type Case<'a> = (&'a str, i32, &'a [(&'a str, &'a str)], i16);
        let cases: [Case<'_>; 9] = [
            ("", 1, &[], 17),
            ("..", 1, &[], 17),
            ("a/b", 1, &[], 17),
            (&long, 1, &[], 17),
            ("good", 1, &[], 36),
            ("zero", 0, &[], 37),
            ("huge", 2_000_000, &[], 44),
            ("config", 1, &[("no.such.setting", "1")], 40),
            ("value", 1, &[("flush.on.ack", "sometimes")], 40),
        ];
        for (topic, partitions, configs, code) in cases {
            let result = create_topic(&c, topic, partitions, configs).await;
            assert_eq!(
                result.error_code, code,
                "{topic:.20}: {:?}",
                result.error_message
            );
        }
        assert_eq!(create_topic(&c, "fine", 1, &[]).await.error_code, 0);
    });
    broker.stop();
}
