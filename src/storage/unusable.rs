//! Setting aside what stands where a file should be and cannot be used.
//!
//! A directory, a FIFO or a dangling link under the name of one of the broker's files, or a
//! file far larger than its kind can be, holds nothing that could be read. It is renamed, not
//! removed: whoever put it there may want it. What the file said is then found as if it had
//! been missing.

use crate::runtime::{Dir, DirEntry, IoError};

/// Renames what has that name to a free one, and says so.
pub(super) async fn set_aside(dir: &Dir, name: &str, why: &str) -> Result<(), IoError> {
    let taken = dir.list().await?;
    let is_free = |aside: &String| taken.iter().all(|entry| entry.name != *aside);
    let mut numbered = (1..).map(|n| format!("{name}.unusable-{n}"));
    let aside = numbered.find(is_free).expect("names do not end");
    dir.rename(name, &aside).await?;
    tracing::warn!(
        "{} is not used and was renamed to {aside}: {why}",
        dir.path().join(name).display()
    );
    Ok(())
}

/// Sets aside every entry that `is_ours` names and that is no regular file. True if there
/// was one.
pub(super) async fn set_aside_no_files(
    dir: &Dir,
    entries: &[DirEntry],
    is_ours: impl Fn(&str) -> bool,
) -> Result<bool, IoError> {
    let mut any = false;
    for entry in entries.iter().filter(|e| !e.is_file && is_ours(&e.name)) {
        set_aside(dir, &entry.name, "it is no regular file").await?;
        any = true;
    }
    Ok(any)
}
