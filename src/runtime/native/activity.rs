//! What an executor has going on, and the tick that bounds a fault of glommio.
//!
//! The fault (glommio-ng 0.12, `LocalExecutor::run`): if the preemption timer has
//! already fired when the run loop is entered, no queue is run, "nothing ran" is
//! taken for "nothing is runnable", and the executor parks with runnable tasks. They
//! then wait for the next event, whatever that is: a lost wake-up. It needs the thread
//! to lose its CPU between arming the timer and the loop: about one in 20 million
//! round trips on a quiet machine, one in some ten thousand where other processes
//! want the core. A timer is such an event, so a task that sleeps again and again
//! bounds the delay: 10 ms while there are connections or operations (about 1.3% of a
//! core), 250 ms otherwise (an accept or a signal can be hit on an idle executor too,
//! and must not hang). The mesh has a bound of its own.

use crate::runtime::local::Event;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Counts of what is open or in flight on one executor. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Activity(Rc<State>);

#[derive(Default)]
struct State {
    connections: Cell<u64>,
    operations: Cell<u64>,
    changed: Event,
    ended: Cell<bool>,
}

/// One operation in flight, until dropped.
pub(super) struct Operation(Activity);

/// One open connection, until dropped.
pub(super) struct Connection(Activity);

impl Activity {
    /// Counts an operation in flight: file I/O, helper-thread work, a message that
    /// awaits its answer.
    pub(super) fn operation(&self) -> Operation {
        let was_idle = self.is_idle();
        self.0.operations.set(self.0.operations.get() + 1);
        self.woken_if(was_idle);
        Operation(self.clone())
    }

    /// Counts an open connection.
    pub(super) fn connection(&self) -> Connection {
        let was_idle = self.is_idle();
        self.0.connections.set(self.0.connections.get() + 1);
        self.woken_if(was_idle);
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
        self.0.changed.wait_until(|| self.0.ended.get()).await
    }

    /// The executor ends: its own tasks return.
    pub(super) fn end(&self) {
        self.0.ended.set(true);
        self.0.changed.notify_all();
    }

    /// Runs the tick until [`Activity::end`].
    pub(super) async fn tick(self) {
        while !self.0.ended.get() {
            if self.is_idle() {
                let begun = self.0.changed.listen();
                futures_lite::future::or(glommio::timer::sleep(IDLE_TICK), begun).await;
            } else {
                glommio::timer::sleep(BUSY_TICK).await;
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.0.connections.get() == 0 && self.0.operations.get() == 0
    }

    fn woken_if(&self, was_idle: bool) {
        if was_idle {
            self.0.changed.notify_all();
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let left = self.0 .0.operations.get() - 1;
        self.0 .0.operations.set(left);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let left = self.0 .0.connections.get() - 1;
        self.0 .0.connections.set(left);
    }
}

const BUSY_TICK: Duration = Duration::from_millis(10);
const IDLE_TICK: Duration = Duration::from_millis(250);
