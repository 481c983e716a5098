//! Sends batches, at most one of each partition at a time: so order holds and a retry repeats exactly one batch.
//!
//! What gathers while a partition's batch is on its way becomes its next one, so batches are as large as the broker is
//! slow. An idempotent producer's sequence moves only with a batch that was taken; a batch whose fate is not known makes
//! its partition go on under a new producer id.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use super::input::InputRecord;
use crate::client::{ClientError, Cluster};
use crate::protocol::batch::{BatchBuilder, Compression};
use crate::protocol::messages::*;
use crate::protocol::{ApiKey, ErrorCode, Records, Str};
use crate::runtime::local::{channel, Receiver, Sender};
use crate::runtime::Queue;

/// How records are sent.
#[derive(Debug, Clone)]
pub(super) struct SendOptions {
    pub topic: Str,
    pub acks: i16,
    pub compression: Compression,
    pub batch_bytes: usize,
    pub timeout: Duration,
}

/// What became of one batch.
pub(super) struct Sent {
    pub partition: i32,
    pub records: usize,
    /// Its bytes before compression.
    pub bytes: usize,
    /// The offset of its first record; -1 if the broker did not say.
    pub result: Result<i64, ClientError>,
    identity: Option<Identity>,
}

/// Who an idempotent producer is to one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    id: i64,
    epoch: i16,
    sequence: i32,
}

/// Batches on their way and those that wait.
pub(super) struct Dispatch {
    shared: Rc<Shared>,
    lanes: BTreeMap<i32, Lane>,
    done: Receiver<Sent>,
    in_flight: usize,
    /// Of all batches that are not sent and answered.
    buffered_bytes: usize,
}

struct Shared {
    cluster: Cluster,
    options: SendOptions,
    report: Sender<Sent>,
    /// The producer id for partitions that need one; `None`: to be asked for.
    producer: RefCell<Option<(i64, i16)>>,
    is_idempotent: Cell<bool>,
}

/// One partition's.
#[derive(Default)]
struct Lane {
    open: Option<BatchBuilder>,
    ready: VecDeque<BatchBuilder>,
    in_flight: bool,
    identity: Option<Identity>,
}

impl Dispatch {
    pub fn new(cluster: Cluster, options: SendOptions) -> Dispatch {
        let (report, done) = channel(REPORTS_MAX);
        Dispatch {
            shared: Rc::new(Shared {
                is_idempotent: Cell::new(options.acks == ACKS_ALL),
                cluster,
                options,
                report,
                producer: RefCell::new(None),
            }),
            lanes: BTreeMap::new(),
            done,
            in_flight: 0,
            buffered_bytes: 0,
        }
    }

    /// Adds a record. True if it filled a batch.
    pub fn push(&mut self, partition: i32, record: &InputRecord, timestamp: i64) -> bool {
        let options = &self.shared.options;
        let lane = self.lanes.entry(partition).or_default();
        let size = record.size_bytes() + RECORD_OVERHEAD_BYTES;
        let mut filled = false;
        if lane
            .open
            .as_ref()
            .is_some_and(|open| open.size_bytes() + size > options.batch_bytes)
        {
            lane.ready.extend(lane.open.take());
            filled = true;
        }
        let open = lane
            .open
            .get_or_insert_with(|| BatchBuilder::new().compression(options.compression));
        let before = open.size_bytes();
        let headers: Vec<(&str, Option<&[u8]>)> = record
            .headers
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_deref()))
            .collect();
        open.push_with_headers(
            timestamp,
            record.key.as_deref(),
            record.value.as_deref(),
            &headers,
        );
        self.buffered_bytes += open.size_bytes() - before;
        if filled {
            self.start(partition);
        }
        filled
    }

    /// Sends what no batch on its way holds back.
    pub fn flush(&mut self) {
        let partitions: Vec<i32> = self.lanes.keys().copied().collect();
        for partition in partitions {
            self.start(partition);
        }
    }

    /// Whether more records may be added.
    pub fn has_room(&self) -> bool {
        self.buffered_bytes < BUFFERED_BYTES_MAX
    }

    /// Whether all batches are answered, and none waits.
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0
            && self
                .lanes
                .values()
                .all(|lane| lane.open.is_none() && lane.ready.is_empty())
    }

    /// Waits for the next batch that is done; never returns while none is on its way.
    pub async fn next(&mut self) -> Sent {
        let Some(sent) = self.done.recv().await else {
            unreachable!("the sending end is held here");
        };
        self.in_flight -= 1;
        self.buffered_bytes = self.buffered_bytes.saturating_sub(sent.bytes);
        if let Some(lane) = self.lanes.get_mut(&sent.partition) {
            lane.in_flight = false;
            lane.identity = sent.identity;
        }
        self.start(sent.partition);
        sent
    }

    /// With acks=0 nobody says that a batch arrived: this waits until every leader has read what it was sent.
    pub async fn settle(&self) -> Result<(), ClientError> {
        if self.shared.options.acks != 0 {
            return Ok(());
        }
        let (cluster, topic) = (&self.shared.cluster, &self.shared.options.topic);
        let led = self
            .lanes
            .keys()
            .filter_map(|partition| cluster.leader(&(topic.clone(), *partition)));
        let leaders: BTreeSet<i32> = led.collect();
        for leader in leaders {
            // Answers come in the order of the requests.
            cluster
                .node(leader)
                .await?
                .call(&MetadataRequest::default())
                .await?;
        }
        Ok(())
    }

    fn start(&mut self, partition: i32) {
        let Some(lane) = self.lanes.get_mut(&partition) else {
            return;
        };
        if lane.in_flight {
            return;
        }
        let Some(batch) = lane.ready.pop_front().or_else(|| lane.open.take()) else {
            return;
        };
        lane.in_flight = true;
        self.in_flight += 1;
        let (shared, identity) = (self.shared.clone(), lane.identity);
        self.shared
            .cluster
            .rt()
            .clone()
            .spawn(Queue::Latency, async move {
                let sent = shared.deliver(partition, batch, identity).await;
                // The receiver ends with the process only.
                let _ = shared.report.send(sent).await;
            });
    }
}

