//! The admin HTTP in virtual time: peers that are slow, and many at once.

use super::*;
use crate::runtime::local::join_bounded;
use std::collections::BTreeSet;

const ADMIN_PORT: u16 = 9644;
/// What a connection has for everything.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Sends `request` and reads to the end; what came, nothing if nobody listens, and how long that took.
async fn exchange(rt: &Rt, addr: SocketAddr, request: &str) -> (String, Duration) {
    let began = rt.now();
    let Ok(conn) = rt.connect(addr).await else {
        return (String::new(), rt.now().since(began));
    };
    let (mut reader, mut writer) = conn.split();
    let mut slices = vec![Bytes::from(request.to_owned())];
    // One that is closed at once may not take it.
    let _ = writer.write_all(&mut slices).await;
    let mut answer = Vec::new();
    let mut buf = [0; 1000];
    loop {
        match reader.read(&mut buf).await {
            Ok(0) | Err(_) => break,
            Ok(read) => answer.extend_from_slice(&buf[..read]),
        }
    }
    let answer = String::from_utf8(answer).expect("it is text");
    (answer, rt.now().since(began))
}

/// The page of metrics.
pub(super) async fn scrape(rt: &Rt, addr: SocketAddr) -> String {
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    let (page, _) = exchange(rt, addr, request).await;
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    page
}

#[test]
fn given_peers_that_are_slow_then_they_are_closed_in_time_and_leave_room() {
    for seed in 0..5 {
        let story = Story::new(seed);
        let addr = SocketAddr::new(story.broker.ip(), ADMIN_PORT);
        story.admin.set(Some(addr));
        let running = story.boot().expect("no power cut is ordered");
        let rt = story.client.rt();
        story.world.block_on(&rt, async {
            let slow = ["", "GET /met", "GET /metrics HTTP/1.1\r\nx"];
            let peers = (0..64).map(|n| exchange(&rt, addr, slow[n % 3]));
            for (answer, took) in join_bounded(64, peers).await {
                assert_eq!(answer, "", "it has asked nothing");
                assert!(took >= TIME_MAX && took < 2 * TIME_MAX, "{took:?}");
            }
            let whole = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
            let (ready, took) = exchange(&rt, addr, &whole("/readyz")).await;
            assert!(ready.starts_with("HTTP/1.1 200 OK\r\n"), "{ready}");
            assert!(ready.ends_with("\r\n\r\nready\n") && took < TIME_MAX);
            let request = whole("/metrics");
            let scrapes = (0..20).map(|_| exchange(&rt, addr, &request));
            for (page, _) in join_bounded(20, scrapes).await {
                assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
                assert!(page.ends_with("\n# EOF\n"), "cut short");
            }
        });
        running.stop.send(()).expect("it waits for that");
        let ended = story.world.block_on(&rt, running.ended);
        assert!(ended.expect("it ends").is_ok(), "a clean stop");
    }
}

/// Asks for `/readyz` over and over until nobody answers.
async fn probe(rt: Rt, addr: SocketAddr, seen: Rc<RefCell<BTreeSet<String>>>) {
    loop {
        let request = "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n";
        let (answer, _) = exchange(&rt, addr, request).await;
        let Some((head, body)) = answer.split_once("\r\n\r\n") else {
            return;
        };
        let status = head.split(' ').nth(1).expect("a status").to_owned();
        seen.borrow_mut()
            .insert(format!("{status} {}", body.trim_end()));
    }
}

/// What `/readyz` says in some broker's life that ends by a stop, or by its device.
fn verdicts(seed: u64, device_fails: bool) -> BTreeSet<String> {
    let story = Story::new(seed);
    let admin = SocketAddr::new(story.broker.ip(), ADMIN_PORT);
    story.admin.set(Some(admin));
    let running = story.boot().expect("no power cut is ordered");
    let rt = story.client.rt();
    let seen = Rc::new(RefCell::new(BTreeSet::new()));
    story.world.block_on(&rt, async {
        let connection = connect(&rt, running.addr).await.expect("it serves");
        assert!(create(&connection).await);
        for _ in 0..8 {
            rt.spawn(Queue::Latency, probe(rt.clone(), admin, seen.clone()));
        }
        while seen.borrow().is_empty() {
            rt.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(*seen.borrow(), BTreeSet::from(["200 ready".to_owned()]));
        let ended = if device_fails {
            let disk = story.broker.disk();
            disk.fail_syncs(Some(SyncSite::SegmentFlush), EIO);
            let produced = produce(&rt, running.addr, 0, &Known::default()).await;
            assert!(produced.is_err(), "its connection is closed by the stop");
            running.ended.await
        } else {
            running.stop.send(()).expect("it waits for that");
            running.ended.await
        };
        let ended = ended.expect("the control executor ends");
        assert_eq!(ended.is_err(), device_fails, "{ended:?}");
    });
    seen.take()
}

#[test]
fn given_a_broker_that_stops_then_it_is_not_ready_any_more_and_says_why() {
    for device_fails in [false, true] {
        let all: BTreeSet<String> = (0..5)
            .flat_map(|seed| verdicts(seed, device_fails))
            .collect();
        let reason = match device_fails {
            false => "503 stopping",
            true => "503 the data directory is offline: ",
        };
        // It may answer no more before somebody asks, but not with every seed.
        assert!(all.iter().any(|said| said.starts_with(reason)), "{all:?}");
        let of_others = |said: &&String| *said != "200 ready" && !said.starts_with(reason);
        assert_eq!(all.iter().find(of_others), None);
    }
}
