//! One connection: frames in, answers out, in the order of the requests.
//!
//! The reading task takes frames one by one, reserving memory before it reads a
//! body. Produce and Fetch are started in that task, in order, and finish in their
//! own time; the writing task sends the answers in request order. Any other API is a
//! barrier: it runs when all before it are answered, and the next frame is read when
//! it is done. One that waits for others (a join) is dropped when its peer closes.
//!
//! Bounded because no frame is read while the peer has not taken many bytes of answers.
//!
//! Fair because both sides give way after each frame and each piece of an answer, when
//! their slice is used up, and because the reading side stops at [`IN_FLIGHT_MAX`]
//! requests until the writing side has had its turn.

use super::dispatch::{self, Started};
use super::registry::{Open, Transfer};
use super::respond::{Answer, BadRequest, UNSENT_BYTES_MAX};
use crate::observe::Work;
use crate::protocol::{ApiKey, Reader};
use crate::runtime::local::{channel, oneshot, OneshotReceiver, Permit, Receiver, Sender};
use crate::runtime::{bytes_and_end, Conn, ConnReader, ConnWriter, IoError, Mono, Queue};
use crate::shard::{Shard, SMALL_FRAME_BYTES};
use bytes::Bytes;
use futures_lite::future::{or, zip};
use std::collections::VecDeque;
use std::future::{pending, Future};
use std::pin::pin;
use std::rc::Rc;

/// Requests of one connection that may be unanswered at once.
const IN_FLIGHT_MAX: usize = 64;
/// Bytes of an answer that are sent between two looks at its progress.
const WRITE_BYTES: usize = 256 * 1024;

