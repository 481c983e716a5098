//! Room: metadata.
