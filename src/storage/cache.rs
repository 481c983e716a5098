//! The buffer cache of a shard.
pub(super) struct Cache;
impl Cache {
    pub(super) fn new(bytes_max: u64) -> Cache {
        Cache
    }
}
