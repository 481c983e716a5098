//! Room: protocol.
