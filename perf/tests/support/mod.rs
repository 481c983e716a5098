//! What the tests of the real binary share.

use std::path::{Path, PathBuf};

/// Highwater's binary, built beside this one.
pub fn highwater() -> PathBuf {
    let named = std::env::var_os("HIGHWATER_BIN").map(PathBuf::from);
    let path =
        named.unwrap_or_else(|| Path::new(env!("CARGO_BIN_EXE_perf")).with_file_name("highwater"));
    assert!(
        path.is_file(),
        "there is no {}: run `cargo build` first, or name Highwater's binary in HIGHWATER_BIN",
        path.display()
    );
    path
}
