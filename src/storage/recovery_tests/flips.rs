//! A bit that comes wrong from the medium for once costs nothing that was flushed.

use super::cases::{check, open, produce, record_recovery_point, DIR};
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
