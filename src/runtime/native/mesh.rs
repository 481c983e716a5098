//! Messages between executors: one lock-free inbox a member.
//!
//! A call takes a credit of the peer's window, puts a letter into the peer's inbox and
//! waits in a slot; the answer comes back in the same allocation. A member's task takes
//! all letters that are there at each wake. A push wakes its receiver only if that
//! sleeps.
//!
//! Why no cycle of waits can form: only `call` waits, for a credit or its answer; the
//! receiving task never does. An inbox holds at most, for each peer, a window of
//! requests, a window of answers and two notices, so it is bounded by the credits.
//!
//! Why nobody hangs: a member that closes, ends or is dropped tells every peer, whose
//! calls to it fail then; a push into a closed inbox says the same at once.
//!
//! What it is not: a way to reach a member that joined another mesh, or to come back
//! after a close.

use super::activity::Operation;
use super::rt::{AtEnd, AtEndGuard, NativeRt};
use super::stack::{Node, Stack};
use crate::runtime::local::{oneshot, Budget, Event, OneshotSender, Permit};
use crate::runtime::mesh::{MeshHandler, ReplySide, SeatSide};
use crate::runtime::{MeshError, MeshSeat, Queue, ReplyTo, Rt, Side};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Makes a mesh of `members` seats; each member may have `window` calls in flight to
/// each peer.
pub fn mesh<Q: Send + 'static, P: Send + 'static>(
    members: usize,
    window: usize,
) -> Vec<MeshSeat<Q, P>> {
    assert!(window > 0, "a window of no calls would wait for ever");
    let inboxes = Arc::new(Inboxes((0..members).map(|_| Stack::new()).collect()));
    (0..members)
        .map(|me| {
            MeshSeat(SeatSide::Native(NativeMeshSeat {
                me,
                window,
                inboxes: Some(inboxes.clone()),
            }))
        })
        .collect()
}

/// A place that was not taken yet. Dropped, it counts as a member that has stopped.
pub struct NativeMeshSeat<Q: Send + 'static, P: Send + 'static> {
    me: usize,
    window: usize,
    /// `None` once joined.
    inboxes: Option<Arc<Inboxes<Q, P>>>,
}

/// One member's end. Cheap to clone.
pub struct NativeMesh<Q: Send + 'static, P: Send + 'static>(Rc<Member<Q, P>>);

/// Where an answer goes. Dropped unanswered, it fails the caller.
pub struct NativeReplyTo<P: Send + 'static>(Box<dyn Answer<P>>);

struct Inboxes<Q, P>(Vec<Stack<Letter<Q, P>>>);

enum Letter<Q, P> {
    Joined {
        from: usize,
    },
    Left {
        from: usize,
    },
    Request {
        from: usize,
        slot: usize,
        request: Q,
    },
    Reply {
        from: usize,
        slot: usize,
        reply: Option<P>,
    },
    /// What is left in a node whose content was taken out.
    Empty,
}

struct Member<Q: Send + 'static, P: Send + 'static> {
    me: usize,
    rt: NativeRt,
    inboxes: Arc<Inboxes<Q, P>>,
    peers: Vec<Peer<P>>,
    handler: MeshHandler<Q, P>,
    closed: Cell<bool>,
    changed: Event,
    _at_end: AtEndGuard,
}

struct Peer<P> {
    credits: Budget,
    joined: Cell<bool>,
    left: Cell<bool>,
    slots: RefCell<Slots<P>>,
}

/// The calls in flight to one peer. A slot is free again only after its answer came.
struct Slots<P> {
    slots: Vec<Option<Waiting<P>>>,
    free: Vec<usize>,
}

struct Waiting<P> {
    caller: OneshotSender<P>,
    _credit: Permit,
    _operation: Operation,
}

