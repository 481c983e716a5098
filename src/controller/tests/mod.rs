//! Tests of the controller: the rules alone, replay, and crashes in the simulator.

mod alter;
mod calls;
mod crash;
mod disk;
mod plan;
mod replay;
mod simulated;
mod snapshots;
mod sync_sites;

use super::plan::Limits;
use super::NewTopic;
use crate::metadata::{Change, Image};
use uuid::Uuid;

const CLUSTER: Uuid = Uuid::from_u128(0xC1);

fn limits() -> Limits {
    Limits {
        num_partitions: 2,
        default_replication_factor: 1,
        max_partitions_per_topic: 50,
        max_partitions: 100,
    }
}

/// An image with these brokers and nothing else.
fn image_of_brokers(brokers: &[i32]) -> Image {
    let mut image = Image::empty(CLUSTER, 1);
    for (epoch, id) in brokers.iter().enumerate() {
        image.apply_change(&Change::BrokerRegistered {
            id: *id,
            epoch: epoch as i64,
        });
    }
    image.at_version(brokers.len() as i64 - 1)
}

fn new_topic(name: &str) -> NewTopic {
    NewTopic {
        name: name.into(),
        num_partitions: -1,
        replication_factor: -1,
        ..NewTopic::default()
    }
}
