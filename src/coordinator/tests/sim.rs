//! Many clients that join, sync, commit, leave, vanish and come again, over a log whose
//! appends are late or fail, a clock that jumps, and a coordinator that restarts.
//!
//! `HIGHWATER_SIM_SEEDS` is how many runs (default 60); `HIGHWATER_SIM_SEED` repeats one.

use super::client::{Client, Work};
use super::harness::{committing, subscription};
use crate::coordinator::group::Snapshot;
use crate::coordinator::records::Entry;
use crate::coordinator::{
    Append, Caller, Coordinator, Effects, GroupCall, GroupRequest, GroupResponse, GroupSettings,
    Now, OffsetsRecord, Replayed, Ticket,
};
use crate::protocol::messages::*;
use crate::protocol::{ErrorCode, Str};
use crate::runtime::sim::SimRng;
use crate::runtime::Mono;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use uuid::Uuid;

const GROUPS: [&str; 2] = ["one", "two"];

pub struct World {
    pub rng: SimRng,
    settings: GroupSettings,
    coordinator: Coordinator,
    now: Now,
    log: Vec<OffsetsRecord>,
    held: VecDeque<Append>,
    /// Every call without an answer, and which client waits for it.
    waiting: BTreeMap<Ticket, usize>,
    /// Calls that nobody waits for any more.
    gone: BTreeSet<Ticket>,
    next_ticket: u64,
    clients: Vec<Client>,
    generations: BTreeMap<Str, Generations>,
    /// Groups whose last record could not be appended.
    unrecorded: BTreeSet<Str>,
    /// Of ten appends, how many fail.
    fails_of_ten: u64,
    pub seen: Seen,
}

/// What a run came by, so that a test can tell that it tried what it says.
#[derive(Debug, Default)]
pub struct Seen {
    pub stable: usize,
    pub failed: usize,
    pub fenced: usize,
    pub restarts: usize,
    pub deleted: usize,
    pub skipped: usize,
    pub replays: usize,
}

/// What was told of a group's generations.
#[derive(Debug, Default)]
struct Generations {
    last: i32,
    leader: Str,
    /// What the leader sent in with each of its syncs.
    given: Vec<BTreeMap<Str, Bytes>>,
    /// Which of these the members got.
    taken: Option<usize>,
    /// It is of a time before a restart, and what its leader sent is not known.
    is_restored: bool,
}

impl World {
    pub fn new(seed: u64, clients: usize) -> World {
        let rng = SimRng::new(seed);
        let settings = GroupSettings {
            initial_rebalance_delay: Duration::from_secs(rng.below(4)),
            members_max: if rng.one_in(5) { 3 } else { 1_000 },
            offsets_retention_ms: 120_000,
            offsets_retention_check_interval: Duration::from_secs(30),
            ..Default::default()
        };
        let clients = (0..clients).map(|index| Client::new(&rng, index, &GROUPS));
        let clients = clients.collect();
        let mut world = World {
            coordinator: Coordinator::new(0, settings.clone()),
            settings,
            now: Now {
                mono: Mono(1),
                wall_ms: 1_000_000,
            },
            log: Vec::new(),
            held: VecDeque::new(),
            waiting: BTreeMap::new(),
            gone: BTreeSet::new(),
            next_ticket: 0,
            clients,
            generations: BTreeMap::new(),
            unrecorded: BTreeSet::new(),
            fails_of_ten: rng.below(3),
            seen: Seen::default(),
            rng,
        };
        let effects = world.coordinator.loaded(world.now);
        world.take(effects);
        world
    }

    /// Something happens.
    pub fn step(&mut self) {
        match self.rng.below(24) {
            0..=1 => self.pass(Duration::from_millis(self.rng.below(2_000))),
            2 => self.pass(Duration::from_millis(self.rng.below(15_000))),
            3 if self.rng.one_in(20) => self.pass(Duration::from_secs(self.rng.below(200))),
            3..=7 => self.land(),
            8 if self.rng.one_in(30) => self.restart(),
            9 if self.rng.one_in(10) => {
                let group = Str::from_static(GROUPS[self.rng.below(2) as usize]);
                self.call(None, 2, GroupRequest::DeleteGroup(group));
            }
            10 if self.rng.one_in(10) => {
                let effects = self.coordinator.topics_deleted(&["topic"], self.now);
                self.take(effects);
            }
            11 => {
                let group = Str::from_static(GROUPS[self.rng.below(2) as usize]);
                let mut commit = committing("", -1, self.rng.below(100) as i64);
                commit.group_id = group;
                self.call(None, 9, GroupRequest::CommitOffsets(commit));
            }
            _ => self.act(self.rng.below(self.clients.len() as u64) as usize, false),
        }
        self.check();
    }

