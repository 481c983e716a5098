//! The `highwater` binary: everything it does lives in the library's `cli` room.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    highwater::cli::run()
}