/// An answer to come, in its place.
struct Slot {
    /// `None` means: close the connection.
    answer: OneshotReceiver<Option<Answer>>,
    api_key: i16,
    /// When the last byte of the request had come.
    arrived: Mono,
}

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
    BadRequest(BadRequest),
    #[error("there is no memory for an answer of {bytes} bytes while so many are not taken (request.memory.bytes)")]
    NoMemory { bytes: usize },
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
                if open.log_limit.allows(shard.rt().now()) {
                    tracing::warn!(peer = %open.peer, "connection closed: {reason}");
                }
            }
        }
        // Nothing more will come, perhaps because nobody is there any more: long polls
        // answer with what they have.
        open.hurry.set();
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
    let mut prefix = [0; 4];
    // Bytes of the prefix that came while a request waited.
    let mut ahead = 0;
    loop {
        open.backlog.below(UNSENT_BYTES_MAX).await;
        if open.draining.get() {
            return Ok(());
        }
        open.between_frames.set(true);
        let active = |_| open.active_at.set(shard.rt().now());
        if !read_exact(&mut reader, &mut prefix[ahead..], active).await? {
            return match ahead {
                0 => Ok(()),
                _ => Err(Ended::MidFrame),
            };
        }
        ahead = 0;
        open.between_frames.set(false);
        let length = i32::from_be_bytes(prefix);
        let len = match usize::try_from(length) {
            Ok(len) if len <= limit => len,
            _ => return Err(Ended::FrameLength { length, limit }),
        };
        let must_wait = shard.memory().frame_must_wait(len);
        let charge = shard.memory().frame(len).await;
        if must_wait {
            shard.counters().memory_waits.add(1);
            open.active_at.set(shard.rt().now());
        }
        let mut body = vec![0; len];
        open.reading
            .set(Some(Transfer::new(len, open.active_at.get())));
        let whole = read_exact(&mut reader, &mut body, |done| {
            Transfer::reached(&open.reading, done);
            open.active_at.set(shard.rt().now());
        })
        .await?;
        open.reading.set(None);
        if !whole {
            return Err(Ended::MidFrame);
        }
        shard.counters().bytes_in.add(len as u64 + 4);
        let (answer, slot) = oneshot();
        let slot = Slot {
            answer: slot,
            api_key: api_key_of(&body),
            arrived: open.active_at.get(),
        };
        let work = Work {
            api_key: Some(slot.api_key),
            peer: Some(open.peer),
            partition: None,
        };
        let (frame, frame_freed) = bytes_and_end(body);
        // A request's lists take more memory than its bytes. The most that they may take
        // is there before they are decoded, and what they don't take is given back.
        let decoded_max = Reader::decoded_bytes_max(len);
        let mut decoded = shard.memory().decoding(len, decoded_max).await;
        let started = {
            let starting = pin!(dispatch::start(shard, open, frame, &mut decoded));
            shard.rt().work(work, starting).await
        };
        let started = started.map_err(Ended::BadRequest)?;
        let may_wait = matches!(started, Started::Waiting(_));
        match started {
            Started::Pipelined(answering) => {
                open.request_started();
                shard.counters().requests_now.add(1);
                slots.send(slot).await.map_err(|_| Ended::WriterGone)?;
                let backlog = open.backlog.clone();
                let holding = decoded.is_some().then(|| open.hurry.holding());
                let is_produce = work.api_key == Some(ApiKey::Produce.code());
                let rt = shard.rt().clone();
                shard.rt().spawn(Queue::Latency, async move {
                    let mut done = rt.work(work, answering).await;
                    drop(holding);
                    match &mut done {
                        Some(answer) => {
                            answer.known_at = is_produce.then(|| rt.now());
                            answer.hold(&backlog, decoded);
                        }
                        None => drop(decoded),
                    }
                    // If the connection has failed meanwhile, nobody takes the answer.
                    let _ = answer.send(done);
                    // A produce that timed out is answered while its batches are still
                    // queued, here or at another shard: they hold the frame.
                    frame_freed.await;
                    drop(charge);
                });
            }
            Started::Barrier(answering) | Started::Waiting(answering) => {
                if !open.answered_down_to(0).await {
                    return Err(Ended::WriterGone);
                }
                open.request_started();
                shard.counters().requests_now.add(1);
                let answering = shard.rt().work(work, answering);
                let done = match may_wait {
                    false => {
                        let done = answering.await;
                        drop((charge, decoded));
                        done
                    }
                    true => {
                        let work = while_there(answering, &mut reader, &mut prefix, &mut ahead);
                        // It takes in what it needs and lets the frame go: those that it
                        // waits for may need that memory.
                        let freed = async {
                            frame_freed.await;
                            drop((charge, decoded));
                            pending().await
                        };
                        match or(work, freed).await {
                            Some(done) => done,
                            None => return Ok(()),
                        }
                    }
                };
                let mut done = done.map_err(Ended::BadRequest)?;
                let bytes = done.bytes();
                if done.charge.is_none() && bytes > SMALL_FRAME_BYTES {
                    // A peer that does not read it must not hold it for ever.
                    done.charge = Some(charge_of_built(shard, bytes).await?);
                }
                let _ = answer.send(Some(done));
                slots.send(slot).await.map_err(|_| Ended::WriterGone)?;
            }
        }
        shard.rt().yield_if_needed().await;
    }
}

/// Runs `work` to its end, or until the peer has closed: `None`. What the peer sends
/// meanwhile, of the next frame's prefix, is kept; behind that its end is not seen.
async fn while_there<T>(
    work: impl Future<Output = T>,
    reader: &mut ConnReader,
    prefix: &mut [u8; 4],
    ahead: &mut usize,
) -> Option<T> {
    let closed = async {
        while *ahead < prefix.len() {
            match reader.read(&mut prefix[*ahead..]).await {
                Ok(0) | Err(_) => return None,
                Ok(read) => *ahead += read,
            }
        }
        pending().await
    };
    or(async { Some(work.await) }, closed).await
}

/// Memory for an answer that is there already. While it waits other memory stands for it;
/// where there is none left, too many wait.
async fn charge_of_built(shard: &Shard, bytes: usize) -> Result<Permit, Ended> {
    let memory = shard.memory();
    if let Some(charge) = memory.try_response(bytes) {
        return Ok(charge);
    }
    let _waits = memory.try_decoded(bytes).ok_or(Ended::NoMemory { bytes })?;
    Ok(memory.whole_response(bytes).await)
}

