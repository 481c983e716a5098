//! The records of the metadata log, and the way between them and changes.
//!
//! [`records_of`] writes a change as records, [`Replay`] reads records back as changes.
//! A topic is one TopicRecord followed by all its PartitionRecords, in order, and a
//! ConfigRecord if it overrides any config. PartitionRecords of a topic that exists are
//! partitions that it grows by. The controller writes the records of one change in one
//! record batch, so a log never ends between them.

use super::{Change, Image, PartitionImage, TopicImage};
use crate::protocol::codec::{messages, Versioned};
use crate::protocol::{DecodeError, EncodeError, Reader, Str, Writer};
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// A record of the metadata log.
#[derive(Debug, Clone, PartialEq)]
pub enum MetadataRecord {
    /// A new topic; its partitions follow.
    Topic(TopicRecord),
    /// The next partition of the topic before, or of one that exists.
    Partition(PartitionRecord),
    /// All overridden configs of a topic, in place of those before.
    Config(ConfigRecord),
    /// A topic is gone.
    RemoveTopic(RemoveTopicRecord),
    /// Producer ids are taken.
    ProducerIds(ProducerIdsRecord),
    /// A broker registered.
    RegisterBroker(RegisterBrokerRecord),
    /// All changed settings of a broker, or of all, in place of those before.
    BrokerConfig(BrokerConfigRecord),
}

impl MetadataRecord {
    /// The record's value as it stands in a batch or a snapshot: frame version, type,
    /// version (each an unsigned varint), then the record.
    pub fn encode(&self) -> Result<Bytes, EncodeError> {
        let mut w = Writer::new();
        w.put_uvarint(FRAME_VERSION);
        w.put_uvarint(self.record_type());
        w.put_uvarint(self.version() as u32);
        match self {
            MetadataRecord::Topic(record) => record.encode(&mut w, RECORD_VERSION),
            MetadataRecord::Partition(record) => record.encode(&mut w, self.version()),
            MetadataRecord::Config(record) => record.encode(&mut w, RECORD_VERSION),
            MetadataRecord::RemoveTopic(record) => record.encode(&mut w, RECORD_VERSION),
            MetadataRecord::ProducerIds(record) => record.encode(&mut w, RECORD_VERSION),
            MetadataRecord::RegisterBroker(record) => record.encode(&mut w, RECORD_VERSION),
            MetadataRecord::BrokerConfig(record) => record.encode(&mut w, RECORD_VERSION),
        }?;
        let chunks = w.finish();
        match <[Bytes; 1]>::try_from(chunks) {
            Ok([one]) => Ok(one),
            Err(chunks) => Ok(Bytes::from(chunks.concat())),
        }
    }

    /// Reads what [`MetadataRecord::encode`] wrote. An unknown type or version is
    /// refused, never skipped: an image without it would be wrong.
    pub fn decode(value: Bytes) -> Result<MetadataRecord, RecordError> {
        let mut r = Reader::new(value);
        let frame_version = r.read_uvarint()?;
        if frame_version != FRAME_VERSION {
            return Err(RecordError::FrameVersion(frame_version));
        }
        let record_type = r.read_uvarint()?;
        let version = r.read_uvarint()?;
        let known = i16::try_from(version).ok();
        let version = known.ok_or(RecordError::Version {
            record_type,
            version,
        })?;
        Ok(match record_type {
            1 => MetadataRecord::Topic(read(&mut r, record_type, version)?),
            2 => MetadataRecord::Partition(read(&mut r, record_type, version)?),
            3 => MetadataRecord::Config(read(&mut r, record_type, version)?),
            4 => MetadataRecord::RemoveTopic(read(&mut r, record_type, version)?),
            5 => MetadataRecord::ProducerIds(read(&mut r, record_type, version)?),
            6 => MetadataRecord::RegisterBroker(read(&mut r, record_type, version)?),
            7 => MetadataRecord::BrokerConfig(read(&mut r, record_type, version)?),
            unknown => return Err(RecordError::Type(unknown)),
        })
    }

