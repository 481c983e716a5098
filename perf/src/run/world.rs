//! The targets, drivers and files of a real run.

use super::session::World;
use super::spec::{Spec, What};
use crate::driver::Driver;
use crate::report::{self, store};
use crate::results::Results;
use crate::target::{Protocol, Target};
use crate::workload::{self, DriverName};
use anyhow::{bail, ensure, Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub struct Real {
    specs: Vec<Spec>,
    /// Highwater's.
    binary: PathBuf,
    out: PathBuf,
    /// Of the repository's workloads, in the order of the report.
    names: Vec<String>,
}

impl Real {
    pub fn new(specs: Vec<Spec>, binary: PathBuf, out: &Path) -> Result<Real> {
        let names = workload::builtin(false)?;
        Ok(Real {
            specs,
            binary,
            out: out.to_owned(),
            names: names.into_iter().map(|workload| workload.name).collect(),
        })
    }

    /// Of each target one.
    pub fn models(&self) -> Result<Vec<Box<dyn Target>>> {
        (0..self.specs.len()).map(|n| self.target(n)).collect()
    }

    pub fn file(&self) -> PathBuf {
        self.out.join("results.json")
    }
}

impl World for Real {
    fn target(&self, n: usize) -> Result<Box<dyn Target>> {
        make(&self.specs[n], &self.binary)
    }

    fn driver(&self, protocol: Protocol, name: DriverName) -> Result<Box<dyn Driver>> {
        todo!()
    }

    fn is_broker(&self, n: usize) -> bool {
        self.specs[n].what.is_broker()
    }

    fn save(&self, results: &Results) -> Result<()> {
        store::save(&self.file(), results)
    }

    fn rank(&self, workload: &str) -> usize {
        let place = self.names.iter().position(|name| name == workload);
        place.unwrap_or(self.names.len())
    }
}
