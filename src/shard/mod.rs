//! Room: shard.
