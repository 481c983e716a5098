//! The state machine itself.
//!
//! The ISR holds this replica alone so far; where followers will count, the code
//! folds over [`Replica::durable_offsets_in_sync`], which yields one offset for
//! each member.

use crate::config::FlushOnAck;
use smallvec::SmallVec;

/// What a replica knows when its log has been loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaStart {
    /// The epoch that this leader stamps on batches.
    pub leader_epoch: i32,
    /// `flush.on.ack` of the topic.
    pub flush_on_ack: FlushOnAck,
    /// `min.insync.replicas` of the topic.
    pub min_insync_replicas: usize,
    /// `flush.messages` of the topic.
    pub flush_messages: i64,
    /// How many replicas the partition is assigned to.
    pub replication_factor: usize,
    /// The log's first offset.
    pub log_start_offset: i64,
    /// The LEO: the offset after the last written one.
    pub end_offset: i64,
    /// The offset up to which the log is flushed.
    pub flushed_offset: i64,
    /// The checkpointed HW, 0 if there is none; it is brought between the log
    /// start offset and the LEO.
    pub high_watermark: i64,
}

/// What happened to the replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaEvent {
    /// The log was written up to `end_offset`.
    Written {
        /// The new LEO.
        end_offset: i64,
    },
    /// The log was flushed up to `offset`.
    Flushed {
        /// The new flushed offset.
        offset: i64,
    },
    /// The topic's settings changed. A tightened policy makes the HW wait until
    /// the flushes have caught up; it never falls.
    PolicyChanged {
        /// `flush.on.ack`.
        flush_on_ack: FlushOnAck,
        /// `min.insync.replicas`.
        min_insync_replicas: usize,
        /// `flush.messages`.
        flush_messages: i64,
    },
    /// What is written has waited long enough (`flush.ms`): it is to be flushed whatever
    /// the policy is.
    FlushDue,
    /// The log's first offset rose (retention, DeleteRecords).
    LogStartMoved {
        /// The new log start offset.
        offset: i64,
    },
    /// This replica leads from here on.
    BecameLeader {
        /// Its leader epoch.
        epoch: i32,
    },
}

/// What the owner of the replica has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaEffect {
    /// The HW rose: complete who waits for it, wake who reads up to it.
    HighWatermarkMoved {
        /// The new HW.
        high_watermark: i64,
    },
    /// Something written is not flushed and is to be flushed. May be
    /// repeated while a flush is under way; the owner runs one at a time and looks
    /// again afterwards ([`Replica::wants_flush`]).
    FlushWanted,
}

/// The effects of one event, in the order in which they are to be carried out.
pub type ReplicaEffects = SmallVec<[ReplicaEffect; 2]>;

/// One replica that leads its partition. See the module's docs.
#[derive(Debug, Clone)]
pub struct Replica {
    leader_epoch: i32,
    flush_on_ack: FlushOnAck,
    min_insync_replicas: usize,
    flush_messages: i64,
    /// Up to here a flush is wanted even under `flush.on.ack` = `none`.
    flush_to: i64,
    replication_factor: usize,
    log_start_offset: i64,
    end_offset: i64,
    flushed_offset: i64,
    high_watermark: i64,
}

impl Replica {
    /// A replica whose log was just loaded. It leads nothing, and its HW does not
    /// move, before [`ReplicaEvent::BecameLeader`] or the first write or flush.
    pub fn new(start: ReplicaStart) -> Replica {
        assert!(
            start.log_start_offset <= start.end_offset,
            "the log starts at {} and ends at {}",
            start.log_start_offset,
            start.end_offset
        );
        Replica {
            leader_epoch: start.leader_epoch,
            flush_on_ack: start.flush_on_ack,
            min_insync_replicas: start.min_insync_replicas,
            flush_messages: start.flush_messages,
            flush_to: 0,
            replication_factor: start.replication_factor,
            log_start_offset: start.log_start_offset,
            end_offset: start.end_offset,
            flushed_offset: start.flushed_offset.min(start.end_offset),
            high_watermark: start
                .high_watermark
                .clamp(start.log_start_offset, start.end_offset),
        }
    }

