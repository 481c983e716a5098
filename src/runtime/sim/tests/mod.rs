//! Tests of the simulator itself.

mod disk;
mod executor;
mod faults;
mod files;
mod mesh;
mod net;
mod parity;

use crate::runtime::{File, OpenMode, Rt, SharedBuf, SyncSite, BLOCK_BYTES};

const SITE: SyncSite = SyncSite::SegmentFlush;
const DIR_SITE: SyncSite = SyncSite::SegmentCreate;

fn filled(rt: &Rt, blocks: usize, byte: u8) -> SharedBuf {
    let mut buf = rt.write_buf(blocks * BLOCK_BYTES);
    buf.as_mut_slice().fill(byte);
    buf.freeze()
}

/// A file `/d/f` whose name is durable.
async fn make_file(rt: &Rt) -> File {
    let dir = rt.dir("/d");
    dir.create_all(DIR_SITE).await.unwrap();
    let file = dir.open("f", OpenMode::CreateNew).await.unwrap();
    dir.sync(DIR_SITE).await.unwrap();
    file
}
