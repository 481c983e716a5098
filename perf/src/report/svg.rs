//! Charts as inline SVG: axes, lines, dots. Colours and dashes are the page's, by class, so that a chart follows its
//! light or dark theme; a point or a line says what it is in its title.

use std::fmt::Write;

/// Text and attribute values of HTML and SVG.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // No part of HTML, not even escaped.
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// From values to a place between 0 and 1, with the values that are labelled.
#[derive(Debug, Clone)]
pub struct Axis {
    log: bool,
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
    title: String,
}

impl Axis {
    /// Of values above 0; each power of ten is labelled, and 2 and 5 where there is room.
    pub fn log(
        values: impl Iterator<Item = f64>,
        title: &str,
        label: impl Fn(f64) -> String,
    ) -> Axis {
        let (low, high) = bounds(values.filter(|value| *value > 0.0), (1.0, 10.0));
        // Rounding must not push a value out, nor make the ends the same.
        let (low, high) = (low / 1.12, high * 1.12);
        let decades = high.log10() - low.log10();
        let within: &[f64] = if decades < 2.5 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let each = (decades / 8.0).ceil().max(1.0) as i32;
        let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let ticks = powers
            .filter(|power| power % each == 0)
            .flat_map(|power| within.iter().map(move |step| step * 10f64.powi(power)))
            .filter(|tick| (low..=high).contains(tick))
            .map(|tick| (tick, label(tick)))
            .collect();
        Axis {
            log: true,
            low,
            high,
            ticks,
            title: title.to_owned(),
        }
    }

    /// From 0.
    pub fn linear(
        values: impl Iterator<Item = f64>,
        title: &str,
        label: impl Fn(f64) -> String,
    ) -> Axis {
        let (_, high) = bounds(values, (0.0, 1.0));
        let high = if high > 0.0 { high * 1.05 } else { 1.0 };
        let rough = high / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|times| times * power)
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let ticks = (0..=5)
            .map(|n| f64::from(n) * step)
            .filter(|tick| *tick <= high)
            .map(|tick| (tick, label(tick)))
            .collect();
        Axis {
            log: false,
            low: 0.0,
            high,
            ticks,
            title: title.to_owned(),
        }
    }

    pub fn with_ticks(mut self, ticks: Vec<(f64, String)>) -> Axis {
        self.ticks = ticks;
        let (low, high) = (self.low, self.high);
        self.ticks.retain(|(tick, _)| (low..=high).contains(tick));
        self
    }

    /// 0 to 1; values outside are at the edge.
    pub fn at(&self, value: f64) -> f64 {
        let place = if self.log {
            (value.max(f64::MIN_POSITIVE).ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.clamp(0.0, 1.0)
    }

    pub fn ticks(&self) -> &[(f64, String)] {
        &self.ticks
    }
}

/// A chart with an axis to the left and one below.
pub struct Chart {
    x: Axis,
    y: Axis,
    body: String,
}

impl Chart {
    pub fn new(x: Axis, y: Axis) -> Chart {
        Chart {
            x,
            y,
            body: String::new(),
        }
    }

    /// `class` gives colour and dashes, `title` is what is shown at the pointer.
    pub fn line(&mut self, points: &[(f64, f64)], class: &str, title: &str) {
        let mut path = String::new();
        for (n, (x, y)) in points.iter().enumerate() {
            let step = if n == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{step}{:.1} {:.1}", self.px(*x), self.py(*y));
        }
        if !path.is_empty() {
            let (class, title) = (escape(class), escape(title));
            let _ = write!(
                self.body,
                "<path class=\"line {class}\" d=\"{path}\"><title>{title}</title></path>"
            );
        }
    }

    pub fn dot(&mut self, (x, y): (f64, f64), class: &str, title: &str) {
        let _ = write!(
            self.body,
            "<circle class=\"dot {}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}</title></circle>",
            escape(class),
            self.px(x),
            self.py(y),
            escape(title)
        );
    }

    /// A line from top to bottom.
    pub fn divider(&mut self, x: f64) {
        let x = self.px(x);
        let _ = write!(
            self.body,
            "<line class=\"divider\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\"/>"
        );
    }

    pub fn render(&self, label: &str) -> String {
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(label)
        );
        for (tick, text) in self.x.ticks() {
            let x = self.px(*tick);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\"/>\
                 <text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 16.0,
                escape(text)
            );
        }
        for (tick, text) in self.y.ticks() {
            let y = self.py(*tick);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                escape(text)
            );
        }
        let _ = write!(
            out,
            "<text class=\"axis\" x=\"{LEFT}\" y=\"14\">{}</text>\
             <text class=\"axis\" x=\"{RIGHT}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            escape(&self.y.title),
            HEIGHT - 4.0,
            escape(&self.x.title)
        );
        out.push_str(&self.body);
        out.push_str("</svg>");
        out
    }

    fn px(&self, x: f64) -> f64 {
        LEFT + self.x.at(x) * (RIGHT - LEFT)
    }

    fn py(&self, y: f64) -> f64 {
        BOTTOM - self.y.at(y) * (BOTTOM - TOP)
    }
}

/// Of a chart, in units that the page scales.
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 508.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 252.0;

fn bounds(values: impl Iterator<Item = f64>, none: (f64, f64)) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite());
    let found = finite.fold(None, |found: Option<(f64, f64)>, value| match found {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    });
    found.unwrap_or(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_places_its_ends_within_and_labels_what_it_shows() {
        let axis = Axis::log([20.0, 4_000.0].into_iter(), "", |tick| format!("{tick}"));
        assert!(axis.at(20.0) > 0.0 && axis.at(4_000.0) < 1.0);
        assert!((axis.at(f64::sqrt(20.0 * 4_000.0)) - 0.5).abs() < 1e-9);
        let labels: Vec<&str> = axis.ticks().iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(labels, ["20", "50", "100", "200", "500", "1000", "2000"]);
        let axis = Axis::linear([3.0, 42.0].into_iter(), "", |tick| format!("{tick}"));
        let labels: Vec<&str> = axis.ticks().iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(labels, ["0", "10", "20", "30", "40"]);
    }

    #[test]
    fn nothing_and_nonsense_have_a_place_too() {
        for values in [
            vec![],
            vec![0.0],
            vec![5.0],
            vec![f64::NAN, f64::INFINITY, -1.0],
            vec![1e-300, 1e300],
        ] {
            for axis in [
                Axis::log(values.iter().copied(), "", |_| String::new()),
                Axis::linear(values.iter().copied(), "", |_| String::new()),
            ] {
                assert!(axis.ticks().len() < 50);
                for value in values.iter().chain(&[0.0, 1.0]).filter(|v| !v.is_nan()) {
                    assert!((0.0..=1.0).contains(&axis.at(*value)), "{axis:?} {value}");
                }
            }
        }
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(
            escape("<a href='x'>&\"\u{1b}"),
            "&lt;a href=&#39;x&#39;&gt;&amp;&quot; "
        );
        let mut chart = Chart::new(
            Axis::linear([1.0].into_iter(), "<x>", |_| "<t>".to_owned()),
            Axis::log([1.0].into_iter(), "<y>", |_| "<t>".to_owned()),
        );
        chart.line(&[(0.0, 1.0)], "<c>", "<l>");
        chart.dot((0.0, 1.0), "\"", "<d>");
        let svg = chart.render("<s>");
        for tag in ["<x>", "<t>", "<y>", "<c>", "<l>", "\"\"\"", "<d>", "<s>"] {
            assert!(!svg.contains(tag), "{tag} in {svg}");
        }
    }
}
