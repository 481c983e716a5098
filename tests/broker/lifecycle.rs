//! Start, stop, and what a second instance is told.

use super::client::{batch_of, create_topic, fetch_all, produce_ok, with};
use super::{data_dir, launch};

const MARKER: &str = ".kafka_cleanshutdown";

#[test]
fn given_sigterm_then_the_stop_is_clean_and_says_so() {
    for signal in ["TERM", "INT"] {
        let dir = data_dir();
        let broker = launch(dir.path()).start();
        assert!(!dir.path().join(MARKER).exists(), "no marker while it runs");
        let (status, stderr) = broker.end_by(signal);
        assert!(status.success(), "{signal}: {status}\n{stderr}");
        assert!(stderr.contains("stopped cleanly"), "{stderr}");
        assert!(dir.path().join(MARKER).exists());
    }
}

#[test]
fn given_sigkill_then_there_is_no_marker_and_the_next_start_recovers() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "kept", 3, &[]).await;
        produce_ok(&c, "kept", 0, batch_of("x")).await;
    });
    broker.kill();
    assert!(!dir.path().join(MARKER).exists());
    let broker = launch(dir.path()).start();
    let records = with(broker.addr(), move |c| async move {
        fetch_all(&c, "kept", 0, 0).await
    });
    assert_eq!(records, [(0, "x".to_string())]);
    let stderr = broker.stop();
    assert!(stderr.contains("unclean stop"), "{stderr}");
}

#[test]
fn given_sigterm_while_partitions_load_then_it_ends_at_once_without_the_marker() {
    let dir = data_dir();
    let broker = launch(dir.path()).shards(1).start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "many", 600, &[]).await;
        produce_ok(&c, "many", 0, batch_of("x")).await;
    });
    broker.kill();
    let (status, stderr) = launch(dir.path()).shards(1).end_while_loading("TERM");
    assert!(
        stderr.contains("while partitions were being loaded"),
        "{stderr}"
    );
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(!dir.path().join(MARKER).exists());
    let broker = launch(dir.path()).start();
    let records = with(broker.addr(), move |c| async move {
        fetch_all(&c, "many", 0, 0).await
    });
    assert_eq!(records, [(0, "x".to_string())]);
    let stderr = broker.stop();
    assert!(stderr.contains("unclean stop"), "{stderr}");
}

#[test]
fn given_a_running_broker_when_another_starts_on_its_directory_then_it_is_refused() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    let Err(refused) = launch(dir.path()).try_start("127.0.0.1:0") else {
        panic!("a second broker started on the same directory");
    };
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stderr.contains("in use"), "{}", refused.stderr);
    assert!(
        refused.stderr.contains(&dir.path().display().to_string()),
        "{}",
        refused.stderr
    );
    broker.stop();
}

#[test]
fn given_a_running_broker_when_another_starts_on_its_port_then_it_is_refused() {
    let (dir, other) = (data_dir(), data_dir());
    let broker = launch(dir.path()).start();
    let listener = broker.addr().to_string();
    let Err(refused) = launch(other.path()).try_start(&listener) else {
        panic!("a second broker started on the same port");
    };
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stderr.contains(&listener), "{}", refused.stderr);
    broker.stop();
}

#[test]
fn given_open_connections_when_stopped_then_the_stop_does_not_wait_for_them() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    let idle: Vec<_> = (0..20)
        .map(|_| std::net::TcpStream::connect(broker.addr()).expect("a connection"))
        .collect();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "idle", 1, &[]).await;
    });
    broker.stop();
    drop(idle);
}

#[test]
fn given_more_shards_than_cpus_then_it_serves() {
    let dir = data_dir();
    let broker = launch(dir.path()).shards(9).start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "spread", 27, &[]).await;
        for partition in 0..27 {
            assert_eq!(produce_ok(&c, "spread", partition, batch_of("x")).await, 0);
        }
        for partition in 0..27 {
            assert_eq!(fetch_all(&c, "spread", partition, 0).await.len(), 1);
        }
    });
    broker.stop();
}

#[test]
fn given_a_signal_sent_twice_at_once_then_the_stop_is_still_clean() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    broker.signal("TERM");
    // What timeout(1) does: the process, then its group.
    let (status, stderr) = broker.end_by("TERM");
    assert!(status.success(), "{status}\n{stderr}");
    assert!(dir.path().join(MARKER).exists());
}
