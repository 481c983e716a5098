//! From the text of a file to a [`Workload`].
//!
//! `[case]` holds what all cases share, each `[[cases]]` what it has of its own, and `[quick]` what `--quick`
//! changes in every case. A table is laid over another key by key.

use super::{Case, Kind, LoadPoint, Workload};
use anyhow::{anyhow, bail, ensure, Context, Result};
use serde::Deserialize;
use toml::{Table, Value};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    letter: Option<String>,
    title: String,
    #[serde(default)]
    case: Table,
    #[serde(default)]
    cases: Vec<Table>,
    #[serde(default)]
    quick: Table,
}

/// Reads a workload; `origin` names the file in errors. With `quick`, as its `[quick]` table says.
pub fn parse(text: &str, origin: &str, quick: bool) -> Result<Workload> {
    read(text, quick).with_context(|| format!("workload {origin}"))
}

fn read(text: &str, quick: bool) -> Result<Workload> {
    let file: File = toml::from_str(text).map_err(|error| one_line(text, &error))?;
    let own = if file.cases.is_empty() {
        vec![Table::new()]
    } else {
        file.cases
    };
    let mut cases: Vec<Case> = Vec::new();
    for table in own {
        let mut whole = file.case.clone();
        lay_over(&mut whole, table);
        if quick {
            lay_over(&mut whole, file.quick.clone());
        }
        let case: Case = Value::Table(whole)
            .try_into()
            .map_err(|error| one_line("", &error))?;
        check(&case).with_context(|| format!("case {:?}", case.name))?;
        ensure!(
            cases.iter().all(|other| other.name != case.name),
            "two cases are named {:?}",
            case.name
        );
        cases.push(case);
    }
    let named = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    ensure!(
        !file.name.is_empty() && file.name.chars().all(named),
        "name {:?}: lower case letters, digits and dashes",
        file.name
    );
    Ok(Workload {
        name: file.name,
        letter: file.letter,
        title: file.title,
        cases,
    })
}

/// Instead of an extract of the file over several lines.
fn one_line(text: &str, error: &toml::de::Error) -> anyhow::Error {
    match error.span() {
        Some(span) => {
            let before = text.get(..span.start).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            anyhow!("line {line}: {}", error.message())
        }
        None => anyhow!("{}", error.to_string().trim().replace('\n', " ")),
    }
}

/// Lays the keys of `upper` over those of `lower`; tables within are laid over each other in the same way.
fn lay_over(lower: &mut Table, upper: Table) {
    for (key, value) in upper {
        match (lower.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => lay_over(below, above),
            (_, value) => {
                lower.insert(key, value);
            }
        }
    }
}

