//! SIGINT and SIGTERM, as something that a task can wait for.
//!
//! signal-hook's thread hears them (signalfd would need them blocked on every thread,
//! helper threads included). The first is handed over; a second one means that
//! stopping takes too long for whoever sent it, and ends the process at once. One that
//! follows within a second is taken for the same: who signals a process and its group,
//! as timeout(1) does, sends two.

use signal_hook::consts::{SIGINT, SIGTERM};
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Waits for the first signal. `Send`, cheap to clone; one waiter at a time.
#[derive(Clone)]
pub struct Signals(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    heard: Option<(i32, Instant)>,
    waker: Option<Waker>,
}

/// Takes over SIGINT and SIGTERM for the process, from now on. Call it once.
pub fn signals() -> std::io::Result<Signals> {
    let shared = Signals(Arc::new(Mutex::new(State::default())));
    let mut heard = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    let told = shared.clone();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in heard.forever() {
                if !told.tell(signal) {
                    let name = name(signal);
                    tracing::error!("{name} again: stopping at once, without a clean stop");
                    eprintln!("{name} again: stopping at once, without a clean stop");
                    signal_hook::low_level::exit(128 + signal);
                }
            }
        })?;
    Ok(shared)
}

impl Signals {
    /// Resolves with the signal's number, and again at once if it was heard before.
    pub async fn recv(&self) -> i32 {
        poll_fn(|cx| {
            let mut state = self.0.lock().unwrap_or_else(|e| e.into_inner());
            match state.heard {
                Some((signal, _)) => Poll::Ready(signal),
                None => {
                    state.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// False if one was told before, and longer ago than an echo.
    fn tell(&self, signal: i32) -> bool {
        let waker = {
            let mut state = self.0.lock().unwrap_or_else(|e| e.into_inner());
            if let Some((_, at)) = state.heard {
                return at.elapsed() < ECHO_MAX;
            }
            state.heard = Some((signal, Instant::now()));
            state.waker.take()
        };
        tracing::info!("{}: stopping", name(signal));
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

fn name(signal: i32) -> &'static str {
    match signal {
        SIGINT => "SIGINT",
        SIGTERM => "SIGTERM",
        _ => "a signal",
    }
}

/// A signal that comes this soon after the first is the same one, sent twice.
const ECHO_MAX: Duration = Duration::from_secs(1);
