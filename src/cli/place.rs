//! Places in a partition, as the command line names them.

use super::when;

/// Where to begin reading, or where a group's offset is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Beginning,
    End,
    Offset(i64),
    /// So many before the end, of each partition.
    Last(i64),
    /// The first record at or after a time, ms.
    Time(i64),
}

impl Place {
    pub fn parse(text: &str, now_ms: i64) -> Result<Place, String> {
        if let Some(time) = text.strip_prefix('@') {
            return when::parse(time, now_ms).map(Place::Time);
        }
        match (text, text.parse::<i64>()) {
            ("beginning" | "earliest", _) => Ok(Place::Beginning),
            ("end" | "latest", _) => Ok(Place::End),
            (_, Ok(last)) if last < 0 => Ok(Place::Last(last.saturating_neg())),
            (_, Ok(offset)) => Ok(Place::Offset(offset)),
            _ => when::parse(text, now_ms).map(Place::Time).map_err(|_| {
                format!(
                    "{text} is no place to begin; write beginning, end, an offset, -N for the last N, @TIME in ms, a time such as \
                     2026-11-30T18:00:00Z, or -2h"
                )
            }),
        }
    }

    /// Its offset in a log from `first` to `last`; `at_time` is that of a time, -1 where no record is so late.
    pub fn offset(self, first: i64, last: i64, at_time: Option<i64>) -> i64 {
        match self {
            Place::Beginning => first,
            Place::End => last,
            Place::Offset(offset) => offset,
            Place::Last(count) => last.saturating_sub(count).max(first),
            Place::Time(_) => at_time.filter(|offset| *offset >= 0).unwrap_or(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_words_numbers_and_times() {
        let now = 10_000_000;
        let cases = [
            ("beginning", Place::Beginning),
            ("latest", Place::End),
            ("17", Place::Offset(17)),
            ("-5", Place::Last(5)),
            ("@17", Place::Time(17)),
            ("-10s", Place::Time(now - 10_000)),
            ("1970-01-02", Place::Time(86_400_000)),
        ];
        for (text, expected) in cases {
            assert_eq!(Place::parse(text, now), Ok(expected), "{text}");
        }
        for bad in ["", "start", "@", "@-5", "1.5"] {
            assert!(Place::parse(bad, now).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_place_becomes_an_offset() {
        let cases = [
            (Place::Beginning, None, 10),
            (Place::End, None, 20),
            (Place::Offset(3), None, 3),
            (Place::Last(4), None, 16),
            (Place::Last(99), None, 10),
            (Place::Time(5), Some(12), 12),
            (Place::Time(5), Some(-1), 20),
        ];
        for (place, at_time, expected) in cases {
            assert_eq!(place.offset(10, 20, at_time), expected, "{place:?}");
        }
    }
}
