//! Room: observe.
