//! The production side of the runtime, on glommio and io_uring.
//!
//! One executor is one thread, pinned to one CPU where a plan says so. What may
//! cross threads is built here and nowhere else: `stack.rs` (a lock-free stack
//! that carries buffers home and messages over), `buf.rs` and `mesh.rs` on top of
//! it. `executor.rs` starts and ends executors; the order of the ending is what
//! makes the buffers sound, so it is written down there.
//!
//! What it is not: a general async runtime. It has just the calls of `Rt`.

// The public face is documented in the parent, whose functions these mirror.
#![allow(missing_docs, clippy::len_without_is_empty)]

mod activity;
mod buf;
mod dir;
mod executor;
mod file;
mod limits;
mod machine;
mod mesh;
#[cfg(test)]
mod mesh_tests;
mod net;
mod nudge;
mod process;
#[cfg(test)]
mod process_tests;
mod rt;
mod service;
mod signals;
mod stack;
#[cfg(test)]
mod stack_tests;
mod sync;
#[cfg(test)]
mod tests;
mod watch;

pub use buf::{NativeSharedBuf, NativeWriteBuf};
pub use dir::{NativeDir, NativeDirLock};
pub use executor::{
    cpus, raise_nofile_limit, run, spawn_executor, ExecutorDied, ExecutorHandle, ExecutorPlan,
    StartError,
};
pub use file::NativeFile;
pub use limits::{memlock_limit, nofile_limit, space, ProcessLimit};
pub use machine::{absolute, is_same_place, pause, ram_bytes, resolve};
pub use mesh::{mesh, NativeMesh, NativeMeshSeat, NativeReplyTo};
pub use net::{
    NativeAccepted, NativeConn, NativeConnCloser, NativeConnReader, NativeConnWriter,
    NativeListener,
};
pub use process::{process_figures, ProcessFigures};
pub use rt::NativeRt;
pub use service::ServiceManager;
pub use signals::{signals, Signals};
pub use watch::StallWatch;
