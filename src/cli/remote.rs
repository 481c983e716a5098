//! What every command for a running broker has in common: its address, its executor, how it parses and prints.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use clap::Args;

use super::CliError;
use crate::client::{ClientError, Cluster, ConnectionOptions, OffsetQuery, PartitionKey};
use crate::protocol::messages::{MetadataResponse, MetadataResponseTopic};
use crate::protocol::{ErrorCode, Str};
use crate::runtime::{native, Rt};

/// Where the broker is, and how to print.
#[derive(Debug, Clone, Args)]
pub(super) struct RemoteArgs {
    /// Any broker of the cluster.
    #[arg(
        long,
        short,
        env = "HIGHWATER_BROKER",
        default_value = "127.0.0.1:9092",
        value_name = "HOST:PORT"
    )]
    broker: String,
    /// How long to wait for a connection, and for each answer.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    timeout: u32,
    /// Print JSON for scripts.
    #[arg(long)]
    pub json: bool,
}

impl RemoteArgs {
    /// What requests to the broker itself may take.
    pub fn timeout_ms(&self) -> i32 {
        i32::try_from(self.timeout.saturating_mul(1000)).unwrap_or(i32::MAX)
    }

    /// How long an answer may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(u64::from(self.timeout))
    }

    fn options(&self) -> ConnectionOptions {
        ConnectionOptions {
            client_id: "highwater-cli".to_owned(),
            connect_timeout: self.timeout().min(CONNECT_TIMEOUT_MAX),
            // The broker's own timeout comes first, so that its words are heard.
            request_timeout: self.timeout() + Duration::from_secs(5),
            ..Default::default()
        }
    }

    /// Connects, and runs a command on an executor of its own.
    pub fn run<T, F, Fut>(&self, f: F) -> Result<T, CliError>
    where
        F: FnOnce(Rt, Cluster) -> Fut + 'static,
        Fut: Future<Output = Result<T, CliError>> + 'static,
        T: 'static,
    {
        self.run_patient(Duration::ZERO, f)
    }

    /// The same, where an answer may take at least so long whatever `--timeout` says.
    pub fn run_patient<T, F, Fut>(&self, answer_time_min: Duration, f: F) -> Result<T, CliError>
    where
        F: FnOnce(Rt, Cluster) -> Fut + 'static,
        Fut: Future<Output = Result<T, CliError>> + 'static,
        T: 'static,
    {
        let (broker, mut options) = (self.broker.clone(), self.options());
        options.request_timeout = options.request_timeout.max(answer_time_min);
        native::run(move |rt| async move {
            let cluster = Cluster::connect(&rt, &broker, options).await?;
            f(rt, cluster).await
        })?
    }
}

/// The topics that a command names, which must exist; all but the internal ones where it names none.
pub(super) async fn topics(
    cluster: &Cluster,
    names: &[String],
) -> Result<Vec<MetadataResponseTopic>, CliError> {
    let wanted: Vec<Str> = names.iter().cloned().map(Str::from).collect();
    let asked = (!wanted.is_empty()).then_some(wanted.as_slice());
    let MetadataResponse { mut topics, .. } = cluster.metadata(asked, false).await?;
    for topic in &topics {
        check_topic(topic)?;
    }
    if names.is_empty() {
        topics.retain(|topic| !topic.is_internal);
    }
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    for topic in &mut topics {
        topic
            .partitions
            .sort_by_key(|partition| partition.partition_index);
    }
    Ok(topics)
}

/// The offset of each query; -1 where no record is that late. A leader that is away is looked for until the patience
/// ends.
pub(super) async fn offsets(
    cluster: &Cluster,
    queries: &[OffsetQuery],
    read_committed: bool,
    patience: Duration,
) -> Result<BTreeMap<PartitionKey, i64>, CliError> {
    let deadline = cluster.rt().now() + patience;
    loop {
        let answers = cluster.list_offsets(queries, read_committed).await;
        let found = answers.and_then(|answers| {
            let offset = |(key, _): &OffsetQuery| {
                let answer = answers.get(key).copied();
                let code = match answer.unwrap_or(Err(ErrorCode::UnknownTopicOrPartition)) {
                    Ok(found) => return Ok((key.clone(), found.offset)),
                    Err(code) => code,
                };
                Err(ClientError::Refused {
                    doing: format!("find offsets of {} partition {}", key.0, key.1),
                    code: code.code(),
                    message: None,
                })
            };
            queries
                .iter()
                .map(offset)
                .collect::<Result<BTreeMap<_, _>, _>>()
        });
        match found {
            Ok(found) => return Ok(found),
            Err(error) if !error.is_retriable() || cluster.rt().now() >= deadline => {
                return Err(error.into());
            }
            Err(_) => {}
        }
        cluster.rt().sleep(RETRY_PAUSE).await;
        let mut topics: Vec<Str> = queries
            .iter()
            .map(|((topic, _), _)| topic.clone())
            .collect();
        topics.sort();
        topics.dedup();
        cluster.metadata(Some(&topics), false).await?;
    }
}

