//! Numbers and names as people read them.

use super::metrics::Metric;
use std::fmt::Write;

/// Columns of a terminal that tables and paragraphs take at most.
pub const WIDTH: usize = 120;

/// Three significant digits.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if size >= 1e15 {
        format!("{value:.2e}")
    } else if size >= 9_999.5 {
        let text = format!("{size:.0}");
        let sign = if value < 0.0 { "-" } else { "" };
        let groups: Vec<&[u8]> = text.as_bytes().rchunks(3).rev().collect();
        format!("{sign}{}", String::from_utf8_lossy(&groups.join(&b',')))
    } else if size >= 99.95 {
        format!("{value:.0}")
    } else if size >= 9.995 {
        format!("{value:.1}")
    } else if size >= 0.0995 {
        format!("{value:.2}")
    } else {
        format!("{value:.2e}")
    }
}

/// A value in the unit that suits its size: `1.25 ms` of 1250 us. Units that are not known are not said.
pub fn value(value: f64, unit: &str) -> String {
    let Some(steps) = steps(unit) else {
        return digits(value);
    };
    let last = steps.len() - 1;
    let fits =
        |(at, (size, _)): &(usize, &(f64, &str))| value.abs() >= size * 0.9995 || *at == last;
    let (size, name) = steps
        .iter()
        .enumerate()
        .find(fits)
        .expect("the last fits")
        .1;
    format!("{} {name}", digits(value / size))
}

/// A metric's name, with its unit where values don't say it.
pub fn name(metric: &Metric) -> String {
    match (steps(&metric.unit), metric.unit.as_str()) {
        (Some(_), _) | (None, "") => metric.name.clone(),
        (None, unit) => format!("{}, {unit}", metric.name),
    }
}

/// `2.04x`, `0.51x`, `123x`.
pub fn times(ratio: f64) -> String {
    format!("{}x", factor(ratio))
}

/// `1.98-2.10`.
pub fn times_range((low, high): (f64, f64)) -> String {
    format!("{}-{}", factor(low), factor(high))
}

/// One line without control characters, which a terminal would obey.
pub fn plain(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(printable).collect()
}

/// At most so many characters.
pub fn clip(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Lines of at most so many characters, broken between words where there are any.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let line = lines.last_mut().expect("there is one at least");
            let used = line.chars().count();
            let gap = usize::from(used > 0);
            if used + gap + word.len() <= width {
                line.push_str(&" "[..gap]);
                line.extend(&word);
                break;
            }
            if used == 0 {
                line.extend(word.drain(..width.max(1)));
            }
            lines.push(String::new());
        }
    }
    lines
}

/// Adds a text as lines of a terminal, of which all but the first are indented.
pub fn paragraph(out: &mut String, text: &str) {
    for (n, line) in wrap(&plain(text), WIDTH - 4).iter().enumerate() {
        let indent = if n == 0 { "" } else { "    " };
        let _ = writeln!(out, "{indent}{line}");
    }
}

/// A time of the Unix epoch as `2026-01-31 23:59 UTC`.
pub fn utc(seconds: u64) -> String {
    // The days of the civil calendar, with years that begin in March; good for a million years.
    let days = (seconds / 86_400).min(365_000_000) + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// The sizes of a unit, the largest first.
fn steps(unit: &str) -> Option<&'static [(f64, &'static str)]> {
    Some(match unit {
        "us" => &[(1e6, "s"), (1e3, "ms"), (1.0, "us")],
        "ms" => &[(1e3, "s"), (1.0, "ms"), (1e-3, "us")],
        "s" | "seconds" => &[(1.0, "s"), (1e-3, "ms"), (1e-6, "us")],
        "records/s" => &[(1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")],
        "MB/s" => &[(1.0, "MB/s"), (1e-3, "kB/s"), (1e-6, "B/s")],
        "B" | "bytes" => &[
            (1_073_741_824.0, "GiB"),
            (1_048_576.0, "MiB"),
            (1024.0, "KiB"),
            (1.0, "B"),
        ],
        "MiB" => &[(1024.0, "GiB"), (1.0, "MiB")],
        "%" => &[(1.0, "%")],
        _ => return None,
    })
}

fn factor(ratio: f64) -> String {
    if ratio >= 9_999.5 {
        format!("{:.0}k", ratio / 1e3)
    } else if ratio >= 99.95 {
        format!("{ratio:.0}")
    } else if ratio >= 9.995 {
        format!("{ratio:.1}")
    } else if ratio >= 0.0995 {
        format!("{ratio:.2}")
    } else {
        // Not `0.00` of what is a thousand times worse.
        format!("{ratio:.2e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_get_the_unit_of_their_size() {
        assert_eq!(value(812.4, "us"), "812 us");
        assert_eq!(value(999.9, "us"), "1.00 ms");
        assert_eq!(value(1_250.0, "us"), "1.25 ms");
        assert_eq!(value(2_100_000.0, "us"), "2.10 s");
        assert_eq!(value(0.5, "us"), "0.50 us");
        assert_eq!(value(81_234.0, "records/s"), "81.2 k/s");
        assert_eq!(value(1234.5, "MB/s"), "1234 MB/s");
        assert_eq!(value(0.0761, "MB/s"), "76.1 kB/s");
        assert_eq!(value(22_217.4, "/1,000 records"), "22,217");
        assert_eq!(value(-1_234_567.0, ""), "-1,234,567");
        assert_eq!(value(1e300, ""), "1.00e300");
        assert_eq!(value(0.042, "s"), "42.0 ms");
        assert_eq!(value(0.0, "s"), "0 us");
        assert_eq!(value(3.25, "s/M records"), "3.25");
        assert_eq!(value(0.00123, "/request"), "1.23e-3");
    }

    #[test]
    fn ratios_keep_their_digits_however_small_they_are() {
        let told = [12_345.0, 123.4, 12.34, 1.234, 0.5, 0.1].map(times);
        assert_eq!(
            told,
            ["12k", "123", "12.3", "1.23", "0.50", "0.10"].map(|t| format!("{t}x"))
        );
        assert_eq!(times(0.00123), "1.23e-3x");
    }

    #[test]
    fn times_of_epochs_are_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_798_761_599), "2026-12-31 23:59 UTC");
        utc(u64::MAX);
    }

    #[test]
    fn long_texts_are_broken_or_clipped_to_the_width() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh i", 3), ["abc", "def", "gh", "i"]);
        assert_eq!(wrap("", 3), [""]);
        assert_eq!(clip("highwater", 5), "high…");
        assert_eq!(clip("kafka", 5), "kafka");
        assert_eq!(plain("a\u{1b}[2Jb\nc"), "a [2Jb c");
    }
}