    /// The version in which it is written: the lowest that says all of it, so that an
    /// earlier version of the broker reads what it can know.
    fn version(&self) -> i16 {
        match self {
            MetadataRecord::Partition(record) if !record.directories.is_empty() => 1,
            _ => RECORD_VERSION,
        }
    }

    fn record_type(&self) -> u32 {
        match self {
            MetadataRecord::Topic(_) => 1,
            MetadataRecord::Partition(_) => 2,
            MetadataRecord::Config(_) => 3,
            MetadataRecord::RemoveTopic(_) => 4,
            MetadataRecord::ProducerIds(_) => 5,
            MetadataRecord::RegisterBroker(_) => 6,
            MetadataRecord::BrokerConfig(_) => 7,
        }
    }
}

fn read<R: Versioned>(r: &mut Reader, record_type: u32, version: i16) -> Result<R, RecordError> {
    if !R::VERSIONS.contains(&version) {
        return Err(RecordError::Version {
            record_type,
            version: version as u32,
        });
    }
    Ok(R::decode_versioned(r, version)?)
}

/// Why a record cannot be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// Not this broker's kind of metadata record (Kafka's own have frame version 1).
    #[error("the record has frame version {0}, and this version reads only {FRAME_VERSION}: another program wrote it")]
    FrameVersion(u32),
    /// A record type of a later version.
    #[error(
        "record type {0} is unknown: a later version of the broker wrote it; start that version"
    )]
    Type(u32),
    /// A record version of a later version.
    #[error("record type {record_type} has version {version}, which is unknown: a later version of the broker wrote it; start that version")]
    Version {
        /// The record's type.
        record_type: u32,
        /// Its version.
        version: u32,
    },
    /// The bytes are not such a record.
    #[error("the record cannot be read: {0}")]
    Malformed(#[from] DecodeError),
}

/// The frame of records. Not Kafka's 1, so that Kafka's tools refuse them with a clear
/// message: the fields differ.
const FRAME_VERSION: u32 = 64;
/// Stands for all brokers in a [`BrokerConfigRecord`].
const ALL_BROKERS: i32 = -1;
/// The version in which records are written that need no later one.
const RECORD_VERSION: i16 = 0;

/// Writes a change as records, in order.
pub fn records_of(change: &Change) -> Vec<MetadataRecord> {
    match change {
        Change::TopicCreated(topic) => topic_records(topic),
        Change::TopicDeleted { id, .. } => {
            vec![MetadataRecord::RemoveTopic(RemoveTopicRecord {
                topic_id: *id,
            })]
        }
        Change::TopicConfigsChanged { id, configs } => vec![config_record(*id, configs)],
        Change::BrokerConfigsChanged { broker, configs } => {
            vec![MetadataRecord::BrokerConfig(BrokerConfigRecord {
                broker_id: broker.unwrap_or(ALL_BROKERS),
                overrides: config_entries(configs),
            })]
        }
        Change::PartitionsAdded { id, partitions } => partitions
            .iter()
            .map(|partition| partition_record(*id, partition))
            .collect(),
        Change::BrokerRegistered { id, epoch } => {
            vec![MetadataRecord::RegisterBroker(RegisterBrokerRecord {
                broker_id: *id,
                broker_epoch: *epoch,
            })]
        }
        Change::ProducerIdsAllocated { next } => {
            vec![MetadataRecord::ProducerIds(ProducerIdsRecord {
                next_producer_id: *next,
            })]
        }
    }
}

