//! Any file of a data directory may be bad, by seed, and the power may be cut while the broker
//! starts on it. It starts, or says which file keeps it; what it serves is what was acknowledged.

use super::data_dirs::{check, fill, produce_to, read_all, stop, Ledger};
use super::settings::create_with;
use super::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const DATA: &str = "/data";
const METADATA: &str = "__cluster_metadata-0";

/// What becomes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Badness {
    Missing,
    Empty,
    Cut,
    Garbage,
    OtherVersion,
    Directory,
}

const BADNESSES: [Badness; 6] = [
    Badness::Missing,
    Badness::Empty,
    Badness::Cut,
    Badness::Garbage,
    Badness::OtherVersion,
    Badness::Directory,
];

/// What a file is, and so what may be lost with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A segment of this partition, or what is to replace some: its records may stand nowhere
    /// else.
    Segment(i32),
    /// The whole directory of this partition is a plain file.
    PartitionDir(i32),
    /// Whose directory it is, which topics there are: without it the start may be refused.
    Identity,
    MetadataLog,
    MetadataSnapshot,
    /// Everything else can be found again.
    Other,
}

/// A file that is bad.
#[derive(Debug)]
struct Bad {
    path: PathBuf,
    kind: Kind,
    badness: Badness,
}

fn boot(story: &Story, cut_after: Option<u64>) -> Option<Result<Simulated, ServeError>> {
    let shards = 1 + story.world.random_below(3) as usize;
    let config = BrokerConfig {
        listener: HostPort {
            host: story.broker.ip().to_string(),
            port: 9092,
        },
        data_dirs: vec![DATA.into()],
        log_segment_bytes: 700,
        log_flush_offset_checkpoint_interval_ms: 500,
        replica_high_watermark_checkpoint_interval_ms: 300,
        ..BrokerConfig::default()
    };
    let plan = SimulatedPlan {
        config,
        shards,
        sizes: ShardSizes {
            response_bytes: 1 << 20,
            ..SIZES
        },
        mesh_window: 4,
        admin: None,
    };
    if let Some(ops) = cut_after {
        let disk = story.broker.disk();
        disk.cut_power_after_ops(ops, PowerCut::Mixed);
    }
    let rt = story.broker.rt_shard(shards);
    let started = start_simulated(story.broker.clone(), plan);
    story.world.block_on_until_crash(&rt, started)
}

fn start(story: &Story) -> Result<Simulated, ServeError> {
    boot(story, None).expect("no power cut is ordered")
}

/// A data directory with records from before a clean stop and after it; then stopped or killed.
fn prepare(story: &Story, clean: bool) -> Ledger {
    let mut ledger = Ledger::new();
    for life in 0..2 {
        if !story.broker.is_up() {
            story.broker.restart();
        }
        let running = start(story).expect("all is well");
        let (clients, addr) = (story.client.rt(), running.ready.listen);
        story.world.block_on(&story.broker.rt(), async {
            let connection = connect(&clients, addr).await.expect("it serves");
            if life == 0 {
                create_with(&connection, TOPIC, PARTITIONS, &[]).await;
            }
            fill(&connection, 0..PARTITIONS, 15, &mut ledger).await;
            if life == 0 || clean {
                stop(running).await.expect("a clean stop");
            }
        });
        story.broker.kill();
    }
    ledger
}

