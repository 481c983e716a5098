//! Waiters keyed by an offset, and nothing else.
//!
//! Who waits for an offset is answered once it is reached. Completing takes time
//! for what completes, not for what waits: offsets are given out in rising order,
//! so the waiters stand in order and a rise takes from the front.
//!
//! It does not know what reaches an offset (a write, a flush, the high watermark):
//! the partition holds one of these for each. No borrow is held while a waker
//! runs. A waiter that was dropped stays until its offset is reached or fails; it
//! holds a few words, and its batch is in the queue or the log all the same.

use crate::protocol::ErrorCode;
use crate::runtime::local::{oneshot, OneshotReceiver, OneshotSender};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

type Answer = Result<(), ErrorCode>;

/// The waiters for one rising offset.
#[derive(Default)]
pub(super) struct OffsetWaiters(RefCell<VecDeque<Waiter>>);

struct Waiter {
    /// Answered once the offset has reached this.
    offset: i64,
    answer: OneshotSender<Answer>,
}

/// Waiters taken out because their offset will not be reached.
#[derive(Default)]
pub(super) struct FailedWaiters(Vec<Waiter>);

/// Resolves when a produced batch meets its acks policy, or cannot any more.
///
/// Dropping it gives up the answer only: the batch stays queued or written.
pub struct ProduceDone(OneshotReceiver<Answer>);

impl fmt::Debug for ProduceDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProduceDone")
    }
}

impl OffsetWaiters {
    /// Waits until the offset has reached `offset`.
    pub(super) fn add(&self, offset: i64) -> ProduceDone {
        let (answer, done) = oneshot();
        let mut waiting = self.0.borrow_mut();
        let waiter = Waiter { offset, answer };
        if waiting.back().is_none_or(|last| last.offset <= offset) {
            waiting.push_back(waiter);
        } else {
            let at = waiting.partition_point(|other| other.offset <= offset);
            waiting.insert(at, waiter);
        }
        ProduceDone(done)
    }

    /// The same for an offset that may have been reached before: `reached` is where it
    /// stands now.
    pub(super) fn add_unless(&self, reached: i64, offset: i64) -> ProduceDone {
        if reached < offset {
            return self.add(offset);
        }
        let (answer, done) = oneshot();
        Waiter { offset, answer }.send(Ok(()));
        ProduceDone(done)
    }

    /// Answers, in order, all who wait for an offset up to `reached`.
    pub(super) fn complete_to(&self, reached: i64) {
        while let Some(waiter) = self.pop_reached(reached) {
            waiter.send(Ok(()));
        }
    }

    /// Takes out all who wait for an offset beyond `kept`.
    pub(super) fn take_beyond(&self, kept: i64, failed: &mut FailedWaiters) {
        let mut waiting = self.0.borrow_mut();
        let at = waiting.partition_point(|waiter| waiter.offset <= kept);
        failed.0.extend(waiting.drain(at..));
    }

    fn pop_reached(&self, reached: i64) -> Option<Waiter> {
        let mut waiting = self.0.borrow_mut();
        match waiting.front() {
            Some(first) if first.offset <= reached => waiting.pop_front(),
            _ => None,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

impl FailedWaiters {
    /// Answers them with an error in the order of their offsets, whichever list
    /// they stood in.
    pub(super) fn fail(mut self, code: ErrorCode) {
        self.0.sort_by_key(|waiter| waiter.offset);
        for waiter in self.0 {
            waiter.send(Err(code));
        }
    }
}

impl Waiter {
    fn send(self, answer: Answer) {
        // The receiver may have stopped waiting; then nobody wants the answer.
        let _unwanted = self.answer.send(answer);
    }
}

impl Future for ProduceDone {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        Pin::new(&mut self.0)
            .poll(cx)
            // The partition is gone without an answer: whether the batch was kept
            // is unknown, which is what this error says.
            .map(|answer| answer.unwrap_or(Err(ErrorCode::KafkaStorageError)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};

    fn now(done: &mut ProduceDone) -> Option<Answer> {
        block_on(poll_once(done))
    }

    #[test]
    fn a_rise_completes_those_it_reaches_and_no_other() {
        let waiters = OffsetWaiters::default();
        let mut done: Vec<_> = [3, 5, 5, 9].map(|offset| waiters.add(offset)).into();
        waiters.complete_to(2);
        assert!(done.iter_mut().all(|d| now(d).is_none()));
        waiters.complete_to(5);
        let answers: Vec<_> = done.iter_mut().map(now).collect();
        assert_eq!(answers, [Some(Ok(())), Some(Ok(())), Some(Ok(())), None]);
        assert_eq!(waiters.len(), 1);
    }

    #[test]
    fn an_offset_that_was_reached_before_is_answered_at_once() {
        let waiters = OffsetWaiters::default();
        assert_eq!(now(&mut waiters.add_unless(5, 5)), Some(Ok(())));
        let mut later = waiters.add_unless(5, 6);
        assert_eq!((now(&mut later), waiters.len()), (None, 1));
        waiters.complete_to(6);
        assert_eq!(now(&mut later), Some(Ok(())));
    }

    #[test]
    fn waiters_added_out_of_order_stand_in_order() {
        let waiters = OffsetWaiters::default();
        let mut late = waiters.add(9);
        let mut early = waiters.add(4);
        waiters.complete_to(4);
        assert_eq!(now(&mut early), Some(Ok(())));
        assert_eq!(now(&mut late), None);
    }

    #[test]
    fn a_failure_answers_those_beyond_and_keeps_the_rest() {
        let (written, visible) = (OffsetWaiters::default(), OffsetWaiters::default());
        let mut kept = visible.add(5);
        let mut lost = [visible.add(6), written.add(7), visible.add(8)];
        let mut failed = FailedWaiters::default();
        written.take_beyond(5, &mut failed);
        visible.take_beyond(5, &mut failed);
        failed.fail(ErrorCode::KafkaStorageError);
        for done in &mut lost {
            assert_eq!(now(done), Some(Err(ErrorCode::KafkaStorageError)));
        }
        assert_eq!(now(&mut kept), None);
        visible.complete_to(5);
        assert_eq!(now(&mut kept), Some(Ok(())));
    }

    #[test]
    fn a_dropped_waiter_does_not_disturb_the_others() {
        let waiters = OffsetWaiters::default();
        drop(waiters.add(1));
        let mut other = waiters.add(1);
        waiters.complete_to(1);
        assert_eq!(now(&mut other), Some(Ok(())));
    }

    #[test]
    fn waiters_of_a_partition_that_is_gone_get_a_storage_error() {
        let waiters = OffsetWaiters::default();
        let mut done = waiters.add(1);
        drop(waiters);
        assert_eq!(now(&mut done), Some(Err(ErrorCode::KafkaStorageError)));
    }
}
