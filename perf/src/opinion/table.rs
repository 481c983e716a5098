//! The opinion as a table, and what is computed for it.

use super::{Opinion, Summary};

pub fn table(opinion: &Opinion) -> String {
    let mut text = format!("\n{}, {}\n", opinion.tool, opinion.java);
    let flush = if opinion.flush { "with" } else { "without" };
    text += &format!(
        "{flush} a flush before each acknowledgement; medians of the turns, ms; x: rate against {}, lowest to highest\n",
        opinion.targets[0].name
    );
    for row in &opinion.rows {
        let load = match row.rate {
            Some(rate) => format!("{rate:.0} records/s asked for"),
            None => "saturation".to_owned(),
        };
        text += &format!("\n{}, {load}\n", row.shape.title());
        text += &format!(
            "{:<20}{:>11}{:>8}{:>9}{:>8}{:>8}{:>8}{:>8}{:>9}  x\n",
            "", "records/s", "MB/s", "avg", "p50", "p95", "p99", "p99.9", "max"
        );
        for (target, turns) in opinion.targets.iter().zip(&row.turns) {
            let of = |figure: fn(&Summary) -> f64| median(turns.iter().map(figure));
            text += &format!(
                "{:<20}{:>11.0}{:>8.1}{:>9.2}{:>8}{:>8}{:>8}{:>8}{:>9.0}  {}\n",
                target.name,
                of(|s| s.records_per_second),
                of(|s| s.mb_per_second),
                of(|s| s.average_ms),
                percentile(turns, 50.0, |s| s.p50_ms),
                percentile(turns, 95.0, |s| s.p95_ms),
                percentile(turns, 99.0, |s| s.p99_ms),
                percentile(turns, 99.9, |s| s.p999_ms),
                of(|s| s.max_ms),
                ratios(turns, &row.turns[0]),
            );
        }
    }
    text
}

/// The median of the turns, if each of them has enough records beyond the percentile.
fn percentile(turns: &[Summary], percent: f64, figure: fn(&Summary) -> f64) -> String {
    const BEYOND_MIN: f64 = 100.0;
    let beyond = |summary: &Summary| summary.records as f64 * (100.0 - percent) / 100.0;
    // A hair less: the part beyond 99.9 % is not exactly a thousandth.
    if turns
        .iter()
        .all(|summary| beyond(summary) >= BEYOND_MIN - 1e-6)
    {
        format!("{:.0}", median(turns.iter().map(figure)))
    } else {
        "-".to_owned()
    }
}

pub fn rate_of(turns: &[Summary]) -> f64 {
    median(turns.iter().map(|summary| summary.records_per_second))
}

/// Of the rates, turn by turn: the median, and the lowest and highest.
fn ratios(turns: &[Summary], first: &[Summary]) -> String {
    let ratios = turns
        .iter()
        .zip(first)
        .map(|(one, other)| one.records_per_second / other.records_per_second);
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_by(f64::total_cmp);
    match (ratios.first(), ratios.last()) {
        (Some(low), Some(high)) => {
            let middle = median(ratios.iter().copied());
            format!("{middle:.2} ({low:.2}-{high:.2})")
        }
        _ => String::new(),
    }
}

/// Of nothing: NaN.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Row, Shape, TargetInfo};
    use super::*;

    fn summary(records_per_second: f64) -> Summary {
        Summary {
            records: 10,
            records_per_second,
            mb_per_second: 1.0,
            average_ms: 2.0,
            max_ms: 9.0,
            p50_ms: 2.0,
            p95_ms: 3.0,
            p99_ms: 4.0,
            p999_ms: 5.0,
        }
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert!(median(std::iter::empty()).is_nan());
    }

    #[test]
    fn ratios_are_taken_turn_by_turn() {
        let first = [summary(100.0), summary(200.0), summary(100.0)];
        let other = [summary(50.0), summary(60.0), summary(40.0)];
        assert_eq!(ratios(&other, &first), "0.40 (0.30-0.50)");
        assert_eq!(ratios(&first, &first), "1.00 (1.00-1.00)");
    }

    #[test]
    fn the_table_names_every_target_and_load() {
        let info = |name: &str| TargetInfo {
            name: name.to_owned(),
            description: String::new(),
        };
        let turns = vec![vec![summary(1000.0)], vec![summary(500.0)]];
        let opinion = Opinion {
            tool: "tool".to_owned(),
            java: "java".to_owned(),
            quick: false,
            flush: true,
            targets: vec![info("highwater"), info("kafka")],
            rows: vec![
                Row {
                    shape: Shape::Single,
                    rate: None,
                    turns: turns.clone(),
                },
                Row {
                    shape: Shape::Large,
                    rate: Some(250.0),
                    turns,
                },
            ],
        };
        let text = table(&opinion);
        for words in [
            "one record a request, saturation",
            "1 MiB batches, 250 records/s asked for",
            "1000",
            "0.50 (0.50-0.50)",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let json = serde_json::to_string(&opinion).unwrap();
        assert!(json.contains("\"shape\":\"1m\""), "{json}");
    }

    #[test]
    fn a_percentile_needs_a_hundred_records_beyond_it() {
        let of = |records| Summary {
            records,
            ..summary(1.0)
        };
        let p999 = |records: &[u64]| {
            let turns: Vec<Summary> = records.iter().map(|&records| of(records)).collect();
            percentile(&turns, 99.9, |s| s.p999_ms)
        };
        assert_eq!(p999(&[100_000, 100_000]), "5");
        assert_eq!(p999(&[100_000, 99_999]), "-");
    }
}
