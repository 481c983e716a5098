//! Unit tests of the codec: bounds, budget, depth, tags, nulls.
