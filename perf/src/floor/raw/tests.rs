use super::*;
use crate::floor::tests::temp_dir;

fn plan() -> Plan {
    Plan {
        cpus: Cpus {
            broker: None,
            client: None,
        },
        time: Duration::from_millis(10),
        rate: 500.0,
        quick: true,
        stop: Stop::default(),
    }
}

/// Each cell has done something, and has counted all of it.
fn check(cells: &[Cell], part: Part, count: usize) {
    assert_eq!(cells.len(), count);
    for cell in cells {
        assert_eq!(cell.part, part);
        assert!(cell.operations > 0, "{}", cell.name);
        assert_eq!(cell.latency.samples(), cell.operations, "{}", cell.name);
        assert_eq!(cell.bytes % cell.operations, 0, "{}", cell.name);
        assert!(cell.bytes >= cell.operations * 64, "{}", cell.name);
    }
}

#[test]
fn each_part_measures_each_of_its_cells() {
    let plan = plan();
    let mut cells = Vec::new();
    echo::measure(&plan, &mut table::Printer::new(Part::Echo, &mut cells)).unwrap();
    check(&cells, Part::Echo, 10);
    cells.clear();
    send::measure(&plan, &mut table::Printer::new(Part::Send, &mut cells)).unwrap();
    check(&cells, Part::Send, 6);
}

#[test]
fn the_disk_is_measured_and_left_as_it_was() {
    let dir = temp_dir();
    let plan = plan();
    let scratch = Scratch::make(dir.path(), true).unwrap();
    let mut cells = Vec::new();
    let printer = &mut table::Printer::new(Part::Read, &mut cells);
    disk_read::measure(&plan, &scratch, printer).unwrap();
    check(&cells, Part::Read, 18);
    drop(scratch);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_stop_ends_the_measuring_and_removes_the_files() {
    let dir = temp_dir();
    let plan = plan();
    plan.stop.ask();
    let scratch = Scratch::make(dir.path(), true).unwrap();
    let mut cells = Vec::new();
    let printer = &mut table::Printer::new(Part::Write, &mut cells);
    assert!(disk_write::measure(&plan, &scratch, printer).is_err());
    drop(scratch);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(cells.is_empty());
}

#[test]
fn a_directory_that_cannot_be_used_is_said_in_a_sentence() {
    let error = |dir: &str| {
        let made = Scratch::make(std::path::Path::new(dir), true);
        format!("{:#}", made.err().expect("it cannot be used"))
    };
    assert!(error("/nowhere/at/all").contains("is no directory"));
    assert!(error("/proc").contains("can't be written to"));
}

#[test]
fn two_cpus_are_read_and_nothing_else() {
    let cpus = parse_cpus("2/3").unwrap();
    assert_eq!((cpus.broker, cpus.client), (Some(2), Some(3)));
    for text in ["", "1", "1/", "a/b", "0/1/2", "-1/0"] {
        assert!(parse_cpus(text).is_err(), "{text}");
    }
}

#[test]
fn sizes_are_shown_in_whole_units() {
    let shown = [64, 1024, 1536, 65536, 1 << 20].map(size);
    assert_eq!(shown, ["64 B", "1 KiB", "1536 B", "64 KiB", "1 MiB"]);
}
