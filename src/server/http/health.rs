//! `/healthz` and `/readyz`.
//!
//! Alive: every shard answered a message within [`PULSE_MAX`]; a shard that does not is stuck, or its core is taken, and
//! restarting the process may help. Ready: alive, loaded, accepting connections, and the data directory is in order.
//!
//! Of each shard at most one question is under way, however many ask: one that is stuck is not piled up on.

use super::{Admin, Phase};
use crate::runtime::local::Event;
use crate::runtime::{Mono, Queue, Rt};
use crate::shard::{Control, LoadStatus, Pong};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// What is known of the shards.
pub(super) struct Pulse {
    rt: Rt,
    control: Control,
    felt: Rc<Felt>,
}

struct Felt {
    shards: Vec<Cell<Beat>>,
    changed: Event,
}

#[derive(Clone, Copy, Default)]
struct Beat {
    /// A question is under way.
    asked: bool,
    /// When the last answer came.
    answered_at: Option<Mono>,
    pong: Pong,
}

impl Pulse {
    pub fn new(rt: &Rt, control: &Control) -> Pulse {
        Pulse {
            rt: rt.clone(),
            control: control.clone(),
            felt: Rc::new(Felt {
                shards: vec![Cell::default(); control.shards()],
                changed: Event::new(),
            }),
        }
    }

    /// Asks every shard; those that do not answer in time are named.
    async fn feel(&self) -> Result<Vec<Pong>, String> {
        let began = self.rt.now();
        for (shard, cell) in self.felt.shards.iter().enumerate() {
            let beat = cell.get();
            if !beat.asked {
                cell.set(Beat {
                    asked: true,
                    ..beat
                });
                self.ask(shard);
            }
        }
        let is_there = |cell: &Cell<Beat>| cell.get().answered_at >= Some(began);
        let shards = &self.felt.shards;
        let all = self.felt.changed.wait_until(|| shards.iter().all(is_there));
        if self.rt.timeout(PULSE_MAX, all).await.is_ok() {
            return Ok(shards.iter().map(|cell| cell.get().pong).collect());
        }
        let silent = shards
            .iter()
            .enumerate()
            .filter(|(_, cell)| !is_there(cell));
        let silent: Vec<String> = silent.map(|(shard, _)| format!("shard-{shard}")).collect();
        let seconds = PULSE_MAX.as_secs();
        Err(format!(
            "no answer within {seconds} s from {}",
            silent.join(", ")
        ))
    }

    fn ask(&self, shard: usize) {
        let (rt, control, felt) = (self.rt.clone(), self.control.clone(), self.felt.clone());
        self.rt.spawn(Queue::Latency, async move {
            let pong = control.load_progress(shard).await;
            let cell = &felt.shards[shard];
            let beat = Beat {
                asked: false,
                ..cell.get()
            };
            cell.set(match pong {
                Ok(pong) => Beat {
                    answered_at: Some(rt.now()),
                    pong,
                    ..beat
                },
                // It has ended, and will not answer.
                Err(_) => beat,
            });
            felt.changed.notify_all();
        });
    }
}

impl Admin {
    /// Why the process is not alive.
    pub(super) async fn health(&self) -> Result<(), String> {
        self.0.pulse.feel().await.map(drop)
    }

    /// Why it is not ready.
    pub(super) async fn readiness(&self) -> Result<(), String> {
        self.stopping()?;
        let pongs = self.0.pulse.feel().await?;
        // It may have begun meanwhile.
        self.stopping()?;
        match self.0.phase.get() {
            Phase::Serving | Phase::Stopping => Ok(()),
            Phase::Loading => {
                let status = LoadStatus::of(&pongs);
                Err(format!("loading partitions: {status}"))
            }
        }
    }

    /// An error with the reason once it stops.
    fn stopping(&self) -> Result<(), String> {
        if let Some(reason) = self.0.control.failure() {
            return Err(format!("the data directory is offline: {reason}"));
        }
        match self.0.phase.get() {
            Phase::Stopping => Err("stopping".to_owned()),
            Phase::Loading | Phase::Serving => Ok(()),
        }
    }

    /// Whether it is ready, as far as that is known without asking.
    pub(super) fn seems_ready(&self) -> bool {
        self.0.phase.get() == Phase::Serving && self.0.control.failure().is_none()
    }
}

/// How long a shard has for an answer.
const PULSE_MAX: Duration = Duration::from_secs(2);
