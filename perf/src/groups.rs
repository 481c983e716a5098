//! Groups: how long a rebalance takes when a member comes and when one goes, and how many
//! heartbeats a broker answers.
//!
//! A real group's rebalance begins when its members learn of it, with their next heartbeat:
//! `--heartbeat-ms` is theirs, so what the broker takes is what is above it.

use crate::measure::{Recorder, PERCENTILES};
use crate::report;
use crate::wire;
use anyhow::{bail, ensure, Context, Result};
use bytes::Bytes;
use clap::Args;
use highwater::protocol::messages::*;
use highwater::protocol::{ErrorCode, Str};
use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct GroupsArgs {
    /// The broker's address.
    #[arg(long, default_value = "127.0.0.1:9092")]
    broker: String,
    /// Members of the group that rebalances.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    members: u32,
    /// How often each of them beats, milliseconds.
    #[arg(long, default_value_t = 20)]
    heartbeat_ms: u64,
    /// Times that a member comes and goes.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Measures heartbeats instead: as fast as they are answered, from `--connections`.
    #[arg(long)]
    heartbeats: bool,
    /// Groups of one member each, for `--heartbeats`; best on a broker with
    /// group.initial.rebalance.delay.ms=0.
    #[arg(long, default_value_t = 1000)]
    groups: u32,
    /// Connections that beat, for `--heartbeats`.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// How long they beat, seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

/// No rebalance takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn run(args: &GroupsArgs) -> Result<()> {
    ready(&args.broker)?;
    match args.heartbeats {
        true => heartbeats(args),
        false => rebalances(args),
    }
}

/// Waits until groups have a coordinator.
pub fn ready(broker: &str) -> Result<()> {
    let mut socket = wire::connect(broker)?;
    let request = FindCoordinatorRequest {
        coordinator_keys: vec!["any".into()],
        ..Default::default()
    };
    let start = Instant::now();
    loop {
        let found: FindCoordinatorResponse = wire::call(&mut socket, 4, &request)?;
        let listed = list(&mut socket)?;
        let coordinator = found
            .coordinators
            .first()
            .context("no coordinator is told")?;
        let codes = [coordinator.error_code, listed.error_code];
        if codes == [0, 0] {
            return Ok(());
        }
        ensure!(start.elapsed() < PATIENCE, "no coordinator: {codes:?}");
        sleep(Duration::from_millis(5));
    }
}

fn list(socket: &mut TcpStream) -> Result<ListGroupsResponse> {
    wire::call(socket, 3, &ListGroupsRequest::default())
}

/// Commits an offset in each of so many groups.
pub fn commit(broker: &str, topic: &str, groups: usize) -> Result<()> {
    let mut socket = wire::connect(broker)?;
    for n in 0..groups {
        let request = OffsetCommitRequest {
            group_id: Str::from(format!("perf-group-{n}")),
            topics: vec![OffsetCommitRequestTopic {
                name: Str::from(topic.to_string()),
                partitions: vec![OffsetCommitRequestPartition::default()],
            }],
            ..Default::default()
        };
        let answer: OffsetCommitResponse = wire::call(&mut socket, 8, &request)?;
        let mut partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
        let committed = partitions.next().context("the commit's answer is empty")?;
        check(committed.error_code)?;
    }
    Ok(())
}

/// How many groups the broker lists.
pub fn count(broker: &str) -> Result<usize> {
    let listed = list(&mut wire::connect(broker)?)?;
    check(listed.error_code)?;
    Ok(listed.groups.len())
}

fn check(code: i16) -> Result<()> {
    if code != 0 {
        bail!("the broker answered error {code}");
    }
    Ok(())
}

struct Member {
    socket: TcpStream,
    group: Str,
    id: Str,
    generation: i32,
}

impl Member {
    fn new(broker: &str, group: &str) -> Result<Member> {
        Ok(Member {
            socket: wire::connect(broker)?,
            group: Str::from(group.to_string()),
            id: Str::default(),
            generation: -1,
        })
    }

    /// Joins and syncs until it is in a generation that stands.
    fn settle(&mut self) -> Result<()> {
        loop {
            let request = JoinGroupRequest {
                group_id: self.group.clone(),
                session_timeout_ms: 600_000,
                rebalance_timeout_ms: 60_000,
                member_id: self.id.clone(),
                protocol_type: "consumer".into(),
                protocols: vec![JoinGroupRequestProtocol {
                    name: "range".into(),
                    metadata: Bytes::from_static(&[0; 100]),
                }],
                ..Default::default()
            };
            let joined: JoinGroupResponse = wire::call(&mut self.socket, 9, &request)?;
            self.id = joined.member_id;
            if joined.error_code == ErrorCode::MemberIdRequired.code() {
                continue;
            }
            check(joined.error_code).context("JoinGroup")?;
            self.generation = joined.generation_id;
            let members = joined.members.into_iter();
            let request = SyncGroupRequest {
                group_id: self.group.clone(),
                generation_id: self.generation,
                member_id: self.id.clone(),
                protocol_type: joined.protocol_type,
                protocol_name: joined.protocol_name,
                assignments: members
                    .map(|member| SyncGroupRequestAssignment {
                        member_id: member.member_id,
                        assignment: Bytes::from_static(&[0; 100]),
                    })
                    .collect(),
                ..Default::default()
            };
            let synced: SyncGroupResponse = wire::call(&mut self.socket, 5, &request)?;
            if synced.error_code == ErrorCode::RebalanceInProgress.code() {
                continue;
            }
            return check(synced.error_code).context("SyncGroup");
        }
    }

