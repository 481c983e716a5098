//! The stack on real threads.

use super::stack::{Node, Stack};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

struct Unpark(std::thread::Thread);
impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn given_pushes_when_taken_then_they_come_in_order_and_once() {
    let stack = Stack::new();
    for n in 0..5 {
        stack.push(Node::new(n)).ok().unwrap();
    }
    let got: Vec<i32> = stack.take().map(|n| n.into_inner()).collect();
    assert_eq!(got, [0, 1, 2, 3, 4]);
    assert!(stack.take().next().is_none());
}

#[test]
fn given_a_closed_stack_when_pushed_then_the_node_comes_back() {
    let stack = Stack::new();
    stack.push(Node::new(1)).ok().unwrap();
    let left: Vec<i32> = stack.close().map(|n| n.into_inner()).collect();
    assert_eq!(left, [1]);
    let back = stack.push(Node::new(2)).err().unwrap();
    assert_eq!(*back.get(), 2);
    assert!(stack.close().next().is_none());
}

#[test]
fn given_many_producers_and_a_consumer_that_sleeps_then_nothing_is_lost_or_reordered() {
    const PRODUCERS: usize = 4;
    const EACH: usize = 20_000;
    let stack = Arc::new(Stack::<(usize, usize)>::new());
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    // Asleep before the first push, so that at least that one must wake it.
    assert!(stack.poll_wait(&mut cx).is_pending());
    let threads: Vec<_> = (0..PRODUCERS)
        .map(|p| {
            let stack = stack.clone();
            std::thread::spawn(move || {
                for n in 0..EACH {
                    if n % 97 == 0 {
                        // Lets the consumer run dry and sleep.
                        std::thread::yield_now();
                    }
                    stack.push(Node::new((p, n))).ok().unwrap();
                }
            })
        })
        .collect();
    std::thread::park();
    let mut next = [0usize; PRODUCERS];
    while next.iter().sum::<usize>() < PRODUCERS * EACH {
        for node in stack.take() {
            let (p, n) = node.into_inner();
            assert_eq!(next[p], n, "producer {p}");
            next[p] += 1;
        }
        while next.iter().sum::<usize>() < PRODUCERS * EACH && stack.poll_wait(&mut cx).is_pending()
        {
            // A lost wake-up would hang here for good.
            std::thread::park();
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn given_pushes_that_race_with_close_then_each_node_has_one_owner() {
    for _ in 0..200 {
        let stack = Arc::new(Stack::<Arc<()>>::new());
        let token = Arc::new(());
        let producer = {
            let (stack, token) = (stack.clone(), token.clone());
            std::thread::spawn(move || {
                for _ in 0..50 {
                    if stack.push(Node::new(token.clone())).is_err() {
                        break;
                    }
                }
            })
        };
        drop(stack.take());
        drop(stack.close());
        producer.join().unwrap();
        drop(stack);
        assert_eq!(Arc::strong_count(&token), 1, "a node leaked");
    }
}
