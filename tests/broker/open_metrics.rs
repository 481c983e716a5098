//! A strict reader of OpenMetrics text, and a small HTTP client.

use super::broker::Broker;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An HTTP answer.
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// Sends what is given as it is, and reads to the end. `None` if there was no whole answer.
pub fn exchange(addr: SocketAddr, request: &[u8]) -> Option<Answer> {
    let mut socket = TcpStream::connect(addr).ok()?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    socket.set_write_timeout(Some(PATIENCE)).ok()?;
    // The other side may close before it has read all.
    let _ = socket.write_all(request);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    parse_answer(&answer)
}

fn parse_answer(answer: &[u8]) -> Option<Answer> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?;
    let status = status.split(' ').next()?.parse().ok()?;
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    Some(Answer {
        status,
        headers,
        body: body.to_owned(),
    })
}

/// One request by method and path.
pub fn ask(addr: SocketAddr, method: &str, path: &str) -> Answer {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {addr}\r\n\r\n");
    let answer = exchange(addr, request.as_bytes()).expect("a whole answer");
    if let Some(length) = answer.headers.get("content-length") {
        if method != "HEAD" {
            assert_eq!(length, &answer.body.len().to_string(), "cut short");
        }
    }
    answer
}

/// A page of metrics.
#[derive(Debug, Default)]
pub struct Scrape {
    /// By name: type and help.
    pub families: BTreeMap<String, (String, String)>,
    pub samples: Vec<Sample>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Scrape {
    pub fn of(broker: &Broker) -> Scrape {
        let answer = ask(broker.admin(), "GET", "/metrics");
        assert_eq!(answer.status, 200, "{}", answer.body);
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert_eq!(answer.headers["content-type"], kind);
        Scrape::parse(&answer.body)
    }

    /// The sum of a sample's values with these labels, among others.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.find(name, labels).map(|sample| sample.value).sum()
    }

    /// The one value with these labels.
    pub fn one(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let found: Vec<&Sample> = self.find(name, labels).collect();
        match found.as_slice() {
            [sample] => sample.value,
            other => panic!("{name} {labels:?}: {other:?}"),
        }
    }

    pub fn find<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            let has = |(key, value): &(&str, &str)| {
                sample.labels.get(*key).is_some_and(|have| have == value)
            };
            sample.name == name && labels.iter().all(has)
        })
    }

    /// Reads a page, and panics at whatever is not as OpenMetrics 1.0 has it.
    pub fn parse(text: &str) -> Scrape {
        let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF");
        let mut scrape = Scrape::default();
        let mut family = String::new();
        let mut seen = BTreeSet::new();
        for line in body.lines() {
            if let Some(meta) = line.strip_prefix("# ") {
                let mut words = meta.splitn(3, ' ');
                let (word, name, rest) = (
                    words.next().unwrap(),
                    words.next().unwrap(),
                    words.next().unwrap(),
                );
                match word {
                    "HELP" => {
                        let entry = (String::new(), rest.to_owned());
                        let twice = scrape.families.insert(name.to_owned(), entry);
                        assert!(twice.is_none(), "{name} twice");
                        family = name.to_owned();
                    }
                    "TYPE" => {
                        assert_eq!(name, family);
                        let kinds = ["counter", "gauge", "histogram", "info"];
                        assert!(kinds.contains(&rest), "{line}");
                        scrape.families.get_mut(name).unwrap().0 = rest.to_owned();
                    }
                    "UNIT" => {
                        assert_eq!(name, family);
                        assert!(name.ends_with(&format!("_{rest}")), "{line}");
                    }
                    _ => panic!("{line}"),
                }
                continue;
            }
            let sample = parse_sample(line);
            let suffix = sample.name.strip_prefix(&family).unwrap_or_else(|| {
                panic!("{line}: not of {family}");
            });
            let ends: &[&str] = match scrape.families[&family].0.as_str() {
                "counter" => &["_total"],
                "gauge" => &[""],
                "histogram" => &["_bucket", "_sum", "_count"],
                "info" => &["_info"],
                other => panic!("{family}: {other}"),
            };
            assert!(ends.contains(&suffix), "{line}");
            assert!(suffix.is_empty() || sample.value >= 0.0, "{line}");
            let known = (sample.name.clone(), sample.labels.clone());
            assert!(seen.insert(known), "twice: {line}");
            scrape.samples.push(sample);
        }
        scrape.check_histograms();
        scrape
    }

    fn check_histograms(&self) {
        let histograms = self.families.iter().filter(|(_, (t, _))| t == "histogram");
        for (name, _) in histograms {
            let mut series: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
            for sample in self.find(&format!("{name}_bucket"), &[]) {
                let mut labels = sample.labels.clone();
                let bound = labels.remove("le").expect("a bucket has a bound");
                let bound = match bound.as_str() {
                    "+Inf" => f64::INFINITY,
                    bound => bound.parse().expect("a bound is a number"),
                };
                series
                    .entry(labels)
                    .or_default()
                    .push((bound, sample.value));
            }
            for (labels, buckets) in series {
                let rises = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
                assert!(buckets.windows(2).all(rises), "{name} {labels:?}");
                let labels: Vec<(&str, &str)> = labels
                    .iter()
                    .map(|(key, value)| (key.as_str(), value.as_str()))
                    .collect();
                let last = buckets.last().unwrap();
                let count = self.one(&format!("{name}_count"), &labels);
                assert_eq!(*last, (f64::INFINITY, count), "{name} {labels:?}");
                self.one(&format!("{name}_sum"), &labels);
            }
        }
    }
}

