//! Room: client.
