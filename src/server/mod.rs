//! Room: server.