    fn heartbeat(&self) -> HeartbeatRequest {
        HeartbeatRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            ..Default::default()
        }
    }

    /// True if the generation stands.
    fn beat(&mut self) -> Result<bool> {
        let request = self.heartbeat();
        let answer: HeartbeatResponse = wire::call(&mut self.socket, HEARTBEAT_VERSION, &request)?;
        if answer.error_code == ErrorCode::RebalanceInProgress.code() {
            return Ok(false);
        }
        check(answer.error_code).context("Heartbeat")?;
        Ok(true)
    }

    fn leave(&mut self) -> Result<()> {
        let request = LeaveGroupRequest {
            group_id: self.group.clone(),
            members: vec![MemberIdentity {
                member_id: self.id.clone(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let answer: LeaveGroupResponse = wire::call(&mut self.socket, 4, &request)?;
        check(answer.error_code).context("LeaveGroup")
    }

    /// Beats until it is told to end, and says so whenever it has settled anew.
    fn live(
        mut self,
        every: Duration,
        settled: &Sender<Settled>,
        end: &Receiver<()>,
    ) -> Result<()> {
        self.settle()?;
        loop {
            // Nobody listens any more when all is measured.
            let _ = settled.send((self.generation, Instant::now()));
            while self.beat()? {
                if end.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                    return self.leave();
                }
            }
            self.settle()?;
        }
    }
}

/// The generation that a member has settled in, and when.
type Settled = (i32, Instant);

/// Waits until so many members have settled in one generation: when the last one did.
fn all_settled(settled: &Receiver<Settled>, members: u32) -> Result<Instant> {
    let (mut newest, mut there) = (0, 0);
    loop {
        let (generation, at) = settled
            .recv_timeout(PATIENCE)
            .context("the group does not settle")?;
        if generation > newest {
            (newest, there) = (generation, 0);
        }
        there += u32::from(generation == newest);
        if there == members {
            return Ok(at);
        }
    }
}

fn rebalances(args: &GroupsArgs) -> Result<()> {
    let group = format!("perf-groups-{}", std::process::id());
    let every = Duration::from_millis(args.heartbeat_ms);
    let (tell, settled) = channel();
    scope(|threads| {
        let begin = |tell: Sender<Settled>| {
            let (end, ends) = channel::<()>();
            let member = Member::new(&args.broker, &group)?;
            let thread = threads.spawn(move || member.live(every, &tell, &ends));
            Ok::<_, anyhow::Error>((end, thread))
        };
        let start = Instant::now();
        let first: Result<Vec<_>> = (0..args.members).map(|_| begin(tell.clone())).collect();
        let first = first?;
        let formed = all_settled(&settled, args.members)?;
        println!(
            "a group of {} forms in {:.0} ms; each member beats every {} ms",
            args.members,
            ms(formed - start),
            args.heartbeat_ms
        );
        for _ in 0..args.rounds {
            let start = Instant::now();
            let (end, thread) = begin(tell.clone())?;
            let came = all_settled(&settled, args.members + 1)? - start;
            let start = Instant::now();
            drop(end);
            let gone = all_settled(&settled, args.members)? - start;
            joined(thread)?;
            println!("one comes: {:.1} ms, goes: {:.1} ms", ms(came), ms(gone));
        }
        drop(settled);
        let (ends, threads): (Vec<_>, Vec<_>) = first.into_iter().unzip();
        drop(ends);
        threads.into_iter().try_for_each(joined)
    })
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn heartbeats(args: &GroupsArgs) -> Result<()> {
    let mut all = Recorder::default();
    let parts: Result<Vec<_>> = scope(|threads| {
        let beats: Vec<_> = (0..args.connections)
            .map(|first| threads.spawn(move || beat_all(args, first)))
            .collect();
        beats.into_iter().map(joined).collect()
    });
    for part in parts? {
        all.merge(&part)?;
    }
    println!(
        "{} groups of one member, {} connections: {:.0} heartbeats/s",
        args.groups,
        args.connections,
        all.samples() as f64 / args.seconds as f64
    );
    report::head();
    let values = PERCENTILES.map(|p| all.percentile_us(p));
    report::row("microseconds", values);
    Ok(())
}

/// Beats for each group of one connection in turn, as fast as it is answered.
fn beat_all(args: &GroupsArgs, first: u32) -> Result<Recorder> {
    let mut frames = Vec::new();
    let mut member = Member::new(&args.broker, "")?;
    for n in (first..args.groups.max(args.connections)).step_by(args.connections as usize) {
        member.group = Str::from(format!("perf-heartbeat-{}-{n}", std::process::id()));
        member.id = Str::default();
        member.settle()?;
        frames.push(wire::frame(HEARTBEAT_VERSION, &member.heartbeat())?);
    }
    let mut times = Recorder::default();
    let begin = Instant::now();
    let end = begin + Duration::from_secs(args.seconds);
    for frame in frames.iter().cycle() {
        let sent = Instant::now();
        if sent > end {
            break;
        }
        member.socket.write_all(frame)?;
        let frame = wire::read_frame(&mut member.socket)?;
        let answer: HeartbeatResponse = wire::decode(frame, HEARTBEAT_VERSION)?;
        check(answer.error_code)?;
        times.record(sent - begin, sent.elapsed());
    }
    Ok(times)
}

const HEARTBEAT_VERSION: i16 = 4;

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
