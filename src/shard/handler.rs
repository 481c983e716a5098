//! What a shard does with a message. It never waits: it answers, or it starts a
//! task that answers.

use super::messages::{Reply, Request};
use super::Incoming;
use super::Shard;
use crate::observe::Work;
use crate::protocol::ApiKey;
use crate::runtime::{Queue, ReplyTo};
use std::future::Future;
use std::pin::{pin, Pin};
use std::rc::Rc;
use std::task::{Context, Waker};

/// Who serves connections on this shard: the room above.
pub trait ConnectionHost {
    /// Takes over a connection that the acceptor chose this shard for.
    fn serve(&self, shard: &Shard, incoming: Incoming);

    /// Answers what is in flight, then ends every connection. Resolves when none is
    /// left.
    fn drain(&self, shard: &Shard) -> Pin<Box<dyn Future<Output = ()>>>;
}

pub(super) fn handler(
    shard: Shard,
    host: Rc<dyn ConnectionHost>,
) -> Rc<dyn Fn(usize, Request, ReplyTo<Reply>)> {
    Rc::new(move |from, request, reply| handle(&shard, &host, from, request, reply))
}

fn handle(
    shard: &Shard,
    host: &Rc<dyn ConnectionHost>,
    from: usize,
    request: Request,
    reply: ReplyTo<Reply>,
) {
    match request {
        Request::Produce(order) => {
            shard.rt().working_on(&PRODUCE);
            let produced = shard.clone().produce_here(order);
            let mut work = Box::pin(async move { reply.send(Reply::Produced(produced.await)) });
            // Validation and queueing begin here, in the order of arrival; what remains,
            // at least the wait for the acknowledgement, is a task.
            let mut now = Context::from_waker(Waker::noop());
            if work.as_mut().poll(&mut now).is_pending() {
                spawn(shard, work);
            }
        }
        Request::Fetch(order) => {
            let shard_ = shard.clone();
            spawn(shard, async move {
                let fetched = pin!(shard_.fetch_here(order));
                let fetched = shard_.rt().work(FETCH, fetched).await;
                reply.send(Reply::Fetched(fetched));
            });
        }
        Request::ListOffsets(parts) => {
            let shard_ = shard.clone();
            spawn(shard, async move {
                reply.send(Reply::Listed(shard_.list_offsets_here(parts).await));
            });
        }
        Request::DeleteRecords(parts) => {
            let shard_ = shard.clone();
            spawn(shard, async move {
                reply.send(Reply::RecordsDeleted(
                    shard_.delete_records_here(parts).await,
                ));
            });
        }
        Request::EpochEnds(parts) => {
            let shard_ = shard.clone();
            spawn(shard, async move {
                reply.send(Reply::EpochEnds(shard_.epoch_ends_here(parts).await));
            });
        }
        Request::Watch(order) => reply.send(shard.watch_here(from, order)),
        Request::Unwatch(watch) => {
            shard.unwatch_here(from, watch);
            reply.send(Reply::Done);
        }
        Request::Notice(watch) => {
            shard.noticed(watch);
            reply.send(Reply::Done);
        }
        Request::DescribeProducers(keys) => {
            let shard_ = shard.clone();
            spawn(shard, async move {
                reply.send(Reply::ProducersDescribed(shard_.producers_here(keys).await));
            });
        }
        Request::Ping => reply.send(Reply::Pong(shard.load_progress())),
        Request::Metrics(order) => {
            let shard_ = shard.clone();
            shard.rt().spawn(Queue::Background, async move {
                let figures = shard_.metrics_here(order).await;
                reply.send(Reply::Metrics(Box::new(figures)));
            });
        }
        Request::Group(order) => {
            let order = *order;
            reply.send(match shard.ask_here(order.key, order.ticket, order.call) {
                Some(answer) => Reply::Group(Box::new(answer)),
                None => Reply::Later,
            });
        }
        Request::GroupAnswered { ticket, answer } => {
            shard.group_answered(ticket, *answer);
            reply.send(Reply::Done);
        }
        Request::GroupGone { key, ticket } => {
            shard.group_gone_here(key, ticket);
            reply.send(Reply::Done);
        }
        Request::ListGroups => reply.send(Reply::Groups(shard.list_groups_here())),
        Request::LogSizes(keys) => {
            let shard_ = shard.clone();
            spawn(shard, async move {
                reply.send(Reply::LogSizes(shard_.log_sizes_here(keys).await));
            });
        }
        Request::Connection(incoming) => {
            host.serve(shard, incoming);
            reply.send(Reply::Done);
        }
        Request::Load(order) => {
            let shard_ = shard.clone();
            spawn(shard, async move {
                reply.send(Reply::Loaded(shard_.load(*order).await));
            });
        }
        Request::Apply(delta) => {
            let shard_ = shard.clone();
            spawn(shard, async move {
                shard_.apply(delta).await;
                reply.send(Reply::Done);
            });
        }
        Request::Drain => {
            shard.0.stopping.set(true);
            shard.0.stop.notify_all();
            shard.stop_groups();
            shard.stop_compaction();
            let drained = host.drain(shard);
            spawn(shard, async move {
                drained.await;
                reply.send(Reply::Done);
            });
        }
        Request::Close => {
            let shard_ = shard.clone();
            spawn(shard, async move {
                reply.send(Reply::Closed(shard_.close_partitions().await));
            });
        }
        Request::DirectoryOffline { dir, reason } => {
            shard.directory_offline(dir, &reason);
            reply.send(Reply::Done);
        }
        Request::Leave => {
            reply.send(Reply::Done);
            shard.0.left.set(true);
            shard.0.leave.notify_all();
        }
        Request::CreateTopics { .. }
        | Request::DeleteTopics(_)
        | Request::AlterConfigs { .. }
        | Request::CreatePartitions { .. }
        | Request::AllocateProducerIds(_)
        | Request::DescribeQuorum
        | Request::Checkpointed(_)
        | Request::RecordLogStart(_)
        | Request::RecordCleaned(_)
        | Request::DataDirFailed { .. } => {
            unreachable!("only the control executor is sent these")
        }
    }
}

/// What a shard does for another, for the record of stalls.
const PRODUCE: Work = work_of(ApiKey::Produce);
const FETCH: Work = work_of(ApiKey::Fetch);

const fn work_of(api: ApiKey) -> Work {
    Work {
        api_key: Some(api as i16),
        peer: None,
        partition: None,
    }
}

#[track_caller]
fn spawn(shard: &Shard, future: impl Future<Output = ()> + 'static) {
    shard.rt().spawn(Queue::Latency, future);
}