fn check(case: &Case) -> Result<()> {
    let topic = &case.topic;
    ensure!(
        (1..=1000).contains(&topic.topics) && (1..=100_000).contains(&topic.partitions),
        "topic: topics is 1 to 1000, partitions 1 to 100000"
    );
    let records = &case.records;
    ensure!(
        (16..=64 << 20).contains(&records.bytes),
        "records.bytes is 16 to 67108864"
    );
    ensure!(
        (0.0..=1.0).contains(&records.random),
        "records.random is 0 to 1"
    );
    ensure!(records.key_count > 0, "records.key_count is at least 1");
    let producers = &case.producers;
    ensure!(
        (1..=10_000).contains(&producers.count) && (1..=1000).contains(&producers.in_flight),
        "producers: count is 1 to 10000, in_flight 1 to 1000"
    );
    ensure!(
        producers.batch_bytes <= 64 << 20,
        "producers.batch_bytes is at most 67108864"
    );
    let consumers = &case.consumers;
    ensure!(
        consumers.sets <= 1000 && (1..=1000).contains(&consumers.per_set),
        "consumers: sets is at most 1000, per_set 1 to 1000"
    );
    ensure!(
        consumers.per_set <= topic.topics * topic.partitions,
        "consumers.per_set is more than there are partitions"
    );
    ensure!(
        consumers.fetch_bytes > 0,
        "consumers.fetch_bytes is at least 1"
    );
    let timing = &case.timing;
    ensure!(
        timing.measure_s > 0.0
            && timing.warmup_s >= 0.0
            && timing.settle_s >= 0.0
            && timing.measure_s + timing.warmup_s + timing.settle_s <= 3600.0,
        "timing: measure_s is above 0, warmup_s and settle_s at least 0, all together at most 3600"
    );
    ensure!(
        (1..=100).contains(&timing.repeats) && timing.bytes_max > 0,
        "timing: repeats is 1 to 100, bytes_max at least 1"
    );
    let lifecycle = &case.lifecycle;
    ensure!(
        case.kind != Kind::Lifecycle || (lifecycle.idle_s > 0.0 && lifecycle.idle_s <= 3600.0),
        "lifecycle.idle_s is above 0 and at most 3600"
    );
    // The client holds a place for each of these records.
    ensure!(
        u64::from(lifecycle.records) * u64::from(topic.topics * topic.partitions) <= 10_000_000
            && lifecycle.groups <= 100_000,
        "lifecycle: records of all partitions are at most 10000000, groups 100000"
    );
    ensure!(!case.loads.is_empty(), "loads: at least one is needed");
    for (n, load) in case.loads.iter().enumerate() {
        check_load(load, &case.loads[..n]).with_context(|| format!("load {:?}", load.name))?;
        ensure!(
            load.drain.is_none() || case.has_consumers(),
            "load {:?}: drain needs consumers",
            load.name
        );
    }
    Ok(())
}

fn check_load(load: &LoadPoint, before: &[LoadPoint]) -> Result<()> {
    ensure!(
        before.iter().all(|other| other.name != load.name),
        "the name is there twice"
    );
    match (load.saturate, load.rate, load.share) {
        (true, None, None) => ensure!(load.burst.is_none(), "burst needs a rate or a share"),
        (false, Some(rate), None) => ensure!(
            rate > 0.0 && rate <= 1e8,
            "rate is above 0 and at most 100000000"
        ),
        (false, None, Some(share)) => {
            ensure!(
                share > 0.0 && share <= 10.0,
                "share is above 0 and at most 10"
            );
            ensure!(
                before.iter().any(|other| other.saturate),
                "a share needs a load with saturate = true before it"
            );
        }
        _ => bail!("exactly one of saturate = true, rate and share is needed"),
    }
    if let Some(burst) = load.burst {
        ensure!(
            burst.on_ms > 0 && burst.off_ms > 0 && burst.on_ms + burst.off_ms <= 60_000,
            "burst: on_ms and off_ms are above 0, together at most 60000"
        );
    }
    if let Some(drain) = load.drain {
        ensure!(
            drain.backlog_s > 0.0 && drain.backlog_s <= 3600.0,
            "drain.backlog_s is above 0 and at most 3600"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_in_one_line_with_its_place() {
        const HEAD: &str = "name = \"w\"\ntitle = \"\"\n";
        for (text, said) in [
            ("[case", "line 3: "),
            ("[case]\nx = 1", "unknown field `x`"),
            (
                "[case]\ntopic = { partitions = -1 }",
                "in `topic.partitions`",
            ),
            ("[case]\nkind = \"lifecycle\"", "lifecycle.idle_s"),
            (
                "[case]\nkind = \"lifecycle\"\nlifecycle = { idle_s = inf }",
                "lifecycle.idle_s",
            ),
            ("[case]\nlifecycle = { records = 4294967295 }", "10000000"),
            ("[case]\nlifecycle = { groups = 4294967295 }", "100000"),
            ("[case]\ntiming = { measure_s = nan }", "measure_s"),
            ("[case]\nrecords = { random = nan }", "records.random"),
        ] {
            let error = format!(
                "{:#}",
                parse(&format!("{HEAD}{text}"), "w", false).unwrap_err()
            );
            assert!(error.contains(said), "{text}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
