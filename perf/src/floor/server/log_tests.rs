use super::*;
use crate::floor::tests::temp_dir;

const CAPACITY: u64 = 2 * BUFFER_BYTES as u64;

fn wait(log: &mut FlushLog<u32>) -> Vec<u32> {
    loop {
        if let Some(turn) = log.flushed().unwrap() {
            return turn;
        }
        std::thread::yield_now();
    }
}

#[test]
fn turns_are_written_in_one_piece_and_told_in_order() {
    for (by, depth) in [
        (FlushBy::Ring, 1),
        (FlushBy::Ring, 3),
        (FlushBy::Syscalls, 1),
        (FlushBy::Fastest, 2),
    ] {
        let dir = temp_dir();
        let path = dir.path().join("flush");
        let mut log = FlushLog::make(&path, CAPACITY, by, depth).unwrap();
        let mut places = Vec::new();
        let mut told = Vec::new();
        for n in 0..20u8 {
            if log.is_full() {
                told.extend(wait(&mut log));
            }
            places.push(log.push(&[n + 1; 1000]).unwrap());
            log.then(u32::from(n));
            if n % 3 == 0 {
                log.submit().unwrap();
            }
        }
        while told.len() < 20 {
            log.submit().unwrap();
            told.extend(wait(&mut log));
        }
        assert_eq!(told, (0..20).collect::<Vec<_>>(), "{by:?} {depth}");
        assert!(log.flushed().unwrap().is_none());
        let on_disk = std::fs::read(&path).unwrap();
        for (n, place) in places.iter().enumerate() {
            let at = log.log().position(*place) as usize;
            assert!(log.log().holds(*place));
            assert_eq!(on_disk[at..at + 1000], [n as u8 + 1; 1000]);
        }
    }
}

#[test]
fn a_full_turn_takes_no_more_and_a_file_that_is_full_begins_anew() {
    let dir = temp_dir();
    let path = dir.path().join("flush");
    let mut log: FlushLog<u32> = FlushLog::make(&path, CAPACITY, FlushBy::Ring, 1).unwrap();
    let large = vec![7; TURN_BYTES];
    let first = log.push(&large).unwrap();
    assert!(log.is_full());
    assert!(log.push(&vec![7; FRAME_BYTES_MAX + 1]).is_err());
    for _ in 0..6 {
        log.then(1);
        log.submit().unwrap();
        wait(&mut log);
        let place = log.push(&large).unwrap();
        let position = log.log().position(place);
        assert!(position + BUFFER_BYTES as u64 <= CAPACITY, "{position}");
    }
    assert!(!log.log().holds(first));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), CAPACITY);
}

#[test]
fn the_page_cache_gets_all_slices_and_an_emptied_file_starts_again() {
    let dir = temp_dir();
    let path = dir.path().join("cache");
    let mut log = CacheLog::open(&path, CAPACITY, 0).unwrap();
    let mut places = Vec::new();
    for n in 0..3000u32 {
        places.push(log.push(Bytes::from(vec![n as u8; 100])));
        log.then(n);
    }
    assert_eq!(log.write().unwrap().len(), 3000);
    assert!(log.write().unwrap().is_empty());
    let on_disk = std::fs::read(&path).unwrap();
    for (n, place) in places.iter().enumerate() {
        assert!(log.log().holds(*place) && log.cold_bytes(*place).is_none());
        let at = *place as usize;
        assert_eq!(on_disk[at..at + 100], [n as u8; 100]);
    }
    log.empty().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    assert!(!log.log().holds(places[0]));
    let place = log.push(Bytes::from("again"));
    log.then(1);
    log.write().unwrap();
    assert!(log.log().holds(place));
    assert_eq!(std::fs::read(&path).unwrap(), b"again");
}
