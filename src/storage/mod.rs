//! Room: storage.

pub mod index;
