//! The simulated network: not built yet.
#![allow(dead_code, unused_variables, clippy::unused_async)]
use super::executor::Core;
use super::rt::SimRt;
use crate::runtime::IoError;
use bytes::Bytes;
use std::net::SocketAddr;
#[derive(Default)]
pub(super) struct Net {}
impl Net {
    pub fn node_down(&self, core: &Core, node: usize) {}
}
pub(super) async fn connect(rt: &SimRt, addr: SocketAddr) -> Result<SimConn, IoError> {
    todo!()
}
pub(super) async fn listen(rt: &SimRt, addr: SocketAddr) -> Result<SimListener, IoError> {
    todo!()
}
pub struct SimAccepted;
impl SimAccepted {
    pub(super) fn adopt(self, rt: &SimRt) -> Result<SimConn, IoError> {
        todo!()
    }
}
pub struct SimListener;
impl SimListener {
    pub fn local_addr(&self) -> SocketAddr {
        todo!()
    }
    pub async fn accept(&self) -> Result<SimAccepted, IoError> {
        todo!()
    }
    pub fn close(&self) {
        todo!()
    }
}
pub struct SimConn;
impl SimConn {
    pub fn peer_addr(&self) -> SocketAddr {
        todo!()
    }
    pub fn closer(&self) -> SimConnCloser {
        todo!()
    }
    pub fn split(self) -> (SimConnReader, SimConnWriter) {
        todo!()
    }
}
pub struct SimConnReader;
impl SimConnReader {
    pub async fn read(&mut self, b: &mut [u8]) -> Result<usize, IoError> {
        todo!()
    }
}
pub struct SimConnWriter;
impl SimConnWriter {
    pub async fn write_all(&mut self, s: &mut Vec<Bytes>) -> Result<(), IoError> {
        todo!()
    }
}
#[derive(Clone)]
pub struct SimConnCloser;
impl SimConnCloser {
    pub fn close(&self) {
        todo!()
    }
}
