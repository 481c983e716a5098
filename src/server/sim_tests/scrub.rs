//! How long old segments wait until they are re-read, in virtual time.

use super::admin_http::scrape;
use super::settings::{create_with, produce_one};
use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// A broker that re-reads everything each hour, or nothing.
fn boot(story: &Story, admin: SocketAddr, scrubs: bool) -> Simulated {
    let config = BrokerConfig {
        listener: HostPort {
            host: story.broker.ip().to_string(),
            port: 9092,
        },
        data_dirs: vec!["/data".into()],
        log_segment_bytes: 300,
        log_initial_task_delay_ms: 30_000,
        log_retention_check_interval_ms: 3_600_000,
        replica_high_watermark_checkpoint_interval_ms: 600_000,
        log_cleaner_enable: false,
        log_scrub_interval_hours: 1,
        log_scrub_max_bytes_per_second: if scrubs { 1 << 20 } else { 0 },
        ..BrokerConfig::default()
    };
    let plan = SimulatedPlan {
        config,
        shards: 2,
        sizes: SIZES,
        mesh_window: 4,
        admin: Some(admin),
    };
    let started = start_simulated(story.broker.clone(), plan);
    let rt = story.broker.rt_shard(2);
    story.world.block_on(&rt, started).expect("it starts")
}

#[test]
fn given_segments_when_they_are_re_read_then_the_age_of_the_oldest_falls_and_else_it_rises() {
    for scrubs in [true, false] {
        let story = Story::new(1);
        let admin = SocketAddr::new(story.broker.ip(), 9644);
        let _running = boot(&story, admin, scrubs);
        let (clients, addr) = (story.client.rt(), SocketAddr::new(story.broker.ip(), 9092));
        story.world.block_on(&clients, async {
            let figure = async |name: &str| {
                let page = scrape(&clients, admin).await;
                let line = page.lines().find_map(|line| line.strip_prefix(name));
                let value = line.and_then(|rest| rest.trim().parse::<f64>().ok());
                value.unwrap_or_else(|| panic!("{name}: {page}"))
            };
            let age = async || figure("highwater_scrub_oldest_age_seconds ").await;
            let passes = async || figure("highwater_scrub_passes_total ").await;
            let connection = connect(&clients, addr).await.expect("it serves");
            assert_eq!(age().await, 0.0, "there is nothing to re-read");
            create_with(&connection, "t", 3, &[("retention.ms", "-1")]).await;
            for partition in 0..3 {
                for _ in 0..20 {
                    produce_one(&connection, "t", partition)
                        .await
                        .expect("it is written");
                }
            }
            let fresh = age().await;
            assert!(fresh < 30.0, "{fresh}");
            // Half of the time between two passes.
            clients.sleep(HOUR / 2).await;
            let (half, begun) = (age().await, passes().await);
            assert_eq!(begun > 0.0, scrubs);
            assert!((1_700.0..1_900.0).contains(&half), "{half}");
            clients.sleep(HOUR / 2 + Duration::from_secs(120)).await;
            let after = age().await;
            match scrubs {
                true => assert!(after < 200.0, "{after} s after {} passes", passes().await),
                false => assert!(after > 3_600.0, "{after}"),
            }
        });
    }
}
