//! Reads partitions from their leaders: one connection and at most one fetch in flight for each leader, all leaders at
//! once. While an answer is printed, the next one is already asked for; more is not held.
//!
//! A leader that moved or is gone is looked for again until the patience ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::cli::CliError;
use crate::client::{ClientError, Cluster, PartitionKey, EARLIEST, LATEST};
use crate::protocol::batch::{BatchError, BatchHeader, Batches, RecordIter, RECORDS_BYTES_MAX};
use crate::protocol::messages::*;
use crate::protocol::{ErrorCode, Str};
use crate::runtime::local::{channel, Receiver, Sender};
use crate::runtime::{Mono, Queue};

/// How partitions are read.
#[derive(Debug, Clone)]
pub(in crate::cli) struct FetchOptions {
    pub read_committed: bool,
    /// How long a leader may be away.
    pub patience: Duration,
}

/// The records of one batch, decompressed.
pub(in crate::cli) struct FetchedBatch {
    pub key: PartitionKey,
    pub header: BatchHeader,
    pub records: Bytes,
    /// Records below are not asked for.
    pub from: i64,
    /// Records at and above are not asked for.
    pub until: i64,
}

/// Partitions that are read.
pub(in crate::cli) struct Fetcher {
    cluster: Cluster,
    options: FetchOptions,
    positions: BTreeMap<PartitionKey, Position>,
    /// Which assignment an answer belongs to.
    assignment: u64,
    in_flight: BTreeSet<i32>,
    answers: Receiver<Answer>,
    report: Sender<Answer>,
    /// Since when no leader could be asked.
    trouble: Option<Mono>,
}

struct Position {
    next: i64,
    until: i64,
    /// Producers whose transaction was aborted and whose marker is still to come.
    aborted: BTreeSet<i64>,
}

/// What one leader answered.
pub(in crate::cli) struct Answer {
    leader: i32,
    assignment: u64,
    result: Result<FetchResponse, ClientError>,
}

impl Fetcher {
    pub fn new(cluster: Cluster, options: FetchOptions) -> Fetcher {
        let (report, answers) = channel(ANSWERS_MAX);
        Fetcher {
            cluster,
            options,
            positions: BTreeMap::new(),
            assignment: 0,
            in_flight: BTreeSet::new(),
            answers,
            report,
            trouble: None,
        }
    }

    /// Reads these from now on, each from an offset and up to one (exclusive), and nothing else.
    pub fn assign(&mut self, positions: impl IntoIterator<Item = (PartitionKey, i64, i64)>) {
        self.assignment += 1;
        let position = |(key, next, until)| {
            let aborted = BTreeSet::new();
            let position = Position {
                next,
                until,
                aborted,
            };
            (key, position)
        };
        self.positions = positions.into_iter().map(position).collect();
    }

    /// Whether every partition is read up to its end.
    pub fn is_done(&self) -> bool {
        self.positions.values().all(Position::is_done)
    }

