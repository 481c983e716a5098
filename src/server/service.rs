//! What the service manager is told while the broker starts, serves and stops.
//!
//! A long recovery is no hanging start, and a wedged shard is no living broker: both the extension of the start and
//! the watchdog's sign of life are sent only once every shard has answered a message.

use crate::runtime::native::ServiceManager;
use crate::runtime::Rt;
use crate::shard::{Control, LoadStatus};
use std::convert::Infallible;
use std::io::ErrorKind;
use std::time::Duration;

/// The manager, as the control executor tells it.
#[derive(Clone)]
pub(super) struct Service {
    rt: Rt,
    manager: ServiceManager,
}

impl Service {
    pub fn new(rt: &Rt, manager: ServiceManager) -> Service {
        Service {
            rt: rt.clone(),
            manager,
        }
    }

    /// Sends one message, again for a while if the manager's queue is full. A manager that is gone or deaf is logged:
    /// clients are served all the same. May be dropped at any time.
    pub async fn tell(&self, message: &str) {
        let begun = self.rt.now();
        loop {
            match self.manager.tell(message) {
                Ok(()) => return,
                Err(error)
                    if error.kind() == ErrorKind::WouldBlock
                        && self.rt.now().since(begun) < QUEUE_FULL_PATIENCE =>
                {
                    self.rt.sleep(QUEUE_FULL_PAUSE).await;
                }
                Err(error) => {
                    tracing::warn!(%error, message, "the service manager (NOTIFY_SOCKET) cannot be told");
                    return;
                }
            }
        }
    }

    /// Tells the log and the manager how far the load is, and asks for more time while the shards answer. Never ends.
    pub async fn loading(&self, control: &Control) -> Infallible {
        let start = control.start_kind();
        let mut status = LoadStatus::default();
        let mut signs = 0;
        loop {
            if signs % LOADING_SIGNS == 0 {
                self.tell(&format!(
                    "STATUS=Loading partitions ({start:?} start, {status})\nEXTEND_TIMEOUT_USEC={}",
                    LOADING_EXTENSION.as_micros()
                ))
                .await;
            }
            self.rt.sleep(LOADING_PAUSE).await;
            status = self.shards_answer(control).await;
            tracing::info!("loading goes on: {status}");
            signs += 1;
        }
    }

    /// Feeds the watchdog while every shard answers. Never ends.
    pub async fn feed_watchdog(&self, control: &Control) -> Infallible {
        let Some(period) = self.manager.watchdog() else {
            return std::future::pending().await;
        };
        loop {
            self.shards_answer(control).await;
            self.tell("WATCHDOG=1").await;
            self.rt.sleep(period / WATCHDOG_SIGNS).await;
        }
    }

    /// Resolves when every shard has answered; never, if one has ended.
    async fn shards_answer(&self, control: &Control) -> LoadStatus {
        match control.load_status().await {
            Ok(status) => status,
            Err(error) => {
                tracing::error!(%error, "the service manager gets no sign of life any more");
                std::future::pending().await
            }
        }
    }
}

/// How long a manager that does not read is given.
const QUEUE_FULL_PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks whether the manager reads again.
const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(50);
/// What one message asks for, while partitions load.
const LOADING_EXTENSION: Duration = Duration::from_secs(60);
/// Between two looks at how far the load is, each with a line in the log.
const LOADING_PAUSE: Duration = Duration::from_secs(1);
/// Looks for each message to the manager.
const LOADING_SIGNS: u64 = 5;
/// Signs of life within one period of the watchdog.
const WATCHDOG_SIGNS: u32 = 3;
