//! Holds the source to the map in `src/README.md`.
//!
//! A room uses only rooms above it in the map's table, siblings never use each other, the system is named in
//! `runtime/` only, `unsafe` stands in `runtime/` only, and no file grows without end. The table is read from the map
//! itself, so that there is one truth. The last tests prove that each rule can fail.

#[path = "rooms/source.rs"]
mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use source::Source;

/// Files longer than this want to be two.
const LINES_WANTED: usize = 600;
/// Files longer than this fail.
const LINES_MAX: usize = 900;

/// Crates that name the system; `runtime/` alone uses them.
const SYSTEM_CRATES: &[&str] = &["core_affinity", "glommio", "libc", "signal_hook", "socket2"];

/// What of std names the system; `runtime/` alone uses it. Below each, everything.
const SYSTEM_STD: &[&[&str]] = &[
    &["fs"],
    &["thread"],
    &["os"],
    &["net", "TcpListener"],
    &["net", "TcpStream"],
    &["net", "UdpSocket"],
    &["net", "ToSocketAddrs"],
    &["time", "Instant"],
    &["time", "SystemTime"],
    &["time", "UNIX_EPOCH"],
];

/// Exceptions, by folder: a command reads the file that the command line names before an executor runs.
const SYSTEM_ALLOWED: &[(&str, &[&str])] = &[("cli", &["fs"])];

#[test]
fn each_room_uses_only_rooms_above_it() {
    let map = Map::read();
    let violations = each_file(|file, source| map.room_violations(file, source));
    assert!(
        violations.is_empty(),
        "see the table in src/README.md:\n{}",
        violations.join("\n")
    );
}

#[test]
fn the_system_is_named_in_the_runtime_only() {
    let violations = each_file(system_violations);
    assert!(
        violations.is_empty(),
        "take it from `Rt`:\n{}",
        violations.join("\n")
    );
}