/// A whole image as records, made as they are asked for: replayed on an empty image they
/// give this one, but for its version.
pub fn records_of_image(image: &Image) -> impl Iterator<Item = MetadataRecord> + '_ {
    let brokers = image.brokers().map(|broker| Change::BrokerRegistered {
        id: broker.id,
        epoch: broker.epoch,
    });
    let producer_ids = Change::ProducerIdsAllocated {
        next: image.producer_ids_next(),
    };
    let configs = image.all_broker_configs();
    let configs = configs.map(|(broker, configs)| Change::BrokerConfigsChanged {
        broker,
        configs: configs.clone(),
    });
    let topics = image
        .topics()
        .map(|topic| Change::TopicCreated(topic.clone()));
    let changes = brokers.chain([producer_ids]).chain(configs).chain(topics);
    changes.flat_map(|change| records_of(&change))
}

fn topic_records(topic: &TopicImage) -> Vec<MetadataRecord> {
    let mut records = Vec::with_capacity(topic.partitions.len() + 2);
    records.push(MetadataRecord::Topic(TopicRecord {
        name: Str::from(topic.name.to_string()),
        topic_id: topic.id,
    }));
    let partitions = topic.partitions.iter();
    records.extend(partitions.map(|partition| partition_record(topic.id, partition)));
    if !topic.configs.is_empty() {
        records.push(config_record(topic.id, &topic.configs));
    }
    records
}

fn partition_record(topic_id: Uuid, partition: &PartitionImage) -> MetadataRecord {
    MetadataRecord::Partition(PartitionRecord {
        topic_id,
        partition_id: partition.index,
        replicas: partition.replicas.to_vec(),
        isr: partition.isr.to_vec(),
        leader: partition.leader,
        leader_epoch: partition.leader_epoch,
        partition_epoch: partition.partition_epoch,
        directories: partition.directories.to_vec(),
    })
}

fn config_record(topic_id: Uuid, configs: &BTreeMap<String, String>) -> MetadataRecord {
    MetadataRecord::Config(ConfigRecord {
        topic_id,
        overrides: config_entries(configs),
    })
}

fn config_entries(configs: &BTreeMap<String, String>) -> Vec<ConfigEntry> {
    let entries = configs.iter().map(|(name, value)| ConfigEntry {
        name: Str::from(name.clone()),
        value: Str::from(value.clone()),
    });
    entries.collect()
}

fn configs_of(entries: Vec<ConfigEntry>) -> BTreeMap<String, String> {
    let entries = entries.into_iter();
    let pairs = entries.map(|entry| (entry.name.to_string(), entry.value.to_string()));
    pairs.collect()
}

/// Why records do not make sense after those before them. The log was written by
/// something else, or it is damaged in a way that its checksums do not show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// A partition without its topic, or out of order.
    #[error("partition {partition} of topic {topic_id} is not the next one of that topic")]
    PartitionOutOfPlace {
        /// The topic it names.
        topic_id: Uuid,
        /// Its index.
        partition: i32,
    },
    /// A topic ended without a partition.
    #[error("topic {name} has no partition")]
    TopicWithoutPartitions {
        /// Its name.
        name: String,
    },
    /// A topic of this name or id is there already.
    #[error("topic {name} ({topic_id}) exists already")]
    TopicExists {
        /// Its name.
        name: String,
        /// Its id.
        topic_id: Uuid,
    },
    /// No topic has the id.
    #[error("no topic has the id {topic_id}")]
    UnknownTopic {
        /// The id.
        topic_id: Uuid,
    },
    /// The next producer id fell.
    #[error("the next producer id falls from {from} to {to}")]
    ProducerIdsFall {
        /// What it was.
        from: i64,
        /// What the record says.
        to: i64,
    },
}

/// Turns records back into changes, and checks that they make sense, so that an image
/// may apply them without a panic.
pub struct Replay {
    image: Image,
    open: Option<Open>,
}

/// A change whose records have not all come.
enum Open {
    Topic(TopicImage),
    /// What a topic that exists grows by.
    Growth {
        topic_id: Uuid,
        partitions: Vec<PartitionImage>,
    },
}

