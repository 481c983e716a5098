use super::*;
use crate::floor::tests::temp_dir;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

fn direct(path: &Path) -> Arc<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .unwrap();
    Arc::new(file)
}

fn filled(bytes: usize, with: u8) -> Buffer {
    let mut buffer = Buffer::new(bytes).unwrap();
    buffer.fill(with);
    buffer
}

fn write(buffer: Buffer, offset: u64, then: Then) -> Work {
    let len = buffer.len();
    Work::Write {
        buffer,
        len,
        offset,
        then,
    }
}

#[test]
fn what_is_written_in_each_way_is_read_back() {
    let dir = temp_dir();
    let path = dir.path().join("data");
    let file = direct(&path);
    let mut ring = Ring::new(4).unwrap();
    let mut buffers = [filled(8192, 1), filled(8192, 2)];
    ring.register(&mut buffers);
    let [one, two] = buffers;
    ring.push(1, &file, write(one, 0, Then::Nothing)).unwrap();
    ring.push(2, &file, write(two, 8192, Then::Flush)).unwrap();
    // One that is not registered.
    ring.push(3, &file, write(filled(4096, 3), 16384, Then::Dsync))
        .unwrap();
    ring.push(4, &file, Work::Flush).unwrap();
    assert_eq!((ring.room(), ring.in_flight()), (0, 4));
    let mut seen = Vec::new();
    let mut back = None;
    while let Some(completion) = ring.next_completed().unwrap() {
        seen.push((completion.id, completion.result.unwrap()));
        if completion.id == 1 {
            back = completion.buffer;
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, [(1, 8192), (2, 8192), (3, 4096), (4, 0)]);
    let on_disk = std::fs::read(&path).unwrap();
    assert_eq!(on_disk.len(), 20480);
    for (n, byte) in on_disk.iter().enumerate() {
        assert_eq!(usize::from(*byte), n / 8192 + 1, "at {n}");
    }

    let read = Work::Read {
        buffer: back.unwrap(),
        len: 8192,
        offset: 8192,
    };
    ring.push(5, &file, read).unwrap();
    let completion = ring.next_completed().unwrap().unwrap();
    assert_eq!(completion.result.unwrap(), 8192);
    assert!(completion.buffer.unwrap().iter().all(|byte| *byte == 2));
}

#[test]
fn reads_end_with_the_file() {
    let dir = temp_dir();
    let path = dir.path().join("short");
    std::fs::write(&path, [7; 5000]).unwrap();
    let file = direct(&path);
    let mut ring = Ring::new(1).unwrap();
    for (offset, want) in [(0, 5000), (4096, 904), (8192, 0)] {
        let read = Work::Read {
            buffer: Buffer::new(16384).unwrap(),
            len: 16384,
            offset,
        };
        ring.push(0, &file, read).unwrap();
        let completion = ring.next_completed().unwrap().unwrap();
        assert_eq!(completion.result.unwrap(), want, "at {offset}");
    }
}

#[test]
fn what_the_kernel_refuses_is_an_error_and_gives_the_buffer_back() {
    let dir = temp_dir();
    let path = dir.path().join("read-only");
    std::fs::write(&path, [7; 4096]).unwrap();
    let file = Arc::new(File::open(&path).unwrap());
    let mut ring = Ring::new(2).unwrap();
    for then in [Then::Nothing, Then::Flush, Then::Dsync] {
        ring.push(9, &file, write(filled(4096, 1), 0, then))
            .unwrap();
        let completion = ring.next_completed().unwrap().unwrap();
        let error = completion.result.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF), "{then:?}: {error}");
        assert!(completion.buffer.is_some());
        assert_eq!(ring.in_flight(), 0);
    }
    assert_eq!(std::fs::read(&path).unwrap(), [7; 4096]);
}

#[test]
fn a_write_that_is_cut_short_is_an_error() {
    // A pipe takes 64 KiB and, as it does not block, no more.
    let (_reader, writer) = std::io::pipe().unwrap();
    let file = Arc::new(File::from(std::os::fd::OwnedFd::from(writer)));
    nix::fcntl::fcntl(
        &*file,
        nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK),
    )
    .unwrap();
    let mut ring = Ring::new(1).unwrap();
    ring.push(0, &file, write(filled(1 << 20, 1), 0, Then::Nothing))
        .unwrap();
    let completion = ring.next_completed().unwrap().unwrap();
    let error = completion.result.unwrap_err();
    assert!(error.to_string().contains("of 1048576 bytes"), "{error}");
}

#[test]
fn more_than_there_is_room_for_is_an_error() {
    let dir = temp_dir();
    let file = direct(&dir.path().join("full"));
    let mut ring = Ring::new(1).unwrap();
    ring.push(0, &file, write(filled(4096, 1), 0, Then::Nothing))
        .unwrap();
    assert!(ring.push(1, &file, Work::Flush).is_err());
    let beyond = Work::Read {
        buffer: Buffer::new(4096).unwrap(),
        len: 4097,
        offset: 0,
    };
    assert!(ring.next_completed().unwrap().is_some());
    assert!(ring.push(2, &file, beyond).is_err());
    assert!(ring.next_completed().unwrap().is_none());
}

#[test]
fn a_ring_that_is_dropped_waits_for_what_is_in_flight() {
    let dir = temp_dir();
    let path = dir.path().join("dropped");
    let file = direct(&path);
    let mut ring = Ring::new(8).unwrap();
    for n in 0..8 {
        let work = write(filled(4096, n as u8 + 1), n * 4096, Then::Flush);
        ring.push(n, &file, work).unwrap();
    }
    drop(ring);
    // What was pushed is done, down to the last.
    let on_disk = std::fs::read(&path).unwrap();
    assert_eq!(on_disk.len(), 8 * 4096);
    assert_eq!(on_disk[7 * 4096..], [8; 4096]);
}

#[test]
fn the_alignment_of_a_file_is_a_power_of_two() {
    let dir = temp_dir();
    let alignment = direct_alignment(&direct(&dir.path().join("aligned")));
    assert!(
        alignment.is_power_of_two() && alignment <= 1 << 20,
        "{alignment}"
    );
}