#[test]
fn unsafe_stands_in_the_runtime_only() {
    let violations = each_file(unsafe_violations);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn the_map_names_the_folders_that_exist() {
    let map = Map::read();
    let folders = fs::read_dir(source_root()).unwrap().map(Result::unwrap);
    let folders: BTreeSet<String> = folders
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert_eq!(
        folders,
        map.rooms.iter().cloned().collect(),
        "src/README.md and src/ differ"
    );
}

#[test]
fn no_file_is_too_long() {
    let lengths = source_files().into_iter().map(|file| {
        let lines = fs::read_to_string(source_root().join(&file.path))
            .unwrap()
            .lines()
            .count();
        (lines, file)
    });
    let mut long: Vec<_> = lengths.filter(|(lines, _)| *lines > LINES_WANTED).collect();
    long.sort_by_key(|(lines, _)| std::cmp::Reverse(*lines));
    for (lines, file) in &long {
        println!(
            "src/{}: {lines} lines; past {LINES_WANTED} it wants to be two",
            file.path.display()
        );
    }
    let too_long: Vec<_> = long
        .iter()
        .filter(|(lines, _)| *lines > LINES_MAX)
        .collect();
    assert!(
        too_long.is_empty(),
        "longer than {LINES_MAX} lines: {too_long:?}"
    );
}

/// A file of `src/`, and where it stands in the tree of modules.
#[derive(Debug, Clone)]
struct File {
    /// Path below `src/`.
    path: PathBuf,
    /// The folder that it lives in; `None` for `lib.rs` and `main.rs`.
    room: Option<String>,
    /// Modules between the crate's root and the file's own items: 1 for `room/mod.rs`.
    depth: usize,
    /// Whether the whole file is only built for tests.
    test: bool,
}

impl File {
    fn new(path: &str) -> File {
        let path = PathBuf::from(path);
        let parts: Vec<String> = path
            .iter()
            .map(|part| part.to_str().unwrap().trim_end_matches(".rs").to_owned())
            .collect();
        let is_root = parts.len() == 1;
        let is_mod = parts.last().is_some_and(|last| last == "mod");
        File {
            room: parts.first().filter(|_| !is_root).cloned(),
            depth: if is_root {
                0
            } else {
                parts.len() - usize::from(is_mod)
            },
            path,
            test: false,
        }
    }

    fn place(&self, line: usize) -> String {
        format!("src/{}:{line}", self.path.display())
    }
}

/// The table of `src/README.md`.
struct Map {
    /// From the bottom up.
    rooms: Vec<String>,
    /// Rooms that never use each other.
    siblings: Vec<String>,
}

impl Map {
    fn read() -> Map {
        let text = fs::read_to_string(source_root().join("README.md")).unwrap();
        let map = Map::parse(&text);
        assert!(
            map.rooms.len() >= 10,
            "the table of src/README.md was not found: {:?}",
            map.rooms
        );
        assert!(
            map.siblings.len() >= 2,
            "the siblings of src/README.md were not found"
        );
        map
    }

    fn parse(text: &str) -> Map {
        let section: Vec<&str> = text
            .lines()
            .skip_while(|line| !line.starts_with("## Rooms"))
            .skip(1)
            .take_while(|line| !line.starts_with("## "))
            .collect();
        let row = |line: &&str| Some(line.strip_prefix("| `")?.split_once("/`")?.0.to_owned());
        let prose: Vec<&str> = section
            .iter()
            .take_while(|line| !line.starts_with('|'))
            .copied()
            .collect();
        let prose = prose.join(" ");
        let sentence = prose
            .split_once("are siblings")
            .map_or("", |(before, _)| before);
        let sentence = sentence.rsplit_once('(').map_or("", |(_, inside)| inside);
        Map {
            rooms: section.iter().filter_map(row).collect(),
            siblings: sentence
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect(),
        }
    }

    fn room_violations(&self, file: &File, source: &Source) -> Vec<String> {
        let Some(own) = &file.room else {
            return Vec::new();
        };
        let mut violations = Vec::new();
        for path in &source.paths {
            let Some(rest) = root_path(file, path) else {
                continue;
            };
            let verdict = match rest.first().map(String::as_str) {
                // `pub(crate)`, and `crate` as a whole in a `use`, differ by what follows; an alias would hide paths.
                None => continue,
                Some("*" | "self") => Err("names the whole crate".to_owned()),
                Some(room) if self.rooms.iter().any(|known| known == room) => {
                    self.may_use(own, room)
                }
                Some(_) if path.is_macro => Ok(()),
                Some(other) => Err(format!("names `crate::{other}`, which is no room")),
            };
            if let Err(why) = verdict {
                let text = path.segments.join("::");
                violations.push(format!("{}: `{text}`: {own} {why}", file.place(path.line)));
            }
        }
        violations
    }

    fn may_use(&self, own: &str, room: &str) -> Result<(), String> {
        let rank = |name: &str| self.rooms.iter().position(|known| known == name);
        let sibling = |name: &str| self.siblings.iter().any(|known| known == name);
        if own == room {
            Ok(())
        } else if sibling(own) && sibling(room) {
            Err(format!(
                "and {room} are siblings, which never use each other"
            ))
        } else if rank(own).is_none() {
            Err("has no row in the table".to_owned())
        } else if rank(room) > rank(own) {
            Err(format!("stands above {room} in the table"))
        } else {
            Ok(())
        }
    }
}

/// The path from the crate's root, if it is one: `crate::…`, or enough `super`s.
fn root_path<'a>(file: &File, path: &'a source::Path) -> Option<&'a [String]> {
    let segments = path.segments.as_slice();
    if segments.first()? == "crate" {
        return Some(&segments[1..]);
    }
    let supers = segments
        .iter()
        .skip_while(|s| *s == "self")
        .take_while(|s| *s == "super")
        .count();
    let selfs = segments.iter().take_while(|s| *s == "self").count();
    (supers > 0 && supers == file.depth + path.inline_depth).then(|| &segments[selfs + supers..])
}

fn system_violations(file: &File, source: &Source) -> Vec<String> {
    let room = file.room.as_deref();
    if room == Some("runtime") || file.test {
        return Vec::new();
    }
    let allowed = |below: &[String]| {
        SYSTEM_ALLOWED
            .iter()
            .any(|(folder, path)| room == Some(folder) && starts_with(below, path))
    };
    let mut violations = Vec::new();
    for path in source.paths.iter().filter(|path| !path.test) {
        let named = match path.segments.split_first() {
            Some((head, _)) if SYSTEM_CRATES.contains(&head.as_str()) => true,
            Some((head, below)) if ["std", "core"].contains(&head.as_str()) => {
                names_system(below) && !allowed(below)
            }
            _ => false,
        };
        if named {
            violations.push(format!(
                "{}: `{}`",
                file.place(path.line),
                path.segments.join("::")
            ));
        }
    }
    violations
}

