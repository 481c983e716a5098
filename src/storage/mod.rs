//! Room: storage.
