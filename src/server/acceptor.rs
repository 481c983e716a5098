//! Accepts connections and hands each to a shard, within the limits (`admission.rs`).
//!
//! A connection over a limit is closed at once, as Kafka does: a client that is told
//! nothing tries again elsewhere or later. Out of descriptors, the acceptor waits: the
//! kernel keeps the connections in its backlog until others have ended.

use super::admission::{Admission, Limits, Pace, Refusal};
use super::registry::LogLimit;
use crate::config::BrokerConfig;
use crate::runtime::{IoErrorKind, Listener, Queue, Rt};
use crate::shard::{Control, Incoming};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The pause after accept(2) failed, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The acceptor of one listener.
pub(super) struct Acceptor {
    pub rt: Rt,
    pub control: Control,
    pub listener: Rc<Listener>,
    pub shards: usize,
    /// `max.connections.per.ip.overrides` as the start resolved them.
    pub overrides: Vec<(IpAddr, usize)>,
}

impl Acceptor {
    /// Accepts until the listener is closed.
    pub async fn run(self) {
        let mut config = self.control.config();
        let mut admission = Admission::new(self.shards, self.limits(&config));
        let mut pace = Pace::new(config.max_connection_creation_rate, self.rt.now());
        let log_limit = LogLimit::default();
        // A state that lasts is told of once.
        let (mut is_full, mut has_failed) = (false, false);
        loop {
            let accepted = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) if error.kind == IoErrorKind::Disconnected => return,
                Err(error) => {
                    if !has_failed {
                        tracing::warn!(%error, "connections can't be accepted; too few descriptors: raise the limit (ulimit -n)");
                    }
                    has_failed = true;
                    self.rt.sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            has_failed = false;
            let config_now = self.control.config();
            if !Arc::ptr_eq(&config, &config_now) {
                config = config_now;
                admission.set_limits(self.limits(&config));
                pace.set_rate(config.max_connection_creation_rate);
            }
            let peer = accepted.peer_addr();
            let admitted = admission.admit(peer.ip());
            let was_full = is_full;
            is_full = matches!(admitted, Err(Refusal::Full { .. }));
            match admitted {
                Ok((shard, counted)) => {
                    let control = self.control.clone();
                    let incoming = Incoming { accepted, counted };
                    // In a task: a shard that is slow to take it must not keep others waiting.
                    self.rt.spawn(Queue::Latency, async move {
                        if let Err(error) = control.connection(shard, incoming).await {
                            tracing::warn!(%error, "a connection could not be handed over");
                        }
                    });
                }
                Err(refusal) => {
                    self.control.counters().connections_refused.add(1);
                    let is_news = !(is_full && was_full);
                    if is_news && log_limit.allows(self.rt.now()) {
                        tracing::warn!(%peer, "connection refused: {refusal}");
                    }
                }
            }
            let pause = pace.take(self.rt.now());
            if !pause.is_zero() {
                self.rt.sleep(pause).await;
            }
        }
    }

    fn limits(&self, config: &BrokerConfig) -> Limits {
        let changed = config.dynamic_connection_overrides();
        let changed = changed.map(|all| all.into_iter().map(|(ip, max)| (ip, max as usize)));
        Limits {
            open_max: config.max_connections as usize,
            per_address_max: config.max_connections_per_ip as usize,
            overrides: changed.map_or_else(|| self.overrides.clone(), Iterator::collect),
        }
    }
}
