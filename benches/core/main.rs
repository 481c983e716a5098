//! The parts that every record passes, each alone: `cargo bench --bench core`.
//!
//! Name one to run it alone (`cargo bench --bench core -- validate`). What a whole
//! broker does with them is for `perf` to tell.

mod batch;
mod mesh;
mod storage;

criterion::criterion_group!(
    all,
    batch::crc,
    batch::validate,
    batch::validate_small,
    batch::recompress,
    batch::bombs,
    storage::index_lookup,
    storage::append,
    storage::flushed_append,
    mesh::round_trip
);
criterion::criterion_main!(all);
