//! `perf report`: the table of a file of results, and its page.

use super::summary::Summary;
use super::{html, store, terminal};
use anyhow::{ensure, Context, Result};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

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
        let place = |path: &Path| path.canonicalize().ok();
        ensure!(
            place(path) != place(&args.results),
            "{}: the page would take the place of the results",
            path.display()
        );
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

#[cfg(test)]
mod tests {
    use super::super::sample::whole;
    use super::*;

    #[test]
    fn a_page_is_written_and_the_results_stay() {
        let dir = tempfile::tempdir().unwrap();
        let results = dir.path().join("r.json");
        store::save(&results, &whole(300)).unwrap();
        let before = std::fs::read(&results).unwrap();
        let report = |html: PathBuf| {
            run(&ReportArgs {
                results: results.clone(),
                html: Some(html),
            })
        };
        report(dir.path().join("r.html")).unwrap();
        let page = std::fs::read_to_string(dir.path().join("r.html")).unwrap();
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        let error = report(results.clone()).unwrap_err().to_string();
        assert!(error.contains("the place of the results"), "{error}");
        assert!(report(dir.path().join("none/r.html")).is_err());
        assert_eq!(std::fs::read(&results).unwrap(), before);
    }
}
