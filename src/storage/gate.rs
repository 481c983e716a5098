//! Who is at work on the files of a log, so that nobody else has them meanwhile.

use crate::runtime::local::Event;
use std::cell::Cell;
use std::rc::Rc;

/// Counts I/O in flight on a log, so that truncation, closing and deletion can wait
/// until none is left. Who is inside never enters again.
#[derive(Clone)]
pub(super) struct IoGate(Rc<GateState>);

struct GateState {
    /// How many are inside, by the side on which they entered.
    inside: [Cell<usize>; 2],
    /// The side on which they enter now.
    side: Cell<usize>,
    door: Cell<Door>,
    changed: Event,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Open,
    /// Someone has the log for himself; others wait.
    Held,
    /// Nobody enters any more.
    Closed,
}

/// Being inside the gate.
pub(super) struct IoGuard(Rc<GateState>, usize);

/// Having the log for oneself; opens the gate again when dropped.
pub(super) struct ExclusiveGuard(Rc<GateState>);

/// The gate was closed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GateClosed;

impl IoGate {
    pub(super) fn new() -> IoGate {
        IoGate(Rc::new(GateState {
            inside: Default::default(),
            side: Cell::new(0),
            door: Cell::new(Door::Open),
            changed: Event::new(),
        }))
    }

    /// Enters, once nobody has the log for himself.
    pub(super) async fn enter(&self) -> Result<IoGuard, GateClosed> {
        self.0
            .changed
            .wait_until(|| self.0.door.get() != Door::Held)
            .await;
        if self.0.door.get() == Door::Closed {
            return Err(GateClosed);
        }
        let side = self.0.side.get();
        let inside = &self.0.inside[side];
        inside.set(inside.get() + 1);
        Ok(IoGuard(self.0.clone(), side))
    }

    /// Waits until everybody who is inside now has left; keeps nobody out.
    pub(super) async fn grace(&self) {
        let gate = &self.0;
        let other = || &gate.inside[1 - gate.side.get()];
        // Those whom an earlier grace waits for.
        gate.changed.wait_until(|| other().get() == 0).await;
        let left = gate.side.get();
        gate.side.set(1 - left);
        gate.changed
            .wait_until(|| gate.inside[left].get() == 0)
            .await;
    }

    /// True once the gate is closed for good.
    pub(super) fn is_closed(&self) -> bool {
        self.0.door.get() == Door::Closed
    }

    /// Keeps others out, and waits until nobody is inside.
    pub(super) async fn exclusive(&self) -> Result<ExclusiveGuard, GateClosed> {
        self.0
            .changed
            .wait_until(|| self.0.door.get() != Door::Held)
            .await;
        if self.0.door.get() == Door::Closed {
            return Err(GateClosed);
        }
        self.0.door.set(Door::Held);
        let guard = ExclusiveGuard(self.0.clone());
        self.0.changed.wait_until(|| self.0.is_empty()).await;
        Ok(guard)
    }

    /// Waits until the gate is closed for good.
    pub(super) async fn closed(&self) {
        self.0.changed.wait_until(|| self.is_closed()).await;
    }

    /// Closes the gate for good, and waits until nobody is inside.
    pub(super) async fn close(&self) {
        self.0
            .changed
            .wait_until(|| self.0.door.get() != Door::Held)
            .await;
        self.0.door.set(Door::Closed);
        self.0.changed.notify_all();
        self.0.changed.wait_until(|| self.0.is_empty()).await;
    }
}

impl GateState {
    fn is_empty(&self) -> bool {
        self.inside.iter().all(|inside| inside.get() == 0)
    }
}

impl Drop for IoGuard {
    fn drop(&mut self) {
        let inside = &self.0.inside[self.1];
        inside.set(inside.get() - 1);
        if inside.get() == 0 {
            self.0.changed.notify_all();
        }
    }
}

impl Drop for ExclusiveGuard {
    fn drop(&mut self) {
        self.0.door.set(Door::Open);
        self.0.changed.notify_all();
    }
}
