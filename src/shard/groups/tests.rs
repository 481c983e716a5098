//! The simulator tests of groups on shards.
