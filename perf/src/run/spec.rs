//! `--target`: what is measured, and under which name.

use anyhow::{bail, ensure, Result};
use std::path::PathBuf;

/// `[NAME=]KIND`, `[NAME=]highwater:/path/of/a/binary` or `[NAME=]HOST:PORT`.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// In tables and results.
    pub name: String,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// Of another binary than the run's.
    Highwater(Option<PathBuf>),
    Kafka,
    Floor,
    Nats,
    Redis,
    /// A broker that runs already.
    Address(String),
}

impl Spec {
    pub fn parse(text: &str) -> Result<Spec> {
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) => (Some(name), rest),
            None => (None, text),
        };
        let what = match rest {
            "highwater" => What::Highwater(None),
            "kafka" => What::Kafka,
            "floor" => What::Floor,
            "nats" => What::Nats,
            "redis" => What::Redis,
            _ => match rest.split_once(':') {
                Some(("highwater", path)) if !path.is_empty() => What::Highwater(Some(path.into())),
                Some((host, port)) if !host.is_empty() && is_port(port) => {
                    What::Address(rest.to_owned())
                }
                _ => match rest.rsplit_once(':') {
                    // An address of IPv6 has colons of its own.
                    Some((host, port)) if host.starts_with('[') && is_port(port) => {
                        What::Address(rest.to_owned())
                    }
                    _ => bail!(
                        "--target {text}: highwater, highwater:/path/of/a/binary, kafka, floor, nats, redis or \
                         HOST:PORT is needed, with NAME= before it if you like"
                    ),
                },
            },
        };
        let name = name.map_or_else(|| what.kind(), str::to_owned);
        ensure!(
            !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic() && c != '/'),
            "--target {text}: a name is made of letters, digits and signs, without / and spaces"
        );
        Ok(Spec { name, what })
    }

    /// All, each with a name of its own.
    pub fn parse_all(texts: &[String]) -> Result<Vec<Spec>> {
        let mut specs: Vec<Spec> = Vec::new();
        for text in texts {
            let spec = Spec::parse(text)?;
            ensure!(
                specs.iter().all(|other| other.name != spec.name),
                "two targets are named {}: name them with --target NAME={text}",
                spec.name
            );
            specs.push(spec);
        }
        Ok(specs)
    }
}

impl What {
    fn kind(&self) -> String {
        match self {
            What::Highwater(_) => "highwater".to_owned(),
            What::Kafka => "kafka".to_owned(),
            What::Floor => "floor".to_owned(),
            What::Nats => "nats".to_owned(),
            What::Redis => "redis".to_owned(),
            What::Address(address) => address.clone(),
        }
    }

    /// Whether it is something that others are compared with, and not a bound of the machine.
    pub fn is_broker(&self) -> bool {
        *self != What::Floor
    }

    /// Whether it runs on this machine because of this run.
    pub fn is_started_here(&self) -> bool {
        !matches!(self, What::Address(_))
    }
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, What) {
        let spec = Spec::parse(text).unwrap();
        (spec.name, spec.what)
    }

    #[test]
    fn kinds_paths_addresses_and_names_are_told_apart() {
        let named = |name: &str, what| (name.to_owned(), what);
        let address = |address: &str| What::Address(address.to_owned());
        assert_eq!(parsed("kafka"), named("kafka", What::Kafka));
        assert_eq!(
            parsed("before=highwater:/tmp/a=b"),
            named("before", What::Highwater(Some("/tmp/a=b".into())))
        );
        assert_eq!(
            parsed("10.0.0.5:9092"),
            named("10.0.0.5:9092", address("10.0.0.5:9092"))
        );
        assert_eq!(parsed("mine=host:9092"), named("mine", address("host:9092")));
        assert_eq!(parsed("v6=[::1]:9092"), named("v6", address("[::1]:9092")));
    }

    #[test]
    fn what_is_no_target_is_told() {
        for bad in ["", "kafak", "host:", "host:99999", ":9092", "=kafka", "a b=kafka", "highwater:"] {
            let error = Spec::parse(bad).unwrap_err().to_string();
            assert!(error.starts_with("--target"), "{bad}: {error}");
        }
        let twice = ["kafka", "kafka"].map(str::to_owned);
        assert!(Spec::parse_all(&twice).is_err());
    }
}
