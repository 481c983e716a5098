//! A histogram of latencies, whole and by second.
//!
//! Histograms are added up, never averaged. A percentile is told only where enough samples lie beyond it.

use anyhow::{Context, Result};
use base64::prelude::{Engine, BASE64_STANDARD};
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use hdrhistogram::Histogram;
use serde::{de, ser, Deserialize, Serialize};
use std::time::Duration;

/// Samples that must lie beyond a percentile before it is told.
const BEYOND_MIN: f64 = 100.0;
/// Longer latencies count as this, nanoseconds.
const LONGEST_NS: u64 = 120_000_000_000;
/// The percentiles of tables.
pub const PERCENTILES: [f64; 4] = [50.0, 99.0, 99.9, 99.99];
/// Seconds of which a series is kept; later ones count in the whole only.
const SECONDS_MAX: usize = 3600;

#[derive(Clone, Debug)]
pub struct Recorder {
    whole: Histogram<u64>,
    /// How often something was recorded: all records of a batch that was sent at once have one fate, so however many
    /// there are, they are one sample where it is asked how many lie beyond a percentile.
    events: u64,
    /// By the second of the measured time in which a sample's record was due.
    seconds: Vec<Histogram<u64>>,
}

/// One second of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    pub samples: u64,
    /// About how many of them are of batches of their own.
    pub events: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder {
            whole: histogram(3),
            events: 0,
            seconds: Vec::new(),
        }
    }
}

/// It grows with the values that it gets: a run keeps thousands of them.
fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new(digits).expect("so many digits are valid")
}

impl Recorder {
    /// One sample: `at` is since the start of the measured time.
    pub fn record(&mut self, at: Duration, latency: Duration) {
        self.record_n(at, latency, 1);
    }

    /// So many samples of the same latency, such as of the records of one batch; for percentiles one event.
    pub fn record_n(&mut self, at: Duration, latency: Duration, samples: u64) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(LONGEST_NS);
        let ns = ns.clamp(1, LONGEST_NS);
        let count = |histogram: &mut Histogram<u64>| {
            histogram
                .record_n(ns, samples)
                .expect("a histogram that grows takes every value")
        };
        count(&mut self.whole);
        self.events += 1;
        let second = at.as_secs() as usize;
        if second < SECONDS_MAX {
            while self.seconds.len() <= second {
                self.seconds.push(histogram(2));
            }
            count(&mut self.seconds[second]);
        }
    }

    /// Adds the samples of another thread, or of another repeat.
    pub fn merge(&mut self, other: &Recorder) -> Result<()> {
        self.whole.add(&other.whole)?;
        self.events += other.events;
        while self.seconds.len() < other.seconds.len() {
            self.seconds.push(histogram(2));
        }
        for (mine, theirs) in self.seconds.iter_mut().zip(&other.seconds) {
            mine.add(theirs)?;
        }
        Ok(())
    }

    pub fn samples(&self) -> u64 {
        self.whole.len()
    }

    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// A percentile (0 to 100) in microseconds; `None` with fewer than 100 samples beyond it, of which those that were
    /// recorded together count as one.
    pub fn percentile_us(&self, percentile: f64) -> Option<f64> {
        let beyond = self.events as f64 * (100.0 - percentile) / 100.0;
        // 99.9 of 100,000 leaves 99.99999999999 beyond.
        (beyond + 1e-6 >= BEYOND_MIN)
            .then(|| self.whole.value_at_percentile(percentile) as f64 / 1e3)
    }

    /// The largest sample, microseconds.
    pub fn max_us(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.whole.max() as f64 / 1e3)
    }

    /// The series by second.
    pub fn seconds(&self) -> Vec<Second> {
        let us = |ns: u64| ns as f64 / 1e3;
        let each = self.events as f64 / self.whole.len().max(1) as f64;
        let second = |histogram: &Histogram<u64>| Second {
            samples: histogram.len(),
            events: (histogram.len() as f64 * each).round() as u64,
            p50_us: us(histogram.value_at_percentile(50.0)),
            p99_us: us(histogram.value_at_percentile(99.0)),
            max_us: us(histogram.max()),
        };
        self.seconds.iter().map(second).collect()
    }

    fn encode(histogram: &Histogram<u64>) -> Result<String> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(histogram, &mut bytes)
            .ok()
            .context("a histogram can't be written")?;
        Ok(BASE64_STANDARD.encode(bytes))
    }

    fn decode(text: &str, digits: u8) -> Result<Histogram<u64>> {
        let bytes = BASE64_STANDARD.decode(text)?;
        let read: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .ok()
            .context("not a histogram in HdrHistogram's V2 form")?;
        // The bounds of a read one are those that its values needed.
        let mut histogram = histogram(digits);
        histogram
            .add(&read)
            .ok()
            .context("a histogram of other bounds")?;
        Ok(histogram)
    }
}

