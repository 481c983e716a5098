//! What a thread has for its clients, and what it has measured of them.

use super::batch::{Template, Templates};
use super::shared::Shared;
use crate::driver::records::between;
use crate::measure::Measured;
use crate::wire;
use bytes::Bytes;
use highwater::protocol::batch::{BatchBuilder, Compression};

pub struct Work<'a> {
    pub shared: &'a Shared<'a>,
    pub templates: Templates,
    pub measured: Measured,
    codec: Compression,
    /// Batches in the making, by partition, and when their records are due.
    groups: Vec<Option<BatchBuilder>>,
    begun: Vec<u32>,
}

impl<'a> Work<'a> {
    pub fn new(shared: &'a Shared<'a>, templates: Templates) -> Work<'a> {
        Work {
            shared,
            templates,
            measured: Measured::default(),
            codec: shared.load.records.codec.compression(),
            groups: (0..shared.cluster.partitions()).map(|_| None).collect(),
            begun: Vec::new(),
        }
    }

    pub fn now(&self) -> u64 {
        self.shared.clock.now()
    }

    /// Whether batches without keys are made of templates.
    pub fn uses_templates(&self) -> bool {
        let load = &self.shared.load;
        self.codec == Compression::None || !(load.is_open || load.is_stamped)
    }

    /// Makes a template a batch of up to `records` records; how many it has, and its bytes.
    pub fn prepare(
        &self,
        template: &mut Template,
        records: usize,
        due: impl FnMut(usize) -> u64,
    ) -> (usize, usize) {
        let load = &self.shared.load;
        let is_whole = records == template.records() && !load.is_open && !load.is_stamped;
        if is_whole || self.codec != Compression::None {
            (template.records(), template.size_bytes())
        } else {
            (records, template.stamp(records, due))
        }
    }

    /// Adds a record to the batch of a partition.
    pub fn group(&mut self, partition: u32, due: u64, key: Option<&[u8]>) {
        let group = &mut self.groups[partition as usize];
        let builder = match group {
            Some(builder) => builder,
            None => {
                self.begun.push(partition);
                group.insert(BatchBuilder::new().compression(self.codec))
            }
        };
        builder.push(wire::now_ms(), key, Some(self.templates.values().next(due)));
    }

    /// The batches that records were added to, in the order of their partitions.
    pub fn take_groups(&mut self) -> Vec<(u32, Bytes)> {
        self.begun.sort_unstable();
        let groups = &mut self.groups;
        let take = |partition: u32| Some((partition, groups[partition as usize].take()?.build()));
        self.begun.drain(..).filter_map(take).collect()
    }

    /// One acknowledged record of an open loop.
    pub fn sample_due(&mut self, due: u64, sent: u64, now: u64) {
        if self.shared.counts(due) {
            let at = between(self.shared.phases.measured, due);
            let measured = &mut self.measured;
            measured.acknowledged.record(at, between(due, now));
            measured.schedule_delay.record(at, between(due, sent));
        }
    }

    /// Records of one batch that were sent at the same time, acknowledged.
    pub fn sample_sent(&mut self, sent: u64, now: u64, records: u64) {
        if self.shared.counts(sent) {
            let at = between(self.shared.phases.measured, sent);
            let acknowledged = &mut self.measured.acknowledged;
            acknowledged.record_n(at, between(sent, now), records);
        }
    }

    /// That a request's records are acknowledged.
    pub fn count_produced(&mut self, records: u64, now: u64) {
        let bytes = records * self.shared.load.records.bytes as u64;
        if self.shared.counts(now) {
            let produced = &mut self.measured.produced;
            produced.records += records;
            produced.bytes += bytes;
            produced.requests += 1;
        }
        self.shared.acknowledge(bytes, now);
    }

    /// Records that a consumer has, with the same due time.
    pub fn sample_delivered(&mut self, due: u64, now: u64, records: u64) {
        if self.shared.counts(due) {
            let at = between(self.shared.phases.measured, due);
            let delivered = &mut self.measured.delivered;
            delivered.record_n(at, between(due, now), records);
        }
    }

    /// That an answer to a fetch had records.
    pub fn count_consumed(&mut self, records: u64, bytes: u64, now: u64) {
        if records > 0 && self.shared.counts(now) {
            let consumed = &mut self.measured.consumed;
            consumed.records += records;
            consumed.bytes += bytes;
            consumed.requests += 1;
        }
    }
}
