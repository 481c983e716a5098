//! `--target`: what is measured, and under which name. [`crate::target::parse`] makes it.

use anyhow::{ensure, Result};

/// A target as a person wrote it.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// In tables and results.
    pub name: String,
    pub text: String,
}

impl Spec {
    fn parse(text: &str) -> Spec {
        // Settings that hold a `=` follow a comma.
        let what = text.split(',').next().unwrap_or(text);
        let name = what.split_once('=').map_or(what, |(name, _)| name);
        Spec {
            name: name.to_owned(),
            text: text.to_owned(),
        }
    }

    /// All, each with a name of its own.
    pub fn parse_all<T: AsRef<str>>(texts: &[T]) -> Result<Vec<Spec>> {
        let mut specs: Vec<Spec> = Vec::new();
        for text in texts {
            let spec = Spec::parse(text.as_ref());
            ensure!(
                specs.iter().all(|other| other.name != spec.name),
                "two targets are named {}: give one a name of its own, --target NAME=...",
                spec.name
            );
            specs.push(spec);
        }
        Ok(specs)
    }

    /// Whether it is the machine's own floor: no broker, but what a broker cannot do without.
    pub fn is_floor(&self) -> bool {
        self.what() == "floor" || self.what().starts_with("floor:")
    }

    /// Whether it is Highwater from the run's own binary.
    pub fn is_built_here(&self) -> bool {
        ["highwater", "highwater:"].contains(&self.what())
    }

    /// Without name and settings.
    fn what(&self) -> &str {
        let what = self.text.split(',').next().unwrap_or(&self.text);
        what.split_once('=').map_or(what, |(_, what)| what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_before_what_it_names() {
        for (text, name) in [
            ("kafka", "kafka"),
            ("a=highwater:/tmp/a=b", "a"),
            ("10.0.0.5:9092", "10.0.0.5:9092"),
            ("x=h:1,flush=a=b", "x"),
            ("h:1,flush=a=b", "h:1"),
        ] {
            assert_eq!(Spec::parse(text).name, name, "{text}");
        }
    }

    #[test]
    fn two_of_a_name_are_told() {
        assert!(Spec::parse_all(&["kafka", "kafka"]).is_err());
        assert!(Spec::parse_all(&["a=kafka:/x", "a=floor:"]).is_err());
        assert!(Spec::parse_all(&["kafka", "b=kafka:/x"]).is_ok());
    }

    #[test]
    fn the_run_builds_only_its_own_binary() {
        for (text, is_built) in [
            ("highwater", true),
            ("new=highwater:,shards=1", true),
            ("new=highwater:/a/b", false),
            ("kafka", false),
        ] {
            assert_eq!(Spec::parse(text).is_built_here(), is_built, "{text}");
        }
    }

    #[test]
    fn the_floor_is_no_broker() {
        for (text, is_floor) in [
            ("floor", true),
            ("f=floor:,depth=4", true),
            ("floor=kafka:/j", false),
            ("highwater", false),
        ] {
            assert_eq!(Spec::parse(text).is_floor(), is_floor, "{text}");
        }
    }
}
