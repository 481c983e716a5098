//! The broker as a service of a Linux server: what it tells a service manager, and what it says where the machine
//! allows too little.

use super::client::{batch_of, create_topic, fetch_all, produce_ok, with};
use super::{broker::Refused, data_dir, launch};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

/// No message is waited for longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Memory that a service of systemd may lock unless its unit says more (`DefaultLimitMEMLOCK=`), bytes.
const SYSTEMD_MEMLOCK_BYTES: u64 = 8 << 20;
/// Without capabilities, as a unit with `User=` runs: root would be spared some limits.
fn unprivileged() -> &'static [&'static str] {
    match std::fs::metadata("/proc/self")
        .expect("/proc is there")
        .uid()
    {
        0 => &["setpriv", "--no-new-privs", "--bounding-set=-all"],
        _ => &["setpriv", "--no-new-privs"],
    }
}

/// The socket of a service manager.
struct Manager(UnixDatagram, String);

impl Manager {
    fn new(dir: &Path) -> Manager {
        let path = dir.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket can be bound");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Manager(socket, path.to_str().expect("UTF-8").to_owned())
    }

    /// The next message.
    fn hear(&self) -> String {
        let mut buf = [0; 4096];
        let len = self.0.recv(&mut buf).expect("the broker tells something");
        String::from_utf8(buf[..len].to_vec()).expect("messages are text")
    }

    /// All messages up to the one that has this line.
    fn hear_until(&self, line: &str) -> Vec<String> {
        let begun = Instant::now();
        let mut heard = Vec::new();
        loop {
            heard.push(self.hear());
            if has(&heard[heard.len() - 1], line) {
                return heard;
            }
            assert!(begun.elapsed() < PATIENCE, "no {line}, only {heard:?}");
        }
    }
}

/// Whether one of the message's lines begins with this.
fn has(message: &str, line: &str) -> bool {
    message.lines().any(|it| it.starts_with(line))
}

#[test]
fn given_a_service_manager_then_it_hears_of_loading_serving_and_stopping_in_order() {
    let (dir, run) = (data_dir(), data_dir());
    let manager = Manager::new(run.path());
    let memlock = format!("--memlock={SYSTEMD_MEMLOCK_BYTES}");
    for start in ["Fresh", "Clean"] {
        let broker = launch(dir.path())
            .env("NOTIFY_SOCKET", &manager.1)
            .under(&["prlimit", &memlock])
            .under(unprivileged())
            .start();
        let heard = manager.hear_until("READY=1");
        let loading = &heard[0];
        assert!(
            has(
                loading,
                &format!("STATUS=Loading partitions ({start} start")
            ),
            "{loading}"
        );
        assert!(has(loading, "EXTEND_TIMEOUT_USEC="), "{loading}");
        let ready = &heard[heard.len() - 1];
        let serving = format!("STATUS=Serving on {}: ", broker.addr());
        assert!(has(ready, &serving), "{ready}");
        assert!(!heard.iter().any(|it| has(it, "STOPPING=1")), "{heard:?}");
        with(broker.addr(), move |c| async move {
            match start {
                "Fresh" => {
                    create_topic(&c, "kept", 2, &[]).await;
                    produce_ok(&c, "kept", 0, batch_of("x")).await;
                }
                _ => assert_eq!(fetch_all(&c, "kept", 0, 0).await.len(), 1),
            }
        });
        broker.stop();
        let heard = manager.hear_until("STOPPING=1");
        assert_eq!(heard.len(), 1, "nothing else once it serves: {heard:?}");
        assert!(has(&heard[0], "STATUS=Stopping"), "{heard:?}");
    }
}

#[test]
fn given_a_watchdog_then_it_is_fed_until_the_process_no_longer_runs() {
    let (dir, run) = (data_dir(), data_dir());
    let manager = Manager::new(run.path());
    let broker = launch(dir.path())
        .env("NOTIFY_SOCKET", &manager.1)
        .env("WATCHDOG_USEC", "300000")
        .start();
    manager.hear_until("READY=1");
    for _ in 0..3 {
        manager.hear_until("WATCHDOG=1");
    }
    broker.signal("STOP");
    // What was under way when it stopped may still come, then nothing does.
    manager
        .0
        .set_read_timeout(Some(Duration::from_secs(2)))
        .expect("a timeout");
    let mut buf = [0; 4096];
    let silent = (0..100).any(|_| manager.0.recv(&mut buf).is_err());
    assert!(silent, "a stopped process gives signs of life");
    broker.signal("CONT");
    manager
        .0
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout");
    manager.hear_until("WATCHDOG=1");
    broker.stop();
}

#[test]
fn given_a_start_that_fails_then_the_manager_hears_why() {
    let (dir, run) = (data_dir(), data_dir());
    let manager = Manager::new(run.path());
    let broker = launch(dir.path()).start();
    let second = launch(dir.path()).env("NOTIFY_SOCKET", &manager.1);
    let Err(refused) = second.try_start("127.0.0.1:0") else {
        panic!("a second broker started on the same directory");
    };
    assert_eq!(refused.status.code(), Some(1));
    let heard = manager.hear();
    assert!(has(&heard, "STATUS=Failed: "), "{heard}");
    assert!(heard.contains("in use"), "{heard}");
    broker.stop();
}

#[test]
fn given_a_manager_that_is_gone_then_it_serves_all_the_same() {
    let (dir, run) = (data_dir(), data_dir());
    for address in [run.path().join("nobody").to_str().expect("UTF-8"), "\u{1}"] {
        let broker = launch(dir.path()).env("NOTIFY_SOCKET", address).start();
        let stderr = broker.stop();
        assert!(stderr.contains("NOTIFY_SOCKET"), "{stderr}");
    }
}

#[test]
fn given_too_little_locked_memory_then_it_says_what_to_raise() {
    let refused = refused_under(&["prlimit", "--memlock=65536:65536"]);
    for part in ["65536", "LimitMEMLOCK=", "ulimit -l", "--ulimit memlock"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
}

#[test]
fn given_a_sandbox_without_io_uring_then_it_says_what_to_allow() {
    let refused = refused_under(&["perl", "-e", WITHOUT_IO_URING]);
    for part in ["io_uring_setup", "seccomp", "kernel.io_uring_disabled"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
}

fn refused_under(command: &[&str]) -> Refused {
    let dir = data_dir();
    match launch(dir.path()).under(command).try_start("127.0.0.1:0") {
        Ok(_) => panic!("it started under {command:?}"),
        Err(refused) => {
            assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
            refused
        }
    }
}

/// Runs its arguments under a seccomp filter that answers io_uring_setup with EPERM, as Docker's default profile does.
/// The filter in words: load the number of the call; if it is 425, return ERRNO(EPERM), else ALLOW.
const WITHOUT_IO_URING: &str = r#"
    my ($prctl) = `uname -m` =~ /aarch64|riscv64/ ? 167 : 157;
    my $filter = pack("SCCL" x 4, 0x20,0,0,0, 0x15,0,1,425, 0x06,0,0,0x00050001, 0x06,0,0,0x7fff0000);
    my $program = pack("S x6 P", 4, $filter);
    syscall($prctl, 38, 1, 0, 0, 0) == 0 or die "no_new_privs: $!";
    syscall($prctl, 22, 2, $program) == 0 or die "seccomp: $!";
    exec @ARGV or die "exec: $!";
"#;
