//! Just enough of Rust's grammar to find every path that a source file names, and which of its code is only built
//! for tests.
//!
//! Comments, strings and literals are skipped by a small tokenizer, and `use` groups are expanded, so that a path is
//! found however it is written. What it is not: it expands no macros, and it resolves no alias; the rules that are
//! built on it forbid the aliases that would hide a path.

/// A source file, read.
#[derive(Debug, Default)]
pub struct Source {
    /// Every path, group members each on their own.
    pub paths: Vec<Path>,
    /// Lines on which the keyword `unsafe` stands.
    pub unsafe_lines: Vec<usize>,
    /// File modules (`mod name;`) that are only built for tests.
    pub test_modules: Vec<String>,
}

/// One path as it stands in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Its segments; `*` and `self` may be the last. A leading `::` or `$` is left out.
    pub segments: Vec<String>,
    /// Line of its first segment, from 1.
    pub line: usize,
    /// How many `mod name { … }` of this file surround it.
    pub inline_depth: usize,
    /// Whether it is only built for tests.
    pub test: bool,
    /// Whether it is the name of a macro that is called.
    pub is_macro: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Word(String),
    Punct(char),
    /// `::`
    Colons,
}

#[derive(Debug, Clone)]
struct Token {
    kind: Kind,
    line: usize,
}

impl Source {
    /// Reads a file's text.
    pub fn read(text: &str) -> Source {
        let tokens = tokenize(text);
        let test = test_code(&tokens);
        let inline_depth = inline_depths(&tokens);
        let mut source = Source::default();
        let mut at = 0;
        while at < tokens.len() {
            if word(&tokens, at) == Some("unsafe") {
                source.unsafe_lines.push(tokens[at].line);
            }
            if test[at] && word(&tokens, at) == Some("mod") && punct(&tokens, at + 2) == Some(';') {
                source
                    .test_modules
                    .extend(word(&tokens, at + 1).map(str::to_owned));
            }
            let starts = word(&tokens, at).is_some()
                || (punct(&tokens, at) == Some('{')
                    && at > 0
                    && word(&tokens, at - 1) == Some("use"));
            let begun = at;
            if starts {
                let mut found = Vec::new();
                at = path(&tokens, at, &mut Vec::new(), &mut found);
                let is_macro =
                    punct(&tokens, at) == Some('!') && punct(&tokens, at + 1) != Some('=');
                source
                    .paths
                    .extend(found.into_iter().map(|(segments, line)| Path {
                        segments,
                        line,
                        inline_depth: inline_depth[begun],
                        test: test[begun],
                        is_macro,
                    }));
            }
            at = at.max(begun + 1);
        }
        source
    }
}

fn word(tokens: &[Token], at: usize) -> Option<&str> {
    match &tokens.get(at)?.kind {
        Kind::Word(word) => Some(word),
        _ => None,
    }
}

fn punct(tokens: &[Token], at: usize) -> Option<char> {
    match tokens.get(at)?.kind {
        Kind::Punct(punct) => Some(punct),
        _ => None,
    }
}

fn colons(tokens: &[Token], at: usize) -> bool {
    tokens
        .get(at)
        .is_some_and(|token| token.kind == Kind::Colons)
}

/// Words that a path with a leading `::` may follow, and that are no part of it.
const KEYWORDS: &[&str] = &[
    "as", "break", "dyn", "else", "for", "if", "impl", "in", "let", "match", "mut", "return",
    "use", "where", "while",
];

/// Reads one path, or a whole group, that begins at `at`; returns where it ends.
fn path(
    tokens: &[Token],
    mut at: usize,
    prefix: &mut Vec<String>,
    found: &mut Vec<(Vec<String>, usize)>,
) -> usize {
    let begun = prefix.len();
    loop {
        let line = tokens.get(at).map_or(0, |token| token.line);
        if let Some(segment) = word(tokens, at) {
            prefix.push(segment.to_owned());
            at += 1;
            let goes_on = !KEYWORDS.contains(&segment);
            if goes_on && colons(tokens, at) && punct(tokens, at + 1) != Some('<') {
                at += 1;
                continue;
            }
            found.push((prefix.clone(), line));
        } else if punct(tokens, at) == Some('*') {
            found.push((
                prefix.iter().cloned().chain(["*".to_owned()]).collect(),
                line,
            ));
            at += 1;
        } else if punct(tokens, at) == Some('{') {
            at += 1;
            while at < tokens.len() && punct(tokens, at) != Some('}') {
                let element = at;
                at = path(tokens, at + usize::from(colons(tokens, at)), prefix, found);
                while !matches!(punct(tokens, at), Some(',' | '}')) && at < tokens.len() {
                    at += 1; // `as name`
                }
                at += usize::from(punct(tokens, at) == Some(','));
                assert!(
                    at > element,
                    "line {line}: a group of paths that cannot be read"
                );
            }
            at += 1;
        }
        prefix.truncate(begun);
        return at;
    }
}

/// For each token, whether it belongs to an item under `#[cfg(test)]` (or `cfg(all(test, …))`).
fn test_code(tokens: &[Token]) -> Vec<bool> {
    let mut test = vec![false; tokens.len()];
    let mut at = 0;
    while at < tokens.len() {
        if !is_cfg_test(tokens, at) {
            at += 1;
            continue;
        }
        let end = item_end(tokens, at);
        test[at..end].fill(true);
        at = end;
    }
    test
}

