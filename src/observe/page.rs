//! The page of metrics in OpenMetrics text, by `prometheus-client`.
//!
//! Latencies are classic histograms, with two buckets in each doubling: buckets of several brokers and of any span of time
//! can be added and then asked for a quantile; a quantile that the broker computes itself covers its whole
//! life and can be neither added nor averaged.
//!
//! What it is not: it knows no shard; who gathers the numbers fills it.

use super::catalog::{Family, Kind, Unit, CATALOG};
use super::LatencySnapshot;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{text, DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry;
use std::collections::HashMap;
use std::fmt;

/// What `/metrics` is sent as.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// What it is sent as to those who want the text that came before OpenMetrics.
pub const PLAIN_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The samples of one scrape.
#[derive(Debug, Default)]
pub struct Page(HashMap<&'static str, Vec<Sample>>);

#[derive(Debug)]
struct Sample {
    labels: Vec<(&'static str, String)>,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Count(u64),
    Seconds(f64),
    Gauge(i64),
    Info,
    Histogram {
        sum: f64,
        count: u64,
        buckets: Vec<(f64, u64)>,
    },
}

impl Page {
    /// Adds the value of a counter.
    pub fn count(&mut self, family: &'static Family, labels: &[&str], count: u64) {
        self.add(family, &[Kind::Counter], labels, Value::Count(count));
    }

    /// Adds the value of a counter or gauge in seconds.
    pub fn seconds(&mut self, family: &'static Family, labels: &[&str], seconds: f64) {
        assert_eq!(family.unit, Some(Unit::Seconds), "{}", family.base);
        let kinds = [Kind::Counter, Kind::Gauge];
        self.add(family, &kinds, labels, Value::Seconds(seconds));
    }

    /// Adds the value of a gauge.
    pub fn gauge(&mut self, family: &'static Family, labels: &[&str], value: i64) {
        self.add(family, &[Kind::Gauge], labels, Value::Gauge(value));
    }

    /// Adds what only labels say.
    pub fn info(&mut self, family: &'static Family, labels: &[&str]) {
        self.add(family, &[Kind::Info], labels, Value::Info);
    }

    /// Adds a histogram.
    pub fn histogram(
        &mut self,
        family: &'static Family,
        labels: &[&str],
        latency: &LatencySnapshot,
    ) {
        let value = Value::Histogram {
            sum: latency.sum_seconds(),
            count: latency.count(),
            buckets: latency.buckets(),
        };
        self.add(family, &[Kind::Histogram], labels, value);
    }

    fn add(&mut self, family: &'static Family, kinds: &[Kind], labels: &[&str], value: Value) {
        assert!(kinds.contains(&family.kind), "{}", family.base);
        assert_eq!(family.labels.len(), labels.len(), "{}", family.base);
        let values = labels.iter().map(|label| escaped(label));
        let labels = family.labels.iter().copied().zip(values).collect();
        let samples = self.0.entry(family.base).or_default();
        samples.push(Sample { labels, value });
    }

    /// The page as text. A family without samples is there all the same, so that one
    /// can see that it exists.
    pub fn render(self) -> String {
        let mut registry = registry::Registry::default();
        registry.register_collector(Box::new(self));
        let mut out = String::new();
        text::encode(&mut out, &registry).expect("a string takes what is written to it");
        out
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for family in CATALOG {
            let unit = family.unit.map(|unit| match unit {
                Unit::Seconds => registry::Unit::Seconds,
                Unit::Bytes => registry::Unit::Bytes,
            });
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
                Kind::Info => MetricType::Info,
            };
            let mut metric =
                encoder.encode_descriptor(family.base, family.help, unit.as_ref(), kind)?;
            for sample in self.0.get(family.base).into_iter().flatten() {
                if let Value::Info = sample.value {
                    metric.encode_info(&sample.labels)?;
                    continue;
                }
                if sample.labels.is_empty() {
                    sample.value.encode(family.kind, &mut metric)?;
                } else {
                    let mut metric = metric.encode_family(&sample.labels)?;
                    sample.value.encode(family.kind, &mut metric)?;
                }
            }
        }
        Ok(())
    }
}

impl Value {
    fn encode(&self, kind: Kind, metric: &mut MetricEncoder) -> fmt::Result {
        match self {
            Value::Info => unreachable!("only labels say it"),
            Value::Count(count) => metric.encode_counter(count, None::<&NoExemplar>),
            Value::Seconds(seconds) if kind == Kind::Gauge => metric.encode_gauge(seconds),
            Value::Seconds(seconds) => metric.encode_counter(seconds, None::<&NoExemplar>),
            Value::Gauge(value) => metric.encode_gauge(value),
            Value::Histogram {
                sum,
                count,
                buckets,
            } => metric.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None),
        }
    }
}

/// The library writes values as they are, and a group's name is whatever a client chose.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}

/// The same page as Prometheus text 0.0.4, for scrapers that do not know OpenMetrics: there a family is named as its samples
/// are, an info is a gauge, and there are neither units nor an end. The samples are the same.
pub fn plain_text(page: &str) -> String {
    let families = CATALOG.iter().map(|family| (family.name(), family.kind));
    let kinds: HashMap<String, Kind> = families.collect();
    let mut out = String::with_capacity(page.len());
    for line in page.lines() {
        let Some(about) = line.strip_prefix("# ") else {
            out.extend([line, "\n"]);
            continue;
        };
        let mut words = about.splitn(3, ' ');
        let (Some(word), Some(name), Some(rest)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (suffix, kind) = match kinds.get(name) {
            Some(Kind::Counter) => ("_total", rest),
            Some(Kind::Info) => ("_info", "gauge"),
            _ => ("", rest),
        };
        match word {
            "HELP" => out.extend(["# HELP ", name, suffix, " ", rest, "\n"]),
            "TYPE" => out.extend(["# TYPE ", name, suffix, " ", kind, "\n"]),
            _ => {}
        }
    }
    out
}

type NoExemplar = prometheus_client::metrics::exemplar::Exemplar<NoLabelSet, f64>;

#[cfg(test)]
mod tests {
    use super::super::family::*;
    use super::super::Latency;
    use super::*;

    fn page() -> String {
        let latency = Latency::default();
        latency.record(20_000);
        let mut page = Page::default();
        page.info(&BUILD, &["1"]);
        page.count(&TOPIC_IN, &["a\\b\"c\nd{},=é"], 7);
        page.gauge(&RESIDENT, &[], 5);
        page.histogram(&FETCH_WAIT, &[], &latency.snapshot());
        page.render()
    }

    #[test]
    fn labels_are_escaped() {
        let line = "\nhighwater_topic_produced_bytes_total{topic=\"a\\\\b\\\"c\\nd{},=é\"} 7\n";
        assert!(page().contains(line), "{}", page());
    }

    #[test]
    fn plain_text_has_the_same_samples_under_the_names_that_it_knows() {
        let (page, plain) = (page(), plain_text(&page()));
        let samples = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(samples(&page), samples(&plain));
        assert!(samples(&page).len() > 40);
        let about: Vec<&str> = plain.lines().filter(|l| l.starts_with('#')).collect();
        assert_eq!(about.len(), 2 * CATALOG.len());
        for (family, lines) in CATALOG.iter().zip(about.chunks(2)) {
            // A histogram's samples end in more than one way.
            let (name, kind) = match family.kind {
                Kind::Counter => (family.sample(), "counter"),
                Kind::Gauge => (family.sample(), "gauge"),
                Kind::Info => (family.sample(), "gauge"),
                Kind::Histogram => (family.name(), "histogram"),
            };
            assert_eq!(lines[0], format!("# HELP {name} {}", family.help));
            assert_eq!(lines[1], format!("# TYPE {name} {kind}"));
        }
    }
}
