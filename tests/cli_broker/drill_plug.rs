//! `highwater drill --broker`: the ledger here, the broker elsewhere; what happens to it in between the drill is not told.

use super::files::{files_of, len_of, set_len};
use super::{command, data_dir, told, Broker, Launch, Ran, BINARY};
use highwater::cli::drill::{BlockStack, BlockStackError};
use serde_json::Value;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A broker that is started again where it was, and a ledger that is not on its disk.
struct Site {
    launch: Launch,
    addr: SocketAddr,
    broker: Option<Broker>,
    ledger: PathBuf,
    _dir: tempfile::TempDir,
}

/// A load that runs.
struct Load(Child);

impl Site {
    fn new() -> Site {
        Site::with(&[])
    }

    fn with(settings: &[&str]) -> Site {
        let dir = data_dir();
        let data = dir.path().join("data");
        Site::on(data, dir, settings)
    }

    fn on(data: PathBuf, dir: tempfile::TempDir, settings: &[&str]) -> Site {
        let launch = Launch::new(BINARY, data).shards(2);
        let launch = settings
            .iter()
            .fold(launch, |launch, setting| launch.set(*setting));
        let broker = launch.start();
        Site {
            launch,
            addr: broker.addr(),
            broker: Some(broker),
            ledger: dir.path().join("ledger"),
            _dir: dir,
        }
    }

    fn drill(&self, arguments: &[&str]) -> Ran {
        drill(self.addr, &self.ledger, arguments)
    }

    fn load(&self) -> Load {
        let child = told(Command::new(BINARY), nobody(), &["drill"])
            .args(["--duration", "60", "--clients", "2", "--json", "--broker"])
            .arg(self.addr.to_string())
            .arg("--ledger")
            .arg(&self.ledger)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let load = Load(child);
        // Enough of every kind, by the ledger itself.
        self.wait_for(|text| {
            let told = |what: &str| {
                let lines = text
                    .lines()
                    .filter(|line| line.starts_with("acknowledged "));
                lines.filter(|line| line.contains(what)).count()
            };
            told("-kept 0 ") > 20 && told("-unflushed 0 ") > 5 && text.contains("\nseen ")
        });
        load
    }

