//! Figures by name, as a JSON file, and what of them has changed.

use anyhow::{bail, ensure, Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// The version of the file's form; others are refused.
const VERSION: u32 = 1;
/// A change of more than this part is told, where figures repeat.
const CHANGE_TOLD: f64 = 0.02;

/// What was counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    pub version: u32,
    /// `release` or `debug`, of this program.
    pub build: String,
    pub figures: Vec<Figure>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Unique: `instructions/broker/produce/none/1`.
    pub name: String,
    pub value: f64,
    pub unit: String,
    /// Whether it is the same in each run, so that a small change means something.
    pub exact: bool,
}

/// A figure beside its older self.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// The older file does not have it.
    New,
    /// By this part: 0.1 is ten percent more. Infinite, if it was nothing.
    By(f64),
}

impl Figures {
    pub fn new() -> Figures {
        let build = if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        };
        Figures {
            version: VERSION,
            build: build.to_owned(),
            figures: Vec::new(),
        }
    }

    pub fn push(&mut self, name: String, value: f64, unit: &str, exact: bool) {
        // As many digits as mean something, so that files can be read and compared by eye.
        let value = (value * 100.0).round() / 100.0;
        self.figures.push(Figure {
            name,
            value,
            unit: unit.to_owned(),
            exact,
        });
    }

    pub fn get(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// # Errors
    /// The file can't be read, or is not of this form and version, or of another build than this program.
    pub fn load(path: &Path) -> Result<Figures> {
        let shown = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("{shown} can't be read"))?;
        let figures: Figures = serde_json::from_str(&text)
            .with_context(|| format!("{shown} is not what `perf counters --json` writes"))?;
        ensure!(
            figures.version == VERSION,
            "{shown} is of version {}; this program compares version {VERSION}: write it anew",
            figures.version
        );
        let own = Figures::new().build;
        ensure!(
            figures.build == own,
            "{shown} is of a {} build and this program is a {own} build: their figures can't be compared",
            figures.build
        );
        for figure in &figures.figures {
            ensure!(
                figure.value.is_finite() && figure.value >= 0.0,
                "{shown}: {} is no count",
                figure.name
            );
        }
        Ok(figures)
    }

    /// Whether `save` will be able to, said before anything is counted.
    pub fn check_path(path: &Path) -> Result<()> {
        let probe = path.with_extension("new");
        let made = fs::File::create_new(&probe).and_then(|_| fs::remove_file(&probe));
        made.with_context(|| format!("{} can't be written", path.display()))?;
        ensure!(
            !path.is_dir(),
            "{} is a directory, not a file to write",
            path.display()
        );
        Ok(())
    }

    pub fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(path, text).with_context(|| format!("{} can't be written", path.display()))
    }

    /// How a figure differs from that of an older file.
    pub fn change(&self, name: &str, old: &Figures) -> Option<Change> {
        let new = self.get(name)?;
        let Some(old) = old.get(name) else {
            return Some(Change::New);
        };
        Some(Change::By(if new.value == old.value {
            0.0
        } else {
            (new.value - old.value) / old.value
        }))
    }

    /// Says what has grown by more than 2 % since an older file, of the figures that repeat.
    ///
    /// # Errors
    /// Something has; so that a script notices.
    pub fn judge(&self, old: &Figures, path: &Path) -> Result<()> {
        let (mut compared, mut grown) = (0, Vec::new());
        for figure in self.figures.iter().filter(|figure| figure.exact) {
            if let Some(Change::By(part)) = self.change(&figure.name, old) {
                compared += 1;
                if part > CHANGE_TOLD {
                    grown.push(figure.name.as_str());
                }
            }
        }
        let shown = path.display();
        match grown.as_slice() {
            _ if compared == 0 => bail!("{shown} has none of these figures"),
            [] => {
                println!("none of {compared} exact figures is more than 2 % above {shown}");
                Ok(())
            }
            grown => bail!(
                "{} of {compared} exact figures are more than 2 % above {shown}: {}",
                grown.len(),
                grown.join(", ")
            ),
        }
    }
}

