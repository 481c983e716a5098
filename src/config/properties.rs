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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::FileFailurePersistence;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let properties = parse_properties(text).expect(text);
        properties.into_iter().map(|p| (p.key, p.value)).collect()
    }

    fn one(text: &str) -> (String, String) {
        let mut pairs = pairs(text);
        assert_eq!(pairs.len(), 1, "{text:?}");
        pairs.remove(0)
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn reads_each_way_to_write_a_property() {
        for text in [
            "a.b=c",
            "a.b: c",
            "a.b c",
            "  a.b = c \t",
            "a.b\t=\tc",
            "\u{feff}a.b=c\r\n",
        ] {
            assert_eq!(one(text), pair("a.b", "c"), "{text:?}");
        }
        assert_eq!(one("a="), pair("a", ""));
        assert_eq!(one("a==:b"), pair("a", "=:b"));
        assert_eq!(one("a=b c = d"), pair("a", "b c = d"));
    }

    #[test]
    fn skips_comments_and_empty_lines_but_counts_them() {
        let properties = parse_properties("# a=1\n\n  ! b=2 \\\n\nc=3\n").unwrap();
        assert_eq!(properties.len(), 1);
        assert_eq!((properties[0].key.as_str(), properties[0].line), ("c", 5));
    }

    #[test]
    fn a_backslash_at_the_end_goes_on_and_an_escaped_one_does_not() {
        assert_eq!(one("a=b,\\\n   c"), pair("a", "b,c"));
        assert_eq!(one("a=b\\\r\n c\\"), pair("a", "bc"));
        assert_eq!(pairs("a=b\\\\\nc=d"), [pair("a", "b\\"), pair("c", "d")]);
        assert_eq!(parse_properties("a=\\\n1\nb").unwrap_err().line, 3);
    }

    #[test]
    fn reads_escapes() {
        assert_eq!(one(r"a\ b\=c=\td\u00e9\q"), pair("a b=c", "\tdéq"));
        for bad in [r"a=\u12", r"a=\uzzzz", r"a=\ud800", r"a=\u+123"] {
            let error = parse_properties(bad).unwrap_err();
            assert!(error.problem.contains("hexadecimal"), "{bad}: {error}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_property() {
        assert_eq!(
            parse_properties("name").unwrap_err().to_string(),
            "'name' has no value; write name=VALUE"
        );
        assert_eq!(
            parse_properties("=1").unwrap_err().to_string(),
            "there is no name before the '='"
        );
        assert!(parse_properties("a=1\nb=2\na=3")
            .unwrap_err()
            .problem
            .contains("first on line 1"));
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
                "tests/regressions/properties.txt",
            ))),
            ..ProptestConfig::default()
        })]

        #[test]
        fn never_panics(text in r"[a=:#!\\ \n\r\tu0é]{0,60}|\PC{0,60}") {
            if let Ok(properties) = parse_properties(&text) {
                prop_assert!(properties.len() <= text.lines().count());
            }
        }

        #[test]
        fn what_is_escaped_reads_back(key in r"[a-z. =:\\]{1,20}", value in r"[a-z=:\\é]{0,20}") {
            let escape = |text: &str| text.chars().flat_map(|c| match c {
                'é' => r"\u00e9".chars().collect::<Vec<_>>(),
                c if " =:\\".contains(c) => vec!['\\', c],
                c => vec![c],
            }).collect::<String>();
            let text = format!("{}={}", escape(&key), escape(&value));
            prop_assert_eq!(one(&text), pair(&key, &value));
        }
    }
}
