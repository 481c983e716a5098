//! Good files to begin with, one of each kind.

use super::disk::Kind;
use bytes::Bytes;
use highwater::metadata::records::{
    records_of, MetadataRecord, ProducerIdsRecord, RemoveTopicRecord,
};
use highwater::metadata::{Change, PartitionImage, TopicImage};
use highwater::storage::index::{OffsetIndex, TimeIndex};
use highwater::storage::producer_snapshot::{self, ProducerEntry};
use highwater::storage::ProducedBatch;
use std::sync::Arc;
use uuid::Uuid;

/// A good file of this kind.
pub fn good(kind: Kind) -> Bytes {
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());
    match kind {
        Kind::Checkpoint => text("0\n3\na 0 5\na 1 0\nb.c-d 12 9223372036854775807\n"),
        Kind::LeaderEpochs => text("0\n3\n0 0\n4 100\n7 20000000000\n"),
        Kind::OffsetIndex => {
            let mut index = OffsetIndex::new(7000);
            for i in 1..50 {
                index.append(7000 + 3 * i64::from(i), 4096 * i);
            }
            [&7000i64.to_be_bytes()[..], &index.encode()]
                .concat()
                .into()
        }
        Kind::TimeIndex => {
            let mut index = TimeIndex::new(7000);
            for i in 1..50 {
                index.maybe_append(1_700_000_000_000 + i, 7000 + 3 * i);
            }
            [&7000i64.to_be_bytes()[..], &index.encode()]
                .concat()
                .into()
        }
        Kind::ProducerSnapshot | Kind::ProducerSnapshotBody => {
            let entry = |producer_id| ProducerEntry {
                producer_id,
                producer_epoch: 2,
                last_sequence: 90,
                last_offset: 4000,
                offset_delta: 9,
                timestamp: 1_700_000_000_000,
                coordinator_epoch: -1,
                current_txn_first_offset: -1,
                active_ms: (producer_id % 3 != 0).then_some(1_700_000_001_000),
                earlier: (0..producer_id % 5)
                    .map(|n| ProducedBatch {
                        last_sequence: 50 + 10 * n as i32,
                        offset_delta: 9,
                        last_offset: 3_900 + 10 * n,
                        timestamp: 1_700_000_000_000,
                    })
                    .collect(),
            };
            let entries: Vec<ProducerEntry> = (0..20).map(entry).collect();
            producer_snapshot::encode(&entries).into()
        }
        Kind::MetaProperties => text(
            "#\nversion=1\ncluster.id=TA9OvHYCRjGBMYQVVvLnBg\nnode.id=1\n\
                 directory.id=Vf9OvHYCRjGBMYQVVvLnBg\n",
        ),
        Kind::PartitionMetadata => text("version: 0\ntopic_id: TA9OvHYCRjGBMYQVVvLnBg\n"),
        Kind::PartitionDirName => text("a.topic_of-ours-12"),
        Kind::MetadataRecords => metadata_records(),
    }
}

fn metadata_records() -> Bytes {
    let id = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    let partition = |index| PartitionImage {
        index,
        replicas: [1, 2, 3].into_iter().collect(),
        isr: [1, 2].into_iter().collect(),
        leader: 1,
        leader_epoch: 4,
        partition_epoch: 5,
        directories: Default::default(),
    };
    let topic = TopicImage {
        id,
        name: "topic".into(),
        partitions: vec![partition(0), partition(1)],
        configs: [("segment.bytes".to_owned(), "1048576".to_owned())].into(),
    };
    let mut records = records_of(&Change::BrokerRegistered { id: 1, epoch: 3 });
    records.extend(records_of(&Change::TopicCreated(Arc::new(topic))));
    records.extend(records_of(&Change::PartitionsAdded {
        id,
        partitions: vec![partition(2), partition(3)],
    }));
    records.extend(records_of(&Change::TopicConfigsChanged {
        id,
        configs: [("retention.ms".to_owned(), "-1".to_owned())].into(),
    }));
    records.push(MetadataRecord::ProducerIds(ProducerIdsRecord {
        next_producer_id: 3000,
    }));
    records.push(MetadataRecord::RemoveTopic(RemoveTopicRecord {
        topic_id: id,
    }));
    let mut out = Vec::new();
    for record in records {
        let value = record.encode().unwrap();
        out.extend_from_slice(&(value.len() as u32).to_be_bytes());
        out.extend_from_slice(&value);
    }
    out.into()
}