impl Change {
    /// For a table: `+3.1 % !` where it is to be looked at.
    pub fn text(self, exact: bool) -> String {
        match self {
            Change::New => "new".to_owned(),
            Change::By(part) if part.is_infinite() => "was 0 !".to_owned(),
            Change::By(part) => {
                let mark = if exact && part.abs() > CHANGE_TOLD {
                    " !"
                } else {
                    ""
                };
                format!("{:+.1} %{mark}", part * 100.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(values: &[(&str, f64, bool)]) -> Figures {
        let mut figures = Figures::new();
        for (name, value, exact) in values {
            figures.push((*name).to_owned(), *value, "per record", *exact);
        }
        figures
    }

    #[test]
    fn given_changes_then_those_above_two_percent_are_marked_if_figures_repeat() {
        assert_eq!(Change::By(0.021).text(true), "+2.1 % !");
        assert_eq!(Change::By(-0.5).text(true), "-50.0 % !");
        assert_eq!(Change::By(0.019).text(true), "+1.9 %");
        assert_eq!(Change::By(0.3).text(false), "+30.0 %");
        assert_eq!(Change::New.text(true), "new");
        assert_eq!(Change::By(f64::INFINITY).text(true), "was 0 !");
    }

    #[test]
    fn given_an_older_file_then_only_exact_figures_that_grew_fail() {
        let old = figures(&[("a", 100.0, true), ("b", 100.0, false), ("z", 0.0, true)]);
        let path = Path::new("old.json");
        let same = figures(&[("a", 102.0, true), ("b", 300.0, false), ("c", 1.0, true)]);
        assert!(same.judge(&old, path).is_ok());
        assert_eq!(same.change("c", &old), Some(Change::New));
        assert_eq!(same.change("b", &old), Some(Change::By(2.0)));
        let better = figures(&[("a", 50.0, true)]);
        assert!(better.judge(&old, path).is_ok());
        let worse = figures(&[("a", 103.0, true)]);
        let error = worse.judge(&old, path).unwrap_err().to_string();
        assert_eq!(
            error,
            "1 of 1 exact figures are more than 2 % above old.json: a"
        );
        let from_nothing = figures(&[("z", 1.0, true)]);
        assert!(from_nothing.judge(&old, path).is_err());
        let nothing = figures(&[("other", 1.0, true)]);
        assert!(nothing.judge(&old, path).is_err());
    }

    #[test]
    fn given_a_saved_file_then_it_is_read_again_and_damage_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("figures.json");
        let written = figures(&[("a", 1.234, true)]);
        written.save(&path).unwrap();
        let read = Figures::load(&path).unwrap();
        assert_eq!(read, written);
        assert_eq!(read.get("a").unwrap().value, 1.23);

        let refused = |text: &str| {
            fs::write(&path, text).unwrap();
            format!("{:#}", Figures::load(&path).unwrap_err())
        };
        assert!(refused("{").contains("is not what `perf counters --json` writes"));
        let text = serde_json::to_string(&written).unwrap();
        assert!(refused(&text.replace("\"version\":1", "\"version\":9")).contains("version 9"));
        assert!(refused(&text.replace("1.23", "-1")).contains("a is no count"));
        let other = if written.build == "debug" {
            "release"
        } else {
            "debug"
        };
        assert!(refused(&text.replace(&written.build, other)).contains("can't be compared"));
        assert!(Figures::check_path(&path).is_ok());
        assert!(Figures::check_path(dir.path()).is_err());
        assert!(Figures::check_path(Path::new("/nowhere/figures.json")).is_err());
        let missing = Figures::load(Path::new("/nowhere/figures.json")).unwrap_err();
        assert!(missing.to_string().contains("can't be read"));
    }

    #[test]
    fn the_baseline_of_the_repository_is_of_a_release_build_and_of_this_form() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/counters.json");
        let baseline: Figures = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(baseline.version, VERSION);
        assert_eq!(baseline.build, "release");
        assert!(baseline.figures.iter().all(|figure| figure.value >= 0.0));
        assert!(baseline
            .get("instructions/broker/produce/none/1")
            .is_some_and(|figure| figure.value > 0.0));
    }
}
