//! The file of results: read whole, and replaced whole, so that a run that is killed leaves the last complete one.

use crate::results::{Measurement, Results, VERSION};
use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Reads a file of results. Each error is one sentence that names the file.
pub fn load(path: &Path) -> Result<Results> {
    match load_if_there(path)? {
        Some(results) => Ok(results),
        None => bail!("{}: there is no such file", path.display()),
    }
}

/// Reads a file of results; `None` if there is none, which is not an error for a run that begins.
pub fn load_if_there(path: &Path) -> Result<Option<Results>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => bail!("{} can't be read: {error}", path.display()),
    };
    parse(&bytes, &path.display().to_string()).map(Some)
}

/// Puts the results in the place of the file, or leaves the file as it was.
pub fn save(path: &Path, results: &Results) -> Result<()> {
    for measurement in &results.measurements {
        check(measurement)?;
    }
    replace(path, |file| {
        Ok(serde_json::to_writer_pretty(file, results)?)
    })
}

/// Puts what `write` writes in the place of a file, flushed to the disk; after an error the file is as it was.
pub fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let new = beside(path)?;
    let done = fill(&new, write).and_then(|()| Ok(fs::rename(&new, path)?));
    if let Err(error) = done {
        // It may not be there at all; the first error is the one that counts.
        let _ = fs::remove_file(&new);
        bail!("{} can't be written: {error}", path.display());
    }
    let dir = directory(path);
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .with_context(|| format!("{} can't be flushed", dir.display()))
}

/// Only the version, of whatever else is in the file.
#[derive(Deserialize)]
struct Head {
    version: u32,
}

fn parse(bytes: &[u8], name: &str) -> Result<Results> {
    if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(bytes) {
        bail!("{name} is not JSON: {error}");
    }
    let Ok(head) = serde_json::from_slice::<Head>(bytes) else {
        bail!("{name} is JSON, but not the results of a run: it has no version");
    };
    ensure!(
        head.version == VERSION,
        "{name} is of version {}, this program reads version {VERSION}: measure again, or use the program that wrote it",
        head.version
    );
    match serde_json::from_slice(bytes) {
        Ok(results) => Ok(results),
        Err(error) => bail!("{name} does not hold whole results: {error}"),
    }
}

/// What JSON can't hold would make the whole file unreadable.
fn check(measurement: &Measurement) -> Result<()> {
    let key = &measurement.key;
    for figure in &measurement.figures {
        ensure!(
            figure.value.is_finite(),
            "{} / {} of {}: figure {:?} is not a number, nothing was saved",
            key.workload,
            key.case,
            key.target,
            figure.name
        );
    }
    Ok(())
}

fn fill(new: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut file = BufWriter::new(File::create(new)?);
    write(&mut file)?;
    file.flush()?;
    Ok(file.get_ref().sync_all()?)
}

/// A name for the new file, in the directory of the old one: only there a rename is atomic.
fn beside(path: &Path) -> Result<PathBuf> {
    let Some(name) = path.file_name() else {
        bail!("{} is not the name of a file", path.display());
    };
    let mut new = std::ffi::OsString::from(".");
    new.push(name);
    new.push(format!(".{}", std::process::id()));
    Ok(path.with_file_name(new))
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Measured, Recorder};
    use crate::results::{Better, Cost, Figure, Key, Machine, Settings, TargetInfo};
    use proptest::prelude::*;
    use std::time::Duration;

    fn results(measurements: Vec<Measurement>) -> Results {
        Results {
            version: VERSION,
            started_at: 1,
            machine: Machine {
                cpu: "a \"CPU\"".to_owned(),
                cpus: 2,
                memory_bytes: 1 << 34,
                kernel: "6.18".to_owned(),
                file_system: "ext4".to_owned(),
            },
            settings: Settings {
                quick: true,
                broker_cpus: vec![0],
                client_cpus: vec![1],
                broker_memory_bytes: 0,
                memory_limit: "none".to_owned(),
                targets: vec![TargetInfo {
                    name: "one".to_owned(),
                    description: String::new(),
                }],
            },
            measurements,
        }
    }

    fn measurement(name: &str, value: f64, latencies: &[u64]) -> Measurement {
        let mut acknowledged = Recorder::default();
        for (n, us) in latencies.iter().enumerate() {
            acknowledged.record(Duration::from_millis(n as u64), Duration::from_micros(*us));
        }
        Measurement {
            key: Key {
                workload: name.to_owned(),
                case: String::new(),
                load: "capacity".to_owned(),
                target: "one".to_owned(),
                repeat: 1,
            },
            letter: None,
            title: name.to_owned(),
            definition: "0".to_owned(),
            rate: Some(value.abs()),
            measured: Some(Measured {
                acknowledged,
                ..Measured::default()
            }),
            figures: vec![Figure {
                name: "f".to_owned(),
                value,
                unit: "ms".to_owned(),
                better: Better::Lower,
            }],
            cost: Some(Cost::default()),
            notes: vec![name.to_owned()],
            missing: None,
        }
    }

    fn error_of(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        fs::write(&path, text).unwrap();
        let error = format!("{:#}", load(&path).unwrap_err());
        assert!(error.contains("r.json") && !error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn a_bad_file_is_told_in_a_sentence() {
        assert!(error_of("").contains("is not JSON"));
        assert!(error_of("{\"version\":").contains("is not JSON"));
        assert!(error_of("[]").contains("not the results of a run"));
        assert!(error_of("{\"version\":2,\"new\":1}").contains("version 2"));
        assert!(error_of("{\"version\":1}").contains("does not hold whole results"));
    }

    #[test]
    fn no_file_is_no_results_for_a_run_and_an_error_for_a_report() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        assert!(load_if_there(&path).unwrap().is_none());
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("no such file"), "{error}");
        // A directory is there, and is no file.
        assert!(load_if_there(dir.path()).is_err());
    }

    #[test]
    fn a_failed_save_leaves_the_file_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        save(&path, &results(vec![measurement("a", 1.0, &[])])).unwrap();
        let before = fs::read(&path).unwrap();
        assert!(save(&path, &results(vec![measurement("a", f64::NAN, &[])])).is_err());
        let failing = replace(&path, |file| {
            file.write_all(b"half")?;
            bail!("the disk is full")
        });
        assert!(failing.unwrap_err().to_string().contains("disk is full"));
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(save(&dir.path().join("none/r.json"), &results(vec![])).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn what_is_saved_is_loaded(
            name in ".{0,20}",
            value in proptest::num::f64::NORMAL | proptest::num::f64::ZERO,
            latencies in proptest::collection::vec(1..120_000_000u64, 0..50),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("r.json");
            let written = results(vec![measurement(&name, value, &latencies)]);
            save(&path, &written).unwrap();
            save(&path, &written).unwrap();
            let read = load(&path).unwrap();
            prop_assert_eq!(&read.machine, &written.machine);
            prop_assert_eq!(&read.settings, &written.settings);
            let (read, written) = (&read.measurements[0], &written.measurements[0]);
            prop_assert_eq!(&read.key, &written.key);
            prop_assert_eq!(&read.notes, &written.notes);
            prop_assert_eq!(&read.figures[0].unit, &written.figures[0].unit);
            let (got, want) = (read.figures[0].value, written.figures[0].value);
            prop_assert!((got - want).abs() <= want.abs() * 1e-15, "{} {}", got, want);
            let samples = |m: &Measurement| m.measured.as_ref().unwrap().acknowledged.samples();
            prop_assert_eq!(samples(read), samples(written));
        }
    }
}
