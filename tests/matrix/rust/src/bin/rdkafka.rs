//! rdkafka: librdkafka from Rust.

use matrix::{Answer, Client, Offsets, Progress, Record, PARTITIONS, PATIENCE};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const POLL: Duration = Duration::from_millis(50);

fn main() {
    matrix::serve(Rdkafka::new);
}

struct Rdkafka {
    config: ClientConfig,
    name: String,
    /// For metadata, offsets and groups: never subscribed.
    asker: BaseConsumer,
    admin: AdminClient<DefaultClientContext>,
    runtime: Runtime,
}

impl Rdkafka {
    fn new(broker: &str, name: &str) -> Answer<Self> {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", broker)
            .set("group.id", name)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            .set("heartbeat.interval.ms", "500")
            .set("check.crcs", "true");
        Ok(Self {
            asker: config.create()?,
            admin: config.create()?,
            config,
            name: name.into(),
            runtime: Runtime::new()?,
        })
    }

    fn all(&self, at: Offset) -> Answer<TopicPartitionList> {
        let mut list = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            list.add_partition_offset(&self.name, partition, at)?;
        }
        Ok(list)
    }

    fn watermarks(&self) -> Answer<BTreeMap<i32, (i64, i64)>> {
        let mut found = BTreeMap::new();
        for partition in 0..PARTITIONS {
            let marks = self
                .asker
                .fetch_watermarks(&self.name, partition, PATIENCE)?;
            found.insert(partition, marks);
        }
        Ok(found)
    }
}

fn raw(list: &TopicPartitionList) -> Offsets {
    let offset = |offset| match offset {
        Offset::Offset(n) => n,
        _ => -1,
    };
    let elements = list.elements();
    elements
        .iter()
        .map(|e| (e.partition(), offset(e.offset())))
        .collect()
}

