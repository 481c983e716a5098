//! Which source segments become one.

/// What is known of a source segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) base_offset: i64,
    /// The base offset of the segment after it.
    pub(super) next_offset: i64,
    pub(super) bytes: u64,
    pub(super) index_bytes: u64,
    pub(super) time_index_bytes: u64,
}

/// What a segment may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupLimits {
    /// `segment.bytes`.
    pub(super) segment_bytes: u64,
    /// `segment.index.bytes`.
    pub(super) index_bytes: u64,
}

/// Splits sources, which follow each other, into groups that fit one segment each: how many
/// belong to each. A source that fits none is a group of its own.
///
/// Sizes are those from before the round; the range of offsets is one that an index entry can
/// hold (Kafka's KAFKA-6264: it is reckoned with the next segment's base, because what lies
/// between may have been compacted away).
pub(super) fn group(sources: &[Source], limits: GroupLimits) -> Vec<usize> {
    let mut groups = Vec::new();
    let mut rest = sources;
    while let [first, others @ ..] = rest {
        let (mut bytes, mut index, mut times) =
            (first.bytes, first.index_bytes, first.time_index_bytes);
        let mut count = 1;
        for source in others {
            bytes += source.bytes;
            index += source.index_bytes;
            times += source.time_index_bytes;
            let offsets_fit = source.next_offset - 1 - first.base_offset <= i64::from(i32::MAX);
            let fits = bytes <= limits.segment_bytes
                && index <= limits.index_bytes
                && times <= limits.index_bytes;
            if !fits || !offsets_fit {
                break;
            }
            count += 1;
        }
        groups.push(count);
        rest = &rest[count..];
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: GroupLimits = GroupLimits {
        segment_bytes: 1_000,
        index_bytes: 100,
    };

    fn sources(shape: &[(i64, u64, u64)]) -> Vec<Source> {
        let mut base_offset = 0;
        let each = shape.iter().map(|(offsets, bytes, index_bytes)| {
            let source = Source {
                base_offset,
                next_offset: base_offset + offsets,
                bytes: *bytes,
                index_bytes: *index_bytes,
                time_index_bytes: *index_bytes / 2,
            };
            base_offset += offsets;
            source
        });
        each.collect()
    }

    #[test]
    fn a_group_spans_no_more_offsets_than_an_index_can_say() {
        let far = i64::from(i32::MAX);
        let two = |first| group(&sources(&[(first, 1, 1), (10, 1, 1)]), LIMITS);
        assert_eq!(two(far - 9), [2]);
        assert_eq!(two(far - 8), [1, 1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn groups_cover_all_fit_and_could_not_take_the_next(
            shape in prop::collection::vec((1i64..1_500_000_000, 0u64..1_500, 0u64..60), 0..20)
        ) {
            let sources = sources(&shape);
            let groups = group(&sources, LIMITS);
            prop_assert_eq!(groups.iter().sum::<usize>(), sources.len());
            let fits = |group: &[Source]| {
                let sum = |of: fn(&Source) -> u64| group.iter().map(of).sum::<u64>();
                sum(|s| s.bytes) <= 1_000
                    && sum(|s| s.index_bytes) <= 100
                    && sum(|s| s.time_index_bytes) <= 100
                    && group[group.len() - 1].next_offset - 1 - group[0].base_offset <= i64::from(i32::MAX)
            };
            let mut at = 0;
            for count in groups {
                prop_assert!(count == 1 || fits(&sources[at..at + count]));
                let end = at + count;
                prop_assert!(end == sources.len() || !fits(&sources[at..=end]));
                at = end;
            }
        }
    }
}
