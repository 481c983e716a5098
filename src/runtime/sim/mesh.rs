//! The simulated mesh: lanes whose messages arrive late, but in order.
//!
//! Each member has one task, its pump, that takes messages which are due, from a lane
//! drawn from the seed, and hands them to the handler or to the waiting caller. A
//! caller takes a credit of its peer's window first; the credit stays with the
//! request, not with the caller's future, and comes back with the reply.
//!
//! The lanes lie behind a mutex only because seats and wakers are `Send`; nothing
//! contends for it, and no waker is called and no message dropped under it.

use super::executor::{lock, Timer};
use super::rt::SimRt;
use crate::runtime::local::{oneshot, Budget, OneshotSender, Permit};
use crate::runtime::mesh::{MeshHandler, ReplySide, SeatSide};
use crate::runtime::{MeshError, MeshSeat, Queue, ReplyTo, Rt};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// The seats of a mesh of `members`, each of which lets a peer have `window`
/// requests under way.
pub fn mesh<Q: Send + 'static, P: Send + 'static>(
    members: usize,
    window: usize,
) -> Vec<MeshSeat<Q, P>> {
    assert!(window > 0, "a window of nothing lets nothing through");
    let shared = Arc::new(Mutex::new(Shared {
        window,
        members: (0..members).map(|_| Member::new(members)).collect(),
        joining: Vec::new(),
    }));
    let seat = |me| SimMeshSeat {
        shared: shared.clone(),
        me,
    };
    let seats = (0..members).map(|me| MeshSeat(SeatSide::Sim(seat(me))));
    seats.collect()
}

pub struct SimMeshSeat<Q: Send + 'static, P: Send + 'static> {
    shared: Arc<Mutex<Shared<Q, P>>>,
    me: usize,
}

pub struct SimMesh<Q: Send + 'static, P: Send + 'static>(Rc<End<Q, P>>);

pub struct SimReplyTo<P: Send + 'static> {
    /// Takes the reply, or the news that there will be none.
    answer: Option<Box<dyn FnOnce(Option<P>)>>,
}

struct Shared<Q, P> {
    window: usize,
    members: Vec<Member<Q, P>>,
    joining: Vec<Waker>,
}

struct Member<Q, P> {
    joined: bool,
    closed: bool,
    pump: Option<Waker>,
    /// A request lane and a reply lane from each peer.
    lanes: Vec<VecDeque<Message<Q, P>>>,
}

struct Message<Q, P> {
    due: u64,
    call: u64,
    body: Body<Q, P>,
}

enum Body<Q, P> {
    Request(Q),
    /// `None`: dropped unanswered.
    Reply(Option<P>),
}

/// What a member's handles share on its own executor.
struct End<Q: Send + 'static, P: Send + 'static> {
    rt: SimRt,
    shared: Arc<Mutex<Shared<Q, P>>>,
    me: usize,
    members: usize,
    handler: MeshHandler<Q, P>,
    credits: Vec<Budget>,
    pending: RefCell<BTreeMap<u64, Pending<P>>>,
}

struct Pending<P> {
    peer: usize,
    caller: OneshotSender<Result<P, MeshError>>,
    _credit: Permit,
}

/// What a member's pump does next.
enum Step<Q, P> {
    Deliver(usize, Message<Q, P>),
    Fail(Vec<usize>),
    End,
}

impl<Q: Send + 'static, P: Send + 'static> SimMeshSeat<Q, P> {
    pub async fn join(self, rt: &Rt, handler: MeshHandler<Q, P>) -> SimMesh<Q, P> {
        let (members, window) = {
            let shared = lock(&self.shared);
            (shared.members.len(), shared.window)
        };
        let end = Rc::new(End {
            rt: SimRt::of(rt).clone(),
            shared: self.shared,
            me: self.me,
            members,
            handler,
            credits: (0..members).map(|_| Budget::new(window as u64)).collect(),
            pending: RefCell::default(),
        });
        rt.spawn(Queue::Latency, end.clone().pump());
        end.all_joined().await;
        SimMesh(end)
    }
}

impl<Q: Send + 'static, P: Send + 'static> Clone for SimMesh<Q, P> {
    fn clone(&self) -> Self {
        SimMesh(self.0.clone())
    }
}