    /// The next offset of each partition.
    pub fn moved(&self) -> impl Iterator<Item = (PartitionKey, i64)> + '_ {
        self.positions
            .iter()
            .map(|(key, position)| (key.clone(), position.next.min(position.until)))
    }

    /// Asks every leader that owes no answer for what it leads.
    pub fn start(&mut self) {
        let mut by_leader: BTreeMap<i32, BTreeMap<&Str, Vec<FetchPartition>>> = BTreeMap::new();
        for (key, position) in self
            .positions
            .iter()
            .filter(|(_, position)| !position.is_done())
        {
            let Some(leader) = self.cluster.leader(key) else {
                continue;
            };
            if self.in_flight.contains(&leader) {
                continue;
            }
            let partition = FetchPartition {
                partition: key.1,
                fetch_offset: position.next,
                partition_max_bytes: PARTITION_BYTES_MAX,
                ..Default::default()
            };
            by_leader
                .entry(leader)
                .or_default()
                .entry(&key.0)
                .or_default()
                .push(partition);
        }
        let requests: Vec<(i32, FetchRequest)> = by_leader
            .into_iter()
            .map(|(leader, topics)| (leader, self.request(topics)))
            .collect();
        for (leader, request) in requests {
            self.in_flight.insert(leader);
            let (cluster, report, assignment) =
                (self.cluster.clone(), self.report.clone(), self.assignment);
            self.cluster.rt().spawn(Queue::Latency, async move {
                let result = match cluster.node(leader).await {
                    Ok(connection) => connection.call(&request).await,
                    Err(error) => Err(error),
                };
                let answer = Answer {
                    leader,
                    assignment,
                    result,
                };
                // Nobody waits for it once the command ends.
                let _ = report.send(answer).await;
            });
        }
    }

    /// Waits for an answer; `None` if there is nobody to ask at the moment. May be dropped.
    pub async fn answer(&mut self) -> Option<Answer> {
        if self.in_flight.is_empty() {
            return None;
        }
        self.answers.recv().await
    }

    /// The batches of an answer, perhaps none. What it moves past it returns, so it must not be dropped.
    pub async fn take(&mut self, answer: Option<Answer>) -> Result<Vec<FetchedBatch>, CliError> {
        let Some(answer) = answer else {
            self.look_again(self.leaderless()).await?;
            return Ok(Vec::new());
        };
        self.in_flight.remove(&answer.leader);
        if answer.assignment != self.assignment {
            return Ok(Vec::new());
        }
        let response = match answer.result {
            Ok(response) => response,
            Err(error) => {
                self.look_again(Some(error)).await?;
                return Ok(Vec::new());
            }
        };
        ClientError::check(response.error_code, None, || "read records".to_owned())?;
        let mut batches = Vec::new();
        let mut moved = None;
        for topic in response.responses {
            let name = match topic.topic.is_empty() {
                false => topic.topic,
                true => self.cluster.topic_name(topic.topic_id).unwrap_or_default(),
            };
            for data in topic.partitions {
                let key = (name.clone(), data.partition_index);
                if let Some(error) = self.take_partition(&key, data, &mut batches).await? {
                    moved = Some(error);
                }
            }
        }
        match moved.or(self.leaderless()) {
            // What was read first; the wait would keep it from the reader.
            Some(_) if !batches.is_empty() => {}
            Some(error) => self.look_again(Some(error)).await?,
            None => self.trouble = None,
        }
        Ok(batches)
    }

    /// The error of a partition that is still to be read and has no leader, if there is one.
    fn leaderless(&self) -> Option<ClientError> {
        let mut open = self
            .positions
            .iter()
            .filter(|(_, position)| !position.is_done());
        let (key, _) = open.find(|(key, _)| self.cluster.leader(key).is_none())?;
        let code = ErrorCode::LeaderNotAvailable.code();
        ClientError::check(code, None, || format!("read {} partition {}", key.0, key.1)).err()
    }

    /// Takes one partition's part of an answer. `Some`: its leader is to be looked for.
    async fn take_partition(
        &mut self,
        key: &PartitionKey,
        data: PartitionData,
        batches: &mut Vec<FetchedBatch>,
    ) -> Result<Option<ClientError>, CliError> {
        let Some(position) = self.positions.get_mut(key) else {
            return Ok(None);
        };
        let doing = || {
            format!(
                "read {} partition {} at offset {}",
                key.0, key.1, position.next
            )
        };
        if data.error_code == ErrorCode::OffsetOutOfRange.code() {
            self.reset(key).await?;
            return Ok(None);
        }
        if let Err(error) = ClientError::check(data.error_code, None, doing) {
            return if error.is_retriable() {
                Ok(Some(error))
            } else {
                Err(error.into())
            };
        }
        let bytes = data
            .records
            .map(|records| records.to_bytes())
            .unwrap_or_default();
        let aborted = data.aborted_transactions.unwrap_or_default();
        position
            .decode(key, bytes, &aborted, self.options.read_committed, batches)
            .map_err(|error| {
                CliError::Found(format!(
                    "cannot read {} partition {} at offset {}: {error}",
                    key.0, key.1, position.next
                ))
            })?;
        Ok(None)
    }

    /// The position is outside the log: deleted records are passed over, and told; behind the end is the end.
    async fn reset(&mut self, key: &PartitionKey) -> Result<(), CliError> {
        let queries = |mark| [(key.clone(), mark)];
        let first = self.cluster.list_offsets(&queries(EARLIEST), false).await?;
        let end = self.cluster.list_offsets(&queries(LATEST), false).await?;
        let (Some(Ok(first)), Some(Ok(end))) = (first.get(key), end.get(key)) else {
            return Ok(());
        };
        let Some(position) = self.positions.get_mut(key) else {
            return Ok(());
        };
        let to = if position.next < first.offset {
            first.offset
        } else {
            end.offset
        };
        eprintln!(
            "highwater: {} partition {}: offset {} is not in the log ({} to {}); going on at {to}",
            key.0, key.1, position.next, first.offset, end.offset
        );
        position.next = to;
        Ok(())
    }

    /// Waits a little and asks who leads; fails with `error` if that has gone on too long.
    async fn look_again(&mut self, error: Option<ClientError>) -> Result<(), CliError> {
        let now = self.cluster.rt().now();
        let since = *self.trouble.get_or_insert(now);
        if let Some(error) = error {
            if !error.is_retriable() || now.since(since) >= self.options.patience {
                return Err(error.into());
            }
        }
        self.cluster.rt().sleep(RETRY_PAUSE).await;
        let mut topics: Vec<Str> = self.positions.keys().map(|key| key.0.clone()).collect();
        topics.dedup();
        // If this fails, so does the next fetch, and says why.
        let _ = self.cluster.metadata(Some(&topics), false).await;
        Ok(())
    }

    fn request(&self, topics: BTreeMap<&Str, Vec<FetchPartition>>) -> FetchRequest {
        let topic = |(name, partitions): (&Str, Vec<FetchPartition>)| FetchTopic {
            topic: name.clone(),
            topic_id: self.cluster.topic_id(name),
            partitions,
        };
        FetchRequest {
            max_wait_ms: WAIT_MS_MAX,
            min_bytes: 1,
            max_bytes: ANSWER_BYTES_MAX,
            isolation_level: i8::from(self.options.read_committed),
            topics: topics.into_iter().map(topic).collect(),
            ..Default::default()
        }
    }
}

