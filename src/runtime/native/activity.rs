//! What an executor has going on: its open connections and operations in flight.
//!
//! The end of an executor waits for operations; the nudge (see `nudge.rs`) is more
//! frequent while there are any of either.

use super::nudge::{Nap, Nudged};
use super::watch::Watch;
use crate::runtime::local::Event;
use std::cell::Cell;
use std::rc::Rc;

/// Counts of what is open or in flight on one executor. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Activity(Rc<State>);

#[derive(Default)]
struct State {
    connections: Cell<u64>,
    operations: Cell<u64>,
    ended: Cell<bool>,
    end: Event,
    nudged: Nudged,
}

/// One operation in flight, until dropped.
pub(super) struct Operation(Activity);

/// One open connection, until dropped.
pub(super) struct Connection(Activity);

impl Activity {
    /// Counts an operation in flight: file I/O, helper-thread work, a message that
    /// awaits its answer.
    pub(super) fn operation(&self) -> Operation {
        self.0.operations.set(self.0.operations.get() + 1);
        self.moved();
        Operation(self.clone())
    }

    /// Counts an open connection.
    pub(super) fn connection(&self) -> Connection {
        self.0.connections.set(self.0.connections.get() + 1);
        self.moved();
        Connection(self.clone())
    }

    /// Connections and operations.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.0.connections.get(), self.0.operations.get())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.ended.get()
    }

    /// Resolves when the executor ends.
    pub(super) async fn ended(&self) {
        self.0.end.wait_until(|| self.0.ended.get()).await
    }

    /// The executor ends: its own tasks return.
    pub(super) fn end(&self) {
        self.0.ended.set(true);
        self.0.end.notify_all();
        self.0.nudged.end();
    }

    /// Has the executor watched for tasks that hold its core.
    pub(super) fn watch(&self, watch: Watch) {
        self.0.nudged.watch(watch);
    }

    /// What the executor runs so that it can be nudged; ends with [`Activity::end`].
    pub(super) fn nap(&self) -> Nap {
        self.0.nudged.start()
    }

    fn moved(&self) {
        let idle = self.0.connections.get() == 0 && self.0.operations.get() == 0;
        self.0.nudged.set_busy(!idle);
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let left = self.0 .0.operations.get() - 1;
        self.0 .0.operations.set(left);
        self.0.moved();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let left = self.0 .0.connections.get() - 1;
        self.0 .0.connections.set(left);
        self.0.moved();
    }
}
