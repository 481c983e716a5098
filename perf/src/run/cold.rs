//! Reading what is on the disk only: the topic is filled, the broker restarted, the page cache emptied of its files.

use super::session::{Outcome, Turn};
use super::stream::{self, Watch};
use crate::driver::native;
use crate::target::{cold, Protocol, Share, Target};
use anyhow::{ensure, Context, Result};

pub fn measure(turn: &Turn<'_>, target: &mut dyn Target, share: &Share) -> Result<Outcome> {
    let endpoint = target.endpoint()?;
    ensure!(
        endpoint.protocol == Protocol::Kafka,
        "a cold read is measured by Kafka's protocol only"
    );
    ensure!(
        target.data_dir().is_some(),
        "its files cannot be seen from here, so the page cache cannot be emptied of them"
    );
    let topics = stream::names(turn.case.topic.topics);
    for topic in &topics {
        target.create_topic(topic, &turn.case.topic)?;
    }
    let case = turn.case;
    native::fill(
        &endpoint,
        &topics,
        case.topic.partitions,
        &case.records,
        case.timing.bytes_max,
        case.producers.batch_bytes,
        case.producers.acks,
        turn.stop,
    )?;
    target.stop()?;
    turn.stop.check()?;
    let dir = target.data_dir().context("its files were seen before")?;
    cold::evict(dir)?;
    target.start(share)?;
    let watch = Watch::new(target);
    watch.see();
    let measured = native::read_all(
        &target.endpoint()?,
        &topics,
        case.topic.partitions,
        &case.consumers,
        turn.client_cpus,
        turn.stop,
    )?;
    watch.see();
    let cost = watch.cost()?;
    ensure!(measured.consumed.records > 0, "nothing could be read");
    stream::delete(target, &topics)?;
    let notes = stream::notes(turn, &measured, cost.as_ref());
    Ok(Outcome {
        measured: Some(measured),
        cost,
        notes,
        ..Outcome::default()
    })
}
