//! The log start offset of a partition: when it moves, who is told, what a stop waits for.

use super::*;
use crate::runtime::local::Event;
use crate::runtime::Queue;
use crate::storage::RetentionError;
use futures_lite::future::{poll_once, zip};

/// What a partition's owner records, and when it answers.
#[derive(Clone, Default)]
struct Recorder(Rc<RecorderState>);

#[derive(Default)]
struct RecorderState {
    asked: RefCell<Vec<i64>>,
    /// It answers only once this is over.
    held: Cell<bool>,
    released: Event,
    fails: Cell<bool>,
}

impl Recorder {
    fn for_options(&self) -> LogStartRecorder {
        let state = self.0.clone();
        Rc::new(move |offset| {
            let state = state.clone();
            Box::pin(async move {
                state.asked.borrow_mut().push(offset);
                state.released.wait_until(|| !state.held.get()).await;
                match state.fails.get() {
                    true => Err("the disk is full".to_owned()),
                    false => Ok(()),
                }
            })
        })
    }

    fn release(&self) {
        self.0.held.set(false);
        self.0.released.notify_all();
    }
}

fn create(bed: &Bed, config: TopicConfig) -> (Partition, Recorder) {
    let recorder = Recorder::default();
    let mut options = options(&bed.rt, config, PartitionLoad::Create);
    options.record_log_start = recorder.for_options();
    (bed.open(options), recorder)
}

fn small_segments() -> TopicConfig {
    TopicConfig {
        segment_bytes: 16 << 10,
        retention_ms: -1,
        retention_bytes: -1,
        ..config(FlushOnAck::All)
    }
}

/// Produces `count` batches of one record of 4,000 bytes.
async fn fill(partition: &Partition, count: usize) {
    for _ in 0..count {
        let ticket = produce(partition, batch(&[[7; 4_000]]), Acks::All);
        ticket.done.await.expect("it is flushed");
    }
}

#[test]
fn given_a_log_start_that_is_not_recorded_yet_then_it_does_not_hold_and_is_not_answered() {
    let bed = Bed::new(1);
    let (partition, recorder) = create(&bed, small_segments());
    bed.run(async {
        fill(&partition, 10).await;
        recorder.0.held.set(true);
        let moved = partition.bound_moved().listen();
        let mut deletion = Box::pin(partition.delete_records(6));
        assert!(poll_once(&mut deletion).await.is_none());
        bed.rt.sleep(Duration::from_secs(1)).await;
        assert!(poll_once(&mut deletion).await.is_none());
        assert_eq!(*recorder.0.asked.borrow(), [6]);
        assert_eq!(partition.numbers().log_start_offset, 0);
        assert!(partition.fetch(fetch_from(0)).await.is_ok());
        recorder.release();
        assert_eq!(deletion.await, Ok(6));
        moved.await;
        assert_eq!(partition.numbers().log_start_offset, 6);
        let below = partition.fetch(fetch_from(5)).await;
        assert_eq!(below.unwrap_err(), ErrorCode::OffsetOutOfRange);
        assert_eq!(
            partition.bytes_available(5, Reader::Consumer),
            Err(ErrorCode::OffsetOutOfRange)
        );
        let earliest = partition
            .list_offset(EARLIEST, -1, Reader::Consumer)
            .await
            .unwrap();
        assert_eq!(earliest.offset, 6);
        assert_eq!(read_all(&partition).await.len(), 4);
        let removed = partition.remove_segments().await.unwrap();
        assert_eq!(removed.segments, 1);
    });
}

