//! Who is not there, or is no broker.

use super::{data_dir, feed};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

const HINT: &str =
    "; start a broker there, or name another with --broker HOST:PORT or HIGHWATER_BROKER";

/// An address that nobody listens on.
fn nobody() -> SocketAddr {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    taken.local_addr().unwrap()
}

#[test]
fn a_broker_that_is_not_there_is_told_by_every_command() {
    let addr = nobody();
    for arguments in [
        &["topic", "list"][..],
        &["config", "get", "topic", "t"],
        &["produce", "t"],
        &["consume", "t"],
        &["group", "list"],
    ] {
        let sentence = format!("cannot connect to {addr}: Connection refused (os error 111){HINT}");
        feed(addr, arguments, "").fails_with(&sentence);
    }
    let bad = ["topic", "list", "--broker", "here:there"];
    feed(addr, &bad, "").fails_with("cannot connect to here:there: it is not an address; write HOST:PORT, such as 127.0.0.1:9092");
    let unknown = ["topic", "list", "--broker", "no-such-host.invalid:1"];
    feed(addr, &unknown, "").fails_with("cannot connect to no-such-host.invalid:1: ");
}

/// Serves one connection with what `answer` does.
fn impostor(
    answer: impl FnOnce(std::net::TcpStream) + Send + 'static,
) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let served = std::thread::spawn(move || answer(listener.accept().unwrap().0));
    (addr, served)
}

#[test]
fn what_is_no_broker_is_told_from_one_that_is_away() {
    let no_broker = |addr: SocketAddr| format!("{addr} does not answer as a Kafka broker: ");
    let (addr, served) = impostor(|mut socket| {
        let mut request = [0; 64];
        let _ = socket.read(&mut request).unwrap();
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let ran = feed(addr, &["topic", "list"], "");
    ran.fails_with(&no_broker(addr));
    assert!(
        ran.err
            .contains("it announces an answer of 1213486160 bytes"),
        "{}",
        ran.err
    );
    served.join().unwrap();

    let (addr, served) = impostor(drop);
    let ran = feed(addr, &["topic", "list"], "");
    ran.fails_with(&format!(
        "{}it closed the connection when asked which APIs it offers",
        no_broker(addr)
    ));
    served.join().unwrap();

    let (addr, served) = impostor(|mut socket| {
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest);
    });
    let ran = feed(addr, &["topic", "list", "--timeout", "1"], "");
    ran.fails_with(&format!(
        "{}it did not say within 1000 ms which APIs it offers",
        no_broker(addr)
    ));
    served.join().unwrap();
}

#[test]
fn an_api_that_is_not_offered_is_named() {
    use highwater::protocol::messages::{ApiVersion, ApiVersionsResponse};
    use highwater::protocol::response_frame;
    let (addr, served) = impostor(|mut socket| {
        let mut request = [0; 256];
        let _ = socket.read(&mut request).unwrap();
        let answer = ApiVersionsResponse {
            api_keys: vec![ApiVersion {
                api_key: 18,
                min_version: 0,
                max_version: 3,
            }],
            ..Default::default()
        };
        let version = *ApiVersionsResponse::VERSIONS.end();
        socket
            .write_all(&response_frame(0, version, &answer).unwrap().concat())
            .unwrap();
        let _ = socket.read(&mut request);
    });
    let ran = feed(addr, &["topic", "list"], "");
    ran.fails_with(&format!(
        "{addr} does not offer Metadata; this command needs a broker that does"
    ));
    served.join().unwrap();
}

#[test]
fn a_broker_that_names_an_address_which_cannot_be_reached_is_told() {
    let dir = data_dir();
    let away = nobody();
    let listener = "127.0.0.1:0";
    let launch = super::Launch::new(super::BINARY, dir.path());
    let launch = launch.shards(1).set(format!("advertised.listeners={away}"));
    let broker = launch
        .try_start(listener)
        .unwrap_or_else(|refused| panic!("{}", refused.stderr));
    let ran = feed(broker.addr(), &["produce", "t", "--timeout", "1"], "x\n");
    assert_eq!(ran.code, Some(1));
    let sentence = format!(
        "cannot connect to {away}: Connection refused (os error 111) ({} names this address for broker 1; see its advertised.listeners)",
        broker.addr()
    );
    assert!(ran.err.contains(&sentence), "{}", ran.err);
}