impl<Q: Send + 'static, P: Send + 'static> NativeMeshSeat<Q, P> {
    pub async fn join(mut self, rt: &Rt, handler: MeshHandler<Q, P>) -> NativeMesh<Q, P> {
        let Side::Native(rt) = &rt.0 else {
            unreachable!("a mesh never spans the two sides");
        };
        let inboxes = self.inboxes.take().expect("a seat joins once");
        let peers = (0..inboxes.0.len())
            .map(|_| Peer::new(self.window))
            .collect();
        let member = Rc::new_cyclic(|member: &Weak<Member<Q, P>>| Member {
            me: self.me,
            rt: rt.clone(),
            inboxes,
            peers,
            handler,
            closed: Cell::new(false),
            changed: Event::new(),
            _at_end: rt.at_end(member.clone()),
        });
        rt.spawn(Queue::Latency, Box::pin(member.clone().receive()));
        member.post_all(|from| Letter::Joined { from });
        member
            .changed
            .wait_until(|| member.closed.get() || member.all_have_joined())
            .await;
        NativeMesh(member)
    }
}

impl<Q: Send + 'static, P: Send + 'static> Drop for NativeMeshSeat<Q, P> {
    fn drop(&mut self) {
        if let Some(inboxes) = self.inboxes.take() {
            inboxes.leave(self.me);
        }
    }
}

impl<Q: Send + 'static, P: Send + 'static> Clone for NativeMesh<Q, P> {
    fn clone(&self) -> Self {
        NativeMesh(self.0.clone())
    }
}

impl<Q: Send + 'static, P: Send + 'static> NativeMesh<Q, P> {
    pub fn me(&self) -> usize {
        self.0.me
    }

    pub fn members(&self) -> usize {
        self.0.peers.len()
    }

    pub async fn call(&self, peer: usize, request: Q) -> Result<P, MeshError> {
        let gone = MeshError { peer };
        let member = &*self.0;
        if member.closed.get() {
            return Err(gone);
        }
        if peer == member.me {
            let (caller, answer) = oneshot();
            (member.handler)(peer, request, ReplyTo(ReplySide::Local(caller)));
            return answer.await.ok_or(gone);
        }
        let place = &member.peers[peer];
        // First come, first served: so requests leave in the order of the first polls.
        let credit = place.credits.acquire(1).await;
        if member.closed.get() || place.left.get() {
            return Err(gone);
        }
        let (caller, answer) = oneshot();
        let slot = place.slots.borrow_mut().take(Waiting {
            caller,
            _credit: credit,
            _operation: member.rt.operation(),
        });
        let letter = Letter::Request {
            from: member.me,
            slot,
            request,
        };
        if member.inboxes.0[peer].push(Node::new(letter)).is_err() {
            member.peer_left(peer);
        }
        answer.await.ok_or(gone)
    }

    pub fn close(&self) {
        self.0.close();
    }
}

impl<P: Send + 'static> NativeReplyTo<P> {
    pub fn send(mut self, reply: P) {
        self.0.answer(reply);
    }
}

/// An answer, without the type of the request that it answers.
trait Answer<P>: Send {
    fn answer(&mut self, reply: P);
}

/// The way back of one request: its node, which becomes the answer.
struct Return<Q: Send + 'static, P: Send + 'static> {
    /// `None` once it is on its way.
    node: Option<Box<Node<Letter<Q, P>>>>,
    inboxes: Arc<Inboxes<Q, P>>,
    me: usize,
    caller: usize,
    slot: usize,
}

impl<Q: Send + 'static, P: Send + 'static> Return<Q, P> {
    fn go(&mut self, reply: Option<P>) {
        let Some(mut node) = self.node.take() else {
            return;
        };
        node.replace(Letter::Reply {
            from: self.me,
            slot: self.slot,
            reply,
        });
        // A closed inbox means that the caller has stopped: nobody waits any more.
        drop(self.inboxes.0[self.caller].push(node));
    }
}

impl<Q: Send + 'static, P: Send + 'static> Answer<P> for Return<Q, P> {
    fn answer(&mut self, reply: P) {
        self.go(Some(reply));
    }
}

impl<Q: Send + 'static, P: Send + 'static> Drop for Return<Q, P> {
    fn drop(&mut self) {
        self.go(None);
    }
}

