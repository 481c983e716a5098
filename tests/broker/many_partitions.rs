//! Hundreds of partitions: created, loaded after both kinds of stop, closed and deleted
//! several at a time.

use super::client::{batch_of, create_topic, delete_topic, list_offset, produce_ok, with};
use super::{data_dir, launch};
use std::path::Path;
use std::time::{Duration, Instant};

const TOPIC: &str = "wide";
const PARTITIONS: i32 = 200;

/// Every seventh partition has a record more for each life of the broker.
fn live(launch: &super::Launch, life: i64) -> super::broker::Broker {
    let broker = launch.start();
    with(broker.addr(), move |connection| async move {
        if life == 0 {
            let configs = [("file.delete.delay.ms", "0")];
            let created = create_topic(&connection, TOPIC, PARTITIONS, &configs).await;
            assert_eq!(created.error_code, 0, "{:?}", created.error_message);
        }
        for partition in 0..PARTITIONS {
            let expected = if partition % 7 == 0 { life } else { 0 };
            let latest = list_offset(&connection, TOPIC, partition, -1).await;
            assert_eq!((latest.error_code, latest.offset), (0, expected));
            if partition % 7 == 0 {
                produce_ok(&connection, TOPIC, partition, batch_of("record")).await;
            }
        }
    });
    broker
}

fn directories(data_dir: &Path) -> usize {
    let entries = std::fs::read_dir(data_dir).expect("it can be listed");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with(TOPIC))
        .count()
}

#[test]
fn given_hundreds_of_partitions_then_each_is_there_after_any_stop_and_gone_when_deleted() {
    let dir = data_dir();
    let launch = launch(dir.path());
    live(&launch, 0).kill();
    live(&launch, 1).stop();
    let broker = live(&launch, 2);
    assert_eq!(directories(dir.path()), PARTITIONS as usize);
    with(broker.addr(), |connection| async move {
        delete_topic(&connection, TOPIC).await;
    });
    let begun = Instant::now();
    while directories(dir.path()) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(120), "they stay");
        std::thread::sleep(Duration::from_millis(50));
    }
    broker.stop();
}
