//! The admin HTTP in virtual time: peers that are slow, and many at once.

use super::*;
use crate::runtime::local::join_bounded;

const ADMIN_PORT: u16 = 9644;
/// What a connection has for everything.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Sends `request` and reads to the end; what came, and how long that took.
async fn exchange(rt: &Rt, addr: SocketAddr, request: &str) -> (String, Duration) {
    let began = rt.now();
    let conn = rt.connect(addr).await.expect("it is accepted");
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
