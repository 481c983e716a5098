//! The log: one line an event on standard error, written by a thread of its own.
//!
//! An executor that logs hands the line to a bounded queue and goes on; if the queue is full (standard error is a
//! pipe that nobody reads), lines are dropped and counted, and the count is told at the end. Nothing waits for a log.
//!
//! A line is `time level room message fields`: `2026-01-31T12:00:00.000000Z  INFO storage::log rolled base=4096`.

use std::fmt;
use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::EnvFilter;

/// The environment variable with the filter: a level (`debug`) or directives (`info,highwater::storage=trace`).
pub const FILTER_VARIABLE: &str = "HIGHWATER_LOG";

/// Lines that may wait for standard error.
const LINES_MAX: usize = 16 * 1024;

/// Keeps the log running; dropping it writes what still waits.
pub struct LogGuard {
    dropped: ErrorCounter,
    _worker: WorkerGuard,
}

/// The log could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is not one.
    #[error(
        "{FILTER_VARIABLE}={filter}: {problem}; write a level (error, warn, info, debug, trace) or \
         directives like info,highwater::storage=debug"
    )]
    Filter {
        /// The filter as it was given.
        filter: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The process has a log already.
    #[error("the log was already started")]
    Started,
}

/// Starts the log of the process. `filter` is the value of [`FILTER_VARIABLE`], if there is one; without, `info`.
pub fn start_log(filter: Option<&str>) -> Result<LogGuard, LogError> {
    let levels = levels_of(filter.unwrap_or_default());
    let filter = parse_filter(filter)?;
    let (writer, worker) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_MAX)
        .thread_name("log")
        .finish(std::io::stderr());
    let dropped = writer.error_counter();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(writer)
        .event_format(Line)
        .try_init()
        .map_err(|_| LogError::Started)?;
    let _only_the_first_start_gets_here = LEVELS.set(levels);
    Ok(LogGuard {
        dropped,
        _worker: worker,
    })
}

/// The loggers with levels of their own and `root`, which is all others, each with its level; as Kafka names levels.
pub fn log_levels() -> &'static [(String, String)] {
    LEVELS.get().map_or(&[], Vec::as_slice)
}

static LEVELS: OnceLock<Vec<(String, String)>> = OnceLock::new();

/// Directives for spans are left out: they have no name that tools could show.
fn levels_of(filter: &str) -> Vec<(String, String)> {
    let mut levels = vec![("root".to_owned(), "INFO".to_owned())];
    for directive in filter.split(',').map(str::trim).filter(|d| !d.is_empty()) {
        let (logger, level) = directive.split_once('=').unwrap_or(("root", directive));
        let Ok(level) = level.parse::<LevelFilter>() else {
            continue;
        };
        if logger.contains('[') {
            continue;
        }
        let level = level.to_string().to_ascii_uppercase();
        match levels.iter_mut().find(|(known, _)| known == logger) {
            Some((_, known)) => *known = level,
            None => levels.push((logger.to_owned(), level)),
        }
    }
    levels
}

impl LogGuard {
    /// Lines dropped because standard error was not read.
    pub fn dropped_lines(&self) -> usize {
        self.dropped.dropped_lines()
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        if self.dropped_lines() > 0 {
            tracing::warn!(
                lines = self.dropped_lines(),
                "log lines were dropped: standard error was not read"
            );
        }
    }
}

fn parse_filter(filter: Option<&str>) -> Result<EnvFilter, LogError> {
    let filter = filter
        .map(str::trim)
        .filter(|filter| !filter.is_empty())
        .unwrap_or("info");
    EnvFilter::builder()
        .parse(filter)
        .map_err(|error| LogError::Filter {
            filter: filter.to_owned(),
            problem: error.to_string(),
        })
}

/// The format of a line.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        SystemTime.format_time(&mut writer)?;
        match (writer.has_ansi_escapes(), colour(level)) {
            (true, Some(colour)) => write!(writer, " \x1b[{colour}m{level:>5}\x1b[0m ")?,
            _ => write!(writer, " {level:>5} ")?,
        }
        write!(writer, "{} ", short_target(event.metadata().target()))?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

fn colour(level: Level) -> Option<u8> {
    match level {
        Level::ERROR => Some(31),
        Level::WARN => Some(33),
        _ => None,
    }
}

/// A target of this crate without the crate's name.
fn short_target(target: &str) -> &str {
    target.strip_prefix("highwater::").unwrap_or(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn lines(filter: &str, log: impl FnOnce()) -> Vec<String> {
        let captured = Captured::default();
        let writer = captured.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(parse_filter(Some(filter)).unwrap())
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .event_format(Line)
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        let text = String::from_utf8(captured.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn each_directive_of_the_filter_is_a_logger_with_its_level() {
        let shown = |filter| {
            let levels = levels_of(filter).into_iter();
            let pairs: Vec<String> = levels
                .map(|(name, level)| format!("{name}={level}"))
                .collect();
            pairs.join(" ")
        };
        assert_eq!(shown(""), "root=INFO");
        assert_eq!(shown("debug"), "root=DEBUG");
        let filter = "highwater::storage=trace, warn,highwater::storage=off,[span]=info,x=?";
        assert_eq!(shown(filter), "root=WARN highwater::storage=OFF");
    }

    #[test]
    fn a_line_has_time_level_room_message_and_fields() {
        let lines = lines("info", || {
            tracing::info!(base = 4096, "rolled");
            tracing::debug!("not at this level");
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        let (time, rest) = lines[0].split_once(' ').unwrap();
        assert_eq!(rest, " INFO observe::log::tests rolled base=4096");
        assert!(time.ends_with('Z') && time.contains('T'), "{time}");
    }

    /// What a client names itself cannot write a line of its own.
    #[test]
    fn a_field_cannot_break_the_line() {
        let lines = lines("info", || {
            tracing::info!(client = "a\n\x1b[31mb", "connected")
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(!lines[0].contains('\x1b'), "{lines:?}");
    }

    #[test]
    fn a_filter_that_is_none_is_refused_with_an_example() {
        assert!(parse_filter(None).is_ok());
        assert!(parse_filter(Some(" ")).is_ok());
        let error = parse_filter(Some("highwater=loud"))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("HIGHWATER_LOG=highwater=loud: "),
            "{error}"
        );
        assert!(error.contains("info,highwater::storage=debug"), "{error}");
    }
}
