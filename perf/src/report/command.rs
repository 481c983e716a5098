//! `perf report`: the table of a file of results, and its page.

use super::summary::Summary;
use super::{html, store, terminal};
use anyhow::{Context, Result};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct ReportArgs {
    /// What a run has written.
    results: PathBuf,
    /// Also writes a page with plots, which needs nothing beside it.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(args: &ReportArgs) -> Result<()> {
    let results = store::load(&args.results)?;
    let summary = Summary::of(&results);
    if let Some(path) = &args.html {
        store::replace(path, |file| {
            Ok(file.write_all(html::page(&summary).as_bytes())?)
        })?;
    }
    show(&terminal::text(&summary))
}

/// To the standard output; that nobody reads it to the end is no error.
pub fn show(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("the report can't be printed")
        }
        _ => Ok(()),
    }
}