impl<Q: Send + 'static, P: Send + 'static> SimMesh<Q, P> {
    pub fn me(&self) -> usize {
        self.0.me
    }

    pub fn members(&self) -> usize {
        self.0.members
    }

    pub async fn call(&self, peer: usize, request: Q) -> Result<P, MeshError> {
        let end = &self.0;
        let gone = MeshError { peer };
        if peer == end.me {
            if end.is_closed(peer) {
                return Err(gone);
            }
            let (sender, receiver) = oneshot();
            (end.handler)(peer, request, ReplyTo(ReplySide::Local(sender)));
            return receiver.await.ok_or(gone);
        }
        end.rt.core.note_wait("a credit of a mesh peer");
        let credit = end.credits[peer].acquire(1).await;
        if end.is_closed(peer) || end.is_closed(end.me) {
            return Err(gone);
        }
        let (caller, receiver) = oneshot();
        let call = end.rt.core.next_sequence();
        let pending = Pending {
            peer,
            caller,
            _credit: credit,
        };
        end.pending.borrow_mut().insert(call, pending);
        post(
            &end.rt,
            &end.shared,
            end.me,
            peer,
            call,
            Body::Request(request),
        );
        end.rt.core.note_wait("a reply of a mesh peer");
        receiver.await.unwrap_or(Err(gone))
    }

    pub fn close(&self) {
        let end = &self.0;
        let (pumps, dropped) = {
            let mut shared = lock(&end.shared);
            shared.members[end.me].closed = true;
            let dropped = shared.members[end.me].take_messages();
            let pumps: Vec<Waker> = shared
                .members
                .iter()
                .filter_map(|m| m.pump.clone())
                .collect();
            (pumps, dropped)
        };
        drop(dropped);
        pumps.into_iter().for_each(Waker::wake);
        end.fail_pending(|_| true);
    }
}

impl<P: Send + 'static> SimReplyTo<P> {
    pub fn send(mut self, reply: P) {
        if let Some(answer) = self.answer.take() {
            answer(Some(reply));
        }
    }
}

impl<P: Send + 'static> Drop for SimReplyTo<P> {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            answer(None);
        }
    }
}

