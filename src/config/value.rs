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
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One network address, `HOST:PORT` or `PLAINTEXT://HOST:PORT`; empty where the setting may be absent.
    Address,
    /// A directory's path; empty where the setting may be absent.
    Directory,
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
            Kind::Choice(words) => words.join(", "),
            Kind::Address => "HOST:PORT".to_owned(),
            Kind::Directory => "a path".to_owned(),
        }
    }

    /// Whether `text` is a value of this kind; the error says what it must be.
    pub fn check(&self, text: &str) -> Result<(), String> {
        match self {
            Kind::Bool => parse_bool(text).map(drop),
            Kind::Int { min, max } => parse_int(text, *min, *max).map(drop),
            Kind::OptionalInt { .. } if text.is_empty() => Ok(()),
            Kind::OptionalInt { min, max } => parse_int(text, *min, *max).map(drop),
            Kind::Choice(words) if words.contains(&text) => Ok(()),
            Kind::Choice(words) => Err(format!("must be one of {}", words.join(", "))),
            Kind::Address if text.is_empty() => Ok(()),
            Kind::Address => HostPort::parse(text).map(drop),
            Kind::Directory => check_directory(text),
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

fn check_directory(text: &str) -> Result<(), String> {
    if text.contains(',') {
        return Err(
            "only one data directory is supported for now, so the path must hold no comma"
                .to_owned(),
        );
    }
    if text.contains('\0') {
        return Err("a path cannot hold a NUL character".to_owned());
    }
    Ok(())
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
