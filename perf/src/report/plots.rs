//! What is drawn of each case: latency by percentile, throughput against latency, and both over time.

use super::metrics::{recorder, Group, CONSUMED, PRODUCED, RECORDS};
use super::summary::{word, Case, Row, Summary};
use super::svg::{Axis, Chart};
use super::text::value;
use crate::measure::{Measured, Second};

/// A chart, and what it shows.
pub struct Plot {
    pub caption: String,
    pub svg: String,
}

/// The class of a target's lines: colours and dashes of known ones are fixed, so that they are the same on each page.
pub fn class(summary: &Summary<'_>, target: usize) -> String {
    let known = |name: &str| KNOWN.iter().position(|known| *known == name);
    let name = &summary.targets[target].name;
    if let Some(at) = known(name) {
        return format!("t{at}");
    }
    let before = &summary.targets[..target];
    let unknown = before.iter().filter(|other| known(&other.name).is_none());
    let others = CLASSES - KNOWN.len();
    format!("t{}", KNOWN.len() + unknown.count() % others)
}

/// A line for each target, from the median into the tail, up to where 100 samples lie beyond.
pub fn by_percentile(summary: &Summary<'_>, row: &Row<'_>, of: Group) -> Option<Plot> {
    let mut curves = Vec::new();
    for target in 0..summary.targets.len() {
        let merged = row.merged(target, of);
        let mut curve = Vec::new();
        for step in 0.. {
            let x = 2.0 * 10f64.powf(f64::from(step) / STEPS_OF_A_DECADE);
            // `None` at the latest where less than one sample in all would lie beyond.
            match merged.percentile_us(100.0 * (1.0 - 1.0 / x)) {
                Some(us) => curve.push((x, us)),
                None => break,
            }
        }
        if curve.len() > 1 {
            curves.push((target, curve));
        }
    }
    if curves.is_empty() {
        return None;
    }
    let points = || curves.iter().flat_map(|(_, curve)| curve);
    let share = |x: f64| {
        let percentile = 100.0 * (1.0 - 1.0 / x);
        // Without what 1 - 0.001 leaves behind.
        format!("p{}", (percentile * 1e6).round() / 1e6)
    };
    let ticks = [2.0, 4.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7];
    let x = Axis::log(points().map(|(x, _)| *x), "percentile", share)
        .with_ticks(ticks.map(|tick| (tick, share(tick))).to_vec());
    let y = Axis::log(points().map(|(_, y)| *y), "latency", latency);
    let mut chart = Chart::new(x, y);
    for (target, curve) in &curves {
        let name = &summary.targets[*target].name;
        chart.line(curve, &class(summary, *target), name);
    }
    let what = word(&row.turns, of);
    let caption = format!("Latency by percentile, {what}: {}", row.at());
    Some(Plot {
        svg: chart.render(&caption),
        caption,
    })
}

/// The loads of a case that have a rate: what was reached, and what latency it had.
pub fn throughput_against_latency(summary: &Summary<'_>, case: &Case<'_>) -> Option<Plot> {
    let rows: Vec<&Row<'_>> = case.rows.iter().filter(|row| row.rate.is_some()).collect();
    let of = |row: &Row<'_>| match row.percentile(Group::Delivered, 50.0) {
        Some(_) => Group::Delivered,
        None => Group::Acknowledged,
    };
    let first = rows.first()?;
    let what = word(&first.turns, of(first));
    let mut curves = Vec::new();
    for target in 0..summary.targets.len() {
        for percentile in [50.0, 99.0] {
            let point = |row: &&Row<'_>| {
                let moved = row.line(Group::Throughput, PRODUCED, RECORDS).or(row.line(
                    Group::Throughput,
                    CONSUMED,
                    RECORDS,
                ))?;
                let latency = row.percentile(of(row), percentile)?;
                Some((moved.cells[target].value?, latency.cells[target].value?))
            };
            let mut points: Vec<(f64, f64)> = rows.iter().filter_map(point).collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            if !points.is_empty() {
                curves.push((target, percentile, points));
            }
        }
    }
    // Two points are no curve; often they are not even of the same kind of load.
    if rows.len() < 3 || curves.iter().all(|(.., points)| points.len() < 2) {
        return None;
    }
    let points = || curves.iter().flat_map(|(.., points)| points);
    let x = Axis::linear(points().map(|(x, _)| *x), "records a second, reached", rate);
    let y = Axis::log(points().map(|(_, y)| *y), "latency", latency);
    let mut chart = Chart::new(x, y);
    for (target, percentile, points) in &curves {
        let name = &summary.targets[*target].name;
        let mut class = class(summary, *target);
        if *percentile < 99.0 {
            class.push_str(" hollow");
        }
        chart.line(points, &class, &format!("{name} p{percentile}"));
        for point in points {
            let title = format!(
                "{name} p{percentile}: {} at {}",
                latency(point.1),
                rate(point.0)
            );
            chart.dot(*point, &class, &title);
        }
    }
    let caption = format!("Throughput against latency, {what}: p99 filled, p50 hollow");
    Some(Plot {
        svg: chart.render(&caption),
        caption,
    })
}

