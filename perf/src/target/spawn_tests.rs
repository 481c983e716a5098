use super::*;

fn share(dir: &Path) -> Share {
    Share {
        dir: dir.to_owned(),
        cpus: Vec::new(),
        memory: 0,
    }
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

fn status_line(pid: u32, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap().trim().to_owned()
}

/// Waits until the wrapper has become the command.
fn wait_for_name(pid: u32, name: &str) {
    for _ in 0..5000 {
        if status_line(pid, "Name:") == name {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{pid} does not become {name}");
}

fn is_running(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        // A zombie has ended.
        Ok(stat) => !stat.rsplit_once(')').unwrap().1.starts_with(" Z"),
        Err(_) => false,
    }
}

#[test]
fn a_process_runs_pinned_in_its_own_group_and_this_thread_is_free_again() {
    let dir = tempfile::tempdir().unwrap();
    let before = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cpu = (0..CpuSet::count())
        .find(|&cpu| before.is_set(cpu).unwrap())
        .unwrap();
    let share = Share {
        cpus: vec![cpu],
        ..share(dir.path())
    };
    let site = Site::make("pinned", &share).unwrap();
    let process = site.start(&command(&["sleep", "60"])).unwrap();
    assert_eq!(
        status_line(process.pid(), "Cpus_allowed_list:"),
        cpu.to_string()
    );
    let group = nix::unistd::getpgid(Some(Pid::from_raw(process.pid() as i32))).unwrap();
    assert_eq!(group, process.group());
    assert_eq!(sched_getaffinity(Pid::from_raw(0)).unwrap(), before);
}

#[test]
fn cpus_that_are_not_there_are_named() {
    let error = on_cpus(&[0, 1000], || ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "of the CPUs [0, 1000] some are not there"
    );
    let error = on_cpus(&[1_000_000], || ()).unwrap_err();
    assert_eq!(error.to_string(), "there is no CPU 1000000");
}

#[test]
fn dropped_a_process_its_children_and_its_directory_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::make("dropped", &share(dir.path())).unwrap();
    let process = site
        .start(&command(&[
            "sh",
            "-c",
            "sleep 60 & echo child $!; trap '' TERM; wait",
        ]))
        .unwrap();
    let pid = process.pid();
    let child: u32 = loop {
        if let Some(line) = process.output().lines().next() {
            break line.strip_prefix("child ").unwrap().parse().unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(is_running(pid) && is_running(child));
    drop(process);
    assert!(!is_running(pid));
    for _ in 0..5000 {
        if !is_running(child) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!is_running(child));
    assert!(dir.path().join("dropped").exists());
    drop(site);
    assert!(!dir.path().join("dropped").exists());
}

#[test]
fn memory_is_limited_by_a_cgroup_or_the_reason_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let share = Share {
        memory: 64 << 20,
        ..share(dir.path())
    };
    let site = Site::make("limited", &share).unwrap();
    let Some(cgroup) = &site.cgroup else {
        assert!(site.memory_limit().starts_with("not held: "));
        return;
    };
    assert_eq!(site.memory_limit(), cgroup.kind());
    let procs = cgroup.procs();
    let process = site.start(&command(&["sleep", "60"])).unwrap();
    wait_for_name(process.pid(), "sleep");
    let members = fs::read_to_string(&procs).unwrap();
    assert_eq!(members.trim(), process.pid().to_string());
    drop(process);
    drop(site);
    assert!(!procs.parent().unwrap().exists());
}

#[test]
fn a_process_that_ends_is_reported_with_its_last_words() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::make("early", &share(dir.path())).unwrap();
    let script = "echo first; echo no room on the disk >&2; exit 3";
    let mut process = site.start(&command(&["sh", "-c", script])).unwrap();
    // Somebody else listens there.
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = stranger.local_addr().unwrap();
    let stop = Stop::default();
    let error = wait_listening(addr, Duration::from_secs(60), &mut process, &stop).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("early ended with exit status: 3: first\nno room on the disk"),
        "{text}"
    );

    // The next process's words are its own.
    let mut process = site.start(&command(&["sh", "-c", "exit 4"])).unwrap();
    let error = wait_listening(addr, Duration::from_secs(60), &mut process, &stop).unwrap_err();
    assert!(error.to_string().ends_with("it printed nothing"), "{error}");
}

#[test]
fn a_stop_ends_the_wait() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::make("stopped", &share(dir.path())).unwrap();
    let mut process = site.start(&command(&["sleep", "60"])).unwrap();
    let addr = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
    let stop = Stop::default();
    stop.ask();
    let error = wait_listening(addr, Duration::from_secs(60), &mut process, &stop).unwrap_err();
    assert_eq!(error.to_string(), "stopped by a signal");
}

#[test]
fn sigterm_is_waited_for_and_a_deaf_process_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::make("terminated", &share(dir.path())).unwrap();
    let process = site.start(&command(&["sleep", "60"])).unwrap();
    let (status, _) = process.terminate(Duration::from_secs(60)).unwrap();
    assert!(!status.success());

    let deaf = "trap '' TERM; echo deaf; while :; do sleep 1; done";
    let process = site.start(&command(&["sh", "-c", deaf])).unwrap();
    while !process.output().contains("deaf") {
        std::thread::sleep(Duration::from_millis(1));
    }
    let pid = process.pid();
    let error = process.terminate(Duration::from_millis(50)).unwrap_err();
    assert!(error.to_string().contains("did not stop within"), "{error}");
    assert!(!is_running(pid));
}

#[test]
fn a_directory_that_is_there_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mine")).unwrap();
    let error = Site::make("mine", &share(dir.path())).err().unwrap();
    assert!(error.to_string().contains("is there already"), "{error}");
    assert!(dir.path().join("mine").exists());
}

#[test]
fn a_command_that_does_not_exist_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::make("missing", &share(dir.path())).unwrap();
    match site.start(&command(&["/no/such/program"])) {
        // The wrapper tells.
        Ok(mut process) => {
            let addr = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
            let patience = Duration::from_secs(60);
            let error = wait_listening(addr, patience, &mut process, &Stop::default()).unwrap_err();
            assert!(error.to_string().contains("/no/such/program"), "{error}");
        }
        Err(error) => assert!(error.to_string().contains("/no/such/program"), "{error}"),
    }
}

#[test]
fn a_process_dies_with_the_thread_that_started_it_where_setpriv_is_installed() {
    let dir = tempfile::tempdir().unwrap();
    let site = Site::make("orphan", &share(dir.path())).unwrap();
    let process = std::thread::scope(|scope| {
        let start = || {
            let process = site.start(&command(&["sleep", "60"])).unwrap();
            // Not before it has told the kernel.
            wait_for_name(process.pid(), "sleep");
            process
        };
        scope.spawn(start).join().unwrap()
    });
    if site.dies_with_us {
        for _ in 0..5000 {
            if !is_running(process.pid()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it outlives its thread");
    }
    assert!(is_running(process.pid()));
}
