//! `highwater log repair`: cuts damaged logs of a broker that does not run.

use super::render::{count, print, print_json};
use super::CliError;
use crate::runtime::Rt;
use crate::storage::repair::{Cut, RepairDir, RepairError, RepairPlan};
use crate::storage::PartitionName;
use clap::Args;
use serde_json::{json, Value};
use std::fmt::Write;
use std::path::PathBuf;

/// The arguments of `log repair`.
#[derive(Debug, Clone, Args)]
pub(super) struct RepairArgs {
    /// A data directory whose broker does not run.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Only this topic.
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// Only this partition of it.
    #[arg(long, value_name = "N", requires = "topic")]
    partition: Option<i32>,
    /// Cut each log at its first damaged batch: what follows it is lost.
    #[arg(long)]
    truncate: bool,
    /// Say what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What became of one partition's plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Nothing was wrong.
    Whole,
    /// It was done.
    Repaired,
    /// It was not asked for.
    Left,
    /// Nothing here can do it.
    BeyondRepair,
}

pub(super) async fn run(rt: &Rt, args: &RepairArgs) -> Result<(), CliError> {
    let dir = RepairDir::lock(rt, &args.dir).await.map_err(refused)?;
    let wanted = |name: &&PartitionName| {
        args.topic.as_ref().is_none_or(|topic| *topic == name.topic)
            && args
                .partition
                .is_none_or(|partition| partition == name.partition)
    };
    let names: Vec<&PartitionName> = dir.partitions().iter().filter(wanted).collect();
    if names.is_empty() {
        let sentence = format!("{} has no such partition", args.dir.display());
        return Err(CliError::Found(sentence));
    }
    let (mut rows, mut text, mut left) = (Vec::new(), String::new(), 0);
    for name in names {
        let plan = dir.look(name).await.map_err(refused)?;
        let outcome = if plan.is_empty() {
            Outcome::Whole
        } else if plan.beyond_repair.is_some() {
            Outcome::BeyondRepair
        } else if args.dry_run || (plan.cuts() && !args.truncate) {
            Outcome::Left
        } else {
            dir.apply(name, &plan).await.map_err(refused)?;
            Outcome::Repaired
        };
        left += usize::from(matches!(outcome, Outcome::Left | Outcome::BeyondRepair));
        rows.push(row(name, &plan, outcome));
        tell(&mut text, name, &plan, outcome);
    }
    match args.json {
        true => print_json(&Value::Array(rows))?,
        false => print(&text)?,
    }
    match (left, args.dry_run) {
        (0, _) => Ok(()),
        (n, true) => Err(CliError::Found(format!(
            "{} to repair; nothing was changed",
            count(n as u64, "partition is", "partitions are")
        ))),
        (n, false) => Err(CliError::Found(format!(
            "{} as it was; --truncate cuts a log at its first damaged batch",
            count(n as u64, "partition stays", "partitions stay")
        ))),
    }
}

fn refused(error: RepairError) -> CliError {
    CliError::Found(error.to_string())
}

fn tell(out: &mut String, name: &PartitionName, plan: &RepairPlan, outcome: Outcome) {
    let mut line = |text: String| {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{name}: {text}");
    };
    let did = match outcome {
        Outcome::Repaired => "was",
        _ => "would be",
    };
    if outcome == Outcome::Whole {
        line("no damage".to_owned());
    }
    if let Some(sentence) = &plan.beyond_repair {
        line(sentence.clone());
    }
    if let Some(cut) = &plan.cut {
        line(format!(
            "damaged in {}, byte {}: {}",
            cut.file.display(),
            cut.position,
            cut.detail
        ));
        line(format!(
            "{did} cut at offset {}; {}",
            cut.end_offset,
            loss(cut)
        ));
    }
    for (base, len) in &plan.trims {
        line(format!(
            "the segment at {base} {did} cut to its {len} bytes of batches; no record is lost"
        ));
    }
    for base in &plan.indexes {
        line(format!(
            "the indexes of the segment at {base} {did} rebuilt"
        ));
    }
}

fn loss(cut: &Cut) -> String {
    let lost = &cut.lost;
    let mut text = match lost.last_offset {
        Some(last) if last >= cut.end_offset => {
            format!("lost: offsets {} to {last} at least", cut.end_offset)
        }
        _ => format!("lost: offsets from {} on", cut.end_offset),
    };
    text += &format!(
        ", {} in {}, {} bytes",
        count(lost.records, "record", "records"),
        count(lost.batches, "readable batch", "readable batches"),
        lost.bytes
    );
    if let Some((from, to)) = lost.timestamps {
        text += &format!(", timestamps {from} to {to}");
    }
    text
}

fn row(name: &PartitionName, plan: &RepairPlan, outcome: Outcome) -> Value {
    let cut = plan.cut.as_ref().map(|cut| {
        json!({
            "file": cut.file.display().to_string(),
            "position": cut.position,
            "detail": cut.detail,
            "end_offset": cut.end_offset,
            "lost_bytes": cut.lost.bytes,
            "lost_batches": cut.lost.batches,
            "lost_records": cut.lost.records,
            "lost_last_offset": cut.lost.last_offset,
            "lost_timestamps": cut.lost.timestamps.map(|(from, to)| [from, to]),
        })
    });
    let trims = plan
        .trims
        .iter()
        .map(|(base, len)| json!({"base_offset": base, "bytes": len}));
    json!({
        "topic": name.topic,
        "partition": name.partition,
        "outcome": match outcome {
            Outcome::Whole => "whole",
            Outcome::Repaired => "repaired",
            Outcome::Left => "left",
            Outcome::BeyondRepair => "beyond_repair",
        },
        "cut": cut,
        "trimmed_segments": trims.collect::<Vec<_>>(),
        "rebuilt_indexes": plan.indexes,
        "beyond_repair": plan.beyond_repair,
    })
}
