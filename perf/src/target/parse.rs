//! From what a person writes to a target.

use super::external::External;
use super::floor::Floor;
use super::highwater::Highwater;
use super::kafka::{find_jars, Kafka};
use super::nats::Nats;
use super::redis::Redis;
use super::Target;
use crate::stop::Stop;
use anyhow::{bail, ensure, Context, Result};
use std::path::{Path, PathBuf};

/// Where targets are found.
#[derive(Clone)]
pub struct Options {
    /// The binary of `highwater`.
    pub highwater: PathBuf,
    /// The directory of Kafka's jars, if it is named.
    pub kafka_jars: Option<PathBuf>,
    /// Asked while something is waited for.
    pub stop: Stop,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            highwater: "target/release/highwater".into(),
            kafka_jars: None,
            stop: Stop::default(),
        }
    }
}

/// A target from its specification:
///
/// - `highwater`, `kafka`, `floor`: started here.
/// - `nats`, `redis`: started here, from $NATS_SERVER and $REDIS_SERVER or the PATH.
/// - `NAME=nats:BINARY`, `NAME=redis:BINARY`: another binary.
/// - `NAME=highwater:BINARY[,SETTING=VALUE...]`: another binary, or other settings; no BINARY: the usual one.
/// - `NAME=kafka:JARS[,SETTING=VALUE...]`: likewise, with lines of server.properties.
/// - `NAME=floor:[,SETTING=VALUE...]`: likewise, with options of `perf floor-server`.
/// - `HOST:PORT` or `NAME=HOST:PORT[,flush=SETTING=VALUE]`: a Kafka broker that runs already, and the setting of a
///   topic by which it flushes before it acknowledges (`flush=default`: none).
pub fn parse(spec: &str, options: &Options) -> Result<Box<dyn Target>> {
    match spec {
        "highwater" => highwater(spec, "", &[], options),
        "kafka" => kafka(spec, "", &[], options),
        "nats" => nats(spec, "", &[], options),
        "redis" => redis(spec, "", &[], options),
        "floor" => floor(spec, &[], options),
        _ => named(spec, options),
    }
}

fn floor(name: &str, settings: &[&str], options: &Options) -> Result<Box<dyn Target>> {
    Ok(Box::new(Floor::new(name, pairs(name, settings)?, options)))
}

fn named(spec: &str, options: &Options) -> Result<Box<dyn Target>> {
    let (what, settings) = match spec.split_once(',') {
        Some((what, settings)) => (what, settings.split(',').collect()),
        None => (spec, Vec::new()),
    };
    let (name, place) = what.split_once('=').unwrap_or((what, what));
    check_name(name, spec)?;
    let (kind, rest) = place.rsplit_once(':').with_context(|| unknown(spec))?;
    if rest.parse::<u16>().is_ok() {
        return external(name, place, &settings);
    }
    // A path may hold colons too.
    match place.split_once(':') {
        Some(("highwater", binary)) => highwater(name, binary, &settings, options),
        Some(("floor", "")) => floor(name, &settings, options),
        Some(("kafka", jars)) => kafka(name, jars, &settings, options),
        Some(("nats", binary)) => nats(name, binary, &settings, options),
        Some(("redis", binary)) => redis(name, binary, &settings, options),
        _ => bail!("{}: {kind}:{rest} is neither", unknown(spec)),
    }
}

/// It becomes a directory's and a cgroup's.
fn check_name(name: &str, spec: &str) -> Result<()> {
    const LENGTH_MAX: usize = 64;
    let good = |c: char| c.is_ascii_alphanumeric() || "._:-[]".contains(c);
    if name.is_empty()
        || name.len() > LENGTH_MAX
        || name.starts_with('.')
        || !name.chars().all(good)
    {
        bail!("{spec}: a target's name is of letters, digits, dashes and dots");
    }
    Ok(())
}

fn highwater(
    name: &str,
    binary: &str,
    settings: &[&str],
    options: &Options,
) -> Result<Box<dyn Target>> {
    let binary = match binary {
        "" => options.highwater.as_path(),
        binary => Path::new(binary),
    };
    let settings = pairs(name, settings)?;
    Ok(Box::new(Highwater::new(name, binary, settings, options)))
}

fn kafka(name: &str, jars: &str, settings: &[&str], options: &Options) -> Result<Box<dyn Target>> {
    let jars = match jars {
        "" => find_jars(options.kafka_jars.as_deref()),
        jars => Some(jars.into()),
    };
    let settings = pairs(name, settings)?;
    Ok(Box::new(Kafka::new(name, jars, settings, options)))
}