fn each<T>(results: Vec<Result<T, (String, RDKafkaErrorCode)>>) -> Answer<Vec<T>> {
    let results = results.into_iter();
    results
        .map(|r| r.map_err(|(name, code)| format!("{name}: {code}").into()))
        .collect()
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

impl Client for Rdkafka {
    fn create(&self, partitions: i32) -> Answer<()> {
        let topic = NewTopic::new(&self.name, partitions, TopicReplication::Fixed(1));
        let made = self.admin.create_topics([&topic], &AdminOptions::new());
        each(self.runtime.block_on(made)?).map(drop)
    }

    fn produce(&self, codec: &str, records: Vec<Record>) -> Answer<()> {
        let mut config = self.config.clone();
        config.set("compression.type", codec).set("linger.ms", "5");
        let producer: FutureProducer = config.create()?;
        let _inside = self.runtime.enter();
        let mut sent = Vec::new();
        for r in &records {
            let headers = r
                .headers
                .iter()
                .fold(OwnedHeaders::new(), |headers, (key, value)| {
                    headers.insert(Header {
                        key,
                        value: Some(value),
                    })
                });
            let record = FutureRecord::to(&self.name)
                .partition(r.partition)
                .timestamp(r.timestamp)
                .key(&r.key)
                .payload(&r.value)
                .headers(headers);
            sent.push(producer.send_result(record).map_err(|(error, _)| error)?);
        }
        for delivery in sent {
            self.runtime
                .block_on(delivery)?
                .map_err(|(error, _)| error)?;
        }
        Ok(())
    }

    fn read(&self, starts: Offsets, count: usize) -> Answer<Vec<Record>> {
        let consumer: BaseConsumer = self.config.create()?;
        let mut assignment = TopicPartitionList::new();
        for (partition, offset) in starts {
            assignment.add_partition_offset(&self.name, partition, Offset::Offset(offset))?;
        }
        consumer.assign(&assignment)?;
        let (start, mut found) = (Instant::now(), Vec::new());
        while found.len() < count {
            if start.elapsed() > PATIENCE {
                return Err(format!("{} of {count} records came", found.len()).into());
            }
            let Some(message) = consumer.poll(POLL).transpose()? else {
                continue;
            };
            let headers = message.headers().map(|headers| {
                let headers = headers.iter();
                headers
                    .map(|h| (h.key.to_string(), text(h.value)))
                    .collect()
            });
            found.push(Record {
                partition: message.partition(),
                timestamp: message.timestamp().to_millis().unwrap_or(-1),
                key: text(message.key()),
                value: text(message.payload()),
                headers: headers.unwrap_or_default(),
                offset: message.offset(),
            });
        }
        Ok(found)
    }

    fn member(&self, progress: &Progress) -> Answer<()> {
        let consumer: BaseConsumer = self.config.create()?;
        consumer.subscribe(&[&self.name])?;
        let mut uncommitted = false;
        while !progress.is_stopped() {
            match consumer.poll(POLL).transpose()? {
                Some(message) => {
                    let key = text(message.key());
                    let place = (message.partition(), message.offset(), key);
                    progress.seen.lock().unwrap().push(place);
                    consumer.store_offset_from_message(&message)?;
                    uncommitted = true;
                }
                None if uncommitted => {
                    consumer.commit_consumer_state(CommitMode::Sync)?;
                    uncommitted = false;
                }
                None => {}
            }
            let held = raw(&consumer.assignment()?).into_keys().collect();
            *progress.held.lock().unwrap() = held;
        }
        if uncommitted {
            consumer.commit_consumer_state(CommitMode::Sync)?;
        }
        Ok(())
    }

    fn committed(&self) -> Answer<Offsets> {
        let asked = self.all(Offset::Invalid)?;
        Ok(raw(&self.asker.committed_offsets(asked, PATIENCE)?))
    }

    fn offsets_for_time(&self, at_ms: i64) -> Answer<Offsets> {
        let asked = self.all(Offset::Offset(at_ms))?;
        Ok(raw(&self.asker.offsets_for_times(asked, PATIENCE)?))
    }

    fn earliest(&self, partition: i32) -> Answer<i64> {
        Ok(self.watermarks()?[&partition].0)
    }

    fn ends(&self) -> Answer<Offsets> {
        let found = self.watermarks()?.into_iter();
        Ok(found
            .map(|(partition, (_, end))| (partition, end))
            .collect())
    }

    fn topics(&self) -> Answer<Vec<String>> {
        let found = self.asker.fetch_metadata(None, PATIENCE)?;
        Ok(found
            .topics()
            .iter()
            .map(|t| t.name().to_string())
            .collect())
    }

    fn describe_topic(&self) -> Answer<BTreeMap<i32, i32>> {
        let found = self.asker.fetch_metadata(Some(&self.name), PATIENCE)?;
        let partitions = found.topics()[0].partitions().iter();
        Ok(partitions.map(|p| (p.id(), p.leader())).collect())
    }

    fn describe_configs(&self) -> Answer<BTreeMap<String, Option<String>>> {
        let asked = [ResourceSpecifier::Topic(&self.name)];
        let found = self.admin.describe_configs(&asked, &AdminOptions::new());
        let resource = self
            .runtime
            .block_on(found)?
            .remove(0)
            .map_err(|e| e.to_string())?;
        Ok(resource
            .entries
            .into_iter()
            .map(|e| (e.name, e.value))
            .collect())
    }

    fn describe_group(&self) -> Answer<(String, usize)> {
        let found = self.asker.fetch_group_list(Some(&self.name), PATIENCE)?;
        let group = found.groups().first().ok_or("the group is not there")?;
        Ok((group.state().to_string(), group.members().len()))
    }

    fn groups(&self) -> Answer<Vec<String>> {
        let found = self.asker.fetch_group_list(None, PATIENCE)?;
        Ok(found
            .groups()
            .iter()
            .map(|g| g.name().to_string())
            .collect())
    }

    fn delete_records(&self, partition: i32, before: i64) -> Answer<()> {
        let mut asked = TopicPartitionList::new();
        asked.add_partition_offset(&self.name, partition, Offset::Offset(before))?;
        let found = self.admin.delete_records(&asked, &AdminOptions::new());
        for element in self.runtime.block_on(found)?.elements() {
            element.error()?;
        }
        Ok(())
    }

    fn delete_group(&self) -> Answer<()> {
        let deleted = self
            .admin
            .delete_groups(&[&self.name], &AdminOptions::new());
        each(self.runtime.block_on(deleted)?).map(drop)
    }

    fn delete_topic(&self) -> Answer<()> {
        let deleted = self
            .admin
            .delete_topics(&[&self.name], &AdminOptions::new());
        each(self.runtime.block_on(deleted)?).map(drop)
    }
}
