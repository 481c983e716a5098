//! One page that holds all it needs: no scripts, no files beside it, nothing from the network.
//!
//! Whatever comes from the results goes through [`escape`].

use super::goals::Outcome;
use super::metrics::Group;
use super::overview::overview;
use super::plots::{by_percentile, class, over_time, throughput_against_latency, Plot};
use super::summary::{Case, Line, Ratio, Row, Summary, Workload};
use super::svg::escape;
use super::terminal::{at_first_look, DASH};
use super::text::{name, times, utc, value};
use crate::results::Better;
use std::fmt::Write;

/// The whole page.
pub fn page(summary: &Summary<'_>) -> String {
    let mut page = Page {
        summary,
        out: String::new(),
    };
    page.head();
    page.navigation();
    page.push("<main>");
    page.goals();
    page.overview();
    for (n, workload) in summary.workloads.iter().enumerate() {
        page.workload(n, workload);
    }
    page.push("</main></body></html>\n");
    page.out
}

struct Page<'a> {
    summary: &'a Summary<'a>,
    out: String,
}

const STYLE: &str = include_str!("page.css");

impl Page<'_> {
    fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn head(&mut self) {
        let title = title(self.summary);
        let results = self.summary.results;
        let (machine, settings) = (&results.machine, &results.settings);
        let title = escape(&title);
        let _ = write!(
            self.out,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
             <title>{title}</title><style>{STYLE}</style></head><body>\
             <header><h1>{title}</h1><p class=\"soft\">{}</p>",
            escape(&utc(results.started_at))
        );
        if settings.quick {
            self.push(
                "<p class=\"quick\">A quick run: short, with few repeats. Not for publishing.</p>",
            );
        }
        let memory = |bytes: u64| value(bytes as f64, "bytes");
        let limit = match settings.broker_memory_bytes {
            0 => "no limit of memory".to_owned(),
            bytes => format!("{} of memory ({})", memory(bytes), settings.memory_limit),
        };
        let machine = format!(
            "{}, {} CPUs, {} of memory, Linux {}, {}. Each broker: CPUs {}, {limit}. Client: CPUs {}.",
            machine.cpu,
            machine.cpus,
            memory(machine.memory_bytes),
            machine.kernel,
            machine.file_system,
            cpus(&settings.broker_cpus),
            cpus(&settings.client_cpus),
        );
        let _ = write!(
            self.out,
            "<p>{}</p><table class=\"text\">",
            escape(&machine)
        );
        for target in 0..self.summary.targets.len() {
            let legend = self.legend(target);
            let description = escape(&self.summary.targets[target].description);
            let _ = write!(self.out, "<tr><td>{legend}</td><td>{description}</td></tr>");
        }
        let _ = write!(self.out, "</table><p class=\"soft\">{DASH}</p></header>");
    }

    fn legend(&self, target: usize) -> String {
        format!(
            "<span class=\"legend\"><svg viewBox=\"0 0 30 10\"><path class=\"line {}\" d=\"M0 5L30 5\"/></svg>{}</span>",
            class(self.summary, target),
            escape(&self.summary.targets[target].name)
        )
    }

    fn navigation(&mut self) {
        self.push("<nav><div>");
        for (n, workload) in self.summary.workloads.iter().enumerate() {
            let (title, label) = (escape(&workload.title), escape(workload.label()));
            let _ = write!(self.out, "<a href=\"#w{n}\" title=\"{title}\">{label}</a>");
        }
        for target in 0..self.summary.targets.len() {
            let legend = self.legend(target);
            self.push(&legend);
        }
        self.push("</div></nav>");
    }

    fn goals(&mut self) {
        let goals = &self.summary.goals;
        if goals.is_empty() {
            return;
        }
        let count = |outcome| goals.iter().filter(|v| v.outcome == outcome).count();
        let met = count(Outcome::Met) + count(Outcome::MetInMedian);
        let measured = goals.len() - count(Outcome::NotMeasured);
        let heading = match measured {
            0 => "Goals: none measured in this run".to_owned(),
            _ => format!("Goals: {met} of the {measured} that were measured are met"),
        };
        let quick = match self.summary.results.settings.quick {
            true => ", in a quick run",
            false => "",
        };
        let _ = write!(self.out, "<h2>{heading}{quick}</h2>");
        self.push("<table class=\"text\"><tr><th>Goal</th><th>Measured</th><th></th></tr>");
        for verdict in goals {
            let class = match verdict.outcome {
                Outcome::Met => "met",
                Outcome::MetInMedian => "half",
                Outcome::NotMet => "unmet",
                Outcome::NotMeasured => "unknown",
            };
            let _ = write!(
                self.out,
                "<tr><td>{}</td><td>{}</td><td><span class=\"badge {class}\">{}</span></td></tr>",
                escape(&verdict.goal),
                escape(&verdict.measured),
                verdict.outcome.text()
            );
        }
        self.push("</table>");
    }

    fn overview(&mut self) {
        let Some(svg) = overview(self.summary) else {
            return;
        };
        let first = escape(&self.summary.targets[0].name);
        let _ = write!(
            self.out,
            "<h2>At a glance</h2><p class=\"soft\">Right of the line at 1x {first} is the better one. A dot is the \
             median of the repeats, its whiskers their range; the scale is logarithmic. Rows with (!) have a \
             note beside their figures.</p>\
             <div class=\"scroll\">{svg}</div>"
        );
    }

    fn workload(&mut self, n: usize, workload: &Workload<'_>) {
        let letter = match &workload.letter {
            Some(letter) => format!("({letter}) "),
            None => String::new(),
        };
        let heading = escape(&format!("{letter}{}", workload.title));
        let id = escape(&workload.name);
        let _ = write!(
            self.out,
            "<section id=\"w{n}\"><h2>{heading}</h2><p class=\"soft\">workload {id}</p>"
        );
        for case in &workload.cases {
            self.case(case);
        }
        self.push("</section>");
    }

    fn case(&mut self, case: &Case<'_>) {
        if !case.name.is_empty() {
            let _ = write!(self.out, "<h3>{}</h3>", escape(&case.name));
        }
        // Targets that have nothing in this case take no columns.
        let has = |target: &usize| {
            let mut lines = case.rows.iter().flat_map(|row| &row.lines);
            *target == 0 || lines.any(|line| line.cells[*target].value.is_some())
        };
        let targets: Vec<usize> = (0..self.summary.targets.len()).filter(has).collect();
        let rows = |curve: bool| case.rows.iter().filter(move |row| row.curve == curve);
        self.table(&targets, rows(false), at_first_look);
        self.notes(case);
        let plots: Vec<Plot> = self.plots(case);
        self.figures(&plots);
        let over_time: Vec<Plot> = rows(false)
            .flat_map(|row| over_time(self.summary, row))
            .collect();
        if !over_time.is_empty() {
            self.push("<details><summary>Over time</summary>");
            self.figures(&over_time);
            self.push("</details>");
        }
        self.push("<details><summary>All figures, with what they cost the broker</summary>");
        self.table(&targets, case.rows.iter(), |_, _| true);
        self.push("</details>");
    }

    /// Latencies at rates; where there is no rate, those at saturation.
    fn plots(&self, case: &Case<'_>) -> Vec<Plot> {
        let mut plots = Vec::new();
        let any_rate = case.rows.iter().any(|row| row.rate.is_some());
        for row in &case.rows {
            if row.curve || row.rate.is_some() != any_rate {
                continue;
            }
            for of in [Group::Acknowledged, Group::Delivered] {
                plots.extend(by_percentile(self.summary, row, of));
            }
        }
        plots.extend(throughput_against_latency(self.summary, case));
        plots
    }

    fn figures(&mut self, plots: &[Plot]) {
        if plots.is_empty() {
            return;
        }
        self.push("<div class=\"plots\">");
        for plot in plots {
            let caption = escape(&plot.caption);
            let _ = write!(
                self.out,
                "<figure><figcaption>{caption}</figcaption>{}</figure>",
                plot.svg
            );
        }
        self.push("</div>");
    }

    fn table<'r, 'm: 'r>(
        &mut self,
        targets: &[usize],
        rows: impl Iterator<Item = &'r Row<'m>>,
        shown: impl Fn(&Row<'m>, &Line) -> bool,
    ) {
        self.push("<div class=\"scroll\"><table><tr><th></th>");
        for target in targets {
            let legend = self.legend(*target);
            let _ = write!(self.out, "<th>{legend}</th>");
        }
        self.push("</tr>");
        for row in rows {
            let columns = targets.len() + 1;
            let _ = write!(
                self.out,
                "<tr class=\"load\"><th colspan=\"{columns}\">{}</th></tr>",
                escape(&row.at())
            );
            for line in row.lines.iter().filter(|line| shown(row, line)) {
                let _ = write!(self.out, "<tr><td>{}</td>", escape(&name(&line.metric)));
                for target in targets {
                    self.cell(line, *target);
                }
                self.push("</tr>");
            }
        }
        self.push("</table></div>");
    }

    fn cell(&mut self, line: &Line, target: usize) {
        let cell = &line.cells[target];
        let Some(found) = cell.value else {
            self.push("<td>-</td>");
            return;
        };
        let show = |found: f64| value(found, &line.metric.unit).replace(" us", " µs");
        let spread = match cell.range() {
            Some((low, high)) => {
                let of = format!("repeats: {} to {}", show(low), show(high));
                format!(" title=\"{}\"", escape(&of))
            }
            None => String::new(),
        };
        let _ = write!(self.out, "<td{spread}><b>{}</b>", escape(&show(found)));
        if let Some(ratio) = &line.ratios[target] {
            let floor = self.summary.targets[target].name == "floor";
            let ratio = said(ratio, line.metric.better, floor);
            self.push(&ratio);
        }
        self.push("</td>");
    }

    fn notes(&mut self, case: &Case<'_>) {
        let mut notes = Vec::new();
        for row in case.rows.iter() {
            for note in &row.notes {
                notes.push(format!("{}, {}: {}", note.target, row.load, note.said()));
            }
        }
        for row in case.rows.iter() {
            for note in &row.missing {
                notes.push(format!(
                    "{}, {}: no result: {}",
                    note.target,
                    row.load,
                    note.said()
                ));
            }
        }
        if notes.is_empty() {
            return;
        }
        self.push("<ul class=\"notes\">");
        for note in notes {
            let _ = write!(self.out, "<li>{}</li>", escape(&note));
        }
        self.push("</ul>");
    }
}

