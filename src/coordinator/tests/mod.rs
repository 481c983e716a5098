//! The rules of groups, one by one, and over random sequences of what clients do.

mod client;
mod harness;
mod joining;
mod many;
mod offsets;
mod sim;
mod syncing;