impl<Q: Send, P: Send> Inboxes<Q, P> {
    /// Closes a member's inbox and tells the others. What it still held is dropped:
    /// the notice fails those calls.
    fn leave(&self, member: usize) {
        drop(self.0[member].close());
        for (peer, inbox) in self.0.iter().enumerate() {
            if peer != member {
                // A peer with a closed inbox has left itself.
                drop(inbox.push(Node::new(Letter::Left { from: member })));
            }
        }
    }
}

impl<Q: Send + 'static, P: Send + 'static> Member<Q, P> {
    /// The receiving task: ends when the inbox is closed.
    async fn receive(self: Rc<Self>) {
        let inbox = &self.inboxes.0[self.me];
        while !self.closed.get() {
            inbox.wait().await;
            for node in inbox.take() {
                if self.closed.get() {
                    return;
                }
                self.handle(node);
                self.rt.yield_if_needed().await;
            }
        }
    }

    fn handle(&self, mut node: Box<Node<Letter<Q, P>>>) {
        match node.replace(Letter::Empty) {
            Letter::Joined { from } => {
                self.peers[from].joined.set(true);
                self.changed.notify_all();
            }
            Letter::Left { from } => self.peer_left(from),
            Letter::Request {
                from,
                slot,
                request,
            } => {
                let way_back = Return {
                    node: Some(node),
                    inboxes: self.inboxes.clone(),
                    me: self.me,
                    caller: from,
                    slot,
                };
                let reply_to = ReplyTo(ReplySide::Native(NativeReplyTo(Box::new(way_back))));
                (self.handler)(from, request, reply_to);
            }
            Letter::Reply { from, slot, reply } => {
                let waiting = self.peers[from].slots.borrow_mut().put_back(slot);
                // None: the peer left, and its calls were failed, before this came.
                if let Some(waiting) = waiting {
                    waiting.finish(reply);
                }
            }
            Letter::Empty => unreachable!("a node is emptied only here"),
        }
    }

    fn peer_left(&self, peer: usize) {
        let place = &self.peers[peer];
        place.left.set(true);
        let failed = place.slots.borrow_mut().take_all();
        // Their credits come back here too, so who waits for one fails next.
        drop(failed);
        self.changed.notify_all();
    }

    fn close(&self) {
        if self.closed.replace(true) {
            return;
        }
        self.inboxes.leave(self.me);
        for peer in 0..self.peers.len() {
            self.peer_left(peer);
        }
    }

    fn all_have_joined(&self) -> bool {
        self.peers
            .iter()
            .enumerate()
            .all(|(n, peer)| n == self.me || peer.joined.get() || peer.left.get())
    }

    fn post_all(&self, letter: impl Fn(usize) -> Letter<Q, P>) {
        for peer in (0..self.peers.len()).filter(|peer| *peer != self.me) {
            if self.inboxes.0[peer]
                .push(Node::new(letter(self.me)))
                .is_err()
            {
                self.peer_left(peer);
            }
        }
    }
}

impl<Q: Send + 'static, P: Send + 'static> AtEnd for Member<Q, P> {
    fn executor_ends(&self) {
        self.close();
    }
}

impl<P> Peer<P> {
    fn new(window: usize) -> Peer<P> {
        Peer {
            credits: Budget::new(window as u64),
            joined: Cell::new(false),
            left: Cell::new(false),
            slots: RefCell::new(Slots {
                slots: Vec::new(),
                free: Vec::new(),
            }),
        }
    }
}

impl<P> Slots<P> {
    fn take(&mut self, waiting: Waiting<P>) -> usize {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = Some(waiting);
                slot
            }
            None => {
                self.slots.push(Some(waiting));
                self.slots.len() - 1
            }
        }
    }

    fn put_back(&mut self, slot: usize) -> Option<Waiting<P>> {
        let waiting = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(waiting)
    }

    /// Empties all for good: the peer has left.
    fn take_all(&mut self) -> Vec<Option<Waiting<P>>> {
        self.free.clear();
        std::mem::take(&mut self.slots)
    }
}

impl<P> Waiting<P> {
    fn finish(self, reply: Option<P>) {
        if let Some(reply) = reply {
            // A caller that gave up waiting needs no answer.
            drop(self.caller.send(reply));
        }
    }
}
