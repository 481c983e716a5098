//! The table as documentation.

use std::fmt::Write;

use super::rows::SETTINGS;
use super::sources::environment_name;
use super::table::{Scope, Setting};

/// Markdown tables of all settings, the broker's and the topics'.
pub fn markdown() -> String {
    let mut out = String::new();
    out.push_str(
        "### Broker settings\n\n| setting | values | default | what it does |\n|---|---|---|---|\n",
    );
    rows(&mut out, Scope::Broker, |setting| {
        match setting.default_text() {
            "" => "(empty)".to_owned(),
            default => format!("`{default}`"),
        }
    });
    out.push_str("\n### Topic settings\n\n| setting | values | default (a broker setting, or a value) | what it does |\n|---|---|---|---|\n");
    rows(&mut out, Scope::Topic, |setting| {
        match setting.default_text() {
            "" => "(empty)".to_owned(),
            default => format!("`{default}`"),
        }
    });
    let example = environment_name("log.segment.bytes");
    let _ = write!(
        out,
        "\nBroker settings marked *Dynamic* can be changed while the broker runs (`kafka-configs --alter --entity-type \
         brokers`); what is changed so wins over all else.\n\nPrecedence, lowest first: defaults, the file of `--config`, environment (`log.segment.bytes` is \
         `{example}`), `--set NAME=VALUE`, named flags.\n"
    );
    out
}

fn rows(out: &mut String, scope: Scope, default: impl Fn(&Setting) -> String) {
    for setting in SETTINGS.iter().filter(|setting| setting.scope == scope) {
        let (name, values) = (setting.name, setting.values());
        let dynamic = match setting.scope == Scope::Broker && setting.dynamic {
            true => DYNAMIC,
            false => "",
        };
        let _ = writeln!(
            out,
            "| `{name}` | {values} | {} | {}{dynamic} |",
            default(setting),
            setting.doc
        );
    }
}

/// Marks a broker's setting that `kafka-configs` changes without a restart.
const DYNAMIC: &str = " *Dynamic.*";
