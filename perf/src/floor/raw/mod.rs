//! Raw figures.