impl Shared {
    async fn deliver(&self, partition: i32, batch: BatchBuilder, known: Option<Identity>) -> Sent {
        let (records, bytes) = (batch.record_count(), batch.size_bytes() - EMPTY_BATCH_BYTES);
        let mut sent = Sent {
            partition,
            records,
            bytes,
            result: Ok(-1),
            identity: known,
        };
        let deadline = self.cluster.rt().now() + self.options.timeout;
        let batch = match self.identified(batch, &mut sent.identity).await {
            Ok(batch) => Records::from(batch),
            Err(error) => {
                sent.result = Err(error);
                return sent;
            }
        };
        loop {
            sent.result = self.attempt(partition, &batch).await;
            match &sent.result {
                Err(error) if error.code() == Some(ErrorCode::DuplicateSequenceNumber) => {
                    // An earlier attempt was taken and its answer lost.
                    sent.result = Ok(-1);
                }
                Err(error) if error.is_retriable() && self.cluster.rt().now() < deadline => {
                    self.cluster.rt().sleep(RETRY_PAUSE).await;
                    let topics = [self.options.topic.clone()];
                    // If this fails, so does the next attempt, and says why.
                    let _ = self.cluster.metadata(Some(&topics), false).await;
                    continue;
                }
                _ => {}
            }
            break;
        }
        sent.identity = self.next_identity(sent.identity, records, &sent.result);
        sent
    }

    /// The batch with its producer id, where the broker gives one.
    async fn identified(
        &self,
        batch: BatchBuilder,
        identity: &mut Option<Identity>,
    ) -> Result<bytes::Bytes, ClientError> {
        if !self.is_idempotent.get() {
            return Ok(batch.build());
        }
        if identity.is_none() {
            *identity = self.new_identity().await?;
        }
        Ok(match identity {
            Some(Identity {
                id,
                epoch,
                sequence,
            }) => batch.producer(*id, *epoch, *sequence).build(),
            None => batch.build(),
        })
    }

    /// `None`: the broker does not offer it, or not to us, and the records go without.
    async fn new_identity(&self) -> Result<Option<Identity>, ClientError> {
        let known = *self.producer.borrow();
        let (id, epoch) = match known {
            Some(known) => known,
            None => {
                let connection = self.cluster.any().await?;
                if connection.version_of(ApiKey::InitProducerId).is_err() {
                    self.is_idempotent.set(false);
                    return Ok(None);
                }
                let Some(given) = self.ask_producer_id().await? else {
                    return Ok(None);
                };
                *self.producer.borrow_mut() = Some(given);
                given
            }
        };
        Ok(Some(Identity {
            id,
            epoch,
            sequence: 0,
        }))
    }