fn nats(name: &str, binary: &str, settings: &[&str], options: &Options) -> Result<Box<dyn Target>> {
    let binary = own_binary(name, binary, settings)?;
    Ok(Box::new(Nats::new(name, binary, &options.stop)))
}

fn redis(
    name: &str,
    binary: &str,
    settings: &[&str],
    options: &Options,
) -> Result<Box<dyn Target>> {
    let binary = own_binary(name, binary, settings)?;
    Ok(Box::new(Redis::new(name, binary, &options.stop)))
}

/// The binary that was named, of a peer that takes no settings.
fn own_binary<'a>(name: &str, binary: &'a str, settings: &[&str]) -> Result<Option<&'a Path>> {
    ensure!(
        settings.is_empty(),
        "{name}: settings can be said of highwater and kafka only"
    );
    Ok(Some(Path::new(binary)).filter(|_| !binary.is_empty()))
}

fn external(name: &str, address: &str, settings: &[&str]) -> Result<Box<dyn Target>> {
    let flush = match settings {
        [] => None,
        [setting] => {
            Some(setting.strip_prefix("flush=").with_context(|| {
                format!("{name}: {setting}: only flush=SETTING=VALUE can be said")
            })?)
        }
        _ => bail!("{name}: only flush=SETTING=VALUE can be said of a broker that runs already"),
    };
    Ok(Box::new(External::new(name, address, flush)?))
}

fn pairs(name: &str, settings: &[&str]) -> Result<Vec<String>> {
    let pair = |setting: &&str| match setting.split_once('=') {
        Some((key, _)) if !key.is_empty() => Ok((*setting).to_owned()),
        _ => bail!("{name}: {setting:?} is no SETTING=VALUE"),
    };
    settings.iter().map(pair).collect()
}

fn unknown(spec: &str) -> String {
    format!(
        "{spec} is no target: name highwater, kafka, floor, nats, redis, NAME=highwater:BINARY (likewise nats and \
         redis), NAME=kafka:JARS, HOST:PORT or NAME=HOST:PORT"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(spec: &str) -> Result<(String, String)> {
        let options = Options {
            highwater: "/no/highwater".into(),
            kafka_jars: Some("/no/jars".into()),
            ..Options::default()
        };
        let target = parse(spec, &options)?;
        Ok((target.name().to_owned(), target.describe()))
    }

    fn assert_is(spec: &str, name: &str, describes: &str) {
        let (found, description) = parsed(spec).unwrap();
        assert_eq!(found, name, "{spec}");
        assert!(description.contains(describes), "{spec}: {description}");
    }

    #[test]
    fn specifications_name_what_is_started_or_spoken_to() {
        assert_is("highwater", "highwater", "/no/highwater can't be run");
        assert_is("kafka", "kafka", "/no/jars can't be read");
        assert_is("floor", "floor", "the least that a broker must do");
        assert_is("f=floor:,depth=4", "f", "depth=4");
        assert_is("new=highwater:/a:b/hw", "new", "/a:b/hw can't be run");
        assert_is("new=highwater:,shards=1", "new", "shards=1");
        assert_is("k=kafka:/j,num.io.threads=2", "k", "num.io.threads=2");
        assert_is("n=nats:/no/nats", "n", "/no/nats can't be run");
        assert_is("r=redis:/no/redis", "r", "/no/redis can't be run");
        assert_is("127.0.0.1:9092", "127.0.0.1:9092", "at 127.0.0.1:9092");
        assert_is("[::1]:9092", "[::1]:9092", "at [::1]:9092");
        assert_is("prod=kafka:9092", "prod", "the broker at kafka:9092");
        assert_is("rp=h:1,flush=a=b", "rp", "flush by a=b");
    }

    #[test]
    fn what_is_none_is_told() {
        for spec in [
            "",
            "rabbit",
            "=a:1",
            "x=",
            "x=y",
            "../x=a:1",
            "a/b=a:1",
            ".x=a:1",
            "x=pulsar:/p",
            "x=h:1,flush",
            "x=h:1,a=b",
            "x=h:1,flush=a=b,c=d",
            "x=highwater:/p,shards",
            "x=nats:/p,a=b",
            "x=redis:/p,a=b",
            "a:65536",
        ] {
            let error = parsed(spec).unwrap_err().to_string();
            assert!(!error.is_empty(), "{spec}");
        }
        let error = parsed("rabbit").unwrap_err().to_string();
        assert!(
            error.starts_with("rabbit is no target: name highwater"),
            "{error}"
        );
    }
}
