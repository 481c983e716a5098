//! Many groups at once.

use super::harness::*;
use crate::coordinator::*;
use crate::protocol::messages::*;
use crate::protocol::Str;
use std::time::Duration;

const GROUPS: usize = 10_000;

/// Groups of one member each, in their first generation and synced.
fn many(bench: &mut Bench) -> Vec<(Str, Str)> {
    let names = (0..GROUPS).map(|index| Str::from(format!("group-{index}")));
    let joins = names.map(|group_id| {
        let request = JoinGroupRequest {
            group_id: group_id.clone(),
            ..joining("")
        };
        (group_id, bench.call(3, GroupRequest::Join(request)))
    });
    let joins: Vec<_> = joins.collect();
    bench.pass(DELAY);
    let joined = joins
        .into_iter()
        .map(|(group, join)| (group, bench.joined(join).member_id));
    let members: Vec<(Str, Str)> = joined.collect();
    for (group, member) in &members {
        let request = SyncGroupRequest {
            group_id: group.clone(),
            ..syncing(member, 1, &[])
        };
        let sync = bench.call(5, GroupRequest::Sync(request));
        assert_eq!(bench.synced(sync).error_code, 0);
    }
    members
}

fn heartbeat(bench: &mut Bench, (group, member): &(Str, Str)) {
    let request = HeartbeatRequest {
        group_id: group.clone(),
        generation_id: 1,
        member_id: member.clone(),
        group_instance_id: None,
    };
    assert_eq!(bench.heartbeat_with(request).code(), 0);
}

#[test]
fn ten_thousand_groups_live_by_their_heartbeats_and_end_a_few_at_a_time() {
    let mut bench = Bench::new();
    let members = many(&mut bench);
    for _ in 0..5 {
        bench.pass(Duration::from_secs(3));
        for member in &members {
            heartbeat(&mut bench, member);
        }
        // A deadline for each group, however often it is put off.
        assert_eq!(bench.coordinator.deadlines.len(), GROUPS);
    }
    // All fall silent in the same moment.
    bench.holds = true;
    bench.now.mono = bench.now.mono + Duration::from_millis(SESSION_MS as u64);
    let mut ended = 0;
    while bench
        .coordinator
        .next_deadline()
        .is_some_and(|at| at <= bench.now.mono)
    {
        let effects = bench.coordinator.tick(bench.now);
        assert!(
            effects.appends.len() <= TICK_GROUPS_MAX,
            "a tick ends too many"
        );
        ended += effects.appends.len();
    }
    assert_eq!(ended, GROUPS);
    let mut states = bench.coordinator.groups().map(|group| group.state);
    assert!(states.all(|state| state == "Empty"));
    assert_eq!(bench.coordinator.deadlines.len(), 0);
}

#[test]
fn expired_groups_are_looked_for_a_few_at_a_time_and_all_are_found() {
    let mut bench = Bench::new();
    for index in 0..GROUPS {
        let commit = OffsetCommitRequest {
            group_id: Str::from(format!("group-{index}")),
            ..committing("", -1, 1)
        };
        bench.call(9, GroupRequest::CommitOffsets(commit));
    }
    assert_eq!(bench.coordinator.committed().count(), GROUPS);
    let mut restarted = bench.restarted();
    assert_eq!(restarted.coordinator.committed().count(), GROUPS);
    restarted.now = bench.now;
    restarted.now.wall_ms += bench.settings.offsets_retention_ms;
    restarted.pass(bench.settings.offsets_retention_check_interval);
    assert_eq!(restarted.coordinator.groups().count(), 0);
}