    /// Nothing fails any more, every client does its work: soon all are in one generation.
    pub fn settle(&mut self) {
        self.fails_of_ten = 0;
        for client in &mut self.clients {
            client.wakes();
        }
        for _ in 0..900 {
            self.land_all();
            for index in 0..self.clients.len() {
                self.act(index, true);
            }
            self.land_all();
            self.pass(Duration::from_millis(500));
            self.check();
        }
        for group in GROUPS {
            let clients = self.clients.iter().filter(|client| client.group == group);
            let clients = clients.filter(|client| client.work != Work::Fenced);
            let clients: Vec<&Client> = clients.collect();
            let stable = clients.iter().filter(|client| client.work == Work::Stable);
            let stable: Vec<&&Client> = stable.collect();
            assert_eq!(
                stable.len(),
                clients.len().min(self.settings.members_max),
                "in {group}"
            );
            let generations = stable.iter().map(|client| client.generation);
            let generations: BTreeSet<i32> = generations.collect();
            assert!(generations.len() <= 1, "{generations:?} in {group}");
            let leaders = stable.iter().filter(|client| client.is_leader).count();
            assert!(leaders <= 1, "{leaders} leaders in {group}");
        }
        self.check_replay();
    }

    pub fn stop(&mut self) {
        let effects = self.coordinator.stop();
        self.take(effects);
        let left: Vec<_> = self
            .waiting
            .keys()
            .filter(|it| !self.gone.contains(it))
            .collect();
        assert!(left.is_empty(), "{left:?} got no answer");
    }

    fn act(&mut self, index: usize, is_eager: bool) {
        let Some((api_version, request)) = self.clients[index].act(&self.rng, is_eager) else {
            if let Some(ticket) = self.clients[index].gives_up.take() {
                self.gone.insert(ticket);
                self.coordinator.gone(ticket);
            }
            return;
        };
        if let GroupRequest::Sync(sync) = &request {
            self.note_sync(sync);
        }
        self.call(Some(index), api_version, request);
    }

    fn call(&mut self, client: Option<usize>, api_version: i16, body: GroupRequest) {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.waiting.insert(ticket, client.unwrap_or(usize::MAX));
        let call = GroupCall {
            api_version,
            caller: Caller {
                client_id: "client".into(),
                client_host: "/127.0.0.1".to_owned(),
            },
            fresh: Uuid::from_u128(u128::from(self.next_ticket)),
            body,
        };
        if let Some(index) = client {
            self.clients[index].waits_for = Some(ticket);
        }
        let effects = self.coordinator.call(ticket, call, self.now);
        self.take(effects);
    }

    fn take(&mut self, effects: Effects) {
        self.held.extend(effects.appends);
        for (ticket, response) in effects.answers {
            let client = self.waiting.remove(&ticket).expect("a call that waits");
            assert!(!self.gone.contains(&ticket), "{ticket:?} is gone");
            if let GroupResponse::GroupDeleted(ErrorCode::None) = response {
                self.seen.deleted += 1;
            }
            if client != usize::MAX && self.clients[client].waits_for == Some(ticket) {
                self.clients[client].waits_for = None;
                self.answered(client, response);
            }
        }
    }

