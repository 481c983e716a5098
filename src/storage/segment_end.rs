//! What it means where the batches of a segment end: one judgement for a load, for
//! `log verify` and for `log repair`.
//!
//! Below what is proven flushed every batch must be there. Above it the first bytes that are
//! no batch in order end the log, whatever follows: they were never acknowledged as flushed,
//! or a snapshot would say so, or they stood before those bytes. It does no I/O.

use super::segment_ends::misfit;

/// What is known of a log before its batches are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Proof {
    /// Everything below it was flushed; where the log begins, if nothing says more.
    pub(super) proven: i64,
    /// A snapshot says so.
    pub(super) by_snapshot: bool,
    /// Everything below it was flushed once, though no snapshot says so; 0 if that is not known.
    pub(super) flushed: i64,
    /// The log is, or once was, compacted: offsets may be missing.
    pub(super) gaps: bool,
    /// The first offset that was not compacted, if the log ever was.
    pub(super) cleaned_to: Option<i64>,
}

/// Where the batches of a segment end.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchesEnd<'a> {
    /// The offset after the last whole batch in order.
    pub(super) offset: i64,
    /// Bytes of the batches up to there.
    pub(super) len: u64,
    /// What stands there is no such batch: why.
    pub(super) bad: Option<&'a str>,
    /// The base offset of the next segment.
    pub(super) next_base: Option<i64>,
}

/// What that means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SegmentEnd {
    /// Complete, and the next segment follows.
    GoesOn,
    /// Complete, and the next segment follows, but its file is longer: the roll that sealed it
    /// was interrupted.
    Unsealed,
    /// The log ends here; whatever follows goes at the next start.
    EndOfLog,
    /// Something that was flushed is not there: what is wrong.
    Damage(String),
}

impl Proof {
    /// Judges the end of a segment.
    pub(super) fn judge(&self, end: &BatchesEnd<'_>) -> SegmentEnd {
        let bad = || end.bad.map(str::to_owned);
        if let Some(next) = end.next_base {
            if next == end.offset {
                return match end.bad {
                    None => SegmentEnd::GoesOn,
                    Some(_) => SegmentEnd::Unsealed,
                };
            }
            if self.may_be_compacted(end, next) {
                return SegmentEnd::GoesOn;
            }
            // Another one that holds what was flushed must follow.
            if next < self.proven {
                let hole = || misfit(end.offset, next, false).expect("it does not follow");
                return SegmentEnd::Damage(bad().unwrap_or_else(hole));
            }
        }
        let flushed = self.proven.max(self.flushed);
        if end.offset < flushed {
            let short = || {
                format!(
                    "the segment ends at offset {}, but {flushed} was flushed",
                    end.offset
                )
            };
            return SegmentEnd::Damage(bad().unwrap_or_else(short));
        }
        SegmentEnd::EndOfLog
    }

    /// Whether compaction may have removed what lies between the end of a segment and the
    /// next one. It goes over sealed segments only: those below what is proven, and whole.
    /// Above that the segment has lost what was written to it last; unless every snapshot was
    /// lost, of a log that had some because it was compacted.
    fn may_be_compacted(&self, end: &BatchesEnd<'_>, next: i64) -> bool {
        let known = self.proven.max(self.cleaned_to.unwrap_or(self.proven));
        let proof_lost = !self.by_snapshot && self.cleaned_to.is_some();
        self.gaps
            && end.bad.is_none()
            && next > end.offset
            && (next <= known || (end.len > 0 && proof_lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROOF: Proof = Proof {
        proven: 100,
        by_snapshot: true,
        flushed: 0,
        gaps: false,
        cleaned_to: None,
    };

    fn ends(offset: i64, bad: Option<&str>, next_base: Option<i64>) -> BatchesEnd<'_> {
        BatchesEnd {
            offset,
            len: 1,
            bad,
            next_base,
        }
    }

    fn is_damage(end: SegmentEnd) -> bool {
        matches!(end, SegmentEnd::Damage(_))
    }

    #[test]
    fn a_segment_goes_on_where_the_next_begins_and_may_be_longer() {
        for at in [50, 100, 150] {
            assert_eq!(PROOF.judge(&ends(at, None, Some(at))), SegmentEnd::GoesOn);
            let longer = ends(at, Some("zeros"), Some(at));
            assert_eq!(PROOF.judge(&longer), SegmentEnd::Unsealed);
        }
    }

    #[test]
    fn the_log_ends_at_the_first_bad_byte_above_what_is_proven_and_nowhere_below() {
        for bad in [None, Some("torn")] {
            for next in [None, Some(130)] {
                for at in [100, 120] {
                    assert_eq!(PROOF.judge(&ends(at, bad, next)), SegmentEnd::EndOfLog);
                }
                assert!(is_damage(PROOF.judge(&ends(99, bad, next))));
            }
            for next in [40, 60, 99] {
                let hole = PROOF.judge(&ends(50, bad, Some(next)));
                assert!(is_damage(hole), "{bad:?}, {next}");
            }
        }
        assert!(
            is_damage(PROOF.judge(&ends(120, None, Some(90)))),
            "they overlap"
        );
    }

    #[test]
    fn compaction_explains_a_hole_between_whole_segments_below_what_is_known() {
        let compacted = Proof {
            gaps: true,
            cleaned_to: Some(150),
            ..PROOF
        };
        for next in [60, 100, 150] {
            let whole = ends(50, None, Some(next));
            assert_eq!(compacted.judge(&whole), SegmentEnd::GoesOn);
            assert!(is_damage(compacted.judge(&ends(
                50,
                Some("bad"),
                Some(next)
            ))));
        }
        let above = ends(120, None, Some(151));
        assert_eq!(compacted.judge(&above), SegmentEnd::EndOfLog);
        let proof_lost = Proof {
            by_snapshot: false,
            proven: 0,
            ..compacted
        };
        assert_eq!(proof_lost.judge(&above), SegmentEnd::GoesOn);
        let empty = BatchesEnd { len: 0, ..above };
        assert_eq!(proof_lost.judge(&empty), SegmentEnd::EndOfLog);
    }
}