async fn write_answers(
    shard: &Shard,
    mut writer: ConnWriter,
    mut to_send: Receiver<Slot>,
    open: &Open,
) {
    while let Some(slot) = to_send.recv().await {
        let Some(answer) = slot.answer.await.flatten() else {
            // acks=0 that failed, or a task that died: the protocol's answer is to
            // close, so that the client looks for the leader again.
            return;
        };
        let bytes = answer.bytes();
        let Answer {
            chunks,
            mut charge,
            lists,
            unsent,
            waited_nanos,
            known_at,
        } = answer;
        let begun = shard.rt().now();
        let answered = |at: Mono| {
            let counters = shard.counters();
            let took = at.nanos_since(slot.arrived).saturating_sub(waited_nanos);
            counters.latencies.request(slot.api_key, took);
            if let Some(known_at) = known_at {
                counters.latencies.reply.record(at.nanos_since(known_at));
            }
            counters.requests_now.sub(1);
            open.request_answered();
        };
        if chunks.is_empty() {
            answered(begun);
            continue;
        }
        open.writing.set(Some(Transfer::new(bytes, begun)));
        let mut sent_at = begun;
        let mut left = VecDeque::from(chunks);
        let mut done = 0;
        while done < bytes {
            let mut piece = take_piece(&mut left, WRITE_BYTES);
            done += piece.iter().map(Bytes::len).sum::<usize>();
            if let Err(error) = writer.write_all(&mut piece).await {
                tracing::debug!(peer = %open.peer, %error, "connection ended");
                return;
            }
            sent_at = shard.rt().now();
            open.active_at.set(sent_at);
            Transfer::reached(&open.writing, done);
            if let Some(charge) = &mut charge {
                charge.shrink_to((bytes - done) as u64);
            }
            shard.rt().yield_if_needed().await;
        }
        open.writing.set(None);
        drop((lists, unsent));
        shard.counters().bytes_out.add(bytes as u64);
        answered(sent_at);
    }
}

/// The API key of a request, whether it is one that is served or not.
fn api_key_of(frame: &[u8]) -> i16 {
    frame
        .first_chunk()
        .map_or(-1, |key| i16::from_be_bytes(*key))
}

/// Takes the first chunks, about `bytes_max` of them; a larger chunk is split.
fn take_piece(chunks: &mut VecDeque<Bytes>, bytes_max: usize) -> Vec<Bytes> {
    let mut room = bytes_max;
    let fits = |chunk: &&Bytes| {
        let fits = chunk.len() <= room;
        room -= if fits { chunk.len() } else { 0 };
        fits
    };
    let whole = chunks.iter().take_while(fits).count();
    let mut piece: Vec<Bytes> = chunks.drain(..whole).collect();
    if let Some(next) = chunks.front_mut().filter(|_| room > 0) {
        piece.push(next.split_to(room));
    }
    piece
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of<'a, A, F>(_: impl FnOnce(&'a Shard, A) -> F) -> usize {
        size_of::<F>()
    }

    /// What a silent connection holds in its task and in the registry. Besides: the
    /// socket and one registration with the ring, some 500 bytes, and no buffer.
    #[test]
    fn a_connection_at_rest_is_small() {
        let task = bytes_of(|shard, (conn, open)| serve(shard, conn, open));
        let bytes = task + size_of::<Open>();
        assert!(bytes <= 4096, "{bytes} bytes");
    }

    #[test]
    fn pieces_hold_all_bytes_in_order_and_split_a_large_chunk() {
        let all: Vec<u8> = (0..100).collect();
        let all = Bytes::from(all);
        for bytes_max in [1, 7, 30, 99, 100, 1000] {
            let cuts = [0, 3, 3, 50, 100];
            let mut chunks: VecDeque<Bytes> =
                cuts.windows(2).map(|c| all.slice(c[0]..c[1])).collect();
            let mut sent = Vec::new();
            while !chunks.is_empty() {
                let piece = take_piece(&mut chunks, bytes_max).concat();
                assert!(!piece.is_empty() && piece.len() <= bytes_max);
                sent.extend(piece);
            }
            assert_eq!(sent, all);
        }
    }
}