impl Replay {
    /// Replays on top of `image`.
    pub fn new(image: Image) -> Replay {
        Replay { image, open: None }
    }

    /// The image so far, without a change whose records have not all come.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The image that all batches lead to.
    pub fn into_image(self) -> Image {
        debug_assert!(self.open.is_none(), "a batch ends its change");
        self.image
    }

    /// Applies the records of one batch, whose last offset is `last_offset`.
    pub fn apply_batch(
        &mut self,
        records: impl IntoIterator<Item = MetadataRecord>,
        last_offset: i64,
    ) -> Result<(), ReplayError> {
        let mut version_moves = false;
        for record in records {
            version_moves |= !matches!(record, MetadataRecord::ProducerIds(_));
            self.push(record)?;
        }
        self.close_open()?;
        if version_moves {
            self.image.set_version(last_offset);
        }
        Ok(())
    }

    /// Ends the replay of records that are not batches of the log (a snapshot's), at
    /// the version that they stand for.
    pub fn finish(mut self, version: i64) -> Result<Image, ReplayError> {
        self.close_open()?;
        self.image.set_version(version);
        Ok(self.image)
    }

    /// Applies one record.
    pub fn push(&mut self, record: MetadataRecord) -> Result<(), ReplayError> {
        match record {
            MetadataRecord::Partition(record) => self.push_partition(record),
            MetadataRecord::Config(record) => self.push_config(record),
            MetadataRecord::Topic(record) => {
                self.close_open()?;
                self.open(record)
            }
            MetadataRecord::RemoveTopic(record) => {
                self.close_open()?;
                let topic = self.known(record.topic_id)?;
                self.image.apply_change(&Change::TopicDeleted {
                    id: topic.id,
                    name: topic.name.clone(),
                });
                Ok(())
            }
            MetadataRecord::ProducerIds(record) => {
                self.close_open()?;
                let (from, to) = (self.image.producer_ids_next(), record.next_producer_id);
                if to < from {
                    return Err(ReplayError::ProducerIdsFall { from, to });
                }
                self.image
                    .apply_change(&Change::ProducerIdsAllocated { next: to });
                Ok(())
            }
            MetadataRecord::BrokerConfig(record) => {
                self.close_open()?;
                let id = record.broker_id;
                self.image.apply_change(&Change::BrokerConfigsChanged {
                    broker: (id != ALL_BROKERS).then_some(id),
                    configs: configs_of(record.overrides),
                });
                Ok(())
            }
            MetadataRecord::RegisterBroker(record) => {
                self.close_open()?;
                self.image.apply_change(&Change::BrokerRegistered {
                    id: record.broker_id,
                    epoch: record.broker_epoch,
                });
                Ok(())
            }
        }
    }

    fn open(&mut self, record: TopicRecord) -> Result<(), ReplayError> {
        let name = record.name.as_str();
        if self.image.topic(name).is_some() || self.image.topic_by_id(&record.topic_id).is_some() {
            return Err(ReplayError::TopicExists {
                name: name.to_owned(),
                topic_id: record.topic_id,
            });
        }
        self.open = Some(Open::Topic(TopicImage {
            id: record.topic_id,
            name: name.into(),
            partitions: Vec::new(),
            configs: BTreeMap::new(),
        }));
        Ok(())
    }