    fn answered(&mut self, client: usize, response: GroupResponse) {
        let group = self.clients[client].group.clone();
        match &response {
            GroupResponse::Join(joined) if joined.error_code == 0 => {
                let generations = self.generations.entry(group).or_default();
                let own = joined.generation_id;
                assert!(
                    own >= generations.last,
                    "generation {own} after {}",
                    generations.last
                );
                if own > generations.last {
                    *generations = Generations {
                        last: own,
                        leader: joined.leader.clone(),
                        ..Default::default()
                    };
                }
                // A static leader may have another id in the same generation.
                let client = &self.clients[client];
                let is_same = generations.leader == joined.leader;
                assert!(is_same || client.instance.is_some() || joined.leader.contains("instance"));
                generations.leader = joined.leader.clone();
                self.seen.skipped += usize::from(joined.skip_assignment);
            }
            GroupResponse::Sync(synced) if synced.error_code == 0 => {
                let own = self.clients[client].name();
                let generations = self.generations.get_mut(&group).expect("a generation");
                let is_last = self.clients[client].generation == generations.last;
                if is_last && !generations.is_restored {
                    let is_given = |given: &BTreeMap<Str, Bytes>| {
                        given.get(&own).cloned().unwrap_or_default() == synced.assignment
                    };
                    let of = generations.given.iter().position(is_given);
                    let of = of.expect("an assignment that the leader sent");
                    if !synced.assignment.is_empty() {
                        assert_eq!(*generations.taken.get_or_insert(of), of, "of two syncs");
                    }
                    self.seen.stable += 1;
                }
            }
            GroupResponse::Join(JoinGroupResponse { error_code, .. })
            | GroupResponse::Sync(SyncGroupResponse { error_code, .. })
            | GroupResponse::Heartbeat(HeartbeatResponse { error_code, .. }) => {
                let fenced = ErrorCode::FencedInstanceId.code();
                self.seen.fenced += usize::from(*error_code == fenced);
            }
            _ => {}
        }
        self.clients[client].answered(response);
    }

    fn note_sync(&mut self, sync: &SyncGroupRequest) {
        let Some(generations) = self.generations.get_mut(&sync.group_id) else {
            return;
        };
        if generations.last == sync.generation_id && !sync.assignments.is_empty() {
            let given = sync.assignments.iter();
            // An assignment says whom it is for.
            let given = given.map(|it| (name_in(&it.assignment), it.assignment.clone()));
            generations.given.push(given.collect());
        }
    }

    fn land(&mut self) {
        let Some(append) = self.held.pop_front() else {
            return;
        };
        let groups = append.records.iter().filter_map(|record| {
            let entry = Entry::decode(record.key.clone(), record.value.clone()).unwrap();
            match entry {
                Entry::Group { group, .. } => Some(group),
                _ => None,
            }
        });
        let groups: Vec<Str> = groups.collect();
        let fails = self.rng.below(10) < self.fails_of_ten;
        let result = match fails {
            true => {
                self.seen.failed += 1;
                self.unrecorded.extend(groups);
                Err(ErrorCode::CoordinatorNotAvailable)
            }
            false => {
                for group in &groups {
                    self.unrecorded.remove(group);
                }
                self.log.extend(append.records);
                Ok(())
            }
        };
        let effects = self.coordinator.appended(append.id, result, self.now);
        self.take(effects);
        self.forget_deleted();
    }