impl<Q: Send + 'static, P: Send + 'static> End<Q, P> {
    async fn all_joined(&self) {
        let woken = {
            let mut shared = lock(&self.shared);
            assert!(!shared.members[self.me].joined, "a seat is taken once");
            shared.members[self.me].joined = true;
            std::mem::take(&mut shared.joining)
        };
        woken.into_iter().for_each(Waker::wake);
        self.rt.core.note_wait("mesh peers to join");
        poll_fn(|cx| {
            let mut shared = lock(&self.shared);
            if shared.members.iter().all(|m| m.joined) {
                return Poll::Ready(());
            }
            shared.joining.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    async fn pump(self: Rc<Self>) {
        let mut failed = vec![false; self.members];
        loop {
            self.rt.core.note_wait("messages of mesh peers");
            match poll_fn(|cx| self.poll_step(cx, &failed)).await {
                Step::Deliver(from, message) => self.deliver(from, message),
                Step::Fail(peers) => {
                    for peer in peers {
                        failed[peer] = true;
                        self.fail_pending(|p| p == peer);
                    }
                }
                Step::End => return,
            }
            self.rt.yield_if_needed().await;
        }
    }

    fn poll_step(&self, cx: &mut Context<'_>, failed: &[bool]) -> Poll<Step<Q, P>> {
        let mut shared = lock(&self.shared);
        let closed = |peer: &usize| shared.members[*peer].closed && !failed[*peer];
        let newly_closed: Vec<usize> = (0..self.members).filter(closed).collect();
        let member = &mut shared.members[self.me];
        if member.closed {
            return Poll::Ready(Step::End);
        }
        if !newly_closed.is_empty() {
            return Poll::Ready(Step::Fail(newly_closed));
        }
        let now = self.rt.core.now();
        let due = |lane: &VecDeque<Message<Q, P>>| lane.front().is_some_and(|m| m.due <= now);
        let ready: Vec<usize> = (0..member.lanes.len())
            .filter(|lane| due(&member.lanes[*lane]))
            .collect();
        if !ready.is_empty() {
            let lane = ready[self.rt.core.rng.below(ready.len() as u64) as usize];
            if let Some(message) = member.lanes[lane].pop_front() {
                return Poll::Ready(Step::Deliver(lane % self.members, message));
            }
        }
        member.pump = Some(cx.waker().clone());
        Poll::Pending
    }

    fn deliver(&self, from: usize, message: Message<Q, P>) {
        let call = message.call;
        match message.body {
            Body::Request(request) => {
                let (rt, shared, me) = (self.rt.clone(), self.shared.clone(), self.me);
                let answer = move |reply: Option<P>| {
                    if rt.is_alive() {
                        post(&rt, &shared, me, from, call, Body::Reply(reply));
                    }
                };
                let reply_to = SimReplyTo {
                    answer: Some(Box::new(answer)),
                };
                (self.handler)(from, request, ReplyTo(ReplySide::Sim(reply_to)));
            }
            Body::Reply(reply) => {
                let pending = self.pending.borrow_mut().remove(&call);
                // Absent if the peer was taken for gone before its reply came.
                if let Some(pending) = pending {
                    let result = reply.ok_or(MeshError { peer: from });
                    // The caller may have given up; its credit returns all the same.
                    let _ = pending.caller.send(result);
                }
            }
        }
    }

    fn fail_pending(&self, which: impl Fn(usize) -> bool) {
        let failed: Vec<Pending<P>> = {
            let mut pending = self.pending.borrow_mut();
            let calls: Vec<u64> = pending
                .iter()
                .filter(|(_, p)| which(p.peer))
                .map(|(call, _)| *call)
                .collect();
            calls.iter().filter_map(|c| pending.remove(c)).collect()
        };
        for pending in failed {
            let gone = MeshError { peer: pending.peer };
            // The caller may have given up.
            let _ = pending.caller.send(Err(gone));
        }
    }

    fn is_closed(&self, member: usize) -> bool {
        lock(&self.shared).members[member].closed
    }
}

impl<Q, P> Member<Q, P> {
    fn new(members: usize) -> Member<Q, P> {
        Member {
            joined: false,
            closed: false,
            pump: None,
            lanes: (0..2 * members).map(|_| VecDeque::new()).collect(),
        }
    }

    fn take_messages(&mut self) -> Vec<Message<Q, P>> {
        self.lanes.iter_mut().flat_map(|l| l.drain(..)).collect()
    }
}

/// Puts a message on its lane; it is due after a delay, and after those before it.
fn post<Q: Send + 'static, P: Send + 'static>(
    rt: &SimRt,
    shared: &Arc<Mutex<Shared<Q, P>>>,
    from: usize,
    to: usize,
    call: u64,
    body: Body<Q, P>,
) {
    let rng = &rt.core.rng;
    let delay = match rng.one_in(50) {
        true => rng.within(50_000..3_000_000),
        false => rng.within(500..50_000),
    };
    let due = {
        let mut all = lock(shared);
        let members = all.members.len();
        let window = all.window;
        let member = &mut all.members[to];
        if member.closed {
            drop(all);
            // Dropped outside the lock: a request may hold anything.
            drop(body);
            return;
        }
        let lane = match body {
            Body::Request(_) => from,
            Body::Reply(_) => members + from,
        };
        let queue = &mut member.lanes[lane];
        let before = queue.back().map_or(0, |m| m.due);
        let due = before.max(rt.core.now() + delay);
        queue.push_back(Message { due, call, body });
        assert!(queue.len() <= window, "credits bound what is on a lane");
        due
    };
    let to = Due {
        shared: shared.clone(),
        to,
    };
    rt.core
        .set_timer(due, Timer::Wake(Waker::from(Arc::new(to))));
}

/// Wakes a member's pump, whichever waker it has then.
struct Due<Q, P> {
    shared: Arc<Mutex<Shared<Q, P>>>,
    to: usize,
}

impl<Q: Send + 'static, P: Send + 'static> Wake for Due<Q, P> {
    fn wake(self: Arc<Self>) {
        let pump = lock(&self.shared).members[self.to].pump.clone();
        if let Some(pump) = pump {
            pump.wake();
        }
    }
}
