//! The targets, drivers and files of a real run.

use super::session::World;
use super::spec::Spec;
use crate::driver::{self, Driver};
use crate::report::{self, html, store, summary::Summary, terminal};
use crate::results::Results;
use crate::target::{self, Protocol, Target};
use crate::workload::{self, DriverName};
use anyhow::{ensure, Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub struct Real {
    specs: Vec<Spec>,
    options: target::Options,
    out: PathBuf,
    /// Of the repository's workloads, in the order of the report.
    names: Vec<String>,
}

impl Real {
    pub fn new(specs: Vec<Spec>, options: target::Options, out: &Path) -> Result<Real> {
        let names = workload::builtin(false)?;
        Ok(Real {
            specs,
            options,
            out: out.to_owned(),
            names: names.into_iter().map(|workload| workload.name).collect(),
        })
    }

    /// Of each target one.
    pub fn models(&self) -> Result<Vec<Box<dyn Target>>> {
        (0..self.specs.len()).map(|n| self.target(n)).collect()
    }

    /// Writes the report, and prints its table.
    pub fn report(&self, results: &Results) -> Result<()> {
        let summary = Summary::of(results);
        let page = self.out.join("report.html");
        store::replace(&page, |file| {
            Ok(file.write_all(html::page(&summary).as_bytes())?)
        })?;
        report::show(&terminal::text(&summary))?;
        eprintln!("the same as a page: {}", page.display());
        Ok(())
    }

    pub fn file(&self) -> PathBuf {
        self.out.join("results.json")
    }
}

impl World for Real {
    fn target(&self, n: usize) -> Result<Box<dyn Target>> {
        target::parse(&self.specs[n].text, &self.options)
    }

    fn driver(&self, protocol: Protocol, name: DriverName) -> Result<Box<dyn Driver>> {
        driver::for_job(protocol, name)
    }

    fn is_broker(&self, n: usize) -> bool {
        !self.specs[n].is_floor()
    }

    fn save(&self, results: &Results) -> Result<()> {
        store::save(&self.file(), results)
    }

    fn rank(&self, workload: &str) -> usize {
        let place = self.names.iter().position(|name| name == workload);
        place.unwrap_or(self.names.len())
    }
}

/// Whether a target that nobody asked for can be measured.
pub fn is_installed(spec: &Spec, options: &target::Options) -> Result<bool> {
    Ok(target::parse(&spec.text, options)?.check().is_ok())
}

/// Highwater's binary for the targets that name none.
pub fn binary(asked: Option<&Path>, specs: &[Spec]) -> Result<PathBuf> {
    if let Some(path) = asked {
        return Ok(path.to_owned());
    }
    let this = std::env::current_exe().context("this program cannot be found")?;
    let is_needed = specs.iter().any(Spec::is_built_here);
    let cargo = std::env::var_os("CARGO").zip(std::env::var_os("CARGO_MANIFEST_DIR"));
    if let (Some((cargo, dir)), true) = (cargo, is_needed) {
        // `cargo run -p perf` builds this program only.
        build(Path::new(&cargo), Path::new(&dir), &this)?;
    }
    Ok(this.with_file_name("highwater"))
}

/// Builds Highwater in the profile of this program.
fn build(cargo: &Path, manifest_dir: &Path, this: &Path) -> Result<()> {
    let dir = this
        .parent()
        .and_then(Path::file_name)
        .and_then(|name| name.to_str());
    let profile = match dir {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let status = Command::new(cargo)
        .args([
            "build",
            "--package",
            "highwater",
            "--bin",
            "highwater",
            "--profile",
            profile,
        ])
        .arg("--manifest-path")
        .arg(manifest_dir.join("Cargo.toml"))
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("{} can't be run", cargo.display()))?;
    ensure!(
        status.success(),
        "Highwater can't be built: why stands above"
    );
    Ok(())
}
