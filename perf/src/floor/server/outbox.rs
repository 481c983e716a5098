//! Answers of one connection, sent in the order of its requests, whichever is ready first.

use anyhow::{ensure, Result};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Write};

/// Requests of a connection that are not answered; no more are read until some are.
pub const UNANSWERED_MAX: usize = 1024;
/// Bytes that wait for a socket; no more requests are read until they are sent.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Slices of one send (IOV_MAX).
const SLICES_MAX: usize = 1024;

#[derive(Default)]
pub struct Outbox {
    /// The number of the first request in `answers`.
    first: u64,
    /// `None`: not ready.
    answers: VecDeque<Option<Vec<Bytes>>>,
    /// Ready to be sent.
    chunks: VecDeque<Bytes>,
    waiting_bytes: usize,
}

impl Outbox {
    /// A number for a request, in the order in which they came.
    pub fn number(&mut self) -> u64 {
        self.answers.push_back(None);
        self.first + self.answers.len() as u64 - 1
    }

    /// The answer to a request, a whole frame.
    pub fn answer(&mut self, number: u64, frame: Vec<Bytes>) {
        if let Some(at) = number.checked_sub(self.first) {
            if let Some(answer) = self.answers.get_mut(at as usize) {
                *answer = Some(frame);
            }
        }
        while let Some(Some(_)) = self.answers.front() {
            let frame = self.answers.pop_front().flatten().unwrap_or_default();
            self.first += 1;
            self.waiting_bytes += frame.iter().map(Bytes::len).sum::<usize>();
            self.chunks.extend(frame);
        }
    }

    /// Whether no more requests should be read.
    pub fn is_full(&self) -> bool {
        self.answers.len() >= UNANSWERED_MAX || self.waiting_bytes >= WAITING_BYTES_MAX
    }

    pub fn has_chunks(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// Sends what is ready, until the socket takes no more.
    pub fn send(&mut self, socket: &mut impl Write) -> Result<()> {
        while !self.chunks.is_empty() {
            let sent = if self.chunks.len() == 1 {
                socket.write(&self.chunks[0])
            } else {
                let slices: Vec<IoSlice<'_>> = self
                    .chunks
                    .iter()
                    .take(SLICES_MAX)
                    .map(|chunk| IoSlice::new(chunk))
                    .collect();
                socket.write_vectored(&slices)
            };
            match sent {
                Ok(sent) => {
                    ensure!(sent > 0, "the peer takes nothing");
                    self.sent(sent);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn sent(&mut self, mut sent: usize) {
        self.waiting_bytes -= sent;
        while let Some(chunk) = self.chunks.front_mut() {
            if sent < chunk.len() {
                let _ = chunk.split_to(sent);
                return;
            }
            sent -= chunk.len();
            self.chunks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes at a time, and then none until it is asked again.
    struct Slow {
        taken: Vec<u8>,
        room: usize,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.room == 0 {
                self.room = 3;
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.room);
            self.room -= count;
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn answers_leave_in_the_order_of_the_requests() {
        let mut outbox = Outbox::default();
        let numbers = [outbox.number(), outbox.number(), outbox.number()];
        let mut socket = Slow {
            taken: Vec::new(),
            room: 2,
        };
        outbox.answer(numbers[1], vec![Bytes::from("bb"), Bytes::from("bbb")]);
        outbox.answer(numbers[2], vec![Bytes::from("c")]);
        assert!(!outbox.has_chunks());
        outbox.answer(numbers[0], vec![Bytes::from("aaaa")]);
        // No number of it.
        outbox.answer(77, vec![Bytes::from("x")]);
        while outbox.has_chunks() {
            outbox.send(&mut socket).unwrap();
        }
        assert_eq!(socket.taken, b"aaaabbbbbc");
        assert_eq!(outbox.waiting_bytes, 0);
    }

    #[test]
    fn a_peer_that_takes_nothing_fills_it() {
        let mut outbox = Outbox::default();
        for _ in 0..UNANSWERED_MAX {
            assert!(!outbox.is_full());
            outbox.number();
        }
        assert!(outbox.is_full());
        for number in 0..UNANSWERED_MAX as u64 {
            outbox.answer(number, vec![Bytes::from_static(&[0; 100])]);
        }
        assert!(!outbox.is_full());
        let number = outbox.number();
        outbox.answer(number, vec![Bytes::from(vec![0; WAITING_BYTES_MAX])]);
        assert!(outbox.is_full());
    }
}
