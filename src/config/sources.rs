//! Where values come from, and which one wins: defaults < file < environment < `--set` < named flags.
//!
//! Within one source, a later value replaces an earlier one (a file may not name a setting twice).

use std::collections::BTreeMap;

use super::error::{shown, ConfigError, Origin};
use super::properties::parse_properties;
use super::rows::SETTINGS;
use super::table::{find, nearest, Limit, Scope};
use super::unbuilt::{self, Unbuilt};
use super::BrokerConfig;

/// The broker's values as they were given, in rising precedence: call the methods in the order of the module's text.
#[derive(Debug, Default)]
pub struct Sources {
    given: BTreeMap<&'static str, (String, Origin)>,
    notes: Vec<String>,
}

/// A checked configuration, and what its author should know about it.
#[derive(Debug)]
pub struct Resolved {
    /// The configuration.
    pub config: BrokerConfig,
    /// Sentences for the log: settings that were accepted but mean nothing here.
    pub notes: Vec<String>,
}

impl Sources {
    /// Nothing but the defaults.
    pub fn new() -> Sources {
        Sources::default()
    }

    /// Takes a `.properties` file's text; `path` is only for messages.
    pub fn file(&mut self, path: &str, text: &str) -> Result<(), ConfigError> {
        let origin = |line| Origin::File {
            path: path.to_owned(),
            line,
        };
        let properties = parse_properties(text).map_err(|error| ConfigError::Syntax {
            origin: origin(error.line),
            problem: error.problem,
        })?;
        for property in properties {
            self.give(&property.key, &property.value, origin(property.line))?;
        }
        Ok(())
    }

    /// Takes the environment: each variable whose name is [`environment_name`] of a setting. Another `HIGHWATER_`
    /// variable is noted, not refused: container platforms set such variables by themselves.
    pub fn environment(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        for (variable, value) in variables {
            let Some(rest) = variable.strip_prefix(PREFIX) else {
                continue;
            };
            if NOT_SETTINGS.contains(&variable.as_str()) || rest.is_empty() {
                continue;
            }
            let known = SETTINGS.iter().find(|setting| {
                setting.scope == Scope::Broker && environment_name(setting.name) == variable
            });
            let name = match known {
                Some(setting) => setting.name.to_owned(),
                None => rest.to_ascii_lowercase().replace('_', "."),
            };
            if known.is_none() && unbuilt::find(&name).is_none() {
                let hint = nearest(Scope::Broker, &name)
                    .map(|near| format!("; did you mean {}?", environment_name(near)))
                    .unwrap_or_default();
                self.notes.push(format!(
                    "environment variable {variable} names no setting and is ignored{hint}"
                ));
                continue;
            }
            self.give(&name, &value, Origin::Environment { variable })?;
        }
        Ok(())
    }

    /// Takes one `--set` argument, `key=value`.
    pub fn set(&mut self, argument: &str) -> Result<(), ConfigError> {
        let origin = Origin::Flag {
            flag: "--set".to_owned(),
        };
        let Some((name, value)) = argument.split_once('=') else {
            let problem = format!("'{argument}' has no '='; write --set NAME=VALUE");
            return Err(ConfigError::Syntax { problem, origin });
        };
        self.give(name.trim(), value.trim(), origin)
    }

    /// Takes a named flag (`--node-id`) that stands for a setting (`node.id`).
    pub fn flag(&mut self, flag: &str, name: &str, value: &str) -> Result<(), ConfigError> {
        self.give(
            name,
            value,
            Origin::Flag {
                flag: flag.to_owned(),
            },
        )
    }

    /// Builds the configuration.
    pub fn resolve(self) -> Result<Resolved, ConfigError> {
        let config = BrokerConfig::from_values(&self.given)?;
        Ok(Resolved {
            config,
            notes: self.notes,
        })
    }

    fn give(&mut self, name: &str, value: &str, origin: Origin) -> Result<(), ConfigError> {
        let value = value.trim();
        match check_pair(Scope::Broker, name, value, &origin)? {
            Some(name) => {
                self.given.insert(name, (value.to_owned(), origin));
            }
            None => {
                if let Some(Unbuilt::Meaningless { because }) = unbuilt::find(name) {
                    self.notes
                        .push(format!("{origin}: {name} has no effect: {because}"));
                }
            }
        }
        Ok(())
    }
}

/// The environment variable of a setting: `HIGHWATER_` and its name in upper case with underscores.
pub fn environment_name(setting: &str) -> String {
    format!("{PREFIX}{}", setting.to_ascii_uppercase().replace('.', "_"))
}

const PREFIX: &str = "HIGHWATER_";

/// Variables that other parts read.
const NOT_SETTINGS: &[&str] = &["HIGHWATER_LOG", "HIGHWATER_BIN", "HIGHWATER_BROKER"];

/// Checks a name and its value. `Ok(None)`: one of Kafka's broker settings that is not built, at a value that changes
/// nothing.
pub(super) fn check_pair(
    scope: Scope,
    name: &str,
    value: &str,
    origin: &Origin,
) -> Result<Option<&'static str>, ConfigError> {
    let unsupported = |problem: String| ConfigError::Unsupported {
        name: shown(name),
        value: shown(value),
        problem,
        origin: origin.clone(),
    };
    let only_accepted =
        |only: &str, because: &str| unsupported(format!("{because}, so only '{only}' is accepted"));
    if let Some(setting) = find(scope, name) {
        check_kind(scope, name, value, origin)?;
        return match setting.limit {
            Some(Limit::Only {
                value: only,
                because,
            }) if !setting.kind.is_same(value, only) => Err(only_accepted(only, because)),
            _ => Ok(Some(setting.name)),
        };
    }
    let unbuilt = match scope {
        Scope::Broker => unbuilt::find(name),
        Scope::Topic => None,
    };
    match unbuilt {
        Some(Unbuilt::Fixed { value: only, .. }) if value == only => Ok(None),
        Some(Unbuilt::Meaningless { .. }) => Ok(None),
        Some(Unbuilt::Fixed { value, because }) => Err(only_accepted(value, because)),
        Some(Unbuilt::Refused { because }) => Err(unsupported(because.to_owned())),
        None => Err(ConfigError::Unknown {
            name: shown(name),
            nearest: nearest(scope, name),
            origin: origin.clone(),
        }),
    }
}

/// Checks a value against its setting's kind alone; a setting that there is not has none.
pub(super) fn check_kind(
    scope: Scope,
    name: &str,
    value: &str,
    origin: &Origin,
) -> Result<(), ConfigError> {
    let checked = find(scope, name).map_or(Ok(()), |setting| setting.kind.check(value));
    checked.map_err(|problem| ConfigError::Invalid {
        name: shown(name),
        value: shown(value),
        problem,
        origin: origin.clone(),
    })
}