/// As it is in a file: HdrHistogram's own V2 form with zlib, in base64, beside figures for people and scripts.
#[derive(Serialize, Deserialize)]
struct Stored {
    samples: u64,
    /// As many as samples, if it is not there.
    #[serde(default)]
    events: Option<u64>,
    /// By percentile, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    p50_us: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    p99_us: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    p99_9_us: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    p99_99_us: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_us: Option<f64>,
    /// Nanoseconds.
    hdr: String,
    /// Nanoseconds, of each second.
    seconds: Vec<String>,
}

impl Serialize for Recorder {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let encode = |histogram| Recorder::encode(histogram).map_err(ser::Error::custom);
        let stored = Stored {
            samples: self.samples(),
            events: Some(self.events),
            p50_us: self.percentile_us(50.0),
            p99_us: self.percentile_us(99.0),
            p99_9_us: self.percentile_us(99.9),
            p99_99_us: self.percentile_us(99.99),
            max_us: self.max_us(),
            hdr: encode(&self.whole)?,
            seconds: self.seconds.iter().map(encode).collect::<Result<_, _>>()?,
        };
        stored.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Recorder {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Recorder, D::Error> {
        let stored = Stored::deserialize(deserializer)?;
        let decode = |text: &str, digits| Recorder::decode(text, digits).map_err(de::Error::custom);
        let whole = decode(&stored.hdr, 3)?;
        Ok(Recorder {
            events: stored.events.unwrap_or(whole.len()).min(whole.len()),
            whole,
            seconds: stored
                .seconds
                .iter()
                .map(|second| decode(second, 2))
                .collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(samples: u64) -> Recorder {
        let mut recorder = Recorder::default();
        for n in 0..samples {
            let at = Duration::from_millis(n);
            recorder.record(at, Duration::from_micros(n + 1));
        }
        recorder
    }

    #[test]
    fn a_percentile_needs_a_hundred_samples_beyond_it() {
        assert_eq!(recorded(199).percentile_us(50.0), None);
        assert!(recorded(200).percentile_us(50.0).is_some());
        assert_eq!(recorded(9_999).percentile_us(99.0), None);
        assert!(recorded(10_000).percentile_us(99.0).is_some());
        assert!(recorded(100_000).percentile_us(99.9).is_some());
        assert_eq!(recorded(99_999).percentile_us(99.9), None);
    }

    #[test]
    fn records_of_one_batch_are_one_sample_beyond_a_percentile() {
        let mut batches = Recorder::default();
        for n in 0..150 {
            batches.record_n(Duration::ZERO, Duration::from_micros(n + 1), 1000);
        }
        assert_eq!(batches.samples(), 150_000);
        assert_eq!(batches.percentile_us(50.0), None);
        assert_eq!(batches.seconds()[0].events, 150);
        let text = serde_json::to_string(&batches).unwrap();
        let mut read: Recorder = serde_json::from_str(&text).unwrap();
        assert_eq!(read.percentile_us(50.0), None);
        read.merge(&batches).unwrap();
        assert!(read.percentile_us(50.0).is_some());
        assert_eq!(read.percentile_us(99.0), None);
    }

    #[test]
    fn merging_adds_the_samples_and_does_not_average() {
        // 900 samples of 1 ms and 300 of 9 ms: the median is 1 ms, where an average of medians says 5.
        let mut one = Recorder::default();
        let mut other = Recorder::default();
        for _ in 0..900 {
            one.record(Duration::ZERO, Duration::from_millis(1));
        }
        for _ in 0..300 {
            other.record(Duration::from_secs(2), Duration::from_millis(9));
        }
        one.merge(&other).unwrap();
        let median = one.percentile_us(50.0).unwrap();
        assert!((999.0..1001.5).contains(&median), "{median}");
        let seconds: Vec<u64> = one.seconds().iter().map(|second| second.samples).collect();
        assert_eq!(seconds, [900, 0, 300]);
    }

    #[test]
    fn what_is_stored_is_read_back() {
        let recorder = recorded(2_500);
        let text = serde_json::to_string(&recorder).unwrap();
        let read: Recorder = serde_json::from_str(&text).unwrap();
        assert_eq!(read.whole, recorder.whole);
        assert_eq!(read.seconds(), recorder.seconds());
        assert_eq!(read.samples(), 2_500);
    }

    #[test]
    fn what_is_no_histogram_is_an_error() {
        let text = r#"{"samples":1,"hdr":"AAAA","seconds":[]}"#;
        assert!(serde_json::from_str::<Recorder>(text).is_err());
    }
}
