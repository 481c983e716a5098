//! What a client may do, as a field of bits (KIP-430): bit `n` is Kafka's
//! `AclOperation` number `n`. Without ACLs it may do all that the resource has.

/// It was not asked for, or can't be told.
pub(super) const OPERATIONS_UNKNOWN: i32 = i32::MIN;
/// All operations on the cluster: create, alter, describe, cluster action, describe
/// and alter configs, idempotent write.
pub(super) const CLUSTER_OPERATIONS: i32 = bits(&[5, 7, 8, 9, 10, 11, 12]);
/// All operations on a topic: read, write, create, delete, alter, describe, describe
/// and alter configs.
pub(super) const TOPIC_OPERATIONS: i32 = bits(&[3, 4, 5, 6, 7, 8, 10, 11]);
/// All operations on a group: read, delete, describe, describe and alter configs.
pub(super) const GROUP_OPERATIONS: i32 = bits(&[3, 6, 8, 10, 11]);

const fn bits(operations: &[u32]) -> i32 {
    let mut bits = 0;
    let mut i = 0;
    while i < operations.len() {
        bits |= 1 << operations[i];
        i += 1;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_that_kafka_answers_without_an_authorizer() {
        assert_eq!((CLUSTER_OPERATIONS, TOPIC_OPERATIONS), (8096, 3576));
        assert_eq!(GROUP_OPERATIONS, 3400);
    }
}
