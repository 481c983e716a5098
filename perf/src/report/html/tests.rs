use super::*;
use crate::report::sample::{empty, whole};
use crate::results::Results;

fn page_of(results: &Results) -> String {
    let page = page(&Summary::of(results));
    check(&page);
    page
}

/// That each tag is closed, in its turn, and each attribute quoted and named once.
fn check(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap();
    while let Some(start) = rest.find(['<', '>']) {
        assert!(
            rest[start..].starts_with('<'),
            "a bare > before {:.40}",
            &rest[start..]
        );
        rest = &rest[start + 1..];
        if let Some(closing) = rest.strip_prefix('/') {
            let end = closing.find('>').unwrap();
            assert_eq!(open.pop(), Some(&closing[..end]));
            rest = &closing[end + 1..];
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap();
        let name = &rest[..end];
        assert!(!name.is_empty(), "a bare < before {rest:.40}");
        rest = attributes(&rest[end..], name);
        if let Some(after) = rest.strip_prefix("/>") {
            rest = after;
            continue;
        }
        rest = rest.strip_prefix('>').unwrap();
        open.push(name);
        if name == "style" {
            rest = &rest[rest.find("</style>").unwrap()..];
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

fn attributes<'a>(mut rest: &'a str, tag: &str) -> &'a str {
    let mut names = Vec::new();
    while let Some(attribute) = rest.strip_prefix(' ') {
        let (name, value) = attribute.split_once("=\"").unwrap();
        let named = |c: char| c.is_ascii_alphanumeric() || c == '-';
        assert!(name.chars().all(named), "{tag}: {name:.40}");
        assert!(!names.contains(&name), "{tag}: {name} twice");
        names.push(name);
        let end = value.find('"').unwrap();
        assert!(!value[..end].contains('<'), "{tag}: {name}");
        rest = &value[end + 1..];
    }
    rest
}

#[test]
fn the_page_is_well_formed_and_needs_nothing_beside_it() {
    let page = page_of(&whole(2_500));
    for foreign in [
        "http:", "https:", "<script", "<link", "<img", "@import", "url(", "src=",
    ] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    for part in [
        "At a glance",
        "Latency by percentile, delivered: half of kafka",
        "Throughput against latency",
        "Over time, longest acknowledged: capacity",
        "Goals: ",
        "5.36x better",
        " of the floor",
        "no batches in its protocol",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf\""));
}

#[test]
fn hostile_names_are_text() {
    let bad = "<script>alert(1)</script>\"'&\u{1b}<b onload=\"x\">";
    let mut results = whole(300);
    results.machine.cpu = bad.to_owned();
    results.settings.memory_limit = bad.to_owned();
    for target in &mut results.settings.targets {
        target.description = bad.to_owned();
    }
    results.settings.targets[3].name = bad.to_owned();
    for turn in &mut results.measurements {
        if turn.key.target == "nats" {
            turn.key.target = bad.to_owned();
        }
        turn.letter = turn.letter.take().map(|letter| letter + bad);
        turn.title.push_str(bad);
        turn.key.workload.push_str(bad);
        turn.key.case.push_str(bad);
        turn.key.load.push_str(bad);
        turn.notes.push(bad.to_owned());
        if turn.missing.is_some() {
            turn.missing = Some(bad.to_owned());
        }
        for figure in &mut turn.figures {
            figure.name.push_str(bad);
            figure.unit.push_str(bad);
        }
    }
    let page = page_of(&results);
    assert!(!page.contains("<script") && !page.contains("<b onload"));
    assert!(page.contains("&lt;script&gt;"));
}

#[test]
fn nothing_measured_or_one_target_alone_is_a_page_too() {
    page_of(&empty(&[]));
    page_of(&empty(&["kafka"]));
    let mut one = whole(300);
    one.settings.targets.truncate(1);
    one.measurements
        .retain(|turn| turn.key.target == "highwater");
    let page = page_of(&one);
    assert!(!page.contains("At a glance") && !page.contains(" better"));
}

#[test]
fn a_ratio_is_said_the_right_way_round() {
    let ratio = |median: f64, pairs: &[f64]| Ratio {
        median,
        pairs: pairs.to_vec(),
    };
    let plain = |html: String| {
        let parts = html.split('<').map(|part| part.rsplit('>').next().unwrap());
        parts.collect::<String>().replace("&#39;", "'")
    };
    let twice = ratio(2.0, &[1.5, 2.0, 2.5]);
    let half = ratio(0.5, &[0.4, 0.5, 0.625]);
    let said = |ratio: &Ratio, better, floor| plain(super::said(ratio, better, floor));
    assert_eq!(
        said(&twice, Better::Lower, false),
        "2.00x better (1.50-2.50x)"
    );
    assert_eq!(
        said(&half, Better::Higher, false),
        "2.00x worse (1.60-2.50x)"
    );
    assert_eq!(
        said(&half, Better::Higher, true),
        "50 % of the floor (40-62 %)"
    );
    assert_eq!(
        said(&half, Better::Lower, true),
        "2.00x the floor's (1.60-2.50x)"
    );
    assert_eq!(said(&ratio(1.001, &[1.001]), Better::Lower, false), "1.00x");
    let crossing = super::said(&ratio(1.2, &[0.9, 1.2]), Better::Lower, false);
    assert!(crossing.contains("\"even\"") && crossing.contains("1.20x better"));
}
