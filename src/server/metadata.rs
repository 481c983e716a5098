//! Metadata, with auto-creation.

use super::operations::{CLUSTER_OPERATIONS, OPERATIONS_UNKNOWN, TOPIC_OPERATIONS};
use super::respond::{Answer, Asked, BadRequest};
use crate::controller::NewTopic;
use crate::metadata::{
    is_internal_topic, validate_topic_name, Image, PartitionImage, TopicImage, OFFSETS_TOPIC_NAME,
};
use crate::protocol::messages::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use crate::protocol::{ErrorCode, Str};
use crate::shard::Shard;
use crate::storage::uuid_text;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

pub(super) async fn run(
    shard: &Shard,
    asked: Asked,
    request: MetadataRequest,
) -> Result<Answer, BadRequest> {
    let wanted = Wanted::of(asked.api_version, &request);
    let mut faults = BTreeMap::new();
    if let Wanted::Some { names, .. } = &wanted {
        if request.allow_auto_topic_creation && shard.config().auto_create_topics_enable {
            faults = create_absent(shard, names).await;
        }
    }
    let mut response = MetadataResponse {
        controller_id: shard.config().node_id,
        cluster_authorized_operations: match request.include_cluster_authorized_operations {
            true => CLUSTER_OPERATIONS,
            false => OPERATIONS_UNKNOWN,
        },
        ..Default::default()
    };
    if let Some(address) = &shard.config().advertised_listener {
        response.brokers.push(MetadataResponseBroker {
            node_id: shard.config().node_id,
            host: Str::from(address.host.clone()),
            port: i32::from(address.port),
            ..Default::default()
        });
    }
    if let Some(image) = shard.image() {
        response.cluster_id = Some(Str::from(uuid_text::encode(image.cluster_id())));
        response.topics = wanted.topics(shard, &image, &faults);
        if request.include_topic_authorized_operations {
            for topic in response.topics.iter_mut().filter(|t| t.error_code == 0) {
                topic.topic_authorized_operations = TOPIC_OPERATIONS;
            }
        }
    }
    Ok(asked.answer(&response)?)
}

/// Which topics a request names.
enum Wanted {
    All,
    Some {
        names: BTreeSet<String>,
        ids: BTreeSet<Uuid>,
        /// A topic was named by neither; ids are known from version 12 on.
        unnamed: bool,
    },
}

impl Wanted {
    fn of(version: i16, request: &MetadataRequest) -> Wanted {
        let Some(topics) = &request.topics else {
            return Wanted::All;
        };
        if version == 0 && topics.is_empty() {
            return Wanted::All;
        }
        let mut names = BTreeSet::new();
        let mut ids = BTreeSet::new();
        let mut unnamed = false;
        for topic in topics {
            match &topic.name {
                Some(name) => {
                    names.insert(name.to_string());
                }
                None if version < 12 || topic.topic_id.is_nil() => unnamed = true,
                None => {
                    ids.insert(topic.topic_id);
                }
            }
        }
        Wanted::Some {
            names,
            ids,
            unnamed,
        }
    }

    fn topics(
        &self,
        shard: &Shard,
        image: &Image,
        faults: &BTreeMap<String, ErrorCode>,
    ) -> Vec<MetadataResponseTopic> {
        let (names, ids, unnamed) = match self {
            Wanted::All => return image.topics().map(|topic| known(shard, topic)).collect(),
            Wanted::Some {
                names,
                ids,
                unnamed,
            } => (names, ids, *unnamed),
        };
        let by_name = names.iter().map(|name| match image.topic(name) {
            Some(topic) => known(shard, topic),
            None => {
                let code = match faults.get(name) {
                    Some(code) => *code,
                    None if validate_topic_name(name).is_err() => ErrorCode::InvalidTopicException,
                    None => ErrorCode::UnknownTopicOrPartition,
                };
                unknown(Some(Str::from(name.clone())), Uuid::nil(), code)
            }
        });
        let by_id = ids.iter().map(|id| match image.topic_by_id(id) {
            Some(topic) => known(shard, topic),
            None => unknown(None, *id, ErrorCode::UnknownTopicId),
        });
        let refused = unnamed.then(|| {
            // Below version 12 the answer's name can't be null.
            unknown(Some(Str::from("")), Uuid::nil(), ErrorCode::InvalidRequest)
        });
        by_name.chain(by_id).chain(refused).collect()
    }
}

/// Creates what the image lacks; the code for each name that could not be created.
async fn create_absent(shard: &Shard, names: &BTreeSet<String>) -> BTreeMap<String, ErrorCode> {
    let Some(image) = shard.image() else {
        return BTreeMap::new();
    };
    let (own, absent): (Vec<String>, Vec<String>) = names
        .iter()
        .filter(|name| image.topic(name).is_none() && validate_topic_name(name).is_ok())
        .cloned()
        .partition(|name| name == OFFSETS_TOPIC_NAME);
    let mut faults = BTreeMap::new();
    for name in own {
        // It has settings of its own.
        if let Err(code) = shard.ensure_offsets_topic().await {
            faults.insert(name, code);
        }
    }
    if absent.is_empty() {
        return faults;
    }
    let new = absent
        .iter()
        .map(|name| NewTopic {
            name: name.clone(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: Vec::new(),
            configs: Vec::new(),
        })
        .collect();
    let more: BTreeMap<String, ErrorCode> = match shard.create_topics(new, false).await {
        Ok(results) => absent
            .into_iter()
            .zip(results)
            .filter_map(|(name, result)| match result {
                Ok(_) => None,
                // Another client was faster; the topic is there.
                Err(fault) if fault.code == ErrorCode::TopicAlreadyExists => None,
                Err(fault) => Some((name, fault.code)),
            })
            .collect(),
        Err(code) => absent.into_iter().map(|name| (name, code)).collect(),
    };
    faults.extend(more);
    faults
}

fn known(shard: &Shard, topic: &TopicImage) -> MetadataResponseTopic {
    MetadataResponseTopic {
        name: Some(Str::from(topic.name.to_string())),
        topic_id: topic.id,
        is_internal: is_internal_topic(&topic.name),
        partitions: topic
            .partitions
            .iter()
            .map(|partition| known_partition(shard, topic.id, partition))
            .collect(),
        topic_authorized_operations: OPERATIONS_UNKNOWN,
        ..Default::default()
    }
}

/// One whose data directory is offline has no leader, as in Kafka.
fn known_partition(
    shard: &Shard,
    topic_id: Uuid,
    partition: &PartitionImage,
) -> MetadataResponsePartition {
    let known = MetadataResponsePartition {
        partition_index: partition.index,
        leader_id: partition.leader,
        leader_epoch: partition.leader_epoch,
        replica_nodes: partition.replicas.to_vec(),
        isr_nodes: partition.isr.to_vec(),
        ..Default::default()
    };
    match shard.is_replica_offline(topic_id, partition) {
        false => known,
        true => MetadataResponsePartition {
            error_code: ErrorCode::LeaderNotAvailable.code(),
            leader_id: NO_LEADER,
            offline_replicas: partition.replicas.to_vec(),
            ..known
        },
    }
}

/// Stands for a leader that there is not.
pub(super) const NO_LEADER: i32 = -1;

fn unknown(name: Option<Str>, id: Uuid, code: ErrorCode) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: code.code(),
        name,
        topic_id: id,
        topic_authorized_operations: OPERATIONS_UNKNOWN,
        ..Default::default()
    }
}
