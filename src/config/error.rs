//! What can be wrong with a setting, and where it came from. Every message says what to change.

use std::fmt;

/// Where a value came from; printed in every error about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The table's own default.
    Default,
    /// A line of a `.properties` file.
    File {
        /// The file's name as it was given.
        path: String,
        /// Line number, from 1.
        line: usize,
    },
    /// An environment variable.
    Environment {
        /// The variable's name.
        variable: String,
    },
    /// A command line flag, `--set` or a named one.
    Flag {
        /// The flag's name with its dashes.
        flag: String,
    },
    /// The broker's own configuration, altered while it runs.
    Dynamic,
    /// A topic's own configuration, set when it is created or altered.
    Topic,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("the default"),
            Origin::File { path, line } => write!(f, "{path}:{line}"),
            Origin::Environment { variable } => write!(f, "environment variable {variable}"),
            Origin::Flag { flag } => f.write_str(flag),
            Origin::Dynamic => f.write_str("broker configuration"),
            Origin::Topic => f.write_str("topic configuration"),
        }
    }
}

/// A setting that cannot be used. Its text is one sentence that begins with the origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No setting has this name.
    #[error("{origin}: there is no setting '{name}'{}", suggestion(.nearest))]
    Unknown {
        /// The name that was given.
        name: String,
        /// The known name that is spelled most like it, if one is near.
        nearest: Option<&'static str>,
        /// Where it was given.
        origin: Origin,
    },
    /// The setting exists, but this value is not one of its values.
    #[error("{origin}: {name}={value}: {problem}")]
    Invalid {
        /// The setting.
        name: String,
        /// The value that was given.
        value: String,
        /// What is wrong with it and what it must be.
        problem: String,
        /// Where it was given.
        origin: Origin,
    },
    /// One of Kafka's settings that this version does not have.
    #[error("{origin}: {name}={value} is not supported yet ({problem})")]
    Unsupported {
        /// The setting.
        name: String,
        /// The value that was given.
        value: String,
        /// What this version does instead.
        problem: String,
        /// Where it was given.
        origin: Origin,
    },
    /// Text that is not `key=value`.
    #[error("{origin}: {problem}")]
    Syntax {
        /// What is wrong with the text.
        problem: String,
        /// Where it was given.
        origin: Origin,
    },
}

/// A name or value for a message: cut where it is long.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

const SHOWN_CHARS_MAX: usize = 200;

fn suggestion(nearest: &Option<&'static str>) -> String {
    match nearest {
        Some(name) => format!(" (did you mean '{name}'?)"),
        None => "; `highwater config docs` lists them all".to_owned(),
    }
}
