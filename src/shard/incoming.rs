//! A connection on its way from the acceptor to the shard that serves it, and the counts
//! that it holds until it ends.

use crate::runtime::Accepted;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// An accepted connection.
pub struct Incoming {
    /// The socket.
    pub accepted: Accepted,
    /// To be dropped when the connection has ended.
    pub counted: Counted,
}

/// One open connection in each of some counts, until it is dropped, on whatever thread.
pub struct Counted([Arc<AtomicUsize>; 2]);

impl Counted {
    /// Counts one connection more in both counts.
    pub fn new(counts: [Arc<AtomicUsize>; 2]) -> Counted {
        for count in &counts {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Counted(counts)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        for count in &self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