    async fn ask_producer_id(&self) -> Result<Option<(i64, i16)>, ClientError> {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 60_000,
            ..Default::default()
        };
        let deadline = self.cluster.rt().now() + self.options.timeout;
        loop {
            let answer = self.cluster.any().await?.call(&request).await?;
            if answer.error_code == ErrorCode::ClusterAuthorizationFailed.code() {
                self.is_idempotent.set(false);
                return Ok(None);
            }
            let checked =
                ClientError::check(answer.error_code, None, || "get a producer id".to_owned());
            match checked {
                Ok(()) => return Ok(Some((answer.producer_id, answer.producer_epoch))),
                Err(error) if error.is_retriable() && self.cluster.rt().now() < deadline => {
                    self.cluster.rt().sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn next_identity(
        &self,
        used: Option<Identity>,
        records: usize,
        result: &Result<i64, ClientError>,
    ) -> Option<Identity> {
        let used = used?;
        match result {
            Ok(_) => Some(Identity {
                sequence: next_sequence(used.sequence, records),
                ..used
            }),
            Err(error) if was_never_taken(error) => Some(used),
            Err(_) => {
                let mut producer = self.producer.borrow_mut();
                if *producer == Some((used.id, used.epoch)) {
                    *producer = None;
                }
                None
            }
        }
    }

    async fn attempt(&self, partition: i32, batch: &Records) -> Result<i64, ClientError> {
        let topic = &self.options.topic;
        let doing = || format!("produce to {topic} partition {partition}");
        let Some(leader) = self.cluster.leader(&(topic.clone(), partition)) else {
            ClientError::check(ErrorCode::LeaderNotAvailable.code(), None, doing)?;
            return Ok(-1);
        };
        let connection = self.cluster.node(leader).await?;
        let request = ProduceRequest {
            acks: self.options.acks,
            timeout_ms: i32::try_from(self.options.timeout.as_millis()).unwrap_or(i32::MAX),
            topic_data: vec![TopicProduceData {
                name: topic.clone(),
                topic_id: self.cluster.topic_id(topic),
                partition_data: vec![PartitionProduceData {
                    index: partition,
                    records: Some(batch.clone()),
                }],
            }],
            ..Default::default()
        };
        if self.options.acks == 0 {
            connection.send_only(&request).await?;
            return Ok(-1);
        }
        let answer = connection.call(&request).await?;
        let topics = answer.responses.into_iter();
        let Some(answer) = topics.flat_map(|topic| topic.partition_responses).next() else {
            ClientError::check(
                ErrorCode::UnknownServerError.code(),
                Some("the answer names no partition"),
                doing,
            )?;
            return Ok(-1);
        };
        let record = answer
            .record_errors
            .iter()
            .find_map(|e| e.batch_index_error_message.as_deref());
        ClientError::check(
            answer.error_code,
            record.or(answer.error_message.as_deref()),
            doing,
        )?;
        Ok(answer.base_offset)
    }
}

/// Whether the broker has certainly not appended the batch, so that its sequence is still the next one.
fn was_never_taken(error: &ClientError) -> bool {
    let sequence_is_lost = [
        ErrorCode::OutOfOrderSequenceNumber,
        ErrorCode::UnknownProducerId,
        ErrorCode::InvalidProducerEpoch,
        ErrorCode::UnknownServerError,
    ];
    let refused = error.code().filter(|code| !code.is_retriable());
    refused.is_some_and(|code| !sequence_is_lost.contains(&code))
}

/// Sequences go from 0 to `i32::MAX` and on from 0.
fn next_sequence(sequence: i32, records: usize) -> i32 {
    ((i64::from(sequence) + records as i64) % (1 << 31)) as i32
}

/// `acks=all`.
pub(super) const ACKS_ALL: i16 = -1;
/// Batches whose end nobody has looked at yet; at most one waits for each partition beside them.
const REPORTS_MAX: usize = 64;
/// Records that are read and not answered yet, bytes.
const BUFFERED_BYTES_MAX: usize = 32 << 20;
/// More than the fields of a record take beside its content.
const RECORD_OVERHEAD_BYTES: usize = 24;
/// Bytes of a batch without records.
const EMPTY_BATCH_BYTES: usize = crate::protocol::batch::HEADER_BYTES;
const RETRY_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_wrap() {
        assert_eq!(next_sequence(0, 3), 3);
        assert_eq!(next_sequence(i32::MAX, 1), 0);
        assert_eq!(next_sequence(i32::MAX - 1, 3), 1);
    }

    #[test]
    fn a_refusal_keeps_the_sequence_and_a_lost_answer_does_not() {
        let refused = |code: ErrorCode| ClientError::Refused {
            doing: String::new(),
            code: code.code(),
            message: None,
        };
        assert!(was_never_taken(&refused(ErrorCode::MessageTooLarge)));
        assert!(was_never_taken(&refused(ErrorCode::InvalidRecord)));
        for lost in [
            ErrorCode::RequestTimedOut,
            ErrorCode::OutOfOrderSequenceNumber,
        ] {
            assert!(!was_never_taken(&refused(lost)), "{lost}");
        }
        let closed = ClientError::Closed {
            peer: String::new(),
        };
        assert!(!was_never_taken(&closed));
    }
}
