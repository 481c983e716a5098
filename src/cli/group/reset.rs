//! `highwater group reset-offsets`: puts a group's committed offsets elsewhere.
//!
//! Only shown without `--execute`. A group with members is refused: they would go on from where they are, and commit that.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{json, Value};

use super::described;
use crate::cli::place::Place;
use crate::cli::remote::{merged, offsets, partitions, topic_partitions, RemoteArgs};
use crate::cli::render::{count, print, print_json, Table};
use crate::cli::CliError;
use crate::client::{
    Cluster, CommittedOffset, GroupClient, Membership, OffsetQuery, PartitionKey, EARLIEST, LATEST,
};
use crate::runtime::Rt;

#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct ResetArgs {
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
    /// The group.
    #[arg(value_name = "GROUP")]
    group: String,
    /// The topics, each with all of its partitions or with those that are named.
    #[arg(value_name = "TOPIC[:PARTITION,...]", value_parser = topic_partitions, required_unless_present = "all_topics")]
    topics: Vec<(String, Option<Vec<i32>>)>,
    /// Every partition for which the group has committed an offset.
    #[arg(long, conflicts_with = "topics")]
    all_topics: bool,
    /// The new place: earliest, latest, an offset, -N for the last N, or a time (2026-11-30T18:00:00Z, -2h, @MS).
    #[arg(
        long,
        value_name = "PLACE",
        allow_hyphen_values = true,
        required_unless_present = "shift"
    )]
    to: Option<String>,
    /// Forwards, or with a negative number back, by so many offsets.
    #[arg(
        long,
        value_name = "N",
        allow_hyphen_values = true,
        conflicts_with = "to"
    )]
    shift: Option<i64>,
    /// Do it.
    #[arg(long)]
    execute: bool,
}

/// What a partition's offset becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    To(Place),
    Shift(i64),
}

pub(super) async fn reset(rt: &Rt, cluster: &Cluster, args: &ResetArgs) -> Result<(), CliError> {
    let to = match (&args.to, args.shift) {
        (Some(to), _) => Move::To(Place::parse(to, rt.wall_clock_ms()).map_err(CliError::Usage)?),
        (None, shift) => Move::Shift(shift.unwrap_or(0)),
    };
    let group = GroupClient::new(cluster.clone(), &args.group, args.remote.timeout());
    if let Some(described) = described(&group).await? {
        if !described.members.is_empty() || described.group_state != "Empty" {
            return Err(CliError::Found(format!(
                "group {} is active ({}, {}): stop its consumers, then reset its offsets",
                args.group,
                described.group_state,
                count(described.members.len() as u64, "member", "members")
            )));
        }
    }
    let committed = group.committed(None).await?;
    let keys = partitions(cluster, &select(args, &committed)).await?;
    let rows = plan(cluster, args, &keys, &committed, to).await?;
    if args.execute && !rows.is_empty() {
        let new = rows.iter().map(|row| (row.key.clone(), row.new)).collect();
        group.commit(&Membership::none(), &new).await?;
    }
    tell(args, &rows)
}

/// The partitions that the command line names.
fn select(
    args: &ResetArgs,
    committed: &BTreeMap<PartitionKey, CommittedOffset>,
) -> BTreeMap<String, Option<Vec<i32>>> {
    match args.all_topics {
        true => {
            let of_key = |key: &PartitionKey| (key.0.to_string(), Some(vec![key.1]));
            merged(&committed.keys().map(of_key).collect::<Vec<_>>())
        }
        false => merged(&args.topics),
    }
}

/// One partition's move.
struct Row {
    key: PartitionKey,
    current: Option<i64>,
    new: i64,
    end: i64,
}

async fn plan(
    cluster: &Cluster,
    args: &ResetArgs,
    keys: &[PartitionKey],
    committed: &BTreeMap<PartitionKey, CommittedOffset>,
    to: Move,
) -> Result<Vec<Row>, CliError> {
    let ask = |mark: i64| {
        keys.iter()
            .map(|key| (key.clone(), mark))
            .collect::<Vec<OffsetQuery>>()
    };
    let patience = args.remote.timeout();
    let first = offsets(cluster, &ask(EARLIEST), false, patience).await?;
    let last = offsets(cluster, &ask(LATEST), false, patience).await?;
    let at_time = match to {
        Move::To(Place::Time(ms)) => offsets(cluster, &ask(ms), false, patience).await?,
        _ => BTreeMap::new(),
    };
    let row = |key: &PartitionKey| {
        let current = committed.get(key).map(|committed| committed.offset);
        let (first, last) = (first[key], last[key]);
        let new = moved(to, current, first, last, at_time.get(key).copied()).ok_or_else(|| {
            CliError::Found(format!(
                "group {} has committed nothing for {} partition {}, so there is nothing to shift; use --to",
                args.group, key.0, key.1
            ))
        })?;
        Ok(Row {
            key: key.clone(),
            current,
            new,
            end: last,
        })
    };
    keys.iter().map(row).collect()
}

/// The new offset, within the log. None for a shift from nowhere.
fn moved(
    to: Move,
    current: Option<i64>,
    first: i64,
    last: i64,
    at_time: Option<i64>,
) -> Option<i64> {
    let wanted = match to {
        Move::To(place) => place.offset(first, last, at_time),
        Move::Shift(by) => current?.saturating_add(by),
    };
    Some(wanted.clamp(first, last.max(first)))
}

fn tell(args: &ResetArgs, rows: &[Row]) -> Result<(), CliError> {
    if args.remote.json {
        let row = |row: &Row| {
            json!({
                "topic": row.key.0.as_str(),
                "partition": row.key.1,
                "current_offset": row.current,
                "new_offset": row.new,
                "end_offset": row.end,
            })
        };
        print_json(&json!({
            "group": args.group,
            "executed": args.execute,
            "partitions": rows.iter().map(row).collect::<Vec<Value>>(),
        }))?;
    } else {
        let mut table = Table::new(["TOPIC", "PARTITION", "CURRENT", "NEW", "END"]);
        for row in rows {
            table.row([
                row.key.0.to_string(),
                row.key.1.to_string(),
                row.current
                    .map_or_else(String::new, |current| current.to_string()),
                row.new.to_string(),
                row.end.to_string(),
            ]);
        }
        print(&table.to_string())?;
    }
    if !args.execute {
        eprintln!("nothing was changed; add --execute to do it");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_move_within_the_log() {
        let cases = [
            (Move::To(Place::Beginning), Some(7), Some(5)),
            (Move::To(Place::End), None, Some(9)),
            (Move::To(Place::Offset(6)), None, Some(6)),
            (Move::To(Place::Offset(99)), None, Some(9)),
            (Move::To(Place::Offset(0)), None, Some(5)),
            (Move::To(Place::Last(2)), None, Some(7)),
            (Move::To(Place::Time(1)), None, Some(8)),
            (Move::Shift(1), Some(7), Some(8)),
            (Move::Shift(-1), Some(7), Some(6)),
            (Move::Shift(-99), Some(7), Some(5)),
            (Move::Shift(i64::MAX), Some(7), Some(9)),
            (Move::Shift(1), None, None),
        ];
        for (to, current, expected) in cases {
            assert_eq!(moved(to, current, 5, 9, Some(8)), expected, "{to:?}");
        }
        assert_eq!(
            moved(Move::To(Place::Time(1)), None, 5, 9, Some(-1)),
            Some(9)
        );
    }
}
