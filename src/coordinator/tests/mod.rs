//! The rules of groups, one by one, and over random sequences of what clients do.

mod harness;
mod joining;
mod offsets;
mod syncing;