impl Bad {
    /// Makes one file bad, and proves that it is.
    fn make(story: &Story) -> Bad {
        let (world, disk) = (&story.world, story.broker.disk());
        let draw = |bound: usize| world.random_below(bound as u64) as usize;
        let mut files: Vec<PathBuf> = disk.list_raw(DATA).into_iter().map(|f| f.0).collect();
        let partition = draw(PARTITIONS as usize) as i32;
        let dir = format!("{DATA}/{TOPIC}-{partition}");
        let logs: Vec<PathBuf> = files
            .iter()
            .filter(|p| p.starts_with(&dir) && p.extension().is_some_and(|e| e == "log"))
            .cloned()
            .collect();
        assert!(logs.len() > 2, "{files:?}");
        let mut badness = BADNESSES[draw(BADNESSES.len())];
        let path = match draw(4) {
            0 => {
                // What an interrupted replacement leaves, or another broker.
                let log = &logs[draw(logs.len() - 1)];
                let suffix = ["swap", "cleaned", "deleted"][draw(3)];
                let content = disk.read_raw(log).expect("it is there");
                let stray = match draw(5) {
                    0 => log.with_extension("txnindex"),
                    1 => log.with_extension(format!("timeindex.{suffix}")),
                    _ => log.with_extension(format!("log.{suffix}")),
                };
                disk.write_raw(&stray, &content);
                stray
            }
            1 if draw(4) == 0 => {
                let rt = story.broker.rt();
                let name = format!("{TOPIC}-{partition}");
                let removed = async { rt.dir(DATA).remove_dir_all(&name).await };
                world.block_on(&rt, removed).expect("it is removed");
                badness = Badness::Garbage;
                PathBuf::from(dir)
            }
            _ => {
                // Kinds of which there are few as often as those of which there are many.
                let kinds: BTreeSet<String> = files.iter().map(|path| kind_name(path)).collect();
                let kinds: Vec<String> = kinds.into_iter().collect();
                let kind = &kinds[draw(kinds.len())];
                files.retain(|path| kind_name(path) == *kind);
                files.swap_remove(draw(files.len()))
            }
        };
        let kind = Kind::of(&path);
        let before = disk.read_raw(&path);
        let content = before.clone().unwrap_or_default();
        let noise = |len: usize| (0..len).map(|_| 1 + draw(255) as u8).collect::<Vec<u8>>();
        let bytes = match badness {
            Badness::Missing => None,
            Badness::Directory => {
                disk.remove_raw(&path);
                disk.write_raw(path.join("kept"), b"x");
                assert_eq!(disk.read_raw(path.join("kept")), Some(b"x".to_vec()));
                return Bad {
                    path,
                    kind,
                    badness,
                };
            }
            Badness::Empty => Some(Vec::new()),
            Badness::Cut => Some(content[..draw(content.len().max(1))].to_vec()),
            Badness::Garbage => Some(noise(content.len().max(64))),
            Badness::OtherVersion => {
                let mut other = content.clone();
                // Of a text the first digit, else a byte near the beginning.
                let digit = other.iter().position(u8::is_ascii_digit);
                match digit.filter(|_| content.is_ascii()) {
                    Some(at) => other[at] = b'9',
                    None if other.len() > 1 => other[1] ^= 0x55,
                    None => {}
                }
                Some(other)
            }
        };
        match &bytes {
            None => assert!(disk.remove_raw(&path)),
            Some(bytes) => disk.write_raw(&path, bytes),
        }
        assert_eq!(disk.read_raw(&path), bytes);
        Bad {
            path,
            kind,
            badness,
        }
    }

    /// Whether the broker may refuse to start for it.
    fn may_refuse(&self) -> bool {
        let kinds = [Kind::Identity, Kind::MetadataLog, Kind::MetadataSnapshot];
        kinds.contains(&self.kind)
    }

    /// The partition that may have lost something.
    fn hit(&self) -> Option<i32> {
        match self.kind {
            Kind::Segment(partition) | Kind::PartitionDir(partition) => Some(partition),
            _ => None,
        }
    }
}

impl Kind {
    fn of(path: &Path) -> Kind {
        let inside = path.strip_prefix(DATA).expect("it is in the directory");
        let first = inside.components().next().expect("a name");
        let first = first.as_os_str().to_string_lossy().into_owned();
        let of_topic = first.strip_prefix(&format!("{TOPIC}-"));
        let partition = of_topic.and_then(|index| index.parse().ok());
        let name = path.to_string_lossy();
        let is_log = name.ends_with(".log") || name.ends_with(".log.swap");
        let is_snapshot = path.extension().is_some_and(|e| e == "checkpoint");
        match partition {
            Some(partition) if inside.components().count() == 1 => Kind::PartitionDir(partition),
            Some(partition) if is_log => Kind::Segment(partition),
            _ if first == METADATA && is_log => Kind::MetadataLog,
            _ if first == METADATA && is_snapshot => Kind::MetadataSnapshot,
            _ if first == "meta.properties" => Kind::Identity,
            _ => Kind::Other,
        }
    }
}

