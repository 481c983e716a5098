//! The byte budgets of one shard: what requests and responses may hold.
//!
//! A frame's bytes are reserved before its body is read, so waiting for memory is
//! back-pressure on that socket alone. Small frames have a share of their own: a
//! few large ones that wait for their bytes cannot starve heartbeats and fetches. So
//! have small answers: large ones that their peers do not take cannot starve others.

use crate::runtime::local::{Budget, Permit};
use futures_lite::future::or;
use std::cell::Cell;
use std::rc::Rc;

/// Frames up to this many bytes are served from the small share.
pub const SMALL_FRAME_BYTES: usize = 64 * 1024;
/// The most that an answer is granted from the small share: a batch of the default
/// `message.max.bytes`, as a fetch is answered with a whole one whatever it was granted.
const SMALL_ANSWER_BYTES: u64 = (1 << 20) + 64 * 1024;

/// The budgets of one shard.
#[derive(Clone)]
pub struct Memory {
    small: Budget,
    large: Budget,
    decoded: Budget,
    responses: Budget,
    responses_small: Budget,
    responses_waited: Rc<Cell<bool>>,
    group_members: Budget,
    frame_bytes_max: usize,
    session_bytes_max: usize,
}

impl Memory {
    /// Splits `request_bytes` into the small share (an eighth) and the rest;
    /// `response_bytes` bounds what answers hold until they are sent.
    pub fn new(request_bytes: u64, response_bytes: u64, frame_bytes_max: usize) -> Memory {
        let small = (request_bytes / 8).max(SMALL_FRAME_BYTES as u64);
        let large = request_bytes
            .saturating_sub(small)
            .max(frame_bytes_max as u64);
        Memory {
            small: Budget::new(small),
            large: Budget::new(large),
            decoded: Budget::new(request_bytes.max(1)),
            responses: Budget::new((response_bytes - response_bytes / 8).max(1)),
            responses_small: Budget::new((response_bytes / 8).max(1)),
            responses_waited: Rc::default(),
            group_members: Budget::new(request_bytes / 4),
            frame_bytes_max,
            session_bytes_max: (request_bytes / 8) as usize,
        }
    }

    /// The largest frame that a connection may send, in bytes.
    pub fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    /// What fetch sessions may remember, in bytes: an eighth of the requests' memory,
    /// beside it.
    pub fn session_bytes_max(&self) -> usize {
        self.session_bytes_max
    }

    /// What members of groups and their metadata may hold: a quarter of the requests'
    /// memory, beside it.
    pub fn group_members(&self) -> &Budget {
        &self.group_members
    }

    /// Waits for the memory of a frame of `len` bytes, at most
    /// [`Memory::frame_bytes_max`].
    pub async fn frame(&self, len: usize) -> Permit {
        if len <= SMALL_FRAME_BYTES {
            self.small.acquire(len as u64).await
        } else {
            self.large.acquire(len as u64).await
        }
    }

    /// True if a frame of `len` bytes has to wait for memory now.
    pub fn frame_must_wait(&self, len: usize) -> bool {
        let budget = match len <= SMALL_FRAME_BYTES {
            true => &self.small,
            false => &self.large,
        };
        budget.is_contended() || budget.available() < len as u64
    }