    fn wait_for(&self, done: impl Fn(&str) -> bool) {
        for _ in 0..1200 {
            if fs::read_to_string(&self.ledger).is_ok_and(|text| done(&text)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the load does not get on");
    }

    /// Whether the last acknowledgements were all without a flush.
    fn is_calm(&self) -> bool {
        let text = fs::read_to_string(&self.ledger).unwrap();
        let lines = text.lines().rev();
        let mut lines = lines.filter(|line| line.starts_with("acknowledged "));
        (0..10).all(|_| {
            lines
                .next()
                .is_some_and(|line| line.contains("-unflushed "))
        })
    }

    fn kill(&mut self) {
        self.broker.take().unwrap().kill();
    }

    fn start_again(&mut self) {
        let started = self.launch.try_start(&self.addr.to_string());
        self.broker = Some(started.unwrap_or_else(|refused| panic!("{}", refused.stderr)));
    }

    /// What the ledger's topics are called, up to the last word.
    fn prefix(&self) -> String {
        let text = fs::read_to_string(&self.ledger).unwrap();
        let word = text
            .split_whitespace()
            .find_map(|word| word.strip_prefix("prefix="));
        word.unwrap().to_owned()
    }
}

impl Load {
    fn end(self) -> Value {
        let text = Ran::of(self.0.wait_with_output().unwrap()).success();
        serde_json::from_str(&text).unwrap()
    }

    fn interrupt(self) -> Value {
        self.signal("INT");
        self.end()
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.0.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }
}

fn drill(broker: SocketAddr, ledger: &Path, arguments: &[&str]) -> Ran {
    let mut command = command(nobody(), &["drill", "--broker", &broker.to_string()]);
    command.arg("--ledger").arg(ledger).args(arguments);
    Ran::of(command.output().unwrap())
}

/// An address that nobody listens on.
fn nobody() -> SocketAddr {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    taken.local_addr().unwrap()
}

#[test]
fn a_killed_broker_has_lost_nothing_and_no_flush_is_claimed() {
    let mut site = Site::new();
    let load = site.load();
    site.kill();
    let ended = load.end();
    assert_eq!(ended["ended"], "lost", "{ended}");
    let next = ended["next"].as_str().unwrap();
    assert!(next.ends_with(" --check"), "{ended}");
    site.drill(&["--check"])
        .fails_with(&format!("cannot connect to {}: ", site.addr));
    site.start_again();
    let text = site.drill(&["--check"]).success();
    assert!(text.starts_with("verdict  kept: all "), "{text}");
    for part in [
        "flush not proven: all ",
        "what happened in between is not known here",
        "\nload     the connection was lost: ",
        "\nnext     delete what it left: highwater topic delete drill-",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let checked: Value =
        serde_json::from_str(&site.drill(&["--check", "--json"]).success()).unwrap();
    assert_eq!(checked["verdict"], "flush_not_proven", "{checked}");
    assert!(checked["compared"].as_u64().unwrap() > 20, "{checked}");
    assert_eq!(
        checked["unflushed_acknowledged"],
        ended["unflushed_acknowledged"]
    );
    assert_eq!(checked["torn_bytes"], 0);
    // A ledger is of one drill.
    site.drill(&[]).is_usage_error();
}

#[test]
fn what_is_taken_off_the_disk_below_is_a_loss() {
    let mut site = Site::new();
    let load = site.load();
    site.kill();
    load.end();
    let partition = format!("{}-kept-0", site.prefix());
    let log = files_of(site.launch.data_dir(), &partition, "log").remove(0);
    let half = super::files::end_of_batches(&log) / 2;
    assert!(half > 0);
    set_len(&log, half);
    site.start_again();
    let ran = site.drill(&["--check"]);
    ran.fails_with("the drill found losses; keep the ledger and the broker's data");
    assert!(ran.out.starts_with("verdict  LOST: "), "{}", ran.out);
    let loss = format!("loss     {}-kept partition 0 offset ", site.prefix());
    assert!(ran.out.contains(&loss), "{}", ran.out);
    assert!(
        ran.out.contains(": acknowledged, and gone\n"),
        "{}",
        ran.out
    );
}

#[test]
fn a_topic_that_is_gone_or_another_is_a_loss() {
    let site = Site::new();
    let ended = site.load().interrupt();
    assert_eq!(ended["ended"], "interrupted", "{ended}");
    // Nothing was cut, and it says no more than that.
    let text = site.drill(&["--check"]).success();
    assert!(text.contains("flush not proven: all "), "{text}");
    assert!(text.contains("\nload     interrupted: "), "{text}");

    let topic = format!("{}-kept", site.prefix());
    let run = |arguments: &[&str]| super::feed(site.addr, arguments, "").success();
    run(&["topic", "delete", &topic]);
    let ran = site.drill(&["--check"]);
    ran.fails_with("the drill found losses");
    let loss =
        format!("loss     topic {topic} is not there (unless somebody deleted it, it was lost): ");
    assert!(ran.out.contains(&loss), "{}", ran.out);
    run(&["topic", "create", &topic, "--partitions", "3"]);
    let ran = site.drill(&["--check"]);
    ran.fails_with("the drill found losses");
    let loss = format!("loss     topic {topic} is another one of that name: ");
    assert!(ran.out.contains(&loss), "{}", ran.out);
}

#[test]
fn records_of_somebody_else_are_noticed() {
    let site = Site::new();
    site.load().interrupt();
    let topic = format!("{}-kept", site.prefix());
    super::feed(site.addr, &["produce", &topic, "--quiet"], "strange\n").success();
    let ran = site.drill(&["--check"]);
    ran.fails_with("the drill found losses");
    assert!(
        ran.out.contains(": a record that was never sent\n"),
        "{}",
        ran.out
    );
}

#[test]
fn a_ledger_that_was_cut_off_itself_is_told() {
    let site = Site::new();
    site.load().interrupt();
    let whole = fs::read(&site.ledger).unwrap();
    set_len(&site.ledger, len_of(&site.ledger) - 3);
    let text = site.drill(&["--check"]).success();
    let last = whole.split_inclusive(|byte| *byte == b'\n').next_back();
    let torn = last.unwrap().len() - 3;
    let told = format!(
        "\nledger   its last {torn} bytes are no whole line and were left out: its own machine was cut off\n"
    );
    assert!(text.contains(&told), "{text}");
    assert!(
        text.contains("\nload     the ledger does not say how it ended"),
        "{text}"
    );
}

#[test]
fn what_is_no_ledger_of_this_cluster_is_refused() {
    let site = Site::new();
    site.load().interrupt();
    let whole = fs::read_to_string(&site.ledger).unwrap();
    let path = site.ledger.display();
    let fails = |content: &[u8], why: &str| {
        fs::write(&site.ledger, content).unwrap();
        let ran = site.drill(&["--check"]);
        ran.fails_with(&format!("the ledger {path}{why}"));
        assert_eq!(ran.out, "");
    };
    fails(b"", ": it is empty");
    fails(b"no ledger\n", ": it is no ledger of a drill");
    fails(&[0xa5; 200_000], ": it is no ledger of a drill");
    let header = whole.split_inclusive('\n').next().unwrap();
    fails(
        header.as_bytes(),
        " tells of nothing that was acknowledged: there is nothing to compare",
    );
    let damaged = whole.replacen("acknowledged ", "acknowledgeD ", 1);
    fails(damaged.as_bytes(), ": line ");
    fs::write(&site.ledger, &whole).unwrap();
    let other = Site::new();
    let ran = drill(other.addr, &site.ledger, &["--check"]);
    ran.fails_with("the ledger is of cluster ");
    assert!(ran.err.contains("nothing is compared"), "{}", ran.err);
    // It is none the worse for it.
    site.drill(&["--check"]).success();
    fs::remove_file(&site.ledger).unwrap();
    let ran = site.drill(&["--check"]);
    ran.fails_with(&format!("cannot read {path}: No such file"));
    fs::create_dir(&site.ledger).unwrap();
    let ran = site.drill(&["--check"]);
    ran.fails_with(&format!("the ledger {path}: Is a directory"));
}

#[test]
fn a_load_that_cannot_begin_leaves_no_ledger() {
    let dir = data_dir();
    let ledger = dir.path().join("ledger");
    let away = nobody();
    let ran = drill(away, &ledger, &[]);
    ran.fails_with(&format!("cannot connect to {away}: Connection refused"));
    assert!(
        ran.err
            .contains("; start a broker there, or name another with --broker HOST:PORT"),
        "{}",
        ran.err
    );
    let site = Site::new();
    let nowhere = dir.path().join("none/ledger");
    drill(site.addr, &nowhere, &[]).fails_with(&format!(
        "the ledger {} cannot be made: ",
        nowhere.display()
    ));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let path = ledger.to_str().unwrap();
    let bad: [&[&str]; 6] = [
        &["--broker", "127.0.0.1:1"],
        &["--ledger", path],
        &["--check"],
        &["--broker", "127.0.0.1:1", "--ledger", path, "--rounds", "2"],
        &["--broker", "127.0.0.1:1", "--ledger", path, "--cut", "kill"],
        &[
            "--broker",
            "127.0.0.1:1",
            "--ledger",
            path,
            "--check",
            "--seed",
            "1",
        ],
    ];
    for arguments in bad {
        let mut command = command(away, &["drill"]);
        Ran::of(command.args(arguments).output().unwrap()).is_usage_error();
    }
}

#[test]
fn a_broker_that_refuses_is_told() {
    let site = Site::with(&["message.max.bytes=2000"]);
    let ran = site.drill(&["--duration", "30"]);
    ran.fails_with("the broker refused: cannot produce to drill-");
    assert!(ran.err.contains("MESSAGE_TOO_LARGE"), "{}", ran.err);
    assert!(ran.out.starts_with("ended    after "), "{}", ran.out);
    // What it had acknowledged until then is there.
    site.drill(&["--check"]).success();
}

#[test]
fn a_machine_that_is_silent_is_taken_for_one_without_power() {
    let mut site = Site::new();
    let load = site.load();
    // Nobody closes the connection of a machine whose plug was pulled.
    site.broker.as_ref().unwrap().signal("STOP");
    let ended = load.end();
    assert_eq!(ended["ended"], "lost", "{ended}");
    let why = ended["sentence"].as_str().unwrap();
    assert!(why.contains(" did not answer within "), "{ended}");
    let ran = site.drill(&["--check"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("; nothing is compared: "), "{}", ran.err);
    site.kill();
    site.start_again();
    site.drill(&["--check"]).success();
}

#[test]
fn a_broker_that_takes_no_records_is_no_machine_without_power() {
    let site = Site::new();
    let load = site.load();
    let set = [
        "config",
        "set",
        "broker",
        "1",
        "log.dir.min.free.bytes=1000000000000000",
    ];
    super::feed(site.addr, &set, "").success();
    let ran = Ran::of(load.0.wait_with_output().unwrap());
    ran.fails_with(
        "the broker refused: nothing was acknowledged for 30 s; its last word: cannot produce to drill-",
    );
    assert!(ran.err.contains("KAFKA_STORAGE_ERROR"), "{}", ran.err);
    let ended: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(ended["ended"], "refused", "{ended}");
    let text = site.drill(&["--check"]).success();
    assert!(text.contains("\nload     the broker refused: "), "{text}");
}

#[test]
fn a_ledger_that_cannot_be_written_ends_the_load() {
    let site = Site::new();
    let script = format!(
        "trap '' XFSZ; ulimit -f 16; exec {BINARY} drill --duration 60 --broker {} --ledger {}",
        site.addr,
        site.ledger.display()
    );
    let mut command = Command::new("timeout");
    command.args(["120", "bash", "-c", &script]);
    let ran = Ran::of(command.output().unwrap());
    ran.fails_with(&format!(
        "the ledger {} cannot be written: File too large",
        site.ledger.display()
    ));
    assert_eq!(len_of(&site.ledger), 16 << 10, "the fault happened");
    // Nothing was sent of which it does not tell.
    let text = site.drill(&["--check"]).success();
    assert!(text.starts_with("verdict  kept: all "), "{text}");
    assert!(text.contains(" bytes are no whole line"), "{text}");
}

#[test]
fn a_machine_without_power_keeps_what_was_flushed_and_shows_that_it_was_cut() {
    let test = "a_machine_without_power_keeps_what_was_flushed_and_shows_that_it_was_cut";
    let dir = data_dir();
    let mut stack = match BlockStack::start(dir.path(), 512 << 20) {
        Ok(stack) => stack,
        Err(missing @ BlockStackError::Missing { .. }) => {
            eprintln!("SKIPPED {test}: {missing}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let mut site = Site::on(stack.mount_point().join("data"), data_dir(), &[]);
    let load = site.load();
    // At a time without flushes. Nothing more is sent meanwhile.
    while !site.is_calm() {
        load.signal("CONT");
        std::thread::sleep(Duration::from_millis(100));
        load.signal("STOP");
    }
    stack.cut_power().unwrap();
    site.kill();
    load.signal("CONT");
    let ended = load.end();
    assert_eq!(ended["ended"], "lost", "{ended}");
    stack.restore().unwrap();
    site.start_again();
    let checked: Value =
        serde_json::from_str(&site.drill(&["--check", "--json"]).success()).unwrap();
    assert_eq!(checked["verdict"], "flush_proven", "{checked}");
    assert!(checked["unflushed_lost"].as_u64().unwrap() > 0, "{checked}");
    assert!(checked["compared"].as_u64().unwrap() > 20, "{checked}");
    site.kill();
}
