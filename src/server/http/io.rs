//! A connection as hyper wants it: polled, where ours are awaited.
//!
//! Each half is at rest or in a future that owns it; what was read and did not fit is kept. A write is taken
//! when the one before it is done, so at most [`WRITE_BYTES_MAX`] wait.

use crate::runtime::{Conn, ConnReader, ConnWriter, IoError};
use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{ready, Context, Poll};

/// A connection for hyper.
pub(super) struct HttpIo {
    reading: Reading,
    /// What was read, and what of it hyper has not taken.
    read: (Box<[u8]>, Range<usize>),
    writing: Writing,
}

/// A read that has ended: its half and its buffer come back.
type ReadDone = (ConnReader, Box<[u8]>, Result<usize, IoError>);
type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

enum Reading {
    Rests(ConnReader),
    Runs(Boxed<ReadDone>),
    /// For the moment between the two.
    Moves,
}

enum Writing {
    Rests(ConnWriter),
    Runs(Boxed<(ConnWriter, Result<(), IoError>)>),
    /// For the moment between the two.
    Moves,
}

impl HttpIo {
    pub fn new(conn: Conn) -> HttpIo {
        let (reader, writer) = conn.split();
        HttpIo {
            reading: Reading::Rests(reader),
            read: (vec![0; READ_BYTES].into(), 0..0),
            writing: Writing::Rests(writer),
        }
    }

    /// Reads when nothing is left of what was read before.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.reading = match std::mem::replace(&mut self.reading, Reading::Moves) {
                Reading::Rests(mut reader) => {
                    let mut buf = std::mem::take(&mut self.read.0);
                    Reading::Runs(Box::pin(async move {
                        let read = reader.read(&mut buf).await;
                        (reader, buf, read)
                    }))
                }
                Reading::Runs(mut read) => match read.as_mut().poll(cx) {
                    Poll::Pending => {
                        self.reading = Reading::Runs(read);
                        return Poll::Pending;
                    }
                    Poll::Ready((reader, buf, read)) => {
                        self.reading = Reading::Rests(reader);
                        self.read.0 = buf;
                        self.read.1 = 0..read.map_err(io::Error::other)?;
                        return Poll::Ready(Ok(()));
                    }
                },
                Reading::Moves => unreachable!("it is put back above"),
            };
        }
    }

    /// Ready when no write runs.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Writing::Runs(write) = &mut self.writing {
            let (writer, written) = ready!(write.as_mut().poll(cx));
            self.writing = Writing::Rests(writer);
            written.map_err(io::Error::other)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl Read for HttpIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.1.is_empty() {
            ready!(self.poll_fill(cx))?;
        }
        let (buf, left) = &mut self.read;
        let len = left.len().min(into.remaining());
        into.put_slice(&buf[left.start..left.start + len]);
        left.start += len;
        Poll::Ready(Ok(()))
    }
}

impl Write for HttpIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_written(cx))?;
        let taken = Bytes::copy_from_slice(&bytes[..bytes.len().min(WRITE_BYTES_MAX)]);
        let len = taken.len();
        self.writing = match std::mem::replace(&mut self.writing, Writing::Moves) {
            Writing::Rests(mut writer) => Writing::Runs(Box::pin(async move {
                let written = writer.write_all(&mut vec![taken]).await;
                (writer, written)
            })),
            Writing::Runs(_) | Writing::Moves => unreachable!("it has just ended"),
        };
        // It begins at once; an error is the next call's.
        match self.poll_written(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(len)),
        }
    }

    /// So that hyper keeps a large body where it is, and hands it over piece by piece.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(cx)
    }

    /// The socket closes when this is dropped.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(cx)
    }
}

const READ_BYTES: usize = 4 * 1024;
const WRITE_BYTES_MAX: usize = 64 * 1024;