impl Position {
    fn is_done(&self) -> bool {
        self.next >= self.until
    }

    /// Cuts the batches of an answer and moves behind them. Batches without records for a client are left out.
    fn decode(
        &mut self,
        key: &PartitionKey,
        bytes: Bytes,
        aborted: &[AbortedTransaction],
        read_committed: bool,
        batches: &mut Vec<FetchedBatch>,
    ) -> Result<(), BatchError> {
        let mut aborted: Vec<&AbortedTransaction> = aborted.iter().collect();
        aborted.sort_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
        for (whole, batch) in Batches::new(bytes).enumerate() {
            let batch = match batch {
                Ok(batch) => batch,
                // A fetch may cut off its last batch.
                Err(BatchError::Incomplete { .. }) if whole > 0 => break,
                Err(error) => return Err(error),
            };
            let header = *batch.header();
            if header.next_offset() <= self.next || self.is_done() {
                continue;
            }
            batch.validate_crc()?;
            while aborted
                .last()
                .is_some_and(|t| t.first_offset <= header.last_offset())
            {
                self.aborted
                    .extend(aborted.pop().map(|transaction| transaction.producer_id));
            }
            let from = self.next;
            self.next = header.next_offset();
            if header.attributes.is_control() {
                // A marker ends its producer's transaction, whichever way.
                self.aborted.remove(&header.producer_id);
                continue;
            }
            let is_aborted =
                header.attributes.is_transactional() && self.aborted.contains(&header.producer_id);
            if read_committed && is_aborted {
                continue;
            }
            let records = batch.decompressed(RECORDS_BYTES_MAX)?;
            // Every record is looked at before one is printed.
            RecordIter::new(&records, header.record_count)
                .try_for_each(|record| record.map(drop))?;
            batches.push(FetchedBatch {
                key: key.clone(),
                header,
                records,
                from,
                until: self.until,
            });
        }
        Ok(())
    }
}

