//! What became of each of several things that one command changes: all are tried, each is told, one failure fails.

use serde_json::{json, Map, Value};

use super::render::{print, print_json, shown};
use super::CliError;
use crate::client::ClientError;
use crate::protocol::ErrorCode;

/// What became of each.
pub(super) struct Outcomes {
    /// The name of the things in JSON, such as `topic`.
    kind: &'static str,
    rows: Vec<Value>,
    lines: String,
    failures: Vec<ClientError>,
}

impl Outcomes {
    pub fn new(kind: &'static str) -> Outcomes {
        Outcomes {
            kind,
            rows: Vec::new(),
            lines: String::new(),
            failures: Vec::new(),
        }
    }

    /// One thing's: a word such as `created`, or why not.
    pub fn add(
        &mut self,
        name: &str,
        outcome: Result<&str, ClientError>,
        details: &[(&str, Value)],
    ) {
        let mut row = Map::new();
        row.insert(self.kind.to_owned(), json!(name));
        row.insert(
            "outcome".to_owned(),
            json!(outcome.as_ref().map_or("failed", |word| *word)),
        );
        for (field, value) in details {
            row.insert((*field).to_owned(), value.clone());
        }
        row.insert(
            "error".to_owned(),
            outcome.as_ref().err().map_or(Value::Null, error_json),
        );
        self.rows.push(Value::Object(row));
        match outcome {
            Ok(word) => {
                self.lines += &format!("{} {}: {word}", self.kind, shown(name));
                for (field, value) in details {
                    self.lines += &format!(", {} {value}", field.replace('_', " "));
                }
                self.lines.push('\n');
            }
            Err(error) => self.failures.push(error),
        }
    }

    /// Prints them all; the error is what failed.
    pub fn finish(mut self, as_json: bool) -> Result<(), CliError> {
        match as_json {
            true => print_json(&Value::Array(self.rows))?,
            false => print(&self.lines)?,
        }
        match self.failures.len() {
            0 => Ok(()),
            1 => Err(self.failures.remove(0).into()),
            _ => {
                let sentences: Vec<String> =
                    self.failures.iter().map(ToString::to_string).collect();
                Err(CliError::Found(sentences.join("; ")))
            }
        }
    }
}

/// An error as scripts read it.
pub(super) fn error_json(error: &ClientError) -> Value {
    match error {
        ClientError::Refused { code, message, .. } => json!({
            "code": code,
            "name": ErrorCode::from_code(*code).map(ErrorCode::name),
            "message": message,
        }),
        error => json!({ "code": null, "name": null, "message": error.to_string() }),
    }
}