    fn land_all(&mut self) {
        while !self.held.is_empty() {
            self.land();
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now.mono + time;
        loop {
            let next = self.coordinator.next_deadline().filter(|at| *at <= end);
            let at = next.unwrap_or(end).max(self.now.mono);
            self.now.wall_ms += (at - self.now.mono).as_millis() as i64;
            self.now.mono = at;
            if next.is_none() {
                return;
            }
            let effects = self.coordinator.tick(self.now);
            self.take(effects);
        }
    }

    fn restart(&mut self) {
        self.seen.restarts += 1;
        self.stop();
        // What was under way may be in the log or not, but not out of order.
        let kept = self.rng.below(self.held.len() as u64 + 1) as usize;
        for append in self.held.drain(..).take(kept) {
            self.log.extend(append.records);
        }
        self.waiting.clear();
        self.gone.clear();
        self.unrecorded.clear();
        for client in &mut self.clients {
            client.coordinator_restarted();
        }
        self.coordinator = replayed(&self.settings, &self.log);
        // What was told of a generation that is not in the log is told anew.
        for (id, group) in &self.coordinator.groups {
            let group = group.snapshot();
            let known = self.generations.entry(id.clone()).or_default();
            if known.last != group.generation {
                *known = Generations {
                    last: group.generation,
                    leader: group.leader.unwrap_or_default(),
                    is_restored: true,
                    ..Default::default()
                };
            }
        }
        let effects = self.coordinator.loaded(self.now);
        self.take(effects);
    }

    fn check(&mut self) {
        for group in self.coordinator.groups.values() {
            group.check(&self.coordinator.deadlines);
        }
        let groups = &self.coordinator.groups;
        assert!(self.coordinator.deadlines.len() <= groups.len());
        let awaited = self.waiting.keys().filter(|it| !self.gone.contains(it));
        let known = self.coordinator.outbox.awaited();
        assert_eq!(known, awaited.count(), "a call is lost");
        self.forget_deleted();
        if self.held.is_empty() && self.rng.one_in(16) {
            self.check_replay();
        }
    }

    /// A group that comes again begins with its first generation.
    fn forget_deleted(&mut self) {
        let groups = &self.coordinator.groups;
        self.generations.retain(|id, _| groups.contains_key(id));
    }

    /// Nothing is under way: the log says what the coordinator knows.
    fn check_replay(&mut self) {
        let replayed = replayed(&self.settings, &self.log);
        let snapshots = |coordinator: &Coordinator| -> BTreeMap<Str, Snapshot> {
            let groups = coordinator.groups.iter();
            groups
                .map(|(id, group)| (id.clone(), group.snapshot()))
                .collect()
        };
        let (ours, logged) = (snapshots(&self.coordinator), snapshots(&replayed));
        for (id, ours) in &ours {
            let is_at_rest = ["Stable", "Empty"].contains(&ours.state);
            let is_new = ours.generation == 0 && ours.offsets.is_empty();
            let logged = logged.get(id);
            let offsets = logged
                .map(|logged| logged.offsets.clone())
                .unwrap_or_default();
            assert_eq!(ours.offsets, offsets, "the offsets of {id}");
            if is_at_rest && !is_new && !self.unrecorded.contains(id) {
                assert_eq!(Some(ours), logged, "{id}");
                self.seen.replays += 1;
            }
        }
        let is_ours = |id: &&Str| !ours.contains_key(*id);
        let stray: Vec<_> = logged.keys().filter(is_ours).collect();
        assert!(stray.is_empty(), "{stray:?} are in the log only");
    }
}

fn replayed(settings: &GroupSettings, log: &[OffsetsRecord]) -> Coordinator {
    let mut coordinator = Coordinator::new(0, settings.clone());
    for (offset, record) in log.iter().enumerate() {
        let entry = Entry::decode(record.key.clone(), record.value.clone()).unwrap();
        let record = Replayed::Record {
            offset: offset as i64,
            transaction: None,
            entry,
        };
        coordinator.replay(record).unwrap();
    }
    coordinator
}

/// Whom an assignment is for: what stands before the colon.
fn name_in(assignment: &Bytes) -> Str {
    let text = std::str::from_utf8(assignment).unwrap();
    Str::from(text.split(':').next().unwrap().to_owned())
}

#[test]
fn clients_that_do_anything_see_one_leader_one_generation_and_their_own_assignment() {
    let number = |name: &str| {
        let text = std::env::var(name).ok();
        text.map(|text| text.parse::<u64>().expect("a number"))
    };
    let one = number("HIGHWATER_SIM_SEED");
    let count = number("HIGHWATER_SIM_SEEDS").unwrap_or(SEEDS);
    let seeds = one.map_or(0..count, |seed| seed..seed + 1);
    let mut all = Seen::default();
    for seed in seeds {
        let run = std::panic::AssertUnwindSafe(|| {
            let mut world = World::new(seed, 2 + (seed % 6) as usize);
            for _ in 0..STEPS {
                world.step();
            }
            world.settle();
            world.stop();
            world.seen
        });
        match std::panic::catch_unwind(run) {
            Ok(seen) => all.add(&seen),
            Err(panic) => {
                eprintln!("repeat with HIGHWATER_SIM_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    if one.is_none() {
        let least = [
            all.stable,
            all.failed,
            all.fenced,
            all.restarts,
            all.deleted,
            all.skipped,
            all.replays,
        ];
        assert!(
            least.iter().all(|seen| *seen > 0),
            "not all was tried: {all:?}"
        );
    }
}

#[test]
fn fifty_members_settle() {
    let mut world = World::new(1, 50);
    for _ in 0..2_000 {
        world.step();
    }
    world.settle();
    world.stop();
}

impl Seen {
    fn add(&mut self, other: &Seen) {
        self.stable += other.stable;
        self.failed += other.failed;
        self.fenced += other.fenced;
        self.restarts += other.restarts;
        self.deleted += other.deleted;
        self.skipped += other.skipped;
        self.replays += other.replays;
    }
}

const SEEDS: u64 = 60;
const STEPS: usize = 400;

pub fn metadata(name: &str) -> Bytes {
    subscription(&["topic", name])
}
