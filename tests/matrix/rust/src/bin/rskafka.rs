//! rskafka.

use chrono::{DateTime, Utc};
use matrix::{Answer, Client, NotAvailable, Offsets, Progress, Record, PARTITIONS};
use rskafka::client::partition::{Compression, OffsetAt, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use std::collections::BTreeMap;
use tokio::runtime::Runtime;

const TIMEOUT_MS: i32 = 30_000;
const FETCH_BYTES: std::ops::Range<i32> = 1..1_000_000;
const FETCH_WAIT_MS: i32 = 500;

const NO_GROUPS: NotAvailable = NotAvailable("rskafka has no consumer groups");

fn main() {
    matrix::serve(Rskafka::new);
}

struct Rskafka {
    client: rskafka::client::Client,
    name: String,
    runtime: Runtime,
}

impl Rskafka {
    fn new(broker: &str, name: &str) -> Answer<Self> {
        let runtime = Runtime::new()?;
        let client = runtime.block_on(ClientBuilder::new(vec![broker.into()]).build())?;
        Ok(Self {
            client,
            name: name.into(),
            runtime,
        })
    }

    async fn partition(&self, n: i32) -> Answer<rskafka::client::partition::PartitionClient> {
        let client = self
            .client
            .partition_client(&self.name, n, UnknownTopicHandling::Retry);
        Ok(client.await?)
    }

    fn offsets(&self, at: OffsetAt) -> Answer<Offsets> {
        self.runtime.block_on(async {
            let mut offsets = Offsets::new();
            for n in 0..PARTITIONS {
                offsets.insert(n, self.partition(n).await?.get_offset(at).await?);
            }
            Ok(offsets)
        })
    }
}

fn date(at_ms: i64) -> Answer<DateTime<Utc>> {
    Ok(DateTime::from_timestamp_millis(at_ms).ok_or("not a date")?)
}

fn text(bytes: Option<Vec<u8>>) -> Answer<String> {
    Ok(String::from_utf8(bytes.unwrap_or_default())?)
}

impl Client for Rskafka {
    fn create(&self, partitions: i32) -> Answer<()> {
        let controller = self.client.controller_client()?;
        let created = controller.create_topic(&self.name, partitions, 1, TIMEOUT_MS);
        Ok(self.runtime.block_on(created)?)
    }

    fn produce(&self, codec: &str, records: Vec<Record>) -> Answer<()> {
        let compression = match codec {
            "none" => Compression::NoCompression,
            "gzip" => Compression::Gzip,
            "snappy" => Compression::Snappy,
            "lz4" => Compression::Lz4,
            "zstd" => Compression::Zstd,
            other => return Err(format!("no codec {other}").into()),
        };
        let mut batches: BTreeMap<i32, Vec<rskafka::record::Record>> = BTreeMap::new();
        for r in records {
            let headers = r.headers.into_iter();
            let record = rskafka::record::Record {
                key: Some(r.key.into()),
                value: Some(r.value.into()),
                headers: headers.map(|(name, value)| (name, value.into())).collect(),
                timestamp: date(r.timestamp)?,
            };
            batches.entry(r.partition).or_default().push(record);
        }
        self.runtime.block_on(async {
            for (n, batch) in batches {
                self.partition(n).await?.produce(batch, compression).await?;
            }
            Ok(())
        })
    }

    fn read(&self, starts: Offsets, count: usize) -> Answer<Vec<Record>> {
        self.runtime.block_on(async {
            let mut found = Vec::new();
            for (n, mut next) in starts {
                let partition = self.partition(n).await?;
                let end = partition.get_offset(OffsetAt::Latest).await?;
                while next < end {
                    let fetched = partition.fetch_records(next, FETCH_BYTES, FETCH_WAIT_MS);
                    for one in fetched.await?.0 {
                        next = one.offset + 1;
                        let mut headers = Vec::new();
                        for (name, value) in one.record.headers {
                            headers.push((name, text(Some(value))?));
                        }
                        found.push(Record {
                            partition: n,
                            timestamp: one.record.timestamp.timestamp_millis(),
                            key: text(one.record.key)?,
                            value: text(one.record.value)?,
                            headers,
                            offset: one.offset,
                        });
                    }
                }
            }
            if found.len() != count {
                return Err(format!("{} of {count} records came", found.len()).into());
            }
            Ok(found)
        })
    }

    fn has_members(&self) -> Result<(), NotAvailable> {
        Err(NO_GROUPS)
    }

    fn member(&self, _: &Progress) -> Answer<()> {
        Err(NO_GROUPS.into())
    }

    fn committed(&self) -> Answer<Offsets> {
        Err(NO_GROUPS.into())
    }

    fn offsets_for_time(&self, at_ms: i64) -> Answer<Offsets> {
        self.offsets(OffsetAt::Timestamp(date(at_ms)?))
    }

    fn earliest(&self, partition: i32) -> Answer<i64> {
        Ok(self.offsets(OffsetAt::Earliest)?[&partition])
    }

    fn ends(&self) -> Answer<Offsets> {
        self.offsets(OffsetAt::Latest)
    }

    fn topics(&self) -> Answer<Vec<String>> {
        let found = self.runtime.block_on(self.client.list_topics())?;
        Ok(found.into_iter().map(|topic| topic.name).collect())
    }

    fn describe_topic(&self) -> Answer<BTreeMap<i32, i32>> {
        // It tells the partitions, and not who leads them: that it finds by itself.
        let found = self.runtime.block_on(self.client.list_topics())?;
        let topic = found.into_iter().find(|topic| topic.name == self.name);
        let partitions = topic.map(|topic| topic.partitions).unwrap_or_default();
        Ok(partitions.into_iter().map(|n| (n, 0)).collect())
    }

    fn describe_configs(&self) -> Answer<BTreeMap<String, Option<String>>> {
        Err(NotAvailable("rskafka has no function that describes settings").into())
    }

    fn describe_group(&self) -> Answer<(String, usize)> {
        Err(NO_GROUPS.into())
    }

    fn groups(&self) -> Answer<Vec<String>> {
        Err(NO_GROUPS.into())
    }

    fn delete_records(&self, partition: i32, before: i64) -> Answer<()> {
        self.runtime.block_on(async {
            let partition = self.partition(partition).await?;
            Ok(partition.delete_records(before, TIMEOUT_MS).await?)
        })
    }

    fn delete_group(&self) -> Answer<()> {
        Err(NO_GROUPS.into())
    }

    fn delete_topic(&self) -> Answer<()> {
        let controller = self.client.controller_client()?;
        Ok(self
            .runtime
            .block_on(controller.delete_topic(&self.name, TIMEOUT_MS))?)
    }
}
