//! What ends the process, tried in a child: this test binary again, with one test.

use super::signals::ECHO_MAX;
use super::*;
use crate::runtime::Queue;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::time::Duration;

/// Set in the child.
const CHILD: &str = "HIGHWATER_TEST_CHILD";

fn in_a_child(test: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg(format!("runtime::native::process_tests::{test}"))
        .env(CHILD, test)
        .output()
        .unwrap()
}

fn am_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn given_a_task_that_panics_then_the_process_stops_and_says_which_executor() {
    if am_child() {
        let shard = spawn_executor(ExecutorPlan::new("shard-5"), |rt| async move {
            rt.spawn(Queue::Background, async { panic!("a broken invariant") });
            std::future::pending::<()>().await
        });
        let _ = shard.unwrap().join();
        panic!("the process should have stopped");
    }
    let child =
        in_a_child("given_a_task_that_panics_then_the_process_stops_and_says_which_executor");
    let said = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(said.contains("executor shard-5"), "{said}");
    assert!(said.contains("a broken invariant"), "{said}");
}

#[test]
#[allow(unsafe_code)]
fn given_two_signals_then_the_first_is_handed_over_and_the_second_ends_the_process() {
    if am_child() {
        let signals = signals().unwrap();
        run(move |rt| async move {
            let waiting = futures_lite::future::poll_once(signals.recv()).await;
            assert_eq!(waiting, None);
            // SAFETY: both signals are handled by now.
            unsafe { libc::raise(libc::SIGTERM) };
            assert_eq!(signals.recv().await, libc::SIGTERM);
            println!("heard");
            // SAFETY: as above. At once, it is taken for the same signal.
            unsafe { libc::raise(libc::SIGTERM) };
            rt.sleep(ECHO_MAX + Duration::from_millis(100)).await;
            println!("stopping");
            // SAFETY: as above.
            unsafe { libc::raise(libc::SIGINT) };
            rt.sleep(Duration::from_secs(60)).await;
            panic!("the process should have stopped");
        })
        .unwrap();
    }
    let child = in_a_child(
        "given_two_signals_then_the_first_is_handed_over_and_the_second_ends_the_process",
    );
    let said = String::from_utf8_lossy(&child.stdout);
    assert_eq!(child.status.code(), Some(128 + libc::SIGINT), "{said}");
    assert!(said.contains("heard"), "{said}");
    assert!(
        said.contains("stopping"),
        "an echo ended the process: {said}"
    );
}
