//! The kinds of values that a setting can have, and how each is read from text.
//!
//! Numbers are plain decimal integers, as in Kafka: `1048576`, never `1MiB`.

use std::fmt;

/// What values a setting accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A decimal integer within both bounds.
    Int {
        /// Smallest value accepted.
        min: i64,
        /// Largest value accepted.
        max: i64,
    },
    /// A decimal integer within both bounds, or one value besides.
    IntOr {
        /// The value besides.
        or: i64,
        /// Smallest value accepted otherwise.
        min: i64,
        /// Largest value accepted otherwise.
        max: i64,
    },
    /// A number from 0 to 1.
    Ratio,
    /// A number of at least 1, whole or not: something in a second.
    Rate,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any of these words, separated by commas, or none.
    Words(&'static [&'static str]),
    /// `PARTITION:BROKER` pairs separated by commas, or `*`, or nothing.
    ThrottledReplicas,
    /// `HOST:COUNT` pairs separated by commas, or nothing. Not resolved here.
    HostCounts,
    /// One network address, `HOST:PORT` or `PLAINTEXT://HOST:PORT`; empty where the setting may be absent.
    Address,
    /// A directory's path; empty where the setting may be absent.
    Directory,
    /// Directories' paths, separated by commas; empty where the setting may be absent.
    Directories,
    /// A decimal integer like [`Kind::Int`], or nothing (another setting then decides).
    OptionalInt {
        /// Smallest value accepted.
        min: i64,
        /// Largest value accepted.
        max: i64,
    },
}

impl Kind {
    /// The values in words, for the documentation.
    pub fn describe(&self) -> String {
        match self {
            Kind::Bool => "true, false".to_owned(),
            Kind::Int { min, max } => range(*min, *max),
            Kind::OptionalInt { min, max } => format!("empty, or {}", range(*min, *max)),
            Kind::IntOr { or, min, max } => format!("{or}, or {}", range(*min, *max)),
            Kind::Ratio => "0 to 1".to_owned(),
            Kind::Rate => "at least 1".to_owned(),
            Kind::Choice(words) => words.join(", "),
            Kind::Words(words) => format!("a list of {}", words.join(", ")),
            Kind::ThrottledReplicas => "PARTITION:BROKER,..., or *".to_owned(),
            Kind::HostCounts => "HOST:COUNT,...".to_owned(),
            Kind::Address => "HOST:PORT".to_owned(),
            Kind::Directory => "a path".to_owned(),
            Kind::Directories => "a list of paths".to_owned(),
        }
    }

    /// A value in the one way in which it is shown: a number without leading zeros, a list without spaces. What is
    /// not a value of this kind is left as it is.
    pub fn canonical(&self, text: &str) -> String {
        let text = text.trim();
        match self {
            Kind::Bool => text.to_ascii_lowercase(),
            Kind::Int { .. } | Kind::OptionalInt { .. } | Kind::IntOr { .. } => {
                let number = text.parse::<i64>();
                number.map_or_else(|_| text.to_owned(), |number| number.to_string())
            }
            Kind::Words(_) | Kind::ThrottledReplicas | Kind::HostCounts | Kind::Directories => {
                list_entries(text).collect::<Vec<_>>().join(",")
            }
            Kind::Ratio | Kind::Rate | Kind::Choice(_) | Kind::Address | Kind::Directory => {
                text.to_owned()
            }
        }
    }

    /// Whether two values of this kind mean the same; both have been checked.
    pub fn is_same(&self, a: &str, b: &str) -> bool {
        match self {
            Kind::Bool => a.eq_ignore_ascii_case(b),
            Kind::Int { .. } | Kind::OptionalInt { .. } | Kind::IntOr { .. } => {
                a == b || a.parse::<i64>().is_ok_and(|a| b.parse() == Ok(a))
            }
            Kind::Words(words) => words.iter().all(|word| {
                let names = |list| list_entries(list).any(|entry| entry == *word);
                names(a) == names(b)
            }),
            Kind::Ratio
            | Kind::Rate
            | Kind::Choice(_)
            | Kind::ThrottledReplicas
            | Kind::HostCounts
            | Kind::Address
            | Kind::Directory
            | Kind::Directories => a == b,
        }
    }

    /// Whether `text` is a value of this kind; the error says what it must be.
    pub fn check(&self, text: &str) -> Result<(), String> {
        match self {
            Kind::Bool => parse_bool(text).map(drop),
            Kind::Int { min, max } => parse_int(text, *min, *max).map(drop),
            Kind::OptionalInt { .. } if text.is_empty() => Ok(()),
            Kind::OptionalInt { min, max } => parse_int(text, *min, *max).map(drop),
            Kind::IntOr { or, .. } if text.parse() == Ok(*or) => Ok(()),
            Kind::IntOr { or, min, max } => parse_int(text, *min, *max)
                .map(drop)
                .map_err(|problem| format!("{problem}, or {or}")),
            Kind::Ratio => parse_ratio(text).map(drop),
            Kind::Rate => parse_rate(text).map(drop),
            Kind::Words(words) => match list_entries(text).find(|entry| !words.contains(entry)) {
                None => Ok(()),
                Some(_) => Err(format!("must be a list of {}", words.join(", "))),
            },
            Kind::ThrottledReplicas => check_throttled_replicas(text),
            Kind::Choice(words) if words.contains(&text) => Ok(()),
            Kind::Choice(words) => Err(format!("must be one of {}", words.join(", "))),
            Kind::HostCounts => parse_host_counts(text).map(drop),
            Kind::Address if text.is_empty() => Ok(()),
            Kind::Address => HostPort::parse(text).map(drop),
            Kind::Directory => check_directory(text),
            Kind::Directories => list_entries(text).try_for_each(check_listed_directory),
        }
    }
}

