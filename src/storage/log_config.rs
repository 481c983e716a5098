//! The settings of one log.

use crate::runtime::Rt;

/// The settings of one log. `Default` is Kafka's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`.
    pub segment_bytes: u32,
    /// `segment.ms`.
    pub segment_ms: i64,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u32,
    /// `segment.index.bytes`.
    pub index_bytes_max: u32,
    /// Flushed bytes after which the owner should call [`Log::checkpoint`].
    pub checkpoint_bytes: u64,
    /// `segment.jitter.ms`.
    pub segment_jitter_ms: i64,
    /// `file.delete.delay.ms`.
    pub file_delete_delay_ms: u64,
    /// `cleanup.policy` contains `compact`: offsets may have gaps.
    pub compacted: bool,
    /// Whether expired segments are overwritten as new ones.
    pub recycle_segments: bool,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 60 * 60 * 1000,
            index_interval_bytes: 4096,
            index_bytes_max: 10 << 20,
            checkpoint_bytes: 64 << 20,
            segment_jitter_ms: 0,
            file_delete_delay_ms: 60_000,
            compacted: false,
            recycle_segments: false,
        }
    }
}

impl LogConfig {
    /// By how much earlier than `segment.ms` one segment is rolled: drawn when it is
    /// created, so that logs that were created together do not roll together.
    pub(super) fn draw_jitter_ms(&self, rt: &Rt) -> i64 {
        match self.segment_jitter_ms.min(self.segment_ms) {
            none if none <= 0 => 0,
            most => (rt.random_u64() % most as u64) as i64,
        }
    }
}