#[test]
fn given_offsets_of_all_kinds_then_only_the_visible_part_can_be_deleted() {
    let bed = Bed::new(2);
    let (partition, recorder) = create(&bed, small_segments());
    bed.run(async {
        assert_eq!(partition.delete_records(HIGH_WATERMARK).await, Ok(0));
        fill(&partition, 3).await;
        // Queued, and not visible yet.
        let fourth = produce(&partition, batch(&["x"]), Acks::All);
        for beyond in [4, i64::MAX, -2, i64::MIN] {
            let refused = partition.delete_records(beyond).await;
            assert_eq!(refused, Err(ErrorCode::OffsetOutOfRange), "{beyond}");
        }
        fourth.done.await.expect("it is flushed");
        assert_eq!(partition.delete_records(2).await, Ok(2));
        assert_eq!(partition.delete_records(1).await, Ok(2));
        assert_eq!(partition.delete_records(HIGH_WATERMARK).await, Ok(4));
        assert_eq!(
            *recorder.0.asked.borrow(),
            [2, 4],
            "only what moves is recorded"
        );
        partition.set_config(TopicConfig {
            cleanup_delete: false,
            retention_bytes: 0,
            ..small_segments()
        });
        let refused = partition.delete_records(0).await;
        assert_eq!(refused, Err(ErrorCode::PolicyViolation));
        fill(&partition, 10).await;
        assert_eq!(partition.expire(i64::MAX / 2).await.unwrap().segments, 0);
        assert_eq!(partition.numbers().log_start_offset, 4);
    });
}

#[test]
fn given_a_recording_that_fails_then_nothing_moves_and_it_can_be_tried_again() {
    let bed = Bed::new(3);
    let (partition, recorder) = create(&bed, small_segments());
    bed.run(async {
        fill(&partition, 10).await;
        recorder.0.fails.set(true);
        let failed = partition.delete_records(5).await;
        assert_eq!(failed, Err(ErrorCode::KafkaStorageError));
        partition.set_config(TopicConfig {
            retention_bytes: 20_000,
            ..small_segments()
        });
        let failed = partition.expire(NOW_MS).await.unwrap_err();
        assert!(matches!(failed, RetentionError::Record(_)), "{failed}");
        assert_eq!(partition.numbers().log_start_offset, 0);
        assert_eq!(read_all(&partition).await.len(), 10);
        recorder.0.fails.set(false);
        let removed = partition.expire(NOW_MS).await.unwrap();
        assert!(removed.segments > 0 && removed.bytes > 0);
        let start = partition.numbers().log_start_offset;
        assert_eq!(read_all(&partition).await.len() as i64, 10 - start);
        assert_eq!(partition.expire(NOW_MS).await.unwrap().segments, 0);
    });
}

#[test]
fn given_a_recording_under_way_when_the_partition_closes_then_the_close_waits_for_it() {
    for deleted in [false, true] {
        let bed = Bed::new(4);
        let (partition, recorder) = create(&bed, small_segments());
        bed.run(async {
            fill(&partition, 10).await;
            recorder.0.held.set(true);
            let held = recorder.clone();
            let rt = bed.rt.clone();
            bed.rt.spawn(Queue::Latency, async move {
                rt.sleep(Duration::from_secs(5)).await;
                held.release();
            });
            let stop = async {
                match deleted {
                    true => partition.delete().await,
                    false => {
                        let closed = partition.close().await.expect("a clean stop");
                        assert_eq!(closed.log_start, 5, "the last word");
                    }
                }
                assert!(!recorder.0.held.get(), "it has waited");
            };
            let (answer, ()) = zip(partition.delete_records(5), stop).await;
            // It is durable, but a partition that stops answers nothing else.
            let code = match deleted {
                true => ErrorCode::UnknownTopicOrPartition,
                false => ErrorCode::NotLeaderOrFollower,
            };
            assert_eq!(answer, Err(code));
            let late = partition.delete_records(6).await;
            assert_eq!(late, Err(code));
            assert_eq!(partition.expire(NOW_MS).await.unwrap().segments, 0);
        });
    }
}

#[test]
fn given_an_expired_partition_with_a_producer_then_appends_and_retention_go_on_side_by_side() {
    let bed = Bed::new(5);
    let (partition, _) = create(
        &bed,
        TopicConfig {
            retention_ms: 1,
            ..small_segments()
        },
    );
    bed.run(async {
        let mut removed = 0;
        for _ in 0..30 {
            let (expired, ()) = zip(partition.expire(NOW_MS + 1_000), fill(&partition, 3)).await;
            removed += expired.expect("it goes on").segments;
        }
        assert!(removed > 10, "{removed}");
        let numbers = partition.numbers();
        assert_eq!((numbers.end_offset, numbers.high_watermark), (90, 90));
        let start = numbers.log_start_offset;
        assert!(start >= 87, "{start}");
        assert_eq!(read_all(&partition).await.len() as i64, 90 - start);
    });
}
