//! What a row of the table of settings is, and how a row is found.

use super::rows::SETTINGS;
use super::value::Kind;

/// Whose setting it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The broker's: file, environment, flags.
    Broker,
    /// A topic's: given when the topic is created, or altered.
    Topic,
}

/// What a setting is where nobody gave it a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// This value, as text.
    Value(&'static str),
    /// The value of the first of these broker settings that has one (Kafka's synonyms). All rows of the broker.
    Broker(&'static [&'static str]),
}

/// What a row refuses beyond its kind, because the code behind it is not built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Every value but this one.
    Only {
        /// The value accepted.
        value: &'static str,
        /// What this version lacks.
        because: &'static str,
    },
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Kafka's name where Kafka has the setting.
    pub name: &'static str,
    /// Whose setting it is.
    pub scope: Scope,
    /// The values it accepts.
    pub kind: Kind,
    /// What it is by default; a broker's is always a [`Fallback::Value`], empty where it has none.
    pub default: Fallback,
    /// What it refuses beyond its kind.
    pub limit: Option<Limit>,
    /// Whether it can be changed while the broker runs.
    pub dynamic: bool,
    /// What it does, in a sentence; units are in the name or here.
    pub doc: &'static str,
}

impl Setting {
    /// The default as text; for a topic's setting that falls back to the broker's, that broker setting's name.
    pub fn default_text(&self) -> &'static str {
        match self.default {
            Fallback::Value(value) => value,
            Fallback::Broker(names) => names[0],
        }
    }

    /// The values that it accepts, in words.
    pub fn values(&self) -> String {
        match (self.limit, self.kind) {
            (Some(Limit::Only { value, .. }), _) => value.to_owned(),
            (_, kind) => kind.describe(),
        }
    }
}

/// The row of this name, broker's or topic's.
pub fn find(scope: Scope, name: &str) -> Option<&'static Setting> {
    SETTINGS
        .iter()
        .find(|setting| setting.scope == scope && setting.name == name)
}

/// The known name of this scope that is spelled most like `name`, if one is near.
pub fn nearest(scope: Scope, name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace(['_', '-'], ".");
    SETTINGS
        .iter()
        .filter(|setting| setting.scope == scope)
        .map(|setting| (edit_distance(&name, setting.name), setting.name))
        .min()
        .filter(|(distance, known)| *distance <= if known.len() < 12 { 2 } else { 3 })
        .map(|(_, known)| known)
}

/// Levenshtein's distance, in bytes, with one row of memory. A name too long to be a misspelling is as far as it is long.
fn edit_distance(a: &str, b: &str) -> usize {
    if a.len() > 128 {
        return a.len();
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replace = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
