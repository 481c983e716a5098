//! `highwater drill`: cuts the power below a broker of its own, and compares what was acknowledged with what is left.

mod block_stack;

pub use block_stack::{BlockStack, BlockStackError};
