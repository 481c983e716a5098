//! Points in time on the command line: milliseconds since the Unix epoch, RFC 3339, or how long ago.

/// Milliseconds since the Unix epoch of a text: `1700000000000`, `2026-11-30T18:00:00.5Z`, `2026-11-30T18:00:00+01:00`,
/// `2026-11-30` (UTC), or `-90s`, `-15m`, `-2h`, `-7d` before `now_ms`.
pub(super) fn parse(text: &str, now_ms: i64) -> Result<i64, String> {
    let wrong = || {
        format!("{text} is no time; write 2026-11-30T18:00:00Z, -2h (s, m, h, d ago), or milliseconds since 1970")
    };
    if let Ok(ms) = text.parse::<i64>() {
        // A bare negative number would be a mark of ListOffsets, not a time.
        return if ms >= 0 { Ok(ms) } else { Err(wrong()) };
    }
    let parsed = match text.strip_prefix('-') {
        Some(ago) => duration_ms(ago).and_then(|ms| now_ms.checked_sub(ms)),
        None => date_time(text),
    };
    parsed.filter(|ms| *ms >= 0).ok_or_else(wrong)
}

/// A time as RFC 3339 in UTC, for people; a dash for one that is not known.
pub(super) fn shown(ms: i64) -> String {
    if ms < 0 {
        return "-".to_owned();
    }
    let (days, rest) = (ms / DAY_MS, ms % DAY_MS);
    let (year, month, day) = civil(days);
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, ms) = (rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

fn duration_ms(text: &str) -> Option<i64> {
    let (number, unit_ms) = match text.split_at_checked(text.len().checked_sub(1)?)? {
        (number, "s") => (number, 1000),
        (number, "m") => (number, 60_000),
        (number, "h") => (number, 3_600_000),
        (number, "d") => (number, DAY_MS),
        _ => return None,
    };
    number
        .parse::<u32>()
        .ok()
        .map(|number| i64::from(number) * unit_ms)
}

fn date_time(text: &str) -> Option<i64> {
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, time),
        None => (text, "00:00:00Z"),
    };
    let mut parts = date.split('-');
    let (year, month, day) = (
        digits(parts.next()?, 4)?,
        digits(parts.next()?, 2)?,
        digits(parts.next()?, 2)?,
    );
    if parts.next().is_some() || !(1970..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    let days = days(year, month, day);
    if civil(days) != (year, month, day) {
        return None;
    }
    let (clock, offset_minutes) = zone(time)?;
    Some(days * DAY_MS + clock_ms(clock)? - offset_minutes * 60_000)
}

/// The clock, and the minutes that it is ahead of UTC.
fn zone(time: &str) -> Option<(&str, i64)> {
    if let Some(clock) = time.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let at = time.rfind(['+', '-'])?;
    let (hours, minutes) = time[at + 1..].split_once(':')?;
    let minutes =
        digits(hours, 2).filter(|h| *h < 24)? * 60 + digits(minutes, 2).filter(|m| *m < 60)?;
    Some((
        &time[..at],
        if time.as_bytes()[at] == b'-' {
            -minutes
        } else {
            minutes
        },
    ))
}

fn clock_ms(clock: &str) -> Option<i64> {
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = whole.split(':');
    let hour = digits(parts.next()?, 2).filter(|hour| *hour < 24)?;
    let minute = digits(parts.next()?, 2).filter(|minute| *minute < 60)?;
    let second = parts
        .next()
        .map_or(Some(0), |text| digits(text, 2))
        .filter(|second| *second < 60)?;
    if parts.next().is_some()
        || fraction.is_empty()
        || !fraction.bytes().all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let ms: i64 = format!("{fraction:0<3}")[..3].parse().ok()?;
    Some(((hour * 60 + minute) * 60 + second) * 1000 + ms)
}

fn digits(text: &str, count: usize) -> Option<i64> {
    let all = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}

/// Days from 1970-01-01 (H. Hinnant's algorithm, for years from 1970).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date of a day: year, month, day.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

const DAY_MS: i64 = 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_read_in_three_ways() {
        let now = 10_000_000_000;
        let cases = [
            ("0", 0),
            ("1700000000000", 1_700_000_000_000),
            ("2023-11-14T22:13:20Z", 1_700_000_000_000),
            ("2023-11-14 22:13:20.5Z", 1_700_000_000_500),
            ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
            ("2023-11-14T20:43:20.0009-01:30", 1_700_000_000_000),
            ("2000-02-29", 951_782_400_000),
            ("-90s", now - 90_000),
            ("-1d", now - DAY_MS),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text, now), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "-",
            "x",
            "-1",
            "-5y",
            "-d",
            "2023-13-01",
            "2023-02-29",
            "2023-1-1",
            "2023-01-01T25:00:00Z",
            "2023-01-01T00:00:00",
            "2023-01-01T00:00:60Z",
            "1969-12-31",
            "2023-01-01T00:00:00.Z",
            "-ü",
            "ü",
            "2023-01-01T00:00:00+1:00",
            "-9999999d",
        ] {
            assert!(parse(text, 1000).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_read(ms in 0i64..253_402_300_800_000) {
            prop_assert_eq!(parse(&shown(ms), 0), Ok(ms));
        }

        #[test]
        fn no_text_panics(text in ".{0,30}") {
            let _ = parse(&text, 0);
        }
    }
}