    /// Takes in one event.
    pub fn on(&mut self, event: ReplicaEvent) -> ReplicaEffects {
        match event {
            ReplicaEvent::Written { end_offset } => {
                debug_assert!(end_offset >= self.end_offset, "the LEO fell");
                self.end_offset = self.end_offset.max(end_offset);
                self.count_unflushed();
            }
            ReplicaEvent::Flushed { offset } => {
                debug_assert!(offset <= self.end_offset, "flushed beyond the LEO");
                self.flushed_offset = self.flushed_offset.max(offset).min(self.end_offset);
            }
            ReplicaEvent::PolicyChanged {
                flush_on_ack,
                min_insync_replicas,
                flush_messages,
            } => {
                self.flush_on_ack = flush_on_ack;
                self.min_insync_replicas = min_insync_replicas;
                self.flush_messages = flush_messages;
                self.count_unflushed();
            }
            ReplicaEvent::FlushDue => self.flush_to = self.end_offset,
            ReplicaEvent::LogStartMoved { offset } => {
                debug_assert!(offset <= self.end_offset, "the log starts beyond its end");
                self.log_start_offset = self.log_start_offset.max(offset).min(self.end_offset);
            }
            ReplicaEvent::BecameLeader { epoch } => {
                debug_assert!(epoch >= self.leader_epoch, "the leader epoch fell");
                self.leader_epoch = self.leader_epoch.max(epoch);
            }
        }
        self.effects()
    }

    /// The epoch that this leader stamps on batches.
    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    /// The HW: consumers see what lies below.
    pub fn high_watermark(&self) -> i64 {
        self.high_watermark
    }

    /// The LEO as the replica was last told.
    pub fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// The flushed offset as the replica was last told.
    pub fn flushed_offset(&self) -> i64 {
        self.flushed_offset
    }

    /// The log start offset as the replica was last told.
    pub fn log_start_offset(&self) -> i64 {
        self.log_start_offset
    }

    /// What this replica counts for in the HW: its flushed offset under
    /// `flush.on.ack` = `all` or `any`, its LEO under `none`.
    pub fn durable_offset(&self) -> i64 {
        match self.flush_on_ack {
            FlushOnAck::All | FlushOnAck::Any => self.flushed_offset,
            FlushOnAck::None => self.end_offset,
        }
    }

    /// The policy in force.
    pub fn flush_on_ack(&self) -> FlushOnAck {
        self.flush_on_ack
    }

    /// True if a flush of what is written and not flushed is wanted: by the policy, or
    /// because it is much (`flush.messages`) or old (`flush.ms`).
    pub fn wants_flush(&self) -> bool {
        let wanted = match self.flush_on_ack {
            FlushOnAck::All | FlushOnAck::Any => self.end_offset,
            FlushOnAck::None => self.flush_to,
        };
        self.flushed_offset < wanted
    }

    /// How many replicas are in sync, this one included.
    pub fn in_sync_replicas(&self) -> usize {
        self.durable_offsets_in_sync().count()
    }

    /// How many must be in sync for acks=all and for the HW to move:
    /// min(`min.insync.replicas`, replication factor).
    pub fn in_sync_replicas_min(&self) -> usize {
        self.min_insync_replicas.min(self.replication_factor)
    }

    /// False if acks=all is refused with NOT_ENOUGH_REPLICAS before the append.
    pub fn has_enough_in_sync(&self) -> bool {
        self.in_sync_replicas() >= self.in_sync_replicas_min()
    }

    fn count_unflushed(&mut self) {
        if self.end_offset - self.flushed_offset >= self.flush_messages {
            self.flush_to = self.end_offset;
        }
    }

    fn effects(&mut self) -> ReplicaEffects {
        let mut effects = ReplicaEffects::new();
        if self.advance_high_watermark() {
            effects.push(ReplicaEffect::HighWatermarkMoved {
                high_watermark: self.high_watermark,
            });
        }
        if self.wants_flush() {
            effects.push(ReplicaEffect::FlushWanted);
        }
        effects
    }

    fn advance_high_watermark(&mut self) -> bool {
        let before = self.high_watermark;
        if self.has_enough_in_sync() {
            let durable_everywhere = self.durable_offsets_in_sync().min().unwrap_or(before);
            self.high_watermark = before.max(durable_everywhere);
        }
        self.high_watermark = self.high_watermark.max(self.log_start_offset);
        debug_assert!(self.high_watermark <= self.end_offset, "the HW passed LEO");
        self.high_watermark > before
    }

    fn durable_offsets_in_sync(&self) -> impl Iterator<Item = i64> {
        std::iter::once(self.durable_offset())
    }
}
