//! A topic that is created anew under the name of another: neither gets at what the other holds.

use super::full_disk::{delete_code, produce_record};
use super::settings::create_with;
use super::*;
use crate::storage::{partition_dir, PartitionName};
use std::path::PathBuf;
use uuid::Uuid;

const ENOSPC: i32 = 28;

fn paths(story: &Story, part: &str) -> Vec<PathBuf> {
    let all = story.broker.disk().list_raw("/data").into_iter();
    let paths = all.map(|(path, _)| path);
    paths
        .filter(|path| path.to_string_lossy().contains(part))
        .collect()
}

async fn stop(running: Running) {
    running.stop.send(()).expect("it waits for that");
    let ended = running.ended.await.expect("it ends");
    ended.expect("a clean stop");
}

/// What no metadata names may be all that is left of a topic that was forgotten.
#[test]
fn given_a_directory_of_an_unknown_topic_when_its_name_is_used_then_it_is_kept_aside() {
    let story = Story::new(1);
    let running = story.boot().expect("no power cut is ordered");
    story.world.block_on(&story.broker.rt(), stop(running));
    story.broker.kill();
    let rt = story.broker.restart();
    let name = PartitionName::parse("late-0").unwrap();
    let content = b"all that is left".to_vec();
    story.world.block_on(&rt, async {
        let dir = partition_dir::create(&rt, "/data", &name, Uuid::from_u128(9));
        dir.await.expect("a directory");
    });
    let segment = format!("/data/late-0/{:020}.log", 0);
    story.broker.disk().write_raw(segment, &content);
    story.broker.disk().settle();
    let running = story.boot().expect("no power cut is ordered");
    let clients = story.client.rt();
    story.world.block_on(&rt, async {
        let connection = connect(&clients, running.addr).await.expect("it serves");
        create_with(&connection, "late", 1, &[]).await;
        let first = produce_record(&connection, "late", 0, b"new").await;
        assert_eq!(first, Ok(0));
        stop(running).await;
    });
    let kept = paths(&story, "-stray/");
    let segment = kept
        .iter()
        .find(|path| path.ends_with(format!("{:020}.log", 0)));
    let segment = segment.unwrap_or_else(|| panic!("it is kept: {kept:?}"));
    assert_eq!(story.broker.disk().read_raw(segment), Some(content));
}

/// One that waited for space is being opened when its topic goes, and another takes the name.
#[test]
fn given_a_partition_that_is_opened_while_its_name_changes_hands_then_the_new_one_is_whole() {
    let mut met = 0;
    for seed in 0..20 {
        let story = Story::new(seed);
        let running = story.boot().expect("no power cut is ordered");
        let (rt, clients, disk) = (story.broker.rt(), story.client.rt(), story.broker.disk());
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            disk.fail_ops("mkdir", "name-0", ENOSPC);
            create_with(&connection, "name", 1, &[]).await;
            assert!(disk.faults_fired() > 0, "its directory found no space");
            disk.clear_faults();
            while paths(&story, "name-0").is_empty() {
                rt.sleep(Duration::from_micros(50)).await;
            }
            let refused = produce_record(&connection, "name", 0, b"x").await;
            met += u64::from(refused.is_err());
            assert_eq!(delete_code(&connection, "name").await, 0);
            create_with(&connection, "name", 1, &[]).await;
            for n in 0..5 {
                let written = produce_record(&connection, "name", 0, &[n; 500]).await;
                assert_eq!(written, Ok(i64::from(n)));
                rt.sleep(Duration::from_secs(1)).await;
            }
            stop(running).await;
        });
        story.broker.kill();
        let rt = story.broker.restart();
        let running = story.boot().expect("no power cut is ordered");
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            let next = produce_record(&connection, "name", 0, b"next").await;
            assert_eq!(next, Ok(5));
        });
    }
    assert!(met > 0, "none was being opened when its topic was deleted");
}

/// A change is checkpointed once nobody waits, so damage to it is not taken for the log's end.
#[test]
fn given_damage_to_a_change_that_was_committed_then_the_broker_does_not_forget_it() {
    let story = Story::new(2);
    let running = story.boot().expect("no power cut is ordered");
    let (rt, clients) = (story.broker.rt(), story.client.rt());
    story.world.block_on(&rt, async {
        let connection = connect(&clients, running.addr).await.expect("it serves");
        create_with(&connection, "kept", 1, &[]).await;
        rt.sleep(Duration::from_secs(1)).await;
    });
    story.broker.kill();
    let log = format!("/data/__cluster_metadata-0/{:020}.log", 0);
    let mut content = story.broker.disk().read_raw(&log).expect("it is there");
    let name = content.windows(4).rposition(|four| four == b"kept");
    let at = name.expect("the topic's record");
    content[at] ^= 1;
    story.broker.disk().write_raw(&log, &content);
    story.broker.restart();
    let refused = super::data_dirs::boot_on(&story, &["/data"]);
    let error = refused.err().expect("damage").to_string();
    assert!(error.contains("metadata log"), "{error}");
    assert_eq!(story.broker.disk().read_raw(&log), Some(content));
}