fn is_cfg_test(tokens: &[Token], at: usize) -> bool {
    let head = punct(tokens, at) == Some('#')
        && punct(tokens, at + 1) == Some('[')
        && word(tokens, at + 2) == Some("cfg")
        && punct(tokens, at + 3) == Some('(');
    let all = word(tokens, at + 4) == Some("all") && word(tokens, at + 6) == Some("test");
    head && (all || (word(tokens, at + 4) == Some("test") && punct(tokens, at + 5) == Some(')')))
}

/// The end of the item whose attributes begin at `at`: past its `;` or its last `}`.
fn item_end(tokens: &[Token], mut at: usize) -> usize {
    let (mut depth, mut attribute) = (0usize, 0usize);
    while at < tokens.len() {
        match punct(tokens, at) {
            Some('#') if depth == 0 && punct(tokens, at + 1) == Some('[') => attribute = 1,
            Some('(' | '[' | '{') => depth += 1,
            Some(close @ (')' | ']' | '}')) => {
                depth = depth.saturating_sub(1);
                if depth == 0 && close == ']' && attribute == 1 {
                    attribute = 0;
                } else if depth == 0 && close == '}' {
                    // `use a::{b};` and `struct A { } ;` end with the semicolon, if there is one.
                    return at + 1 + usize::from(punct(tokens, at + 1) == Some(';'));
                }
            }
            Some(';') if depth == 0 => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}

/// For each token, how many inline modules surround it.
fn inline_depths(tokens: &[Token]) -> Vec<usize> {
    let mut braces: Vec<bool> = Vec::new();
    let mut depths = Vec::with_capacity(tokens.len());
    for at in 0..tokens.len() {
        match punct(tokens, at) {
            Some('{') => braces.push(at >= 2 && word(tokens, at - 2) == Some("mod")),
            Some('}') => drop(braces.pop()),
            _ => {}
        }
        depths.push(braces.iter().filter(|is_mod| **is_mod).count());
    }
    depths
}

fn tokenize(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < chars.len() {
        let begun = at;
        let next = chars.get(at + 1).copied();
        match chars[at] {
            '/' if next == Some('/') => at = line_end(&chars, at),
            '/' if next == Some('*') => at = block_comment_end(&chars, at),
            '"' => at = string_end(&chars, at),
            '\'' => at = char_or_lifetime_end(&chars, at),
            ':' if next == Some(':') => {
                tokens.push(Token {
                    kind: Kind::Colons,
                    line,
                });
                at += 2;
            }
            c if c.is_alphanumeric() || c == '_' => {
                let mut end = word_end(&chars, at);
                let word: String = chars[at..end].iter().collect();
                match (word.as_str(), chars.get(end)) {
                    ("b" | "c", Some('"')) => at = string_end(&chars, end),
                    ("b", Some('\'')) => at = char_or_lifetime_end(&chars, end),
                    ("r" | "br" | "cr", Some('"' | '#'))
                        if raw_string_end(&chars, end).is_some() =>
                    {
                        at = raw_string_end(&chars, end).unwrap_or(end);
                    }
                    ("r", Some('#')) => {
                        let start = end + 1;
                        end = word_end(&chars, start);
                        let word = chars[start..end].iter().collect();
                        tokens.push(Token {
                            kind: Kind::Word(word),
                            line,
                        });
                        at = end.max(start);
                    }
                    _ => {
                        if !word.starts_with(|c: char| c.is_ascii_digit()) {
                            tokens.push(Token {
                                kind: Kind::Word(word),
                                line,
                            });
                        }
                        at = end;
                    }
                }
            }
            c if c.is_whitespace() => at += 1,
            c => {
                tokens.push(Token {
                    kind: Kind::Punct(c),
                    line,
                });
                at += 1;
            }
        }
        line += chars[begun..at.min(chars.len())]
            .iter()
            .filter(|c| **c == '\n')
            .count();
    }
    tokens
}

fn word_end(chars: &[char], mut at: usize) -> usize {
    while chars
        .get(at)
        .is_some_and(|c| c.is_alphanumeric() || *c == '_')
    {
        at += 1;
    }
    at
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..]
        .iter()
        .position(|c| *c == '\n')
        .map_or(chars.len(), |n| at + n)
}

fn block_comment_end(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// `at` stands on the opening quote.
fn string_end(chars: &[char], mut at: usize) -> usize {
    at += 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// `at` stands on the `#` or quote after the `r`; `None` if it is a raw identifier.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at..].iter().take_while(|c| **c == '#').count();
    let mut at = at + hashes;
    if chars.get(at) != Some(&'"') {
        return None;
    }
    at += 1;
    while at < chars.len() {
        let closes = chars[at] == '"'
            && chars[at + 1..]
                .iter()
                .take(hashes)
                .filter(|c| **c == '#')
                .count()
                == hashes;
        if closes {
            return Some(at + 1 + hashes);
        }
        at += 1;
    }
    Some(at)
}

/// `at` stands on the quote: `'a'`, `'\n'`, `'\u{1}'` or the lifetime `'a`.
fn char_or_lifetime_end(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), _) => {
            let from = at + 3;
            chars
                .iter()
                .skip(from)
                .position(|c| *c == '\'')
                .map_or(chars.len(), |n| from + n + 1)
        }
        (Some(_), Some('\'')) => at + 3,
        _ => word_end(chars, at + 1).max(at + 1),
    }
}
