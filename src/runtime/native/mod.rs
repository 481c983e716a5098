//! Stub.
#![allow(missing_docs, dead_code, unused_variables, clippy::unused_async)]
use super::*;
use super::{buf, net};
use bytes::Bytes;
use std::ops::Range;
use std::pin::Pin;
#[derive(Clone)]
pub struct NativeRt;
impl NativeRt {
    pub fn now(&self) -> Mono {
        todo!()
    }
    pub fn wall_clock_ms(&self) -> i64 {
        todo!()
    }
    pub async fn sleep(&self, d: Duration) {
        todo!()
    }
    pub fn spawn(&self, q: Queue, f: Pin<Box<dyn Future<Output = ()>>>) {
        todo!()
    }
    pub async fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        todo!()
    }
    pub async fn yield_if_needed(&self) {
        todo!()
    }
    pub fn random_u64(&self) -> u64 {
        todo!()
    }
    pub fn write_buf(&self, len: usize) -> WriteBuf {
        todo!()
    }
    pub fn dir(&self, p: &Path) -> NativeDir {
        todo!()
    }
    pub async fn connect(&self, a: SocketAddr) -> Result<NativeConn, IoError> {
        todo!()
    }
    pub async fn listen(&self, a: SocketAddr) -> Result<NativeListener, IoError> {
        todo!()
    }
    pub fn adopt(&self, a: NativeAccepted) -> Result<NativeConn, IoError> {
        todo!()
    }
}
pub struct NativeWriteBuf;
impl NativeWriteBuf {
    pub fn len(&self) -> usize {
        todo!()
    }
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        todo!()
    }
    pub fn freeze(self) -> NativeSharedBuf {
        todo!()
    }
}
#[derive(Clone)]
pub struct NativeSharedBuf;
impl NativeSharedBuf {
    pub fn as_slice(&self) -> &[u8] {
        todo!()
    }
    pub fn slice(&self, r: Range<usize>) -> Bytes {
        todo!()
    }
}
#[derive(Clone)]
pub struct NativeFile;
impl NativeFile {
    pub fn path(&self) -> &Path {
        todo!()
    }
    pub async fn write_at(&self, b: &SharedBuf, p: u64) -> Result<(), IoError> {
        todo!()
    }
    pub async fn read_at(&self, p: u64, l: usize) -> Result<Bytes, IoError> {
        todo!()
    }
    pub async fn sync_data(&self, s: SyncSite) -> Result<(), IoError> {
        todo!()
    }
    pub async fn pre_allocate(&self, s: u64) -> Result<(), IoError> {
        todo!()
    }
    pub async fn truncate(&self, s: u64) -> Result<(), IoError> {
        todo!()
    }
    pub async fn size(&self) -> Result<u64, IoError> {
        todo!()
    }
}
#[derive(Clone)]
pub struct NativeDir;
impl NativeDir {
    pub fn path(&self) -> &Path {
        todo!()
    }
    pub fn subdir(&self, n: &str) -> NativeDir {
        todo!()
    }
    pub async fn exists(&self) -> Result<bool, IoError> {
        todo!()
    }
    pub async fn create_all(&self, s: SyncSite) -> Result<(), IoError> {
        todo!()
    }
    pub async fn list(&self) -> Result<Vec<DirEntry>, IoError> {
        todo!()
    }
    pub async fn sync(&self, s: SyncSite) -> Result<(), IoError> {
        todo!()
    }
    pub async fn open(&self, n: &str, m: OpenMode) -> Result<NativeFile, IoError> {
        todo!()
    }
    pub async fn remove_file(&self, n: &str) -> Result<(), IoError> {
        todo!()
    }
    pub async fn rename(&self, a: &str, b: &str) -> Result<(), IoError> {
        todo!()
    }
    pub async fn remove_dir_all(&self, n: &str) -> Result<(), IoError> {
        todo!()
    }
    pub async fn read_small(&self, n: &str, m: u64) -> Result<Vec<u8>, IoError> {
        todo!()
    }
    pub async fn replace_small(&self, n: &str, c: Vec<u8>, s: SyncSite) -> Result<(), IoError> {
        todo!()
    }
    pub async fn lock(&self, n: &str) -> Result<NativeDirLock, IoError> {
        todo!()
    }
}
pub struct NativeDirLock;
pub struct NativeAccepted;
pub struct NativeListener;
impl NativeListener {
    pub fn local_addr(&self) -> SocketAddr {
        todo!()
    }
    pub async fn accept(&self) -> Result<NativeAccepted, IoError> {
        todo!()
    }
    pub fn close(&self) {
        todo!()
    }
}
pub struct NativeConn;
impl NativeConn {
    pub fn peer_addr(&self) -> SocketAddr {
        todo!()
    }
    pub fn closer(&self) -> NativeConnCloser {
        todo!()
    }
    pub fn split(self) -> (NativeConnReader, NativeConnWriter) {
        todo!()
    }
}
pub struct NativeConnReader;
impl NativeConnReader {
    pub async fn read(&mut self, b: &mut [u8]) -> Result<usize, IoError> {
        todo!()
    }
}
pub struct NativeConnWriter;
impl NativeConnWriter {
    pub async fn write_all(&mut self, s: &mut Vec<Bytes>) -> Result<(), IoError> {
        todo!()
    }
}
#[derive(Clone)]
pub struct NativeConnCloser;
impl NativeConnCloser {
    pub fn close(&self) {
        todo!()
    }
}
pub struct NativeMeshSeat<Q: Send + 'static, P: Send + 'static>(std::marker::PhantomData<(Q, P)>);
impl<Q: Send + 'static, P: Send + 'static> NativeMeshSeat<Q, P> {
    pub async fn join(self, rt: &Rt, h: mesh::MeshHandler<Q, P>) -> NativeMesh<Q, P> {
        todo!()
    }
}
pub struct NativeMesh<Q: Send + 'static, P: Send + 'static>(std::marker::PhantomData<(Q, P)>);
impl<Q: Send + 'static, P: Send + 'static> Clone for NativeMesh<Q, P> {
    fn clone(&self) -> Self {
        todo!()
    }
}
impl<Q: Send + 'static, P: Send + 'static> NativeMesh<Q, P> {
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
pub struct NativeReplyTo<P: Send + 'static>(std::marker::PhantomData<P>);
impl<P: Send + 'static> NativeReplyTo<P> {
    pub fn send(self, p: P) {
        todo!()
    }
}
