//! The admin HTTP: health, readiness, stalls, and peers that do not behave.

use super::client::{create_topic, with};
use super::open_metrics::{ask, exchange, Scrape, PATIENCE};
use super::{data_dir, launch};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

#[test]
fn given_a_broker_that_serves_then_it_is_alive_and_ready_and_other_paths_are_refused() {
    let dir = data_dir();
    let broker = launch(dir.path()).with_admin().start();
    let admin = broker.admin();
    for (path, body) in [("/healthz", "alive\n"), ("/readyz", "ready\n")] {
        let answer = ask(admin, "GET", path);
        assert_eq!((answer.status, answer.body.as_str()), (200, body));
        let head = ask(admin, "HEAD", path);
        assert_eq!((head.status, head.body.as_str()), (200, ""));
        let post = ask(admin, "POST", path);
        assert_eq!(
            (post.status, post.headers["allow"].as_str()),
            (405, "GET, HEAD")
        );
    }
    for path in ["/", "/metrics/", "/healthz/x", "/debug"] {
        let answer = ask(admin, "GET", path);
        assert_eq!(answer.status, 404);
        assert!(answer.body.contains("/metrics"), "{}", answer.body);
    }
    let stalls = ask(admin, "GET", "/debug/stalls?x=y");
    assert_eq!(stalls.headers["content-type"], "application/json");
    let stalls: serde_json::Value = serde_json::from_str(&stalls.body).expect("it is JSON");
    assert_eq!(stalls["threshold_ms"], 50);
    assert!(stalls["stalls"].is_array());
    broker.stop();
}

#[test]
fn given_many_partitions_that_load_then_it_is_alive_and_not_ready_and_says_how_far_it_is() {
    let dir = data_dir();
    let launch = launch(dir.path()).with_admin();
    let broker = launch.start();
    with(broker.addr(), |connection| async move {
        create_topic(&connection, "wide", 400, &[]).await;
    });
    broker.kill();
    // How long a load takes is the machine's; it is looked at until it was seen once.
    for _ in 0..20 {
        let broker = launch.start_loading();
        let admin = broker.admin();
        let mut seen = false;
        let begun = Instant::now();
        loop {
            let answer = ask(admin, "GET", "/readyz");
            if answer.status == 200 {
                break;
            }
            assert_eq!(answer.status, 503, "{}", answer.body);
            let (loaded, of) = answer
                .body
                .trim()
                .strip_prefix("loading partitions: ")
                .and_then(|progress| progress.split_once(" of "))
                .unwrap_or_else(|| panic!("{}", answer.body));
            let (of, figures) = of.split_once(" partitions, ").expect("how many there are");
            assert!(figures.contains(" MiB scanned, "), "{figures}");
            let (loaded, of): (u32, u32) = (loaded.parse().unwrap(), of.parse().unwrap());
            assert!(loaded <= of && of <= 400);
            if loaded > 0 && loaded < 400 {
                seen = true;
                assert_eq!(ask(admin, "GET", "/healthz").status, 200);
            }
            assert!(begun.elapsed() < PATIENCE, "it does not get ready");
        }
        let scrape = Scrape::of(&broker);
        assert_eq!(scrape.sum("highwater_shard_partitions", &[]), 400.0);
        broker.kill();
        if seen {
            return;
        }
    }
    panic!("a load was never seen under way");
}