/// The same for all files of a kind.
fn kind_name(path: &Path) -> String {
    let name = path.file_name().expect("a name").to_string_lossy();
    let is_metadata = path.components().any(|c| c.as_os_str() == METADATA);
    match name.as_bytes()[0].is_ascii_digit() {
        true => {
            let extension = path.extension().unwrap_or_default().to_string_lossy();
            format!("{is_metadata} {extension}")
        }
        false => name.into_owned(),
    }
}

/// What is served is the beginning of what was acknowledged, all of it where nothing was hit.
/// The partitions that are offline.
async fn check_all(connection: &BrokerConnection, ledger: &mut Ledger, bad: &Bad) -> Vec<i32> {
    let mut offline = Vec::new();
    for partition in 0..PARTITIONS {
        let found = read_all(connection, partition).await;
        let known = ledger.get_mut(&partition).expect("it has records");
        match found {
            Err(code) => {
                assert_eq!(code, STORAGE, "partition {partition}, {bad:?}");
                assert_eq!(bad.hit(), Some(partition), "{bad:?}");
                offline.push(partition);
                continue;
            }
            Ok(found) => {
                assert!(known.starts_with(&found), "partition {partition}, {bad:?}");
                let whole = found.len() == known.len();
                assert!(
                    whole || bad.hit() == Some(partition),
                    "{partition}, {bad:?}"
                );
                known.truncate(found.len());
            }
        }
        let next = known.len();
        let value = format!("{partition}-{next}");
        let offset = produce_to(connection, TOPIC, partition, &value).await;
        assert_eq!(offset, Ok(next as i64), "partition {partition}, {bad:?}");
        known.push(value);
    }
    offline
}

#[test]
fn given_any_bad_file_and_power_cuts_while_starting_then_it_is_served_as_it_was_or_refused() {
    let mut done: BTreeSet<(String, Badness)> = BTreeSet::new();
    let (mut refused, mut offline, mut cuts) = (0, 0, 0);
    let many = std::env::var("HIGHWATER_SIM_SEEDS").ok();
    let many = many.map_or(SEEDS * 5, |count| count.parse().expect("a number"));
    let seeds = match std::env::var_os(SEED_VARIABLE) {
        Some(_) => seeds(),
        None => 0..many,
    };
    for seed in seeds {
        let story = Story::new(seed);
        let clean = story.world.random_below(2) == 0;
        let mut ledger = prepare(&story, clean);
        story.broker.restart();
        let bad = Bad::make(&story);
        println!("{bad:?}, clean {clean}");
        done.insert((kind_name(&bad.path), bad.badness));
        // What a start has set right or put aside, the next finds as it was left.
        for _ in 0..story.world.random_below(3) {
            let ops = 1 + story.world.random_below(60);
            match boot(&story, Some(ops)) {
                None => cuts += 1,
                Some(_) => story.broker.crash(),
            }
            story.broker.restart();
        }
        let running = match start(&story) {
            Ok(running) => running,
            Err(error) => {
                assert!(bad.may_refuse(), "{bad:?}: {error}");
                let said = error.to_string();
                let name = bad.path.file_name().expect("a name").to_string_lossy();
                assert!(
                    said.contains(&*name) || said.contains(METADATA),
                    "{bad:?}: {said}"
                );
                refused += 1;
                continue;
            }
        };
        let (clients, addr) = (story.client.rt(), running.ready.listen);
        story.world.block_on(&story.broker.rt(), async {
            let connection = connect(&clients, addr).await.expect("it serves");
            let gone = check_all(&connection, &mut ledger, &bad).await;
            offline += gone.len();
            for partition in &gone {
                ledger.remove(partition);
            }
            check(&connection, &ledger).await;
            let stopped = stop(running).await;
            assert_eq!(stopped.is_ok(), gone.is_empty(), "{bad:?}: {stopped:?}");
        });
        story.broker.kill();
        story.broker.restart();
        let running = start(&story).unwrap_or_else(|error| panic!("{bad:?}: {error}"));
        story.world.block_on(&story.broker.rt(), async {
            let connection = connect(&clients, addr).await.expect("it serves");
            check(&connection, &ledger).await;
            drop(running);
        });
    }
    println!(
        "{} kinds of damage, {refused} refused, {offline} offline, {cuts} cuts",
        done.len()
    );
    if std::env::var_os(SEED_VARIABLE).is_none() {
        assert!(done.len() > 40 && refused > 0 && offline > 0 && cuts > 0);
    }
}
