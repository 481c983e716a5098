//! The simulated mesh: not built yet.
#![allow(dead_code, unused_variables, clippy::unused_async)]
use crate::runtime::{mesh, MeshError, Rt};
pub struct SimMeshSeat<Q: Send + 'static, P: Send + 'static>(std::marker::PhantomData<(Q, P)>);
impl<Q: Send + 'static, P: Send + 'static> SimMeshSeat<Q, P> {
    pub async fn join(self, rt: &Rt, h: mesh::MeshHandler<Q, P>) -> SimMesh<Q, P> {
        todo!()
    }
}
pub struct SimMesh<Q: Send + 'static, P: Send + 'static>(std::marker::PhantomData<(Q, P)>);
impl<Q: Send + 'static, P: Send + 'static> Clone for SimMesh<Q, P> {
    fn clone(&self) -> Self {
        todo!()
    }
}
impl<Q: Send + 'static, P: Send + 'static> SimMesh<Q, P> {
    pub fn me(&self) -> usize {
        todo!()
    }
    pub fn members(&self) -> usize {
        todo!()
    }
    pub async fn call(&self, p: usize, q: Q) -> Result<P, MeshError> {
        todo!()
    }
    pub fn close(&self) {
        todo!()
    }
}
pub struct SimReplyTo<P: Send + 'static>(std::marker::PhantomData<P>);
impl<P: Send + 'static> SimReplyTo<P> {
    pub fn send(self, p: P) {
        todo!()
    }
}
