//! `--target`: what is measured, and under which name.

use anyhow::{ensure, Result};

/// A target as a person wrote it.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub what: What,
    /// In tables and results.
    pub name: String,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The machine's own: no broker, but what a broker cannot do without.
    Floor,
    /// Whatever [`crate::target::parse`] knows.
    Broker,
}

impl Spec {
    /// `floor`, with `NAME=` before it or not; anything else is a broker.
    fn parse(text: &str) -> Spec {
        let (name, what) = text.split_once('=').unwrap_or((text, text));
        let what = match what {
            "floor" => What::Floor,
            _ => What::Broker,
        };
        // Settings that hold a `=` follow a comma.
        let name = name.split(',').next().unwrap_or(name);
        Spec {
            what,
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

    /// Whether it is Highwater from the run's own binary.
    pub fn is_built_here(&self) -> bool {
        let what = self
            .text
            .split_once('=')
            .map_or(&*self.text, |(_, what)| what);
        self.text == "highwater" || what == "highwater:" || what.starts_with("highwater:,")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, What) {
        let spec = Spec::parse(text);
        (spec.name, spec.what)
    }

    #[test]
    fn a_name_stands_before_what_it_names() {
        let named = |name: &str, what| (name.to_owned(), what);
        assert_eq!(parsed("kafka"), named("kafka", What::Broker));
        assert_eq!(parsed("floor"), named("floor", What::Floor));
        assert_eq!(parsed("f=floor"), named("f", What::Floor));
        assert_eq!(parsed("a=highwater:/tmp/a=b"), named("a", What::Broker));
        assert_eq!(
            parsed("10.0.0.5:9092"),
            named("10.0.0.5:9092", What::Broker)
        );
    }

    #[test]
    fn two_of_a_name_are_told() {
        assert!(Spec::parse_all(&["kafka", "kafka"]).is_err());
        assert!(Spec::parse_all(&["a=kafka:/x", "a=floor"]).is_err());
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
}
