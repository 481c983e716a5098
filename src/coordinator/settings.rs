//! The settings of a coordinator.

use crate::runtime::local::Budget;
use std::time::Duration;

/// What a coordinator takes from the broker's settings. The default is Kafka's.
#[derive(Debug, Clone)]
pub struct GroupSettings {
    /// `group.min.session.timeout.ms`.
    pub session_timeout_ms_min: i32,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_ms_max: i32,
    /// `group.max.size`.
    pub members_max: usize,
    /// `group.initial.rebalance.delay.ms`.
    pub initial_rebalance_delay: Duration,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_bytes_max: usize,
    /// `offsets.retention.minutes`, in ms.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`.
    pub offsets_retention_check_interval: Duration,
    /// What members and their metadata may hold, bytes: of all coordinators of a shard.
    pub members_memory: Budget,
}

impl Default for GroupSettings {
    fn default() -> Self {
        GroupSettings {
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 1_800_000,
            members_max: i32::MAX as usize,
            initial_rebalance_delay: Duration::from_secs(3),
            offset_metadata_bytes_max: 4_096,
            offsets_retention_ms: 7 * 24 * 60 * 60 * 1_000,
            offsets_retention_check_interval: Duration::from_secs(600),
            members_memory: Budget::new(MEMBERS_BYTES_MAX),
        }
    }
}

/// What members may hold where nobody says otherwise, bytes.
const MEMBERS_BYTES_MAX: u64 = 256 << 20;
