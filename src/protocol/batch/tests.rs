//! Unit tests of the batch.
