//! What a Linux server gets: the unit, the seccomp profile and the package, by Debian's own tools.
//!
//! A tool that the machine lacks leaves its part out and says so; `scripts/test --prepare` installs them all.

use std::path::Path;
use std::process::{Command, Output};

const BINARY: &str = env!("CARGO_BIN_EXE_highwater");
const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/deploy");

#[test]
fn the_unit_has_no_fault_and_grants_little() {
    if !has("systemd-analyze") {
        return;
    }
    let dir = temporary();
    let unit = read(&format!("{DEPLOY}/highwater.service"));
    assert!(unit.contains("ExecStart=/usr/bin/highwater serve"));
    let unit = unit
        .replace("/usr/bin/highwater", BINARY)
        .replace("Documentation=man:highwater(1)\n", "");
    let path = dir.path().join("highwater.service");
    std::fs::write(&path, &unit).expect("the unit can be written");
    let path = path.to_str().expect("UTF-8");
    assert_eq!(said(&run("systemd-analyze", &["verify", path])), "");
    // Tenths of the exposure that systemd sums up; without the hardening it is more than 90.
    let threshold = "--threshold=20";
    let weighed = run(
        "systemd-analyze",
        &["security", "--offline=true", threshold, path],
    );
    assert!(weighed.status.success(), "{}", said(&weighed));
    // The checks can fail.
    std::fs::write(
        path,
        unit.replace("Type=notify", "Type=notifyy")
            .replace("NoNew", "No"),
    )
    .expect("the unit can be written");
    assert!(said(&run("systemd-analyze", &["verify", path])).contains("notifyy"));
}

#[test]
fn the_unit_and_the_profile_let_io_uring_through() {
    let unit = read(&format!("{DEPLOY}/highwater.service"));
    let profile: serde_json::Value = serde_json::from_str(&read(&format!("{DEPLOY}/seccomp.json")))
        .expect("the profile is JSON");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let allowed: Vec<&str> = profile["syscalls"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|group| group["action"] == "SCMP_ACT_ALLOW")
        .flat_map(|group| group["names"].as_array().expect("names"))
        .map(|name| name.as_str().expect("text"))
        .collect();
    for call in ["io_uring_setup", "io_uring_enter", "io_uring_register"] {
        assert!(allowed.contains(&call), "{call}");
        assert!(unit.contains(call), "{call}");
    }
    for call in ["ptrace", "mount", "bpf", "init_module", "unshare", "keyctl"] {
        assert!(!allowed.contains(&call), "{call}");
    }
}

#[test]
fn the_package_is_whole_and_reproducible_and_survives_its_life_on_a_machine() {
    if !has("dpkg-deb") || !has("objdump") {
        return;
    }
    let dirs = [temporary(), temporary()];
    let [package, again] = dirs.each_ref().map(|dir| package(dir.path()));
    let bytes = [&package, &again].map(|it| std::fs::read(it).expect("a package"));
    assert!(bytes[0] == bytes[1], "the same binary gave two packages");
    let field = |name| said(&run("dpkg-deb", &["--field", &package, name]));
    assert_eq!(field("Version").trim(), env!("CARGO_PKG_VERSION"));
    let depends = field("Depends");
    assert!(depends.contains("libc6 (>= 2."), "{depends}");
    if has("lintian") {
        let checked = run(
            "lintian",
            &["--allow-root", "--fail-on", "error,warning", &package],
        );
        assert!(checked.status.success(), "{}", said(&checked));
    }
    install(&package, dirs[0].path());
}

/// Installs, runs, upgrades, removes and purges it: data and settings are kept as Debian's policy has it.
fn install(package: &str, dir: &Path) {
    let is_root = said(&run("id", &["-u"])).trim() == "0";
    if !is_root || !has("adduser") {
        eprintln!("left out: installing needs root and adduser");
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/deploy/install");
    let namespaces = ["--mount", "--pid", "--fork", "--kill-child"];
    let can_isolate = run("unshare", &[&namespaces[..], &["true"]].concat())
        .status
        .success();
    if !can_isolate {
        eprintln!("left out: namespaces are not allowed here");
        return;
    }
    let work = dir.to_str().expect("UTF-8");
    let done = run(
        "unshare",
        &[&namespaces[..], &[script, package, work]].concat(),
    );
    assert!(done.status.success(), "{}", said(&done));
}

/// Packs the binary under test; the path of the package.
fn package(out: &Path) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/deb");
    let packed = run(
        script,
        &["--binary", BINARY, "--out", out.to_str().expect("UTF-8")],
    );
    assert!(packed.status.success(), "{}", said(&packed));
    String::from_utf8(packed.stdout)
        .expect("a path")
        .trim()
        .to_owned()
}

fn has(tool: &str) -> bool {
    let found = run("sh", &["-c", &format!("command -v {tool}")])
        .status
        .success();
    if !found {
        eprintln!("left out: {tool} is not installed");
    }
    found
}

fn run(command: &str, arguments: &[&str]) -> Output {
    Command::new(command)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// Both outputs of a command.
fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory can be made")
}