    fn push_partition(&mut self, record: PartitionRecord) -> Result<(), ReplayError> {
        let (topic_id, partition) = (record.topic_id, record.partition_id);
        let open_id = self.open.as_ref().map(|open| match open {
            Open::Topic(topic) => topic.id,
            Open::Growth { topic_id, .. } => *topic_id,
        });
        if open_id != Some(topic_id) {
            self.close_open()?;
        }
        let out_of_place = ReplayError::PartitionOutOfPlace {
            topic_id,
            partition,
        };
        // Of a growing topic, those that the image has already.
        let known = match self.image.topic_by_id(&topic_id) {
            Some(topic) => topic.partitions.len(),
            None => 0,
        };
        let open = match self.open.as_mut() {
            Some(open) => open,
            None if known > 0 => self.open.insert(Open::Growth {
                topic_id,
                partitions: Vec::new(),
            }),
            None => return Err(out_of_place),
        };
        let partitions = match open {
            Open::Topic(topic) => &mut topic.partitions,
            Open::Growth { partitions, .. } => partitions,
        };
        if (known + partitions.len()) as i64 != partition as i64 {
            return Err(out_of_place);
        }
        partitions.push(PartitionImage {
            index: record.partition_id,
            replicas: SmallVec::from_vec(record.replicas),
            isr: SmallVec::from_vec(record.isr),
            leader: record.leader,
            leader_epoch: record.leader_epoch,
            partition_epoch: record.partition_epoch,
            directories: SmallVec::from_vec(record.directories),
        });
        Ok(())
    }

    fn push_config(&mut self, record: ConfigRecord) -> Result<(), ReplayError> {
        let configs = configs_of(record.overrides);
        let id = record.topic_id;
        if let Some(Open::Topic(topic)) = self.open.as_mut() {
            if topic.id == id {
                topic.configs = configs;
                return Ok(());
            }
        }
        self.close_open()?;
        self.known(id)?;
        self.image
            .apply_change(&Change::TopicConfigsChanged { id, configs });
        Ok(())
    }

    fn close_open(&mut self) -> Result<(), ReplayError> {
        let topic = match self.open.take() {
            None => return Ok(()),
            Some(Open::Topic(topic)) => topic,
            Some(Open::Growth {
                topic_id,
                partitions,
            }) => {
                self.image.apply_change(&Change::PartitionsAdded {
                    id: topic_id,
                    partitions,
                });
                return Ok(());
            }
        };
        if topic.partitions.is_empty() {
            return Err(ReplayError::TopicWithoutPartitions {
                name: topic.name.to_string(),
            });
        }
        self.image
            .apply_change(&Change::TopicCreated(Arc::new(topic)));
        Ok(())
    }

    fn known(&self, topic_id: Uuid) -> Result<&Arc<TopicImage>, ReplayError> {
        let topic = self.image.topic_by_id(&topic_id);
        topic.ok_or(ReplayError::UnknownTopic { topic_id })
    }
}

messages! {
    /// A new topic.
    record TopicRecord versions 0..=0 flexible 0 {
        name: Str,
        topic_id: Uuid,
    }
    /// A partition of a new topic, or a new one of a topic that exists.
    record PartitionRecord versions 0..=1 flexible 0 {
        topic_id: Uuid,
        partition_id: i32,
        replicas: Vec<i32>,
        isr: Vec<i32>,
        leader: i32,
        leader_epoch: i32,
        partition_epoch: i32,
        /// The `directory.id` of each replica.
        directories: Vec<Uuid> => { versions: 1.., ignorable },
    }
    /// All overridden configs of a topic.
    record ConfigRecord versions 0..=0 flexible 0 {
        topic_id: Uuid,
        overrides: Vec<ConfigEntry>,
    }
    /// One overridden config.
    struct ConfigEntry {
        name: Str,
        value: Str,
    }
    /// A topic is gone.
    record RemoveTopicRecord versions 0..=0 flexible 0 {
        topic_id: Uuid,
    }
    /// Producer ids below this one are taken.
    record ProducerIdsRecord versions 0..=0 flexible 0 {
        next_producer_id: i64,
    }
    /// A broker registered; its epoch is the offset of this record when it was written.
    record RegisterBrokerRecord versions 0..=0 flexible 0 {
        broker_id: i32,
        broker_epoch: i64,
    }
    /// All changed settings of a broker; -1: of all brokers.
    record BrokerConfigRecord versions 0..=0 flexible 0 {
        broker_id: i32,
        overrides: Vec<ConfigEntry>,
    }
}