/// Whether a path below `std` is, or opens a door to, something of the system.
fn names_system(below: &[String]) -> bool {
    let whole = |parent: &[&str]| {
        let rest = below.get(parent.len()..).unwrap_or(&[]);
        starts_with(below, parent)
            && matches!(rest, [] | [_])
            && rest.iter().all(|last| last == "*" || last == "self")
    };
    SYSTEM_STD
        .iter()
        .any(|path| starts_with(below, path) || (path.len() > 1 && whole(&path[..path.len() - 1])))
        || below.first().is_some_and(|first| first == "*")
}

fn starts_with(path: &[String], start: &[&str]) -> bool {
    path.len() >= start.len() && path.iter().zip(start).all(|(a, b)| a == b)
}

fn unsafe_violations(file: &File, source: &Source) -> Vec<String> {
    if file.room.as_deref() == Some("runtime") {
        return Vec::new();
    }
    source
        .unsafe_lines
        .iter()
        .map(|line| format!("{}: `unsafe`", file.place(*line)))
        .collect()
}

fn source_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn each_file(check: impl Fn(&File, &Source) -> Vec<String>) -> Vec<String> {
    let files = source_files();
    assert!(files.len() >= 20, "src/ was not found: {files:?}");
    let read =
        |file: &File| Source::read(&fs::read_to_string(source_root().join(&file.path)).unwrap());
    let sources: Vec<Source> = files.iter().map(read).collect();
    let test_files: BTreeSet<PathBuf> = files
        .iter()
        .zip(&sources)
        .flat_map(|(file, source)| test_modules(file, source))
        .collect();
    let mut violations = Vec::new();
    for (file, source) in files.iter().zip(&sources) {
        let module = file.path.with_extension("");
        let test = test_files.iter().any(|test| module.starts_with(test));
        violations.extend(check(
            &File {
                test,
                ..file.clone()
            },
            source,
        ));
    }
    violations
}

/// The modules of this file that are only built for tests, as paths below `src/` without extension.
fn test_modules(file: &File, source: &Source) -> Vec<PathBuf> {
    let stem = file.path.file_stem().unwrap();
    let folder = file.path.parent().unwrap();
    let below = match stem.to_str().unwrap() {
        "mod" | "lib" | "main" => folder.to_owned(),
        _ => folder.join(stem),
    };
    source
        .test_modules
        .iter()
        .map(|name| below.join(name))
        .collect()
}