/// Latency and rate by the second, the repeats one after the other.
pub fn over_time(summary: &Summary<'_>, row: &Row<'_>) -> Vec<Plot> {
    let of = match row.percentile(Group::Delivered, 99.0) {
        Some(_) => Group::Delivered,
        None => Group::Acknowledged,
    };
    let seconds = |target: usize| -> Vec<(usize, Vec<Second>)> {
        let turns = row.turns[target].iter().enumerate();
        turns
            .filter_map(|(n, turn)| Some((n, full_seconds(of, turn.measured.as_ref()?))))
            .collect()
    };
    let all: Vec<Vec<(usize, Vec<Second>)>> = (0..summary.targets.len()).map(seconds).collect();
    let turns = || all.iter().flatten();
    let length = turns().map(|(_, series)| series.len()).max().unwrap_or(0);
    if length < 2 {
        return Vec::new();
    }
    let repeats = turns().map(|(n, _)| n + 1).max().unwrap_or(1);
    // A percentile of a second needs its 100 samples beyond it like any other; the largest needs none.
    let many = |second: &Second| second.events == 0 || second.events >= 10_000;
    let p99 = turns().flat_map(|(_, series)| series).all(many);
    let (what, pick): (&str, fn(&Second) -> f64) = if p99 {
        ("p99", |second| second.p99_us)
    } else {
        ("longest", |second| second.max_us)
    };
    let named = word(&row.turns, of);
    let end = (repeats * (length + 1)) as f64;
    let draw = |y: Axis, pick: &dyn Fn(&Second) -> f64, caption: String| {
        let label = |tick: f64| format!("{tick}");
        let title = "seconds; the repeats one after the other";
        let mut chart = Chart::new(Axis::linear([end].into_iter(), title, label), y);
        for repeat in 1..repeats {
            chart.divider((repeat * (length + 1)) as f64 - 0.5);
        }
        for (target, turns) in all.iter().enumerate() {
            for (n, series) in turns {
                let start = n * (length + 1);
                let full = series.iter().enumerate().filter(|(_, s)| s.samples > 0);
                let points: Vec<(f64, f64)> = full
                    .map(|(at, second)| ((start + at) as f64 + 0.5, pick(second)))
                    .collect();
                let name = &summary.targets[target].name;
                let title = format!("{name}, repeat {}", n + 1);
                chart.line(&points, &class(summary, target), &title);
            }
        }
        Plot {
            svg: chart.render(&caption),
            caption,
        }
    };
    let samples = || turns().flat_map(|(_, series)| series);
    let by_second = Axis::log(
        samples().map(pick),
        &format!("{what} of each second"),
        latency,
    );
    let count = |second: &Second| second.samples as f64;
    let rates = Axis::linear(samples().map(count), "records of each second", rate);
    vec![
        draw(
            by_second,
            &pick,
            format!("Over time, {what} {named}: {}", row.at()),
        ),
        draw(
            rates,
            &count,
            format!("Over time, records {named}: {}", row.at()),
        ),
    ]
}

/// Of the tables and plots, the known ones first: see the style sheet.
const KNOWN: [&str; 6] = ["highwater", "kafka", "floor", "nats", "redis", "external"];
/// That the style sheet has.
const CLASSES: usize = 8;
const STEPS_OF_A_DECADE: f64 = 16.0;

/// Without the last second if it is only begun: less happened in it.
fn full_seconds(of: Group, measured: &Measured) -> Vec<Second> {
    let length = measured.produced.seconds.max(measured.consumed.seconds);
    let mut series = recorder(of, measured).seconds();
    // A clock that stops a little early does not take a second away.
    series.truncate((length + 0.05) as usize);
    series
}

fn latency(us: f64) -> String {
    round(value(us, "us").replace("us", "µs"))
}

fn rate(records_per_second: f64) -> String {
    round(value(records_per_second, RECORDS))
}

/// Ticks are round: `20 ms`, not `20.0 ms`.
fn round(text: String) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let number = number.trim_end_matches('0').trim_end_matches('.');
            format!("{number} {unit}")
        }
        _ => text,
    }
}
