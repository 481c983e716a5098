//! The workloads of the repository, in the order of the report's table.

use super::{parse, Workload};
use anyhow::{bail, Context, Result};
use std::path::Path;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../workloads/", $name, ".toml")))),*]
    };
}

const FILES: &[(&str, &str)] = files!["flush-200-connections",];

/// All of them.
pub fn builtin(quick: bool) -> Result<Vec<Workload>> {
    let read = |(name, text): &(&str, &str)| parse(text, name, quick);
    FILES.iter().map(read).collect()
}

/// A workload by its name, its letter, or the path of its file.
pub fn find(wanted: &str, quick: bool) -> Result<Workload> {
    let known = builtin(quick)?;
    let is_it = |workload: &&Workload| {
        workload.name == wanted || workload.letter.as_deref() == Some(wanted)
    };
    if let Some(workload) = known.iter().find(is_it) {
        return Ok(workload.clone());
    }
    let path = Path::new(wanted);
    if !path.exists() {
        let names: Vec<&str> = known
            .iter()
            .map(|workload| workload.name.as_str())
            .collect();
        bail!(
            "there is no workload {wanted}, neither as a file nor among: {}",
            names.join(", ")
        );
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("{wanted} can't be read"))?;
    parse(&text, wanted, quick)
}
