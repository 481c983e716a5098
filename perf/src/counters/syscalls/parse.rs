//! What `perf stat -x,` and `strace -c` write.

use anyhow::{bail, ensure, Context, Result};
use std::collections::BTreeMap;

/// Names of the tracepoint of an operation that is submitted to io_uring, since Linux 6.4 and before.
pub const SUBMITTED: [&str; 2] = ["io_uring_submit_req", "io_uring_submit_sqe"];

/// System calls of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them.
    pub calls: u64,
    /// Operations submitted to io_uring, many with one call; `None`: not counted.
    pub submitted: Option<u64>,
    /// Calls by name; of perf only some names.
    pub named: BTreeMap<String, u64>,
}

/// Reads the lines of `perf stat -x,`: `VALUE,,EVENT,RUNTIME,PERCENT,,`.
///
/// # Errors
/// A line is of another form, an event could not be counted, or was counted a part of the time only.
pub fn perf_stat(text: &str) -> Result<Counts> {
    let mut counts = Counts::default();
    let mut all = false;
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = line.split(',').collect();
        let [value, _, event, _, percent, ..] = fields[..] else {
            bail!("{line:?} is not what perf stat -x, writes");
        };
        let value = match value {
            // The process did not run at all meanwhile.
            "<not counted>" => 0,
            "<not supported>" => bail!("this kernel can't count {event}"),
            value => value
                .parse()
                .with_context(|| format!("{line:?} is not what perf stat -x, writes"))?,
        };
        ensure!(
            value == 0 || percent == "100.00",
            "perf stat has counted {event} only {percent} % of the time"
        );
        let (_, name) = event
            .split_once(':')
            .with_context(|| format!("{event} is no tracepoint"))?;
        if event == "raw_syscalls:sys_enter" {
            (counts.calls, all) = (value, true);
        } else if SUBMITTED.contains(&name) {
            counts.submitted = Some(value);
        } else if let Some(call) = name.strip_prefix("sys_enter_") {
            counts.named.insert(call.to_owned(), value);
        } else {
            bail!("{event} was not asked for");
        }
    }
    ensure!(all, "perf stat has not counted system calls");
    Ok(counts)
}

/// Reads the table of `strace -c`, without the columns before `calls`, which are times.
///
/// # Errors
/// A line is of another form, or the calls do not add up to the total.
pub fn strace(text: &str) -> Result<Counts> {
    let mut counts = Counts::default();
    let mut total = None;
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields[..] {
            [] | ["%", "time", ..] => continue,
            [rule, ..] if rule.starts_with("---") => continue,
            // The fifth is the number of calls that failed, if any did.
            [_, _, _, calls, name] | [_, _, _, calls, _, name] => {
                let calls: u64 = calls
                    .parse()
                    .with_context(|| format!("{line:?} is not what strace -c writes"))?;
                if name == "total" {
                    total = Some(calls);
                } else {
                    *counts.named.entry(name.to_owned()).or_default() += calls;
                }
            }
            _ => bail!("{line:?} is not what strace -c writes"),
        }
    }
    counts.calls = counts.named.values().sum();
    // Without a single call there is no table at all.
    let total = match total {
        None if counts.named.is_empty() => 0,
        total => total.context("the table of strace -c has no total")?,
    };
    ensure!(
        total == counts.calls,
        "the table of strace -c adds up to {}, not to its total of {total}",
        counts.calls
    );
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERF: &str = "# started on Mon Nov 30 22:09:03 2026\n\n\
        5123,,raw_syscalls:sys_enter,912345,100.00,,\n\
        8000,,io_uring:io_uring_submit_req,912345,100.00,,\n\
        4100,,syscalls:sys_enter_io_uring_enter,912345,100.00,,\n\
        <not counted>,,syscalls:sys_enter_futex,0,100.00,,\n";

    #[test]
    fn given_the_lines_of_perf_stat_then_calls_and_submissions_are_told_apart() {
        let counts = perf_stat(PERF).unwrap();
        assert_eq!((counts.calls, counts.submitted), (5123, Some(8000)));
        assert_eq!(counts.named["io_uring_enter"], 4100);
        assert_eq!(counts.named["futex"], 0);
        let older = PERF.replace("submit_req", "submit_sqe");
        assert_eq!(perf_stat(&older).unwrap(), counts);
        let without: String = PERF
            .lines()
            .filter(|l| !l.contains("submit"))
            .fold(String::new(), |text, line| text + line + "\n");
        assert_eq!(perf_stat(&without).unwrap().submitted, None);
    }

    #[test]
    fn given_other_lines_of_perf_stat_then_they_are_refused() {
        let refused = |text: &str| format!("{:#}", perf_stat(text).unwrap_err());
        assert!(refused("").contains("has not counted"));
        assert!(refused("5123 raw_syscalls:sys_enter\n").contains("is not what perf stat"));
        assert!(refused("x,,raw_syscalls:sys_enter,1,100.00,,").contains("is not what perf stat"));
        let part = PERF.replace(
            "5123,,raw_syscalls:sys_enter,912345,100.00",
            "5123,,raw_syscalls:sys_enter,912345,47.11",
        );
        assert!(refused(&part).contains("47.11 % of the time"));
        let unsupported = PERF.replace("8000", "<not supported>");
        assert!(refused(&unsupported).contains("can't count io_uring:io_uring_submit_req"));
        assert!(refused(&PERF.replace("io_uring_submit_req", "other")).contains("not asked for"));
    }

    /// As strace 6.1 writes it.
    const STRACE: &str = "% time     seconds  usecs/call     calls    errors syscall\n\
        ------ ----------- ----------- --------- --------- ----------------\n \
        41.18    0.000560          29        19           mmap\n \
        11.25    0.000153         153         1           io_uring_enter\n  \
         6.40    0.000087          12         7         3 futex\n\
        ------ ----------- ----------- --------- --------- ----------------\n\
        100.00    0.001360          21        27         3 total\n";

    #[test]
    fn given_the_table_of_strace_then_calls_are_counted_and_errors_are_not_taken_for_them() {
        let counts = strace(STRACE).unwrap();
        assert_eq!((counts.calls, counts.submitted), (27, None));
        assert_eq!(counts.named["mmap"], 19);
        assert_eq!(counts.named["futex"], 7);
        assert_eq!(strace("").unwrap(), Counts::default());
    }

    #[test]
    fn given_a_damaged_table_of_strace_then_it_is_refused() {
        let refused = |text: &str| format!("{:#}", strace(text).unwrap_err());
        assert!(refused(&STRACE.replace("      19 ", "      20 ")).contains("adds up to 28"));
        let cut: Vec<&str> = STRACE.lines().take(4).collect();
        assert!(refused(&cut.join("\n")).contains("has no total"));
        assert!(refused(&STRACE.replace("        19 ", "        xx ")).contains("not what strace"));
        assert!(
            refused("strace: attach: ptrace(PTRACE_SEIZE, 1): Operation not permitted\n")
                .contains("not what strace")
        );
    }
}
