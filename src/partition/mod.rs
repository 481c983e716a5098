//! Room: partition.
