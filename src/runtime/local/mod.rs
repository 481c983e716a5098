//! Waiting within one executor: notifications, queues, single answers, budgets.
//!
//! All of it is `!Send`, built on std wakers, with no system call, so it runs the
//! same on both sides of the runtime. Every queue has a bound.

mod bounded;
mod budget;
mod channel;
mod event;
mod oneshot;
#[cfg(test)]
pub(super) mod testing;

pub use bounded::join_bounded;
pub use budget::{Budget, Permit};
pub use channel::{channel, Receiver, Sender, TrySendError};
pub use event::{Event, Listen};
pub use oneshot::{oneshot, OneshotReceiver, OneshotSender};
