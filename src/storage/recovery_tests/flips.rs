//! A bit that comes wrong from the medium for once costs nothing that was flushed.

use super::cases::{batch, check, open, produce, record_recovery_point, stop_cleanly, DIR};
use crate::runtime::sim::{FaultKind, FaultRates, World};
use crate::storage::log_tests::limits;
use crate::storage::{DataDir, Log, Storage};

#[test]
fn given_a_bit_that_is_wrong_once_when_it_loads_then_nothing_flushed_is_cut_or_changed() {
    let (mut flips, mut loaded, mut refused) = (0, 0, 0);
    for seed in 0..600 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let (data_dir, log, _) = open(&rt).await;
            produce(&log, 0..20).await;
            let point = log.checkpoint().await.unwrap();
            record_recovery_point(&data_dir, point).await;
            produce(&log, 20..50).await;
        });
        node.kill();
        let rt = node.restart();
        let rates = FaultRates::none().with(FaultKind::BitFlip, 25);
        world.block_on(&rt, async {
            let data_dir = DataDir::open(&rt, "/data", 1, None).await.unwrap();
            let storage = Storage::new(rt.clone(), limits());
            let mode = data_dir.load_mode("topic", 0);
            node.disk().faults_by_seed(rates.on_paths(".log"));
            let opened = Log::open(&storage, rt.dir(DIR), super::cases::config(), mode).await;
            flips += node.disk().planned_faults(FaultKind::BitFlip);
            node.disk().clear_faults();
            let Ok((log, _)) = opened else {
                refused += 1;
                return;
            };
            check(&log, 50).await;
            // The last block is written again, with what the load read of it.
            produce(&log, 50..53).await;
            loaded += 1;
        });
        node.crash();
        let rt = node.restart();
        world.block_on(&rt, async {
            let (_data_dir, log, _) = open(&rt).await;
            check(&log, log.end_offset().max(50)).await;
        });
    }
    assert!(
        flips > 100 && loaded > 300,
        "{flips} flips, {loaded} loaded, {refused} refused"
    );
}

/// What decides something by a header has looked at the CRC: a search for a timestamp, and the
/// search for the place where a log is cut.
#[test]
fn given_a_bit_of_a_header_that_has_changed_for_good_when_it_decides_then_it_is_refused() {
    let world = World::new(15);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, log, _) = open(&rt).await;
        produce(&log, 0..50).await;
        stop_cleanly(&data_dir, &log).await;
    });
    node.kill();
    let path = format!("{DIR}/{:020}.log", 0);
    let mut bytes = node.disk().read_raw(&path).unwrap();
    let max_timestamp = 10 * batch(10).bytes.len() + 35;
    let there = bytes[max_timestamp..max_timestamp + 8].to_vec();
    assert_eq!(there, batch(10).max_timestamp.to_be_bytes());
    bytes[max_timestamp + 7] ^= 1;
    node.disk().write_raw(&path, &bytes);
    let rt = node.restart();
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        let asked = batch(10).max_timestamp;
        let found = log.offset_for_timestamp(asked, 50).await.unwrap_err();
        assert!(found.to_string().contains("CRC"), "{found}");
        let cut = log.truncate_to(10).await.unwrap_err();
        assert!(cut.to_string().contains("CRC"), "{cut}");
    });
}
