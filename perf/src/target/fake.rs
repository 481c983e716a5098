//! For tests: a listener that answers one connection from a list, and a directory on a disk.

use highwater::protocol::{response_frame, Message};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;

pub struct FakeBroker {
    addr: SocketAddr,
    /// The keys of the requests that came.
    thread: JoinHandle<Vec<i16>>,
}

impl FakeBroker {
    /// Answers the first connection's requests by these frames, and closes it.
    pub fn start(answers: Vec<Vec<u8>>) -> FakeBroker {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            answers
                .into_iter()
                .map(|answer| {
                    let key = request_key(&mut socket);
                    socket.write_all(&answer).unwrap();
                    key
                })
                .collect()
        });
        FakeBroker { addr, thread }
    }

    pub fn answer<M: Message>(version: i16, response: &M) -> Vec<u8> {
        response_frame(0, version, response).unwrap().concat()
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn finish(self) -> Vec<i16> {
        self.thread.join().unwrap()
    }
}

fn request_key(socket: &mut TcpStream) -> i16 {
    let mut prefix = [0; 4];
    socket.read_exact(&mut prefix).unwrap();
    let mut frame = vec![0; u32::from_be_bytes(prefix) as usize];
    socket.read_exact(&mut frame).unwrap();
    i16::from_be_bytes([frame[0], frame[1]])
}

/// A directory below the target directory: /tmp may be memory.
pub fn beside_the_tests() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().to_owned()
}