/// That the metadata of a topic is there.
pub(super) fn check_topic(topic: &MetadataResponseTopic) -> Result<(), CliError> {
    let name = topic.name.as_deref().unwrap_or_default();
    match ErrorCode::from_code(topic.error_code) {
        Some(ErrorCode::None) => Ok(()),
        Some(ErrorCode::UnknownTopicOrPartition) => Err(CliError::Found(format!(
            "there is no topic {name}; see `highwater topic list`"
        ))),
        _ => Err(ClientError::Refused {
            doing: format!("look up topic {name}"),
            code: topic.error_code,
            message: None,
        }
        .into()),
    }
}

/// Reads NAME=VALUE.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

/// Reads TOPIC or TOPIC:0,2,5.
pub(super) fn topic_partitions(text: &str) -> Result<(String, Option<Vec<i32>>), String> {
    let Some((topic, list)) = text.rsplit_once(':') else {
        return Ok((text.to_owned(), None));
    };
    let partitions: Option<Vec<i32>> = list
        .split(',')
        .map(|one| one.parse().ok().filter(|partition| *partition >= 0))
        .collect();
    match partitions {
        Some(partitions) if !topic.is_empty() => Ok((topic.to_owned(), Some(partitions))),
        _ => Err("write TOPIC or TOPIC:PARTITION,PARTITION".to_owned()),
    }
}

/// Several selections of partitions as one: for each topic its partitions, `None` for all.
pub(super) fn merged(
    selections: &[(String, Option<Vec<i32>>)],
) -> BTreeMap<String, Option<Vec<i32>>> {
    let mut merged: BTreeMap<String, Option<Vec<i32>>> = BTreeMap::new();
    for (topic, partitions) in selections {
        match (merged.get_mut(topic), partitions) {
            (None, partitions) => {
                merged.insert(topic.clone(), partitions.clone());
            }
            (Some(Some(known)), Some(more)) => known.extend(more),
            (Some(known), None) => *known = None,
            (Some(None), Some(_)) => {}
        }
    }
    for partitions in merged.values_mut().flatten() {
        partitions.sort_unstable();
        partitions.dedup();
    }
    merged
}

const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// The partitions of a selection, which must exist.
pub(super) async fn partitions(
    cluster: &Cluster,
    wanted: &BTreeMap<String, Option<Vec<i32>>>,
) -> Result<Vec<PartitionKey>, CliError> {
    let names: Vec<String> = wanted.keys().cloned().collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut keys = BTreeSet::new();
    for topic in topics(cluster, &names).await? {
        let name = topic.name.unwrap_or_default();
        let known: BTreeSet<i32> = topic.partitions.iter().map(|p| p.partition_index).collect();
        let chosen = match wanted.get(name.as_str()).cloned().flatten() {
            Some(partitions) => partitions.into_iter().collect(),
            None => known.clone(),
        };
        if let Some(missing) = chosen.difference(&known).next() {
            let sentence = format!(
                "topic {name} has no partition {missing}; it has {}",
                known.len()
            );
            return Err(CliError::Found(sentence));
        }
        keys.extend(
            chosen
                .into_iter()
                .map(|partition| (name.clone(), partition)),
        );
    }
    Ok(keys.into_iter().collect())
}

/// The longest that connecting may take, whatever `--timeout` says.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_have_a_name() {
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(pair("a").is_err() && pair("=b").is_err());
    }

    #[test]
    fn partitions_follow_a_colon() {
        assert_eq!(topic_partitions("t"), Ok(("t".to_owned(), None)));
        assert_eq!(
            topic_partitions("t:3,1"),
            Ok(("t".to_owned(), Some(vec![3, 1])))
        );
        for bad in ["t:", "t:x", "t:-1", ":1", "t:1,"] {
            assert!(topic_partitions(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_topic_that_is_named_twice_has_the_partitions_of_both() {
        let one = |text| topic_partitions(text).unwrap();
        let merged = merged(&[one("t:2"), one("u:1"), one("t:0,2"), one("u")]);
        assert_eq!(merged["t"], Some(vec![0, 2]));
        assert_eq!(merged["u"], None);
    }
}
