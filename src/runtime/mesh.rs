//! Messages between executors: request and reply lanes with credits.
//!
//! Each pair of members has a request lane and a reply lane in each direction.
//! Before a request is sent its sender takes a credit of the peer's window; the
//! window is also the reply lane's capacity, so a reply never waits. A member's
//! handler is a plain function: it may queue or answer, it can never wait. So no
//! cycle of waits can form, however busy both sides are.

use super::{native, sim, Rt};
use std::rc::Rc;

/// A member's place in a mesh before it has joined: `Send`, so that it can be
/// carried to its executor.
pub struct MeshSeat<Q: Send + 'static, P: Send + 'static>(pub(super) SeatSide<Q, P>);

pub(super) enum SeatSide<Q: Send + 'static, P: Send + 'static> {
    Native(native::NativeMeshSeat<Q, P>),
    Sim(sim::SimMeshSeat<Q, P>),
}

/// One member's end of the mesh. Cheap to clone.
pub struct Mesh<Q: Send + 'static, P: Send + 'static>(MeshSide<Q, P>);

enum MeshSide<Q: Send + 'static, P: Send + 'static> {
    Native(native::NativeMesh<Q, P>),
    Sim(sim::SimMesh<Q, P>),
}

impl<Q: Send + 'static, P: Send + 'static> Clone for Mesh<Q, P> {
    fn clone(&self) -> Self {
        Mesh(match &self.0 {
            MeshSide::Native(m) => MeshSide::Native(m.clone()),
            MeshSide::Sim(m) => MeshSide::Sim(m.clone()),
        })
    }
}

/// The peer is gone: its executor ended, or the mesh was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("shard {peer} has stopped")]
pub struct MeshError {
    /// The peer's place.
    pub peer: usize,
}

/// Where the answer to one request goes. Must be used: dropping it unanswered
/// fails the caller with [`MeshError`].
pub struct ReplyTo<P: Send + 'static>(pub(super) ReplySide<P>);

pub(super) enum ReplySide<P: Send + 'static> {
    Native(native::NativeReplyTo<P>),
    Sim(sim::SimReplyTo<P>),
    /// A request of a member to itself.
    Local(super::local::OneshotSender<P>),
}

/// What a member does with a request: queue it, or answer at once. Arguments: the
/// sender's place, the request, where the answer goes.
pub type MeshHandler<Q, P> = Rc<dyn Fn(usize, Q, ReplyTo<P>)>;

impl<Q: Send + 'static, P: Send + 'static> MeshSeat<Q, P> {
    /// Takes the seat on its own executor. Resolves once every peer has joined too.
    pub async fn join(self, rt: &Rt, handler: MeshHandler<Q, P>) -> Mesh<Q, P> {
        match self.0 {
            SeatSide::Native(s) => Mesh(MeshSide::Native(s.join(rt, handler).await)),
            SeatSide::Sim(s) => Mesh(MeshSide::Sim(s.join(rt, handler).await)),
        }
    }
}

impl<Q: Send + 'static, P: Send + 'static> Mesh<Q, P> {
    /// This member's place.
    pub fn me(&self) -> usize {
        match &self.0 {
            MeshSide::Native(m) => m.me(),
            MeshSide::Sim(m) => m.me(),
        }
    }

    /// How many members there are.
    pub fn members(&self) -> usize {
        match &self.0 {
            MeshSide::Native(m) => m.members(),
            MeshSide::Sim(m) => m.members(),
        }
    }

    /// Sends a request and waits for its reply. Requests of one member to one peer
    /// arrive in the order in which `call` was first polled. To oneself it is a
    /// call of the own handler.
    pub async fn call(&self, peer: usize, request: Q) -> Result<P, MeshError> {
        match &self.0 {
            MeshSide::Native(m) => m.call(peer, request).await,
            MeshSide::Sim(m) => m.call(peer, request).await,
        }
    }

    /// Closes this member's lanes: peers' calls to it fail, and so do its own.
    pub fn close(&self) {
        match &self.0 {
            MeshSide::Native(m) => m.close(),
            MeshSide::Sim(m) => m.close(),
        }
    }
}

impl<P: Send + 'static> ReplyTo<P> {
    /// Answers. Never waits.
    pub fn send(self, reply: P) {
        match self.0 {
            ReplySide::Native(r) => r.send(reply),
            ReplySide::Sim(r) => r.send(reply),
            ReplySide::Local(r) => {
                // The caller may have given up waiting; then nobody needs the reply.
                let _ = r.send(reply);
            }
        }
    }
}
