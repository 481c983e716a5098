//! DescribeTopicPartitions (KIP-966): topics in the order of their names, page by page.
//!
//! A page ends after as many partitions as the request and
//! `max.request.partition.size.limit` allow; its cursor names the partition that comes
//! next, of a topic that may be gone when it is asked for.

use super::metadata::NO_LEADER;
use super::operations::TOPIC_OPERATIONS;
use super::respond::{Answer, Asked, BadRequest};
use crate::metadata::{is_internal_topic, validate_topic_name, Image, PartitionImage};
use crate::protocol::messages::{
    DescribeTopicPartitionsCursor, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use crate::protocol::{ErrorCode, Str};
use crate::shard::Shard;
use std::collections::BTreeSet;
use uuid::Uuid;

pub(super) async fn run(
    shard: &Shard,
    asked: Asked,
    request: DescribeTopicPartitionsRequest,
) -> Result<Answer, BadRequest> {
    let limit = shard.config().max_request_partition_size_limit;
    let response = match shard.image() {
        Some(image) => page(&image, &request, limit, &|id, p| {
            shard.is_replica_offline(id, p)
        }),
        None => DescribeTopicPartitionsResponse::default(),
    };
    Ok(asked.answer(&response)?)
}

fn page(
    image: &Image,
    request: &DescribeTopicPartitionsRequest,
    limit: u32,
    is_offline: &dyn Fn(Uuid, &PartitionImage) -> bool,
) -> DescribeTopicPartitionsResponse {
    let (from, from_partition) = match &request.cursor {
        Some(cursor) => (&*cursor.topic_name, cursor.partition_index),
        None => ("", 0),
    };
    let Ok(from_partition) = usize::try_from(from_partition) else {
        return refuse_all(request);
    };
    let mut page = Page {
        image,
        is_offline,
        left: request.response_partition_limit.clamp(1, limit as i32) as usize,
        response: DescribeTopicPartitionsResponse::default(),
    };
    let first_of = |name: &str| if name == from { from_partition } else { 0 };
    if request.topics.is_empty() {
        for topic in image.topics_from(from) {
            if !page.add(&topic.name, first_of(&topic.name)) {
                break;
            }
        }
    } else {
        let names = request.topics.iter().map(|topic| &*topic.name);
        let mut names: BTreeSet<&str> = names.filter(|name| *name >= from).collect();
        // It may be gone, or not be asked for again.
        names.extend(request.cursor.as_ref().map(|cursor| &*cursor.topic_name));
        for name in names {
            if !page.add(name, first_of(name)) {
                break;
            }
        }
    }
    page.response
}

struct Page<'a> {
    image: &'a Image,
    is_offline: &'a dyn Fn(Uuid, &PartitionImage) -> bool,
    /// How many partitions it still has room for.
    left: usize,
    response: DescribeTopicPartitionsResponse,
}

impl Page<'_> {
    /// Adds a topic's partitions from `first` on; false if the page is full before they end.
    fn add(&mut self, name: &str, first: usize) -> bool {
        if self.left == 0 {
            self.end_at(name, 0);
            return false;
        }
        let Some(topic) = self.image.topic(name) else {
            let code = match validate_topic_name(name) {
                Ok(()) => ErrorCode::UnknownTopicOrPartition,
                Err(_) => ErrorCode::InvalidTopicException,
            };
            self.response.topics.push(failed(name, code));
            return true;
        };
        let end = first.saturating_add(self.left).min(topic.partitions.len());
        let partitions = topic.partitions.get(first..end).unwrap_or_default();
        self.left -= partitions.len();
        self.response
            .topics
            .push(DescribeTopicPartitionsResponseTopic {
                topic_id: topic.id,
                partitions: partitions
                    .iter()
                    .map(|one| partition(one, (self.is_offline)(topic.id, one)))
                    .collect(),
                ..failed(name, ErrorCode::None)
            });
        if end < topic.partitions.len() {
            self.end_at(name, end);
            return false;
        }
        true
    }

    fn end_at(&mut self, name: &str, partition: usize) {
        self.response.next_cursor = Some(DescribeTopicPartitionsCursor {
            topic_name: Str::from(name.to_owned()),
            partition_index: partition as i32,
        });
    }
}

