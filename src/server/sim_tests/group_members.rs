//! Members of groups over several shards, whose number changes with each life, under power
//! cuts: each gets its own assignment, and a generation that was assigned is never forgotten.

use super::*;

/// What members were told.
#[derive(Default)]
struct Told {
    /// The newest generation whose assignments were answered, by group.
    newest: RefCell<BTreeMap<usize, i32>>,
    assignments: Cell<u64>,
}

impl Told {
    fn generation(&self, group: usize, generation: i32) {
        let mut newest = self.newest.borrow_mut();
        let newest = newest.entry(group).or_insert(0);
        assert!(generation >= *newest, "{generation}, but {newest} was told");
        *newest = generation;
    }
}

#[test]
fn given_power_cuts_when_members_come_and_go_then_each_gets_its_own_and_generations_go_on() {
    let mut assignments = 0;
    for seed in seeds() {
        assignments += lives(&Story::new(seed));
    }
    println!("{assignments} assignments");
    if std::env::var_os(SEED_VARIABLE).is_none() {
        assert!(assignments > 20 * SEEDS, "{assignments} assignments");
    }
}

#[test]
fn given_flushes_that_do_nothing_then_a_forgotten_generation_is_noticed() {
    let noticed = (0..SEEDS).any(|seed| {
        let run = std::panic::catch_unwind(move || {
            let story = Story::new(seed);
            story.broker.disk().disable_sync(SyncSite::SegmentFlush);
            lives(&story);
        });
        run.is_err()
    });
    assert!(noticed);
}

/// How many assignments were answered.
fn lives(story: &Story) -> u64 {
    let told: Rc<Told> = Rc::default();
    for _ in 0..3 {
        let after = 200 + story.world.random_below(1_000);
        let disk = story.broker.disk();
        disk.cut_power_after_ops(after, PowerCut::Mixed);
        if let Some(running) = story.boot() {
            let (rt, clients) = (story.broker.rt(), story.client.rt());
            // Longer than the initial delay of a rebalance.
            let life = 4_000 + story.world.random_below(4_000);
            story.world.block_on_until_crash(&rt, async {
                for n in 0..GROUPS * MEMBERS {
                    let (told, rt) = (told.clone(), clients.clone());
                    clients.spawn(Queue::Latency, async move {
                        // An error is the power cut.
                        let _ = member(&rt, running.addr, n % GROUPS, &told).await;
                    });
                }
                rt.sleep(Duration::from_millis(life)).await;
            });
        }
        if story.broker.is_up() {
            story.broker.crash();
        }
        story.broker.restart();
    }
    let running = story.boot().expect("no power cut is ordered");
    let rt = story.broker.rt();
    story.world.block_on(&rt, async {
        let told = running.stop.send(());
        assert!(told.is_ok(), "it waits for the stop");
        let ended = running.ended.await.expect("the control executor ends");
        ended.expect("a clean stop");
    });
    told.assignments.get()
}

/// A member that joins, syncs, beats and leaves, again and again, until an error.
async fn member(rt: &Rt, addr: SocketAddr, group: usize, told: &Told) -> Result<(), ClientError> {
    let connection = connect(rt, addr).await?;
    let mut join = JoinGroupRequest {
        group_id: Str::from(format!("members-{group}")),
        session_timeout_ms: 6_000,
        rebalance_timeout_ms: 500,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".into(),
            metadata: Bytes::from_static(b"metadata"),
        }],
        ..Default::default()
    };
    loop {
        let joined = connection.call(&join).await?;
        let code = joined.error_code;
        join.member_id = match code {
            _ if code == ErrorCode::UnknownMemberId.code() => Str::default(),
            _ => joined.member_id,
        };
        if code != 0 {
            rt.sleep(Duration::from_millis(10)).await;
            continue;
        }
        assert_eq!(joined.members.is_empty(), joined.leader != join.member_id);
        let members = joined.members.into_iter();
        let sync = SyncGroupRequest {
            group_id: join.group_id.clone(),
            generation_id: joined.generation_id,
            member_id: join.member_id.clone(),
            protocol_type: joined.protocol_type,
            protocol_name: joined.protocol_name,
            assignments: members
                .map(|member| SyncGroupRequestAssignment {
                    assignment: member.member_id.clone().into_bytes(),
                    member_id: member.member_id,
                })
                .collect(),
            ..Default::default()
        };
        let synced = connection.call(&sync).await?;
        if synced.error_code != 0 {
            continue;
        }
        let own = join.member_id.as_bytes();
        assert_eq!(&synced.assignment[..], own, "each gets its own");
        told.generation(group, joined.generation_id);
        told.assignments.set(told.assignments.get() + 1);
        let beat = HeartbeatRequest {
            group_id: join.group_id.clone(),
            generation_id: joined.generation_id,
            member_id: join.member_id.clone(),
            ..Default::default()
        };
        for _ in 0..rt.random_u64() % 20 {
            if connection.call(&beat).await?.error_code != 0 {
                break;
            }
            rt.sleep(Duration::from_millis(20)).await;
        }
        if rt.random_u64().is_multiple_of(3) {
            let leave = LeaveGroupRequest {
                group_id: join.group_id.clone(),
                members: vec![MemberIdentity {
                    member_id: std::mem::take(&mut join.member_id),
                    ..Default::default()
                }],
                ..Default::default()
            };
            connection.call(&leave).await?;
        }
    }
}

/// Groups, on several partitions of `__consumer_offsets`.
const GROUPS: usize = 4;
/// Members of each.
const MEMBERS: usize = 3;
