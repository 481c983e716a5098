//! The runtime's lock-free stack under loom: the interleavings of producers and a
//! consumer that sleeps, takes and closes. Includes the source file itself, with loom's
//! primitives in the place of std's. Run it with `cargo test --test stack_loom`.

mod sync {
    pub use loom::sync::atomic::{AtomicPtr, Ordering};
    pub use loom::sync::Mutex;
}

#[allow(dead_code)]
#[path = "../src/runtime/native/stack.rs"]
mod stack;

use loom::cell::Cell;
use loom::sync::Arc;
use loom::thread;
use stack::{Node, Stack};
use std::task::{Context, Wake, Waker};

/// All interleavings with at most three preemptions, which keeps it to seconds.
fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

/// Written before the push, read after the take: loom reports any access that is not
/// ordered so.
struct Watched(Cell<u32>);

// SAFETY: loom's cell is checked at run time, which is what it is here for.
#[allow(unsafe_code)]
unsafe impl Send for Watched {}

impl Watched {
    fn node(n: u32) -> Box<Node<Watched>> {
        let watched = Watched(Cell::new(0));
        watched.0.set(n);
        Node::new(watched)
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

fn waker() -> Waker {
    Waker::from(std::sync::Arc::new(Unpark(thread::current())))
}

fn produce(stack: &Arc<Stack<Watched>>, values: &'static [u32]) -> thread::JoinHandle<()> {
    let stack = stack.clone();
    thread::spawn(move || {
        for n in values {
            assert!(stack.push(Watched::node(*n)).is_ok());
        }
    })
}

#[test]
fn given_two_producers_and_a_consumer_that_sleeps_then_no_wake_up_and_no_node_is_lost() {
    model(|| {
        let stack = Arc::new(Stack::new());
        let producers = [produce(&stack, &[1]), produce(&stack, &[2])];
        let waker = waker();
        let mut cx = Context::from_waker(&waker);
        let mut sum = 0;
        while sum < 3 {
            // A lost wake-up is a deadlock, which loom reports.
            while stack.poll_wait(&mut cx).is_pending() {
                thread::park();
            }
            sum += stack.take().map(|n| n.into_inner().0.get()).sum::<u32>();
        }
        assert_eq!(sum, 3);
        for producer in producers {
            producer.join().unwrap();
        }
        assert!(stack.take().next().is_none());
    });
}

#[test]
fn given_one_producer_then_its_nodes_come_in_its_order() {
    model(|| {
        let stack = Arc::new(Stack::new());
        let producer = produce(&stack, &[1, 2, 3]);
        let waker = waker();
        let mut cx = Context::from_waker(&waker);
        let mut got = Vec::new();
        while got.len() < 3 {
            while stack.poll_wait(&mut cx).is_pending() {
                thread::park();
            }
            got.extend(stack.take().map(|n| n.into_inner().0.get()));
        }
        assert_eq!(got, [1, 2, 3]);
        producer.join().unwrap();
    });
}

#[test]
fn given_pushes_that_race_with_close_then_each_node_has_one_owner() {
    model(|| {
        let stack = Arc::new(Stack::new());
        let producers: Vec<_> = [1, 2]
            .into_iter()
            .map(|n| {
                let stack = stack.clone();
                thread::spawn(move || match stack.push(Watched::node(n)) {
                    Ok(()) => 0,
                    Err(back) => back.into_inner().0.get(),
                })
            })
            .collect();
        let waker = waker();
        let mut cx = Context::from_waker(&waker);
        // Asleep or not, as it comes.
        let _ = stack.poll_wait(&mut cx);
        let mut sum: u32 = stack.take().map(|n| n.into_inner().0.get()).sum();
        sum += stack.close().map(|n| n.into_inner().0.get()).sum::<u32>();
        for producer in producers {
            sum += producer.join().unwrap();
        }
        assert_eq!(sum, 3);
    });
}