/// Reads `true` or `false` (any case, as Kafka does).
pub(super) fn parse_bool(text: &str) -> Result<bool, String> {
    if text.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if text.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        Err("must be true or false".to_owned())
    }
}

/// The entries of a list, without the spaces around them; an empty text has none.
pub(super) fn list_entries(text: &str) -> impl Iterator<Item = &str> {
    let whole = text.trim();
    let entries = (!whole.is_empty()).then(|| whole.split(',').map(str::trim));
    entries.into_iter().flatten()
}

/// Reads `HOST:COUNT` pairs. An IPv6 address holds colons itself; the last one counts.
pub(super) fn parse_host_counts(text: &str) -> Result<Vec<(String, u32)>, String> {
    let pair = |entry: &str| {
        let (host, count) = entry.rsplit_once(':')?;
        let count: i32 = count.trim().parse().ok().filter(|count| *count >= 0)?;
        let host = host.trim().trim_start_matches('[').trim_end_matches(']');
        (!host.is_empty()).then(|| (host.to_owned(), count as u32))
    };
    list_entries(text)
        .map(|entry| {
            pair(entry)
                .ok_or_else(|| format!("'{entry}' must be HOST:COUNT, for instance 10.0.0.1:100"))
        })
        .collect()
}

/// How many milliseconds the unit in a setting's name has; 1 for a name that ends in none.
pub(super) fn unit_ms(name: &str) -> i64 {
    match name.rsplit('.').next() {
        Some("hours") => 3_600_000,
        Some("minutes") => 60_000,
        _ => 1,
    }
}

/// A number from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio(f64);

/// It is never NaN.
impl Eq for Ratio {}

impl Ratio {
    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// Reads a number from 0 to 1.
pub(super) fn parse_ratio(text: &str) -> Result<Ratio, String> {
    match text.parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(Ratio(ratio)),
        _ => Err("must be a number, 0 to 1".to_owned()),
    }
}

/// Reads a number of at least 1 as the whole number below it; whatever is above the range is its end.
pub(super) fn parse_rate(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= 1.0 => Ok(rate as u64),
        _ => Err("must be a number, at least 1".to_owned()),
    }
}

/// Reads a decimal integer within both bounds.
pub(super) fn parse_int(text: &str, min: i64, max: i64) -> Result<i64, String> {
    let must = || format!("must be a whole number, {}", range(min, max));
    let value: i64 = text.parse().map_err(|_| must())?;
    if value < min || value > max {
        return Err(must());
    }
    Ok(value)
}

fn range(min: i64, max: i64) -> String {
    match (min, max) {
        (min, i64::MAX) => format!("at least {min}"),
        (min, max) if min == max => format!("{min}"),
        (min, max) => format!("{min} to {max}"),
    }
}

fn check_throttled_replicas(text: &str) -> Result<(), String> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_pair = |entry: &str| {
        entry
            .split_once(':')
            .is_some_and(|(partition, broker)| is_number(partition) && is_number(broker))
    };
    if text == "*" || list_entries(text).all(is_pair) {
        return Ok(());
    }
    Err("must be *, or PARTITION:BROKER pairs separated by commas".to_owned())
}

fn check_directory(text: &str) -> Result<(), String> {
    if text.contains(',') {
        return Err("must be one path without a comma; log.dirs takes several".to_owned());
    }
    if text.contains('\0') {
        return Err("a path cannot hold a NUL character".to_owned());
    }
    Ok(())
}

fn check_listed_directory(path: &str) -> Result<(), String> {
    match path {
        "" => Err("must name a directory between any two commas".to_owned()),
        path => check_directory(path),
    }
}

/// A host (name or address) and a port. Not resolved: this room asks no name server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Host name or IP address, an IPv6 address without its brackets.
    pub host: String,
    /// Port; 0 lets the system choose one.
    pub port: u16,
}

impl HostPort {
    /// Reads `HOST:PORT`, `[IPV6]:PORT`, `PLAINTEXT://HOST:PORT`; an empty host means every interface (`0.0.0.0`).
    pub fn parse(text: &str) -> Result<HostPort, String> {
        if text.contains(',') {
            return Err(
                "only one listener is supported for now, so there must be no comma".to_owned(),
            );
        }
        let address = match text.split_once("://") {
            None => text,
            Some((protocol, address)) if protocol.eq_ignore_ascii_case("PLAINTEXT") => address,
            Some((protocol, _)) => {
                return Err(format!(
                    "only PLAINTEXT listeners are supported yet, not {protocol}"
                ));
            }
        };
        let must = || "must be HOST:PORT, for instance 127.0.0.1:9092 or [::1]:9092".to_owned();
        let (host, port) = address.rsplit_once(':').ok_or_else(must)?;
        let port: u16 = port
            .parse()
            .map_err(|_| format!("'{port}' is not a port, 0 to 65535"))?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner
                .strip_suffix(']')
                .filter(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
                .ok_or_else(must)?,
            None if host.contains([':', ']', '/']) || host.chars().any(char::is_whitespace) => {
                return Err(must())
            }
            None if host.is_empty() => "0.0.0.0",
            None => host,
        };
        Ok(HostPort {
            host: host.to_owned(),
            port,
        })
    }

    /// Whether this is the address of every interface, which a client cannot connect to.
    pub fn is_wildcard(&self) -> bool {
        self.host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_unspecified())
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