    /// What is taken of each budget, and its size, by name.
    pub fn figures(&self) -> [(&'static str, u64, u64); 6] {
        let figure = |name, budget: &Budget| {
            let total = budget.total();
            (name, total - budget.available().min(total), total)
        };
        [
            figure("requests", &self.large),
            figure("small_requests", &self.small),
            figure("decoding", &self.decoded),
            figure("answers", &self.responses),
            figure("small_answers", &self.responses_small),
            figure("group_members", &self.group_members),
        ]
    }

    /// Waits for the memory that decoding a frame of `len` bytes may take: up to
    /// `decoded_bytes_max`. Shrink it to what was taken. Small frames need none: their
    /// share bounds what they hold when decoded as well. No frame waits for more than
    /// half of the budget, so that one does not wait for every long poll to end.
    pub async fn decoding(&self, len: usize, decoded_bytes_max: usize) -> Option<Permit> {
        if len <= SMALL_FRAME_BYTES {
            return None;
        }
        let bytes = (decoded_bytes_max as u64).min(self.decoded.total().div_ceil(2));
        Some(self.decoded.acquire(bytes).await)
    }

    /// Memory for what a request makes the shard list beyond what it names, at once or
    /// not at all: it may hold memory that others wait for.
    pub fn try_decoded(&self, bytes: usize) -> Option<Permit> {
        let granted = self.decoded.try_acquire(bytes as u64);
        if granted.is_none() {
            self.responses_waited.set(true);
        }
        granted
    }

    /// True if a frame waits to be decoded.
    pub fn decoding_waits(&self) -> bool {
        self.decoded.is_contended()
    }

    /// True if another frame of that size class waits for memory.
    pub fn frames_wait(&self, len: usize) -> bool {
        if len <= SMALL_FRAME_BYTES {
            self.small.is_contended()
        } else {
            self.large.is_contended()
        }
    }

    /// Reserves the bytes of an answer at once, or not at all.
    pub fn try_response(&self, bytes: usize) -> Option<Permit> {
        let large = (bytes as u64).min(self.responses.total());
        let granted = self.responses.try_acquire(large);
        granted.or_else(|| {
            let fits = bytes as u64 <= self.responses_small.total().min(SMALL_ANSWER_BYTES);
            fits.then(|| self.responses_small.try_acquire(bytes as u64))?
        })
    }

    /// Waits for the bytes of an answer; grants at most what is left of the budget. Where
    /// answers that are not taken hold it, the grant comes from a small share, and is small.
    pub async fn response(&self, bytes: usize) -> Permit {
        if let Some(granted) = self.try_response(bytes) {
            return granted;
        }
        self.responses_waited.set(true);
        let large = (bytes as u64).min(self.responses.total());
        let small = (bytes as u64).min(self.responses_small.total().min(SMALL_ANSWER_BYTES));
        // Less than was asked for, but more than the small share would give.
        let left = self.responses.available().min(large);
        if left > small {
            if let Some(granted) = self.responses.try_acquire(left) {
                return granted;
            }
        }
        or(
            self.responses.acquire(large),
            self.responses_small.acquire(small),
        )
        .await
    }

    /// Waits for all the bytes of an answer, or for the whole budget if it is larger.
    pub async fn whole_response(&self, bytes: usize) -> Permit {
        if bytes <= SMALL_FRAME_BYTES {
            return self.response(bytes).await;
        }
        let bytes = (bytes as u64).min(self.responses.total());
        self.responses.acquire(bytes).await
    }

    /// The most that one answer is granted, bytes.
    pub fn response_bytes_max(&self) -> u64 {
        self.responses.total()
    }

    /// True if, since this was asked last, somebody had to wait for memory that answers
    /// hold: their own, and that of the requests which stands for their lists.
    pub fn take_responses_waited(&self) -> bool {
        self.responses_waited.replace(false)
            || self.responses.is_contended()
            || self.decoding_waits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_cannot_be_cut_waits_for_all_of_its_bytes() {
        use futures_lite::future::{block_on, poll_once};
        let memory = Memory::new(8 << 20, 8 << 20, 1 << 20);
        assert_eq!(memory.response_bytes_max(), 7 << 20);
        let held = block_on(memory.whole_response(7 << 20));
        let mut waits = Box::pin(memory.whole_response(1 << 20));
        assert!(block_on(poll_once(&mut waits)).is_none());
        assert!(memory.take_responses_waited(), "whoever holds it is told");
        // Another is cut to the small share meanwhile.
        let cut = block_on(memory.response(2 << 20));
        assert!(cut.amount() < 2 << 20);
        drop(held);
        let granted = block_on(poll_once(&mut waits)).expect("it is there");
        assert_eq!(granted.amount(), 1 << 20);
    }

    #[test]
    fn large_frames_leave_the_small_share_alone() {
        let memory = Memory::new(8 << 20, 1 << 20, 7 << 20);
        let held = futures_lite::future::block_on(memory.frame(7 << 20));
        assert_eq!(held.amount(), 7 << 20);
        let small = futures_lite::future::block_on(memory.frame(1000));
        assert_eq!(small.amount(), 1000);
        assert!(!memory.frames_wait(7 << 20));
    }

    #[test]
    fn decoding_reserves_the_most_and_keeps_what_was_taken() {
        use futures_lite::future::{block_on, poll_once};
        let memory = Memory::new(8 << 20, 1 << 20, 1 << 20);
        assert!(block_on(memory.decoding(SMALL_FRAME_BYTES, 1 << 20)).is_none());
        let mut first = block_on(memory.decoding(1 << 20, 17 << 20)).expect("it is large");
        assert_eq!(first.amount(), 4 << 20);
        let second = block_on(memory.decoding(1 << 20, 3 << 20)).expect("it is large");
        let mut third = Box::pin(memory.decoding(1 << 20, 2 << 20));
        assert!(block_on(poll_once(&mut third)).is_none());
        first.shrink_to(1 << 20);
        assert!(block_on(poll_once(&mut third)).is_some());
        drop(second);
    }

    #[test]
    fn an_answer_larger_than_the_budget_is_granted_the_whole_budget() {
        let memory = Memory::new(1 << 20, 1 << 20, 1 << 17);
        let held = memory.try_response(5 << 20).expect("the budget is free");
        assert_eq!(held.amount(), 7 << 17);
        assert!(memory.try_response((1 << 17) + 1).is_none());
    }

    #[test]
    fn answers_that_are_not_taken_leave_small_ones_to_others() {
        use futures_lite::future::{block_on, poll_once};
        let memory = Memory::new(16 << 20, 16 << 20, 1 << 17);
        let held = block_on(memory.response(16 << 20));
        assert!(!memory.take_responses_waited());
        // A share of 2 MiB.
        let cut = block_on(memory.response(16 << 20));
        assert_eq!(cut.amount(), SMALL_ANSWER_BYTES);
        assert!(memory.take_responses_waited(), "it was cut short");
        assert!(memory.try_response(1000).is_some());
        drop(held);
        let half = block_on(memory.response(8 << 20));
        let rest = block_on(memory.response(8 << 20));
        assert_eq!(rest.amount(), 6 << 20, "what is left");
        assert!(memory.take_responses_waited());
        // What is there as a whole is never cut.
        let mut whole = Box::pin(memory.whole_response(8 << 20));
        assert!(block_on(poll_once(&mut whole)).is_none());
        assert!(memory.take_responses_waited());
        drop((half, rest));
        assert_eq!(block_on(whole).amount(), 8 << 20);
        // Lists of answers hold the memory of requests.
        assert!(!memory.take_responses_waited());
        let _lists = memory.try_decoded(16 << 20).expect("all is free");
        assert!(memory.try_decoded(1).is_none());
        assert!(memory.take_responses_waited());
    }
}
