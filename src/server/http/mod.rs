//! The admin HTTP: metrics, health, and the latest stalls, on a port of their own.
//!
//! It runs on the control executor, which owns no partitions: what is slow here delays no client. It asks shards by messages
//! and waits a bounded time for them.
//!
//! Bounded: [`OPEN_MAX`] connections, [`HEAD_BYTES_MAX`] of request head, and [`TIME_MAX`] for everything from the accept to the last byte of the
//! one answer that a connection gets; what passes a limit is closed. Bodies are not read. Figures are gathered once at a time,
//! and scrapes that wait for that share the result.
//!
//! What it is not: it knows no users, so its port must be kept from where clients are.

mod accept;
mod gather;
mod health;
mod io;
mod page;
mod stalls;

use super::registry::LogLimit;
use crate::config::BrokerConfig;
use crate::observe::{plain_text, Stalls, CONTENT_TYPE, PLAIN_CONTENT_TYPE};
use crate::runtime::{Accepted, IoErrorKind, Listener, Mono, Queue, Rt};
use crate::shard::Control;
use bytes::Bytes;
use futures_lite::future::or;
use gather::Gatherer;
use health::Pulse;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{HeaderValue, ALLOW, CACHE_CONTROL, CONTENT_TYPE as CONTENT_TYPE_HEADER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The admin HTTP of one broker. Cheap to clone.
#[derive(Clone)]
pub(super) struct Admin(Rc<Inner>);

struct Inner {
    rt: Rt,
    control: Control,
    config: Arc<BrokerConfig>,
    stalls: Stalls,
    began: Mono,
    phase: Cell<Phase>,
    pulse: Pulse,
    gatherer: Gatherer,
    listener: Listener,
    open: Cell<usize>,
    log_limit: LogLimit,
}

/// What the broker is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Partitions are being loaded; connections wait.
    Loading,
    /// Connections are accepted.
    Serving,
    /// Connections are drained, then everything is flushed.
    Stopping,
}

impl Admin {
    pub fn new(
        rt: &Rt,
        control: &Control,
        config: Arc<BrokerConfig>,
        stalls: Stalls,
        listener: Listener,
    ) -> Admin {
        Admin(Rc::new(Inner {
            rt: rt.clone(),
            control: control.clone(),
            config,
            stalls,
            began: rt.now(),
            phase: Cell::new(Phase::Loading),
            pulse: Pulse::new(rt, control),
            gatherer: Gatherer::default(),
            listener,
            open: Cell::new(0),
            log_limit: LogLimit::default(),
        }))
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.0.listener.local_addr()
    }

    /// Starts to accept; until [`Admin::close`].
    pub fn start(&self) {
        let admin = self.clone();
        self.0
            .rt
            .spawn(Queue::Latency, async move { admin.accept().await });
    }

    /// What `/readyz` says from now on.
    pub fn enter(&self, phase: Phase) {
        self.0.phase.set(phase);
    }

    /// Accepts no more connections.
    pub fn close(&self) {
        self.0.listener.close();
    }

    async fn accept(self) {
        let inner = &*self.0;
        let mut has_failed = false;
        loop {
            let accepted = match inner.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) if error.kind == IoErrorKind::Disconnected => return,
                Err(error) => {
                    if !has_failed {
                        tracing::warn!(%error, "admin connections can't be accepted");
                    }
                    has_failed = true;
                    inner.rt.sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            has_failed = false;
            if inner.open.get() >= OPEN_MAX {
                if inner.log_limit.allows(inner.rt.now()) {
                    let peer = accepted.peer_addr();
                    tracing::warn!(%peer, "admin connection closed: {OPEN_MAX} are open");
                }
                continue;
            }
            inner.open.set(inner.open.get() + 1);
            let admin = self.clone();
            inner.rt.spawn(Queue::Latency, async move {
                admin.serve(accepted).await;
                admin.0.open.set(admin.0.open.get() - 1);
            });
        }
    }

    /// One connection: one request, one answer.
    async fn serve(&self, accepted: Accepted) {
        let rt = &self.0.rt;
        let conn = match rt.adopt(accepted) {
            Ok(conn) => conn,
            Err(error) => {
                tracing::warn!(%error, "an accepted admin connection was lost");
                return;
            }
        };
        let (peer, closer) = (conn.peer_addr(), conn.closer());
        let service =
            service_fn(|request| async { Ok::<_, Infallible>(self.answer(request).await) });
        let mut served = pin!(http1::Builder::new()
            .keep_alive(false)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(io::HttpIo::new(conn), service));
        let in_time = async { Some(served.as_mut().await) };
        let too_long = async {
            rt.sleep(TIME_MAX).await;
            None
        };
        let ended = match or(in_time, too_long).await {
            Some(ended) => ended,
            None => {
                closer.close();
                // No read or write may be dropped under way; both end now.
                served.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "admin connection ended");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let path = request.uri().path();
        if !PATHS.contains(&path) {
            let text = format!("nothing here; there are {}\n", PATHS.join(", "));
            return plain(StatusCode::NOT_FOUND, text);
        }
        if !is_read {
            let mut refused = plain(
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET and HEAD\n".to_owned(),
            );
            let allowed = HeaderValue::from_static("GET, HEAD");
            refused.headers_mut().insert(ALLOW, allowed);
            return refused;
        }
        match path {
            METRICS => match self.metrics().await {
                Ok(page) if accept::wants_plain(request.headers()) => self.plain(page).await,
                Ok(page) => response(StatusCode::OK, CONTENT_TYPE, page),
                Err(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, reason + "\n"),
            },
            HEALTH => verdict(self.health().await.map(|()| "alive".to_owned())),
            READY => verdict(self.readiness().await.map(|()| "ready".to_owned())),
            _ => response(StatusCode::OK, JSON, self.stalls().await),
        }
    }
}

impl Admin {
    /// The page for those who do not know OpenMetrics.
    async fn plain(&self, page: Bytes) -> Response<Full<Bytes>> {
        let to_text = move || std::str::from_utf8(&page).map(plain_text);
        match self.0.rt.spawn_blocking(to_text).await {
            Ok(Ok(text)) => response(StatusCode::OK, PLAIN_CONTENT_TYPE, text),
            Ok(Err(error)) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            Err(panic) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{panic}\n")),
        }
    }
}

fn verdict(verdict: Result<String, String>) -> Response<Full<Bytes>> {
    match verdict {
        Ok(text) => plain(StatusCode::OK, text + "\n"),
        Err(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, reason + "\n"),
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    response(status, "text/plain; charset=utf-8", text)
}

fn response(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE_HEADER, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

const METRICS: &str = "/metrics";
const HEALTH: &str = "/healthz";
const READY: &str = "/readyz";
const STALLS: &str = "/debug/stalls";
const PATHS: &[&str] = &[METRICS, HEALTH, READY, STALLS];
const JSON: &str = "application/json";

/// Connections at a time.
const OPEN_MAX: usize = 64;
/// The head of a request, bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;
/// From the accept to the last byte of the answer; what Prometheus waits, too.
const TIME_MAX: Duration = Duration::from_secs(10);
/// The pause after accept(2) failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