/// In words, the right way round, with the range: `2.04x better`, `1.31x worse`; `95 % of the floor` of a rate, and
/// `1.20x the floor's` of a latency.
fn said(ratio: &Ratio, better: Better, floor: bool) -> String {
    let upright = |ratio: f64| ratio;
    let turned = |ratio: f64| 1.0 / ratio;
    let percent = |ratio: f64| format!("{:.0} %", ratio * 100.0);
    let words = match (floor, better) {
        (true, Better::Higher) => Words("share", " of the floor", upright, percent),
        (false, _) if (ratio.median - 1.0).abs() < 0.005 => Words("even", "", upright, times),
        (true, Better::Lower) => Words("share", " the floor's", turned, times),
        (false, _) if ratio.median >= 1.0 => Words("better", " better", upright, times),
        (false, _) => Words("worse", " worse", turned, times),
    };
    let Words(mut class, word, turn, show) = words;
    let range = match ratio.range() {
        None => String::new(),
        Some((low, high)) => {
            if low <= 1.0 && high >= 1.0 {
                // Not the same one is the better one in each repeat.
                class = "even";
            }
            let (one, other) = (turn(low), turn(high));
            let (low, high) = (show(one.min(other)), show(one.max(other)));
            // The unit once.
            let low = low.trim_end_matches([' ', '%', 'x']);
            let text = escape(&format!("{low}-{high}"));
            format!(" <span class=\"range\">({text})</span>")
        }
    };
    let median = escape(&format!("{}{word}", show(turn(ratio.median))));
    format!("<small class=\"{class}\">{median}{range}</small>")
}

/// Class, word, which way round, and how it is written.
struct Words(
    &'static str,
    &'static str,
    fn(f64) -> f64,
    fn(f64) -> String,
);

fn title(summary: &Summary<'_>) -> String {
    let names: Vec<&str> = summary.targets.iter().map(|t| t.name.as_str()).collect();
    match names.as_slice() {
        [] => "Nothing measured".to_owned(),
        [only] => format!("{only}, measured"),
        [first, others @ ..] => format!("{first} beside {}", others.join(", ")),
    }
}

fn cpus(cpus: &[usize]) -> String {
    if cpus.is_empty() {
        return "any".to_owned();
    }
    let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
    cpus.join(", ")
}

#[cfg(test)]
mod tests;
