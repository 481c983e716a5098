//! The primitives under the stack. A file of its own, so that `tests/stack_loom.rs` can
//! put loom's in their place.

pub(super) use std::sync::atomic::{AtomicPtr, Ordering};
pub(super) use std::sync::Mutex;