#[test]
fn given_peers_that_do_not_behave_then_they_are_closed_and_others_are_served() {
    let dir = data_dir();
    let broker = launch(dir.path()).with_admin().start();
    let admin = broker.admin();
    // What is no HTTP, and heads that are too large.
    let garbage: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let long_path = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(1000));
    let large = format!(
        "GET /metrics HTTP/1.1\r\nx: {}\r\n\r\n",
        "y".repeat(1 << 20)
    );
    for bad in [
        &garbage,
        long_path.as_bytes(),
        many.as_bytes(),
        large.as_bytes(),
    ] {
        // Where the answer is lost with the connection, being closed says it as well.
        if let Some(answer) = exchange(admin, bad) {
            assert!(
                [400, 414, 431].contains(&answer.status),
                "{}",
                answer.status
            );
        }
    }
    // Peers that send nothing, half a head, or do not read: all the room there is.
    let mut slow: Vec<TcpStream> = (0..64)
        .map(|n| {
            let mut socket = TcpStream::connect(admin).expect("it is accepted");
            let head: &[u8] = [b"".as_slice(), b"GET /met", b"GET /metrics HTTP/1.1\r\nx"][n % 3];
            socket.write_all(head).expect("it is taken");
            socket
        })
        .collect();
    // They have a limited time; then there is room again.
    let begun = Instant::now();
    let served = || exchange(admin, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    while served().is_none() {
        assert!(begun.elapsed() < PATIENCE, "the slow ones stay");
        std::thread::sleep(Duration::from_millis(50));
    }
    for socket in &mut slow {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        // Closed or reset, but not open.
        let ended = socket.read_to_end(&mut rest);
        let timed_out = ended.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!timed_out, "it is still open");
    }
    assert_eq!(ask(admin, "GET", "/readyz").status, 200);
    broker.stop();
}

#[test]
fn given_a_scraper_that_does_not_know_open_metrics_then_it_gets_the_older_text() {
    let dir = data_dir();
    // IPv6, where the machine has it.
    let host = match TcpListener::bind("[::1]:0") {
        Ok(_) => "[::1]",
        Err(_) => "127.0.0.1",
    };
    let listener = format!("admin.listener={host}:0");
    let broker = launch(dir.path()).set(listener).start();
    let ask = |accept: &str| {
        let head = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n");
        exchange(broker.admin(), head.as_bytes()).expect("an answer")
    };
    let plain = ask("text/plain;version=0.0.4");
    assert_eq!(
        plain.headers["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    assert!(plain
        .body
        .contains("\n# TYPE highwater_connections_total counter\nhighwater_connections_total "));
    assert!(!plain.body.contains("# EOF") && !plain.body.contains("# UNIT"));
    let open = ask("application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    Scrape::parse(&open.body);
    broker.stop();
}

#[test]
fn given_admin_peers_that_hang_then_a_stop_does_not_wait_for_them() {
    let dir = data_dir();
    let broker = launch(dir.path()).with_admin().start();
    let admin = broker.admin();
    let hanging: Vec<TcpStream> = [
        b"".as_slice(),
        b"GET /met",
        b"GET /metrics HTTP/1.1\r\n\r\n",
    ]
    .into_iter()
    .map(|head| {
        let mut socket = TcpStream::connect(admin).expect("it is accepted");
        socket.write_all(head).expect("it is taken");
        socket
    })
    .collect();
    assert_eq!(ask(admin, "GET", "/healthz").status, 200);
    // A clean stop, or it panics.
    broker.stop();
    drop(hanging);
}

#[test]
fn given_an_admin_port_that_is_taken_then_it_is_an_error_only_if_it_was_asked_for() {
    let dir = data_dir();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let refused = launch(dir.path())
        .set(format!("admin.listener=127.0.0.1:{port}"))
        .try_start("127.0.0.1:0");
    let Err(refused) = refused else {
        panic!("it started all the same")
    };
    assert!(!refused.status.success());
    assert!(
        refused.stderr.contains("admin.listener"),
        "{}",
        refused.stderr
    );
    assert!(
        refused.stderr.contains("the port is taken"),
        "{}",
        refused.stderr
    );

    // If this can't have the default's port, somebody else has it.
    let _default = TcpListener::bind("127.0.0.1:9644");
    let broker = launch(dir.path()).with_default_admin().start();
    let begun = Instant::now();
    let mut said = String::new();
    while !said.contains("no metrics over HTTP: admin.listener") {
        said += &broker.said();
        assert!(begun.elapsed() < PATIENCE, "{said}");
    }
    broker.stop();
}