fn parse_sample(line: &str) -> Sample {
    let name_end = line.find(['{', ' ']).expect("a name ends");
    let (name, mut rest) = line.split_at(name_end);
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (key, after) = rest.split_once("=\"").expect("a label has a value");
            assert!(is_name(key), "{line}");
            let (value, after) = parse_quoted(after);
            assert!(labels.insert(key.to_owned(), value).is_none(), "{line}");
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').expect("a value follows");
    assert!(!value.contains(' '), "neither time nor exemplar: {line}");
    Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().expect("a value is a number"),
    }
}

fn is_name(name: &str) -> bool {
    let first = name.chars().next().is_some_and(|c| !c.is_ascii_digit());
    first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn parse_quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match chars.next().expect("an escape goes on").1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                c => panic!("no escape: {c}"),
            }),
            '\n' => panic!("a line ends in a label"),
            c => value.push(c),
        }
    }
    panic!("a label does not end: {text}")
}

/// No answer takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

mod the_reader_is_strict {
    use super::*;

    const GOOD: &str = "# HELP a_seconds Help.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total{x=\"1\\\"\\\\\\n\"} 2.5\n# EOF\n";

    #[test]
    fn it_reads_what_is_right() {
        let scrape = Scrape::parse(GOOD);
        assert_eq!(scrape.sum("a_seconds_total", &[("x", "1\"\\\n")]), 2.5);
    }

    #[test]
    fn it_refuses_what_is_not() {
        let histogram = "# HELP h H.\n# TYPE h histogram\nh_sum 1\nh_count 3\nh_bucket{le=\"1.0\"} 2\nh_bucket{le=\"+Inf\"} 3\n# EOF\n";
        Scrape::parse(histogram);
        for bad in [
            GOOD.replace("# EOF\n", ""),
            GOOD.replace("a_seconds_total{", "a_seconds{"),
            GOOD.replace("a_seconds_total{", "b_total{"),
            GOOD.replace("2.5", "-2.5"),
            GOOD.replace("2.5", "two"),
            GOOD.replace("counter", "summary"),
            GOOD.replace("x=", "1x="),
            GOOD.replace("# EOF", "# HELP a_seconds Help.\n# EOF"),
            histogram.replace("h_count 3", "h_count 4"),
            histogram.replace("} 2", "} 7"),
            histogram.replace("h_sum 1\n", ""),
        ] {
            let read = std::panic::catch_unwind(|| Scrape::parse(&bad));
            assert!(read.is_err(), "{bad}");
        }
    }
}
