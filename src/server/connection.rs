//! One connection: frames in, answers out, in the order of the requests.
//!
//! The reading task takes frames one by one, reserving memory before it reads a
//! body. Produce and Fetch are started in that task, in order, and finish in their
//! own time; the writing task sends the answers in request order. Any other API is a
//! barrier: it runs when all before it are answered, and the next frame is read when
//! it is done.

use super::dispatch::{self, Started};
use super::registry::{Open, Transfer};
use super::respond::Answer;
use crate::runtime::local::{channel, oneshot, OneshotReceiver, Receiver, Sender};
use crate::runtime::{Conn, ConnReader, ConnWriter, IoError, Queue};
use crate::shard::Shard;
use bytes::{Bytes, BytesMut};
use futures_lite::future::zip;
use std::rc::Rc;

/// Requests of one connection that may be unanswered at once.
const IN_FLIGHT_MAX: usize = 64;

/// An answer to come, in its place. `None` means: close the connection.
type Slot = OneshotReceiver<Option<Answer>>;

/// Why the reading side ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Io(#[from] IoError),
    #[error("the peer closed inside a frame")]
    MidFrame,
    #[error("a frame of {length} bytes; the limit is {limit} (socket.request.max.bytes, request.memory.bytes)")]
    FrameLength { length: i32, limit: usize },
    #[error("{0}")]
    BadRequest(dispatch::BadRequest),
    #[error("the writing side has ended")]
    WriterGone,
}

/// Serves a connection to its end.
pub(super) async fn serve(shard: &Shard, conn: Conn, open: Rc<Open>) {
    let (reader, writer) = conn.split();
    let (slots, to_send) = channel::<Slot>(IN_FLIGHT_MAX);
    let reading = async {
        match read_frames(shard, reader, slots, &open).await {
            Ok(()) | Err(Ended::WriterGone) => {}
            Err(Ended::Io(error)) => {
                tracing::debug!(peer = %open.peer, %error, "connection ended");
            }
            Err(reason) => {
                shard.counters().connections_bad.add(1);
                tracing::warn!(peer = %open.peer, "connection closed: {reason}");
            }
        }
    };
    let writing = async {
        write_answers(shard, writer, to_send, &open).await;
        open.writer_ended();
    };
    zip(reading, writing).await;
}

async fn read_frames(
    shard: &Shard,
    mut reader: ConnReader,
    slots: Sender<Slot>,
    open: &Open,
) -> Result<(), Ended> {
    let limit = shard.memory().frame_bytes_max();
    while !open.draining.get() {
        open.between_frames.set(true);
        let mut prefix = [0; 4];
        if !read_exact(&mut reader, &mut prefix, |_| {}).await? {
            return Ok(());
        }
        open.between_frames.set(false);
        let length = i32::from_be_bytes(prefix);
        let len = match usize::try_from(length) {
            Ok(len) if len <= limit => len,
            _ => return Err(Ended::FrameLength { length, limit }),
        };
        let charge = shard.memory().frame(len).await;
        let mut body = BytesMut::zeroed(len);
        let started = Transfer {
            bytes: len,
            done: 0,
            since: shard.rt().now(),
        };
        open.reading.set(Some(started));
        let whole = read_exact(&mut reader, &mut body, |done| {
            open.reading.set(Some(Transfer { done, ..started }));
        })
        .await?;
        open.reading.set(None);
        open.active_at.set(shard.rt().now());
        if !whole {
            return Err(Ended::MidFrame);
        }
        shard.counters().bytes_in.add(len as u64 + 4);
        let (answer, slot) = oneshot();
        let started = dispatch::start(shard, open.peer, body.freeze()).await;
        match started.map_err(Ended::BadRequest)? {
            Started::Pipelined(work) => {
                open.request_started();
                slots.send(slot).await.map_err(|_| Ended::WriterGone)?;
                shard.rt().spawn(Queue::Latency, async move {
                    let done = work.await;
                    drop(charge);
                    // If the connection has failed meanwhile, nobody takes the answer.
                    let _ = answer.send(done);
                });
            }
            Started::Barrier(work) => {
                if !open.answered_down_to(0).await {
                    return Err(Ended::WriterGone);
                }
                let done = work.await.map_err(Ended::BadRequest)?;
                drop(charge);
                open.request_started();
                let _ = answer.send(Some(done));
                slots.send(slot).await.map_err(|_| Ended::WriterGone)?;
            }
        }
        shard.rt().yield_if_needed().await;
    }
    Ok(())
}

async fn write_answers(
    shard: &Shard,
    mut writer: ConnWriter,
    mut to_send: Receiver<Slot>,
    open: &Open,
) {
    while let Some(slot) = to_send.recv().await {
        let Some(mut answer) = slot.await.flatten() else {
            // acks=0 that failed, or a task that died: the protocol's answer is to
            // close, so that the client looks for the leader again.
            return;
        };
        if answer.chunks.is_empty() {
            open.request_answered();
            continue;
        }
        let bytes: usize = answer.chunks.iter().map(Bytes::len).sum();
        open.writing.set(Some(Transfer {
            bytes,
            done: 0,
            since: shard.rt().now(),
        }));
        if let Err(error) = writer.write_all(&mut answer.chunks).await {
            tracing::debug!(peer = %open.peer, %error, "connection ended");
            return;
        }
        open.writing.set(None);
        open.active_at.set(shard.rt().now());
        shard.counters().bytes_out.add(bytes as u64);
        open.request_answered();
    }
}

/// Fills `buf`. False if the peer closed before its first byte; an error if it
/// closed later.
async fn read_exact(
    reader: &mut ConnReader,
    buf: &mut [u8],
    mut progress: impl FnMut(usize),
) -> Result<bool, Ended> {
    let mut done = 0;
    while done < buf.len() {
        let read = reader.read(&mut buf[done..]).await?;
        if read == 0 {
            return if done == 0 {
                Ok(false)
            } else {
                Err(Ended::MidFrame)
            };
        }
        done += read;
        progress(done);
    }
    Ok(true)
}
