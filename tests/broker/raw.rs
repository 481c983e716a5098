//! A peer that writes its bytes itself: what the client room would never send.

use super::broker::Broker;
use highwater::protocol::{request_frame, Message, Str};
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// No answer takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn connect(broker: &Broker) -> TcpStream {
    let socket = TcpStream::connect(broker.addr()).expect("a connection");
    with_patience(socket)
}

/// Connects from that loopback address.
pub fn connect_from(broker: &Broker, from: Ipv4Addr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let from = SocketAddr::from((from, 0));
    socket.bind(&from.into()).expect("every 127.x.x.x is ours");
    socket.connect(&broker.addr().into()).expect("a connection");
    with_patience(socket.into())
}

fn with_patience(socket: TcpStream) -> TcpStream {
    socket
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout can be set");
    socket.set_nodelay(true).expect("it can be set");
    socket
}

/// A whole request.
pub fn request<M: Message>(correlation_id: i32, version: i16, body: &M) -> Vec<u8> {
    let client: Str = "raw".into();
    request_frame(correlation_id, Some(&client), version, body)
        .expect("it can be expressed")
        .concat()
}

/// The next answer's correlation id and body (with the rest of its header); `None` if
/// the broker has closed.
pub fn answer(socket: &mut TcpStream) -> Option<(i32, Vec<u8>)> {
    let mut length = [0; 4];
    if !filled(socket, &mut length) {
        return None;
    }
    let mut body = vec![0; i32::from_be_bytes(length) as usize];
    if !filled(socket, &mut body) {
        return None;
    }
    let (id, rest) = body.split_first_chunk().expect("a correlation id");
    Some((i32::from_be_bytes(*id), rest.to_vec()))
}

/// Waits for the broker to close; false if it sends something before.
pub fn is_closed(socket: &mut TcpStream) -> bool {
    !filled(socket, &mut [0])
}

/// A closed socket reads as an end, or as a reset if unread bytes were left.
fn filled(socket: &mut TcpStream, buf: &mut [u8]) -> bool {
    match socket.read_exact(buf) {
        Ok(()) => true,
        Err(error) => {
            let is_end = matches!(
                error.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            );
            assert!(is_end, "neither an answer nor an end: {error}");
            false
        }
    }
}

/// Writes; false if the broker has closed.
pub fn send(socket: &mut TcpStream, bytes: &[u8]) -> bool {
    match socket.write_all(bytes) {
        Ok(()) => true,
        Err(error) => {
            let is_end = matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            );
            assert!(is_end, "neither sent nor an end: {error}");
            false
        }
    }
}