/// Longest wait of a broker for records, ms.
const WAIT_MS_MAX: i32 = 500;
/// Largest part of one partition in an answer, bytes.
const PARTITION_BYTES_MAX: i32 = 1 << 20;
/// Largest answer, bytes.
const ANSWER_BYTES_MAX: i32 = 16 << 20;
/// Answers that nobody has looked at; there is at most one of each leader.
const ANSWERS_MAX: usize = 64;
const RETRY_PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::batch::{BatchBuilder, Compression};

    fn decode(
        position: &mut Position,
        bytes: Vec<u8>,
        aborted: &[AbortedTransaction],
    ) -> Result<Vec<(i64, i64)>, BatchError> {
        let key = (Str::from("t"), 0);
        let mut batches = Vec::new();
        position.decode(&key, bytes.into(), aborted, true, &mut batches)?;
        Ok(batches
            .iter()
            .map(|b| (b.header.base_offset, b.from))
            .collect())
    }

    fn position(next: i64, until: i64) -> Position {
        Position {
            next,
            until,
            aborted: BTreeSet::new(),
        }
    }

    fn batch(
        base_offset: i64,
        records: usize,
        f: impl Fn(BatchBuilder) -> BatchBuilder,
    ) -> Vec<u8> {
        let mut builder = f(BatchBuilder::new().base_offset(base_offset));
        for _ in 0..records {
            builder.push(0, None, Some(b"value"));
        }
        builder.build().to_vec()
    }

    #[test]
    fn batches_before_the_position_and_behind_the_end_are_left_out() {
        let plain = |b: BatchBuilder| b;
        let packed = |b: BatchBuilder| b.compression(Compression::Zstd);
        let all = [
            batch(0, 3, plain),
            batch(3, 2, packed),
            batch(5, 4, plain),
            batch(9, 1, plain),
        ]
        .concat();
        let mut from_four = position(4, 7);
        assert_eq!(
            decode(&mut from_four, all.clone(), &[]).unwrap(),
            [(3, 4), (5, 5)]
        );
        assert!(from_four.is_done());
        // Cut off at the end.
        let mut from_zero = position(0, i64::MAX);
        let cut = all[..all.len() - 3].to_vec();
        assert_eq!(
            decode(&mut from_zero, cut, &[]).unwrap(),
            [(0, 0), (3, 3), (5, 5)]
        );
        assert_eq!(from_zero.next, 9);
    }

    #[test]
    fn aborted_transactions_and_markers_are_left_out() {
        let of = |id: i64| move |b: BatchBuilder| b.producer(id, 0, 0).transactional(true);
        let marker = |id: i64| {
            move |b: BatchBuilder| b.producer(id, 0, -1).transactional(true).control(true)
        };
        let all = [
            batch(0, 1, of(7)),
            batch(1, 1, of(8)),
            batch(2, 1, marker(7)),
            batch(3, 1, of(7)),
            batch(4, 1, marker(7)),
            batch(5, 1, marker(8)),
        ]
        .concat();
        let aborted = [AbortedTransaction {
            producer_id: 7,
            first_offset: 0,
        }];
        let mut position = position(0, i64::MAX);
        assert_eq!(
            decode(&mut position, all, &aborted).unwrap(),
            [(1, 1), (3, 3)]
        );
        assert_eq!(position.next, 6);
    }

    #[test]
    fn damage_is_an_error() {
        let mut bytes = batch(0, 1, |b| b);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert!(decode(&mut position(0, 9), bytes, &[]).is_err());
    }
}