fn partition(
    partition: &PartitionImage,
    is_offline: bool,
) -> DescribeTopicPartitionsResponsePartition {
    let known = DescribeTopicPartitionsResponsePartition {
        partition_index: partition.index,
        leader_id: partition.leader,
        leader_epoch: partition.leader_epoch,
        replica_nodes: partition.replicas.to_vec(),
        isr_nodes: partition.isr.to_vec(),
        // Known to be empty, which null would not say: one replica never leaves the ISR.
        eligible_leader_replicas: Some(Vec::new()),
        last_known_elr: Some(Vec::new()),
        ..Default::default()
    };
    match is_offline {
        false => known,
        true => DescribeTopicPartitionsResponsePartition {
            error_code: ErrorCode::LeaderNotAvailable.code(),
            leader_id: NO_LEADER,
            offline_replicas: partition.replicas.to_vec(),
            ..known
        },
    }
}

fn failed(name: &str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic {
        error_code: code.code(),
        name: Some(Str::from(name.to_owned())),
        topic_id: Uuid::nil(),
        is_internal: is_internal_topic(name),
        partitions: Vec::new(),
        topic_authorized_operations: TOPIC_OPERATIONS,
    }
}

/// The answer to a cursor that names no partition.
fn refuse_all(request: &DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse {
    let refused = |name: &str| DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::InvalidRequest.code(),
        name: Some(Str::from(name.to_owned())),
        ..Default::default()
    };
    DescribeTopicPartitionsResponse {
        topics: request.topics.iter().map(|t| refused(&t.name)).collect(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Change, Delta, TopicImage};
    use crate::protocol::messages::DescribeTopicPartitionsTopic;
    use std::sync::Arc;

    const LIMIT: u32 = 2000;

    /// Topics `a` of 3 partitions, `b` of 1, `c` of 4.
    fn image() -> Image {
        let mut image = Image::empty(Uuid::from_u128(7), 1);
        for (i, (name, partitions)) in [("c", 4), ("a", 3), ("b", 1)].into_iter().enumerate() {
            let partition = |index| PartitionImage {
                index,
                replicas: [1].into_iter().collect(),
                isr: [1].into_iter().collect(),
                leader: 1,
                leader_epoch: 2,
                partition_epoch: 0,
                directories: Default::default(),
            };
            let topic = TopicImage {
                id: Uuid::from_u128(100 + i as u128),
                name: name.into(),
                partitions: (0..partitions).map(partition).collect(),
                configs: Default::default(),
            };
            image = image.apply(&Delta {
                previous: image.version(),
                offset: image.version() + 1,
                changes: vec![Change::TopicCreated(Arc::new(topic))],
            });
        }
        image
    }

    fn ask(
        topics: &[&str],
        limit: i32,
        cursor: Option<(&str, i32)>,
    ) -> DescribeTopicPartitionsRequest {
        DescribeTopicPartitionsRequest {
            topics: topics
                .iter()
                .map(|name| DescribeTopicPartitionsTopic {
                    name: Str::from((*name).to_owned()),
                })
                .collect(),
            response_partition_limit: limit,
            cursor: cursor.map(|(name, partition_index)| DescribeTopicPartitionsCursor {
                topic_name: Str::from(name.to_owned()),
                partition_index,
            }),
        }
    }

    /// Of each topic its name, error and partitions; then the cursor.
    type Told = (Vec<(String, i16, Vec<i32>)>, Option<(String, i32)>);

    fn told(response: DescribeTopicPartitionsResponse) -> Told {
        let topics = response.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|p| p.partition_index);
            let name = topic.name.expect("a name").to_string();
            (name, topic.error_code, partitions.collect())
        });
        let cursor = response.next_cursor;
        let cursor = cursor.map(|c| (c.topic_name.to_string(), c.partition_index));
        (topics.collect(), cursor)
    }

    fn topic(name: &str, code: ErrorCode, partitions: &[i32]) -> (String, i16, Vec<i32>) {
        (name.to_owned(), code.code(), partitions.to_vec())
    }

    fn good(name: &str, partitions: &[i32]) -> (String, i16, Vec<i32>) {
        topic(name, ErrorCode::None, partitions)
    }

    #[test]
    fn no_names_are_all_topics_and_all_come_in_the_order_of_names() {
        let all = vec![
            good("a", &[0, 1, 2]),
            good("b", &[0]),
            good("c", &[0, 1, 2, 3]),
        ];
        let image = image();
        assert_eq!(
            told(page(&image, &ask(&[], 100, None), LIMIT, &|_, _| false)),
            (all.clone(), None)
        );
        let asked = ask(&["c", "b", "a", "b"], 100, None);
        assert_eq!(
            told(page(&image, &asked, LIMIT, &|_, _| false)),
            (all, None)
        );
    }

    #[test]
    fn what_is_wrong_with_a_name_is_said_at_the_topic() {
        let asked = ask(&["b", "nope", "n:o"], 100, None);
        let expected = vec![
            good("b", &[0]),
            topic("n:o", ErrorCode::InvalidTopicException, &[]),
            topic("nope", ErrorCode::UnknownTopicOrPartition, &[]),
        ];
        assert_eq!(
            told(page(&image(), &asked, LIMIT, &|_, _| false)),
            (expected, None)
        );
    }

    #[test]
    fn pages_of_every_size_follow_one_another_to_the_end() {
        let image = image();
        for names in [&[][..], &["a", "b", "c", "x"][..]] {
            for (limit, broker) in [
                (1, LIMIT),
                (2, LIMIT),
                (3, LIMIT),
                (7, LIMIT),
                (100, 3),
                (0, LIMIT),
                (-5, LIMIT),
            ] {
                let mut seen = Vec::new();
                let mut cursor: Option<(String, i32)> = None;
                let most = limit.clamp(1, broker as i32) as usize;
                for _ in 0..20 {
                    let at = cursor.as_ref().map(|(name, index)| (name.as_str(), *index));
                    let (topics, next) =
                        told(page(&image, &ask(names, limit, at), broker, &|_, _| false));
                    let before = seen.len();
                    for (name, _, partitions) in &topics {
                        seen.extend(partitions.iter().map(|p| (name.clone(), *p)));
                    }
                    assert!(seen.len() - before <= most, "limit {limit}");
                    assert!(
                        next.is_none() || seen.len() - before == most,
                        "limit {limit}"
                    );
                    cursor = next;
                    if cursor.is_none() {
                        break;
                    }
                }
                let all = [("a", 3), ("b", 1), ("c", 4)]
                    .into_iter()
                    .flat_map(|(name, count)| (0..count).map(move |p| (name.to_owned(), p)));
                assert_eq!(seen, all.collect::<Vec<_>>(), "limit {limit}, {names:?}");
                assert_eq!(cursor, None, "limit {limit}");
            }
        }
    }

    #[test]
    fn a_cursor_skips_what_lies_before_it_and_its_topic_may_be_gone() {
        let image = image();
        let rest = vec![good("b", &[0]), good("c", &[0, 1, 2, 3])];
        let asked = ask(&[], 100, Some(("aa", 5)));
        assert_eq!(
            told(page(&image, &asked, LIMIT, &|_, _| false)),
            (rest.clone(), None)
        );
        // With names the missing topic is told.
        let asked = ask(&["a", "b", "c"], 100, Some(("aa", 5)));
        let mut with_error = vec![topic("aa", ErrorCode::UnknownTopicOrPartition, &[])];
        with_error.extend(rest);
        assert_eq!(
            told(page(&image, &asked, LIMIT, &|_, _| false)),
            (with_error, None)
        );
        // Beyond the topic's last partition: it has shrunk, by being created anew.
        let asked = ask(&["c"], 100, Some(("c", i32::MAX)));
        assert_eq!(
            told(page(&image, &asked, LIMIT, &|_, _| false)),
            (vec![good("c", &[])], None)
        );
    }

    #[test]
    fn a_cursor_before_the_first_partition_is_refused() {
        let asked = ask(&["b", "a"], 100, Some(("a", -1)));
        let expected = vec![
            topic("b", ErrorCode::InvalidRequest, &[]),
            topic("a", ErrorCode::InvalidRequest, &[]),
        ];
        assert_eq!(
            told(page(&image(), &asked, LIMIT, &|_, _| false)),
            (expected, None)
        );
    }
}
