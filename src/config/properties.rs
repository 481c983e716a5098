//! A `.properties` file, as Java's `Properties` reads it: `key=value`, `key: value`, `key value`, comments with `#`
//! or `!`, a backslash at the end of a line to go on, and `\t \n \r \f \uXXXX` escapes.
//!
//! Never panics and keeps what it reads in proportion to the text. Whatever it cannot read it refuses with the line.

/// One `key=value` of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// The key, unescaped.
    pub key: String,
    /// The value, unescaped, without blanks at its end.
    pub value: String,
    /// The line on which the key stands, from 1.
    pub line: usize,
}

/// A line that is not a property.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct PropertyError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: String,
}

/// Reads a file's text. A key that stands twice is an error: one of the two lines would be ignored.
pub fn parse_properties(text: &str) -> Result<Vec<Property>, PropertyError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut properties: Vec<Property> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, first)) = lines.next() {
        let first = first.trim_start_matches(BLANKS);
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let line = index + 1;
        let mut logical = first.to_owned();
        while ends_with_continuation(&logical) {
            logical.pop();
            match lines.next() {
                Some((_, next)) => logical.push_str(next.trim_start_matches(BLANKS)),
                None => break,
            }
        }
        let property = split(&logical, line)?;
        if let Some(earlier) = properties
            .iter()
            .find(|earlier| earlier.key == property.key)
        {
            let problem = format!(
                "'{}' is set a second time, first on line {}; keep one",
                property.key, earlier.line
            );
            return Err(PropertyError { line, problem });
        }
        properties.push(property);
    }
    Ok(properties)
}

const BLANKS: [char; 3] = [' ', '\t', '\u{c}'];

/// An odd number of backslashes at the end: the last one is not escaped.
fn ends_with_continuation(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

fn split(logical: &str, line: usize) -> Result<Property, PropertyError> {
    let mut escaped = false;
    let end = logical
        .char_indices()
        .find(|(_, c)| {
            let ends = !escaped && (matches!(c, '=' | ':') || BLANKS.contains(c));
            escaped = !escaped && *c == '\\';
            ends
        })
        .map_or(logical.len(), |(at, _)| at);
    let (key, rest) = logical.split_at(end);
    let rest = rest.trim_start_matches(BLANKS);
    let Some(value) = rest
        .strip_prefix(['=', ':'])
        .or(Some(rest).filter(|rest| !rest.is_empty()))
    else {
        let problem = format!("'{key}' has no value; write {key}=VALUE");
        return Err(PropertyError { line, problem });
    };
    let key = unescape(key, line)?;
    if key.is_empty() {
        return Err(PropertyError {
            line,
            problem: "there is no name before the '='".to_owned(),
        });
    }
    // Java keeps blanks at the end of a value, Kafka trims them for every kind of setting that exists here.
    let value = unescape(value.trim_matches(BLANKS), line)?;
    Ok(Property { key, value, line })
}

fn unescape(text: &str, line: usize) -> Result<String, PropertyError> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\u{c}'),
            Some('u') => {
                let digits: String = chars.by_ref().take(4).collect();
                let character = Some(&digits)
                    .filter(|digits| {
                        digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
                    })
                    .and_then(|digits| u32::from_str_radix(digits, 16).ok())
                    .and_then(char::from_u32);
                let Some(character) = character else {
                    let problem = format!(
                        "'\\u{digits}' is not a character; write \\u and four hexadecimal digits"
                    );
                    return Err(PropertyError { line, problem });
                };
                out.push(character);
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    Ok(out)
}
