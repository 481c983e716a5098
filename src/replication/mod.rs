//! Room: replication.
