//! The chart of all rows: how many times better than Kafka, and what share of the floor, with the ranges.

use super::goals::row_name;
use super::summary::{Case, Line, Ratio, Row, Summary};
use super::svg::{escape, Axis};
use super::text::{clip, name, times, times_range};
use std::fmt::Write;

/// `None` where there is nothing to compare.
pub fn overview(summary: &Summary<'_>) -> Option<String> {
    let against = against(summary);
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for (workload, case, row) in summary.rows().filter(|(.., row)| !row.curve) {
        for line in row.headlines() {
            if against.iter().any(|other| line.ratios[*other].is_some()) {
                entries.push(Entry {
                    letter: workload.label(),
                    label: label(case, row, line),
                    line,
                });
            }
        }
    }
    if entries.is_empty() {
        return None;
    }
    let height = TOP + ROW * entries.len() as f64 + 8.0;
    let mut out = format!(
        "<svg class=\"overview\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"ratios of all rows\">"
    );
    let mut last = "";
    for (n, entry) in entries.iter().enumerate() {
        let top = TOP + ROW * n as f64;
        if n % 2 == 0 {
            let _ = write!(
                out,
                "<rect class=\"band\" x=\"0\" y=\"{top}\" width=\"{WIDTH}\" height=\"{ROW}\"/>"
            );
        }
        let base = top + ROW * 0.68;
        if entry.letter != last {
            let letter = escape(&clip(entry.letter, 4));
            let _ = write!(
                out,
                "<text class=\"letter\" x=\"8\" y=\"{base}\">{letter}</text>"
            );
            last = entry.letter;
        }
        let _ = write!(
            out,
            "<text class=\"label\" x=\"44\" y=\"{base}\">{}<title>{}</title></text>",
            escape(&clip(&entry.label, LABEL)),
            escape(&entry.label)
        );
    }
    let each = (WIDTH - LEFT) / against.len() as f64;
    for (n, other) in against.iter().enumerate() {
        let left = LEFT + each * n as f64;
        panel(
            &mut out,
            summary,
            &entries,
            *other,
            (left, left + each - GAP),
        );
    }
    out.push_str("</svg>");
    Some(out)
}

struct Entry<'a> {
    letter: &'a str,
    label: String,
    line: &'a Line,
}

const WIDTH: f64 = 1100.0;
const LEFT: f64 = 372.0;
const GAP: f64 = 24.0;
/// Room at the right of a panel for the figures.
const FIGURES: f64 = 58.0;
const TOP: f64 = 46.0;
const ROW: f64 = 22.0;
/// Characters.
const LABEL: usize = 50;

/// Kafka and the floor where they are; else the first two that are not the first.
fn against(summary: &Summary<'_>) -> Vec<usize> {
    let known = ["kafka", "floor"]
        .iter()
        .filter_map(|name| summary.target(name));
    let known: Vec<usize> = known.filter(|place| *place > 0).collect();
    if known.is_empty() {
        return (1..summary.targets.len()).take(2).collect();
    }
    known
}

fn label(case: &Case<'_>, row: &Row<'_>, line: &Line) -> String {
    // The only load of a case needs no name.
    let at = match case.rows.as_slice() {
        [_] if !case.name.is_empty() => case.name.clone(),
        _ => row_name(&case.name, &row.load),
    };
    let noted = if row.notes.is_empty() { "" } else { " (!)" };
    format!("{at}: {}{noted}", name(&line.metric))
}

fn panel(
    out: &mut String,
    summary: &Summary<'_>,
    entries: &[Entry<'_>],
    other: usize,
    (left, right): (f64, f64),
) {
    let first = &summary.targets[0].name;
    let other_name = &summary.targets[other].name;
    let (title, class) = if other_name == "floor" {
        (format!("{first} as a share of the floor"), "floor")
    } else {
        (
            format!("{first}: how many times better than {other_name}"),
            "peer",
        )
    };
    let ratios = || {
        entries
            .iter()
            .filter_map(|entry| entry.line.ratios[other].as_ref())
    };
    let ends = ratios().flat_map(|ratio| {
        let (low, high) = ratio.range().unwrap_or((ratio.median, ratio.median));
        [low, high, ratio.median]
    });
    let axis = Axis::log(ends.chain([0.8, 1.25]), "", |tick| format!("{tick}x"));
    let bottom = TOP + ROW * entries.len() as f64;
    let px = |ratio: f64| left + axis.at(ratio) * (right - FIGURES - left);
    let _ = write!(
        out,
        "<text class=\"axis\" x=\"{left:.1}\" y=\"16\">{}</text>",
        escape(&title)
    );
    for (tick, text) in axis.ticks() {
        let x = px(*tick);
        let one = if (*tick - 1.0).abs() < 1e-9 {
            "one"
        } else {
            "grid"
        };
        let _ = write!(
            out,
            "<line class=\"{one}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            TOP - 8.0,
            escape(text)
        );
    }
    for (n, entry) in entries.iter().enumerate() {
        let middle = TOP + ROW * (n as f64 + 0.5);
        let Some(ratio) = entry.line.ratios[other].as_ref() else {
            let _ = write!(
                out,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">-</text>",
                right,
                middle + 4.0
            );
            continue;
        };
        mark(out, ratio, class, middle, &px);
        let _ = write!(
            out,
            "<text class=\"figure\" x=\"{right:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            middle + 4.0,
            escape(&times(ratio.median))
        );
    }
}

fn mark(out: &mut String, ratio: &Ratio, class: &str, y: f64, px: &dyn Fn(f64) -> f64) {
    let side = if ratio.median >= 1.0 {
        "better"
    } else {
        "worse"
    };
    let side = if class == "floor" { "share" } else { side };
    if let Some((low, high)) = ratio.range() {
        let (low, high) = (px(low), px(high));
        let _ = write!(
            out,
            "<path class=\"whisker {side}\" d=\"M{low:.1} {y}L{high:.1} {y}M{low:.1} {0:.1}L{low:.1} {1:.1}\
             M{high:.1} {0:.1}L{high:.1} {1:.1}\"/>",
            y - 4.0,
            y + 4.0
        );
    }
    let range = ratio.range().map_or(String::new(), |range| {
        format!(" ({}, {} repeats)", times_range(range), ratio.pairs.len())
    });
    let _ = write!(
        out,
        "<circle class=\"mark {side}\" cx=\"{:.1}\" cy=\"{y}\" r=\"4.5\"><title>{}{}</title></circle>",
        px(ratio.median),
        escape(&times(ratio.median)),
        escape(&range)
    );
}