fn source_files() -> Vec<File> {
    let mut files = Vec::new();
    let mut folders = vec![source_root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(File::new(
                    path.strip_prefix(source_root()).unwrap().to_str().unwrap(),
                ));
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

mod each_rule_can_fail {
    use super::*;

    fn map() -> Map {
        Map::parse(
            "# x\n## Rooms, from the bottom up\nA room (`left`, and later\n`right`, are siblings that) ok\n\
             | room | what |\n|---|---|\n| `low/` | a `b` |\n| `left/` | |\n| `right/` | |\n| `high/` | |\n## End\n| `no/` |",
        )
    }

    fn rooms(path: &str, text: &str) -> Vec<usize> {
        let violations = map().room_violations(&File::new(path), &Source::read(text));
        lines(violations)
    }

    fn system(path: &str, text: &str) -> Vec<usize> {
        lines(system_violations(&File::new(path), &Source::read(text)))
    }

    fn lines(violations: Vec<String>) -> Vec<usize> {
        let line = |v: &String| v.split(':').nth(1).unwrap().parse().unwrap();
        let lines: BTreeSet<usize> = violations.iter().map(line).collect();
        lines.into_iter().collect()
    }

    #[test]
    fn the_map_is_read() {
        assert_eq!(map().rooms, ["low", "left", "right", "high"]);
        assert_eq!(map().siblings, ["left", "right"]);
    }

    #[test]
    fn a_path_upwards_is_found_however_it_is_written() {
        for text in [
            "use crate::high;",
            "use crate::high::X as Y;",
            "use crate::{low, high::{X, Y}};",
            "use {std::fmt, crate::high::X};",
            "fn f() -> crate::high::X { todo!() }",
            "fn f() { let c = '\"'; crate::high::g::<u8>() } // \"",
            "pub(in crate::high) fn f<'a>(x: &'a str) {}",
            "use super::high;",
            "mod inner { use super::super::high; }",
            "use self::super::high::X;",
            "macro_rules! m { () => { $crate::high::f() } }",
            "#[cfg(test)] mod tests { use crate::high; }",
            "use crate::high::f as g; fn h() { r#\"\"\"#; b'\\''; g() }",
        ] {
            assert_eq!(rooms("low/mod.rs", text), [1], "{text}");
        }
        assert_eq!(
            rooms("low/a/b.rs", "\n\nuse super::super::super::high;"),
            [3]
        );
        assert_eq!(
            rooms("low/mod.rs", "use crate::{\n high,\n left,\n};"),
            [2, 3]
        );
    }

    #[test]
    fn paths_downwards_comments_strings_and_names_are_not_found() {
        for text in [
            "use crate::low::X; use crate::high::Y;",
            "// crate::left\n/* crate::left /* */ crate::left */",
            "const A: &str = \"crate::left\"; const B: &str = r#\"\" crate::left\"#;",
            "pub(crate) fn f() { let left = super::left(); left::x(); }",
            "fn f() { crate::some_macro!() }",
        ] {
            let path = if text.contains("super") {
                "high/a.rs"
            } else {
                "high/mod.rs"
            };
            assert_eq!(rooms(path, text), [], "{text}");
        }
    }

    #[test]
    fn siblings_aliases_and_unknown_names_are_found() {
        assert_eq!(rooms("right/mod.rs", "use crate::left;"), [1]);
        assert_eq!(rooms("left/mod.rs", "use crate::right;"), [1]);
        assert_eq!(rooms("high/mod.rs", "use crate::*;"), [1]);
        assert_eq!(rooms("high/mod.rs", "use crate::{self as all};"), [1]);
        assert_eq!(rooms("high/mod.rs", "use crate::unknown;"), [1]);
        assert_eq!(rooms("unknown/mod.rs", "use crate::low;"), [1]);
    }

    #[test]
    fn the_system_is_found() {
        for text in [
            "use std::fs;",
            "use std::fs::File;",
            "fn f() { std::fs::read(\"\"); }",
            "use std::{fmt, time::{Duration, Instant}};",
            "use std::time;",
            "use std::time::{self, Duration};",
            "use std::time::*;",
            "use std::net::*;",
            "use ::std::thread::spawn;",
            "fn f(s: std::net::TcpStream) {}",
            "use glommio::io;",
            "use glommio as g;",
            "fn f() { libc::getpid(); }",
            "mod tests { use std::fs; }",
            "#[cfg(test)] use std::fmt; use std::fs;",
        ] {
            assert_eq!(system("storage/a.rs", text), [1], "{text}");
            assert_eq!(system("runtime/a.rs", text), [], "{text}");
        }
        assert_eq!(system("cli/a.rs", "use std::fs; use std::thread;"), [1]);
    }

    #[test]
    fn tests_addresses_and_durations_are_no_system() {
        for text in [
            "use std::{fmt, net::SocketAddr, time::Duration};",
            "#[cfg(test)] mod tests { use std::fs; fn f() { std::thread::spawn(|| {}); } }",
            "#[cfg(all(test, unix))]\n#[allow(dead_code)]\nfn f(a: [u8; 2]) { std::fs::read(\"\"); }",
            "#[cfg(test)] use std::{fs};",
            "thread_local! { static A: u8 = 0; }",
            "use std::path::Path; fn fs() { time::Duration::ZERO; }",
        ] {
            assert_eq!(system("storage/a.rs", text), [], "{text}");
        }
        let source =
            Source::read("#[cfg(test)]\nmod probes;\nmod real;\n#[cfg(test)] pub(crate) mod more;");
        let modules = test_modules(&File::new("storage/log.rs"), &source);
        assert_eq!(
            modules,
            [
                Path::new("storage/log/probes"),
                Path::new("storage/log/more")
            ]
        );
    }

    #[test]
    fn unsafe_is_found() {
        let text = "// unsafe\n#![allow(unsafe_code)]\nfn f() { unsafe { g() } }";
        let found = |path| lines(unsafe_violations(&File::new(path), &Source::read(text)));
        assert_eq!(found("storage/a.rs"), [3]);
        assert_eq!(found("main.rs"), [3]);
        assert_eq!(found("runtime/a.rs"), []);
    }
}
