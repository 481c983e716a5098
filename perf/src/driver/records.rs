//! What every driver sends and when: values that carry the time at which they were due, keys, partitions, and the
//! schedule of an open loop.
//!
//! A driver makes one [`Values`] for each of its threads, one [`Keys`] and one [`Partitioner`] for each producer, and
//! asks [`Schedule`] when a producer's n-th record is due. Producers and consumers read the same [`Clock`].

use crate::payload::Random;
use crate::workload::{Burst, Keys as KeyPlan, RecordPlan};
use highwater::client::murmur2;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The one clock of the process, nanoseconds since it was first read.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    pub fn of_process() -> Clock {
        static BEGAN: OnceLock<Instant> = OnceLock::new();
        Clock(*BEGAN.get_or_init(Instant::now))
    }

    /// Nanoseconds.
    pub fn now(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// Bytes at the start of each value: the time on [`Clock`] at which its record was due, big endian.
pub const DUE_BYTES: usize = 8;

/// Record values: the time at which they are due, then cells of text and of random bytes.
///
/// They take turns out of a pool that is larger than a codec's window, so that making one costs nothing and none
/// compresses against itself.
pub struct Values {
    pool: Vec<u8>,
    bytes: usize,
    /// Where the next one begins.
    next: usize,
}

impl Values {
    /// `seed` sets apart what threads send.
    pub fn new(plan: &RecordPlan, seed: u64) -> Values {
        Values::pooled(plan, seed, POOL_BYTES)
    }

    /// With a pool of so many bytes, but at least two values.
    pub fn pooled(plan: &RecordPlan, seed: u64, pool_bytes: usize) -> Values {
        let bytes = plan.bytes.max(DUE_BYTES);
        let count = (pool_bytes / bytes).max(2);
        let mut pool = vec![0; count * bytes];
        let mut random = Random(seed.wrapping_mul(SEED_STEP));
        for value in pool.chunks_mut(bytes) {
            random.fill(&mut value[DUE_BYTES..], plan.random);
        }
        Values {
            pool,
            bytes,
            next: 0,
        }
    }

    /// The next value, of a record that is due at `due`, nanoseconds.
    pub fn next(&mut self, due: u64) -> &[u8] {
        let start = self.next;
        let end = start + self.bytes;
        self.next = if end == self.pool.len() { 0 } else { end };
        let value = &mut self.pool[start..end];
        set_due(value, due);
        value
    }
}

/// Writes into a value when its record is due, nanoseconds.
pub fn set_due(value: &mut [u8], due: u64) {
    value[..DUE_BYTES].copy_from_slice(&due.to_be_bytes());
}

/// When the record of a value was due, nanoseconds; `None` if the value is too short to say.
pub fn due_of(value: &[u8]) -> Option<u64> {
    value.first_chunk().map(|due| u64::from_be_bytes(*due))
}

/// Draws keys.
pub struct Keys {
    random: Random,
    count: u64,
    draw: Draw,
}

enum Draw {
    None,
    Uniform,
    Zipf(Zipf),
}

impl Keys {
    /// `seed` sets apart what producers send.
    pub fn new(plan: &RecordPlan, seed: u64) -> Keys {
        let count = plan.key_count.max(1);
        Keys {
            random: Random(!seed.wrapping_mul(SEED_STEP)),
            count,
            draw: match plan.keys {
                KeyPlan::None => Draw::None,
                KeyPlan::Uniform => Draw::Uniform,
                KeyPlan::Zipf => Draw::Zipf(Zipf::new(count)),
            },
        }
    }

    /// Whether records have keys.
    pub fn any(&self) -> bool {
        !matches!(self.draw, Draw::None)
    }

    /// The next record's key; `None` without keys.
    pub fn next(&mut self) -> Option<[u8; 8]> {
        let number = match &self.draw {
            Draw::None => return None,
            Draw::Uniform => (self.random.unit() * self.count as f64) as u64,
            Draw::Zipf(zipf) => zipf.draw(&mut self.random) - 1,
        };
        Some(number.to_be_bytes())
    }
}

/// Numbers from 1, n as often as 1/n; by rejection-inversion (Hörmann and Derflinger, 1996), without a table.
struct Zipf {
    count: f64,
    /// The integral's ends, of 1/x.
    low: f64,
    high: f64,
    /// Closer than this to a whole number, a draw is taken at once.
    near: f64,
}

impl Zipf {
    fn new(count: u64) -> Zipf {
        let count = count as f64;
        Zipf {
            count,
            low: 1.5f64.ln() - 1.0,
            high: (count + 0.5).ln(),
            near: 2.0 - (2.5f64.ln() - 0.5).exp(),
        }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.high + random.unit() * (self.low - self.high);
            let x = area.exp();
            let whole = x.round().clamp(1.0, self.count);
            if whole - x <= self.near || area >= (whole + 0.5).ln() - 1.0 / whole {
                return whole as u64;
            }
        }
    }
}

/// Chooses partitions as Java's producer does: by the key's hash, and without a key one for a whole batch.
///
/// Partitions are numbered through all topics: the first topic's come first.
pub struct Partitioner {
    count: u32,
    next: u32,
}

impl Partitioner {
    /// `producer` sets apart with which partition each producer begins.
    pub fn new(count: u32, producer: u32) -> Partitioner {
        let count = count.max(1);
        Partitioner {
            count,
            next: producer % count,
        }
    }

    /// The partition of a key.
    pub fn of_key(&self, key: &[u8]) -> u32 {
        (murmur2(key) & 0x7fff_ffff) % self.count
    }

    /// The partition of the next batch without keys: they take turns.
    pub fn next_batch(&mut self) -> u32 {
        let partition = self.next;
        self.next = (self.next + 1) % self.count;
        partition
    }
}

/// When the records of one producer are due, in an open loop.
///
/// The records of all producers together are due at an even distance; they take turns, so that producer 1 of 3 has
/// the second, the fifth and so on. Of a burst's period, all records are due within its `on` part, at an even distance
/// there.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// Nanoseconds between two records of all producers.
    step: f64,
    /// Nanoseconds of a burst's period, and the part of it in which records are due.
    burst: Option<(f64, f64)>,
    producer: u64,
    producers: u64,
}

impl Schedule {
    /// `rate`: records a second of all producers together.
    pub fn new(rate: f64, burst: Option<Burst>, producer: u32, producers: u32) -> Schedule {
        let period = |burst: Burst| {
            let period = (burst.on_ms + burst.off_ms) as f64;
            (period * 1e6, burst.on_ms as f64 / period)
        };
        Schedule {
            step: 1e9 / rate,
            burst: burst.map(period),
            producer: u64::from(producer),
            producers: u64::from(producers.max(1)),
        }
    }

    /// When this producer's `n`-th record (from 0) is due, nanoseconds since the schedule's start.
    pub fn due(&self, n: u64) -> u64 {
        let even = (self.producer + n * self.producers) as f64 * self.step;
        let due = match self.burst {
            None => even,
            Some((period, on)) => {
                let begin = (even / period).floor() * period;
                begin + (even - begin) * on
            }
        };
        due as u64
    }

    /// How many of this producer's records are due before `time`, nanoseconds since the schedule's start; so the
    /// first record that is due at `time` or later has this number.
    pub fn due_before(&self, time: u64) -> u64 {
        let even = match self.burst {
            None => time as f64,
            Some((period, on)) => {
                let begin = (time as f64 / period).floor() * period;
                begin + ((time as f64 - begin) / on).min(period)
            }
        };
        let guess = (even / self.step - self.producer as f64) / self.producers as f64;
        let mut count = (guess.max(0.0)) as u64;
        // Rounding may be one off, either way.
        while count > 0 && self.due(count - 1) >= time {
            count -= 1;
        }
        while self.due(count) < time {
            count += 1;
        }
        count
    }
}

/// A [`Duration`] of nanoseconds, 0 if the end is before the start.
pub fn between(start: u64, end: u64) -> Duration {
    Duration::from_nanos(end.saturating_sub(start))
}

/// Larger than the window of any codec at its default level.
const POOL_BYTES: usize = 4 << 20;
const SEED_STEP: u64 = 0x2545_f491_4f6c_dd1d;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(keys: KeyPlan) -> RecordPlan {
        RecordPlan {
            bytes: 100,
            keys,
            key_count: 1000,
            ..Default::default()
        }
    }

    #[test]
    fn a_value_says_when_it_was_due_and_has_its_size() {
        let mut values = Values::new(&plan(KeyPlan::None), 7);
        for due in [0, 1, u64::MAX] {
            let value = values.next(due);
            assert_eq!(value.len(), 100);
            assert_eq!(due_of(value), Some(due));
        }
        assert_eq!(due_of(&[1, 2, 3]), None);
    }

    #[test]
    fn values_differ_until_the_pool_is_through() {
        let mut values = Values::new(&plan(KeyPlan::None), 7);
        let count = POOL_BYTES / 100;
        let first: Vec<Vec<u8>> = (0..100).map(|_| values.next(0).to_vec()).collect();
        let distinct: std::collections::HashSet<_> = first.iter().collect();
        // A value without a random cell is possible: 3/4 to the 6th.
        assert!(distinct.len() > 60, "{}", distinct.len());
        for _ in 100..count {
            values.next(0);
        }
        assert_eq!(values.next(0), first[0]);
    }

    #[test]
    fn the_random_part_is_what_was_asked_for() {
        let text = |random| {
            let mut values = Values::new(
                &RecordPlan {
                    bytes: 1024,
                    random,
                    ..Default::default()
                },
                3,
            );
            let value = values.next(0)[DUE_BYTES..].to_vec();
            value
                .chunks(16)
                .filter(|cell| cell.starts_with(b"{\"field"))
                .count()
        };
        assert_eq!(text(1.0), 0);
        assert_eq!(text(0.0), 64);
        let quarter = text(0.25);
        assert!((30..=60).contains(&quarter), "{quarter}");
    }

    #[test]
    fn keys_are_drawn_as_the_plan_says() {
        assert_eq!(Keys::new(&plan(KeyPlan::None), 1).next(), None);
        let counts = |keys| {
            let mut keys = Keys::new(&plan(keys), 1);
            let mut counts = vec![0u32; 1000];
            for _ in 0..200_000 {
                counts[u64::from_be_bytes(keys.next().unwrap()) as usize] += 1;
            }
            counts
        };
        let uniform = counts(KeyPlan::Uniform);
        assert!(uniform.iter().all(|count| (100..320).contains(count)));
        // 1/n of 1000: the first has 1/7.485, the second half of that.
        let zipf = counts(KeyPlan::Zipf);
        assert!((25_500..28_000).contains(&zipf[0]), "{}", zipf[0]);
        assert!((12_500..14_300).contains(&zipf[1]), "{}", zipf[1]);
        assert!((2_300..3_100).contains(&zipf[9]), "{}", zipf[9]);
    }

    #[test]
    fn one_key_is_always_that_key() {
        for keys in [KeyPlan::Uniform, KeyPlan::Zipf] {
            let one = RecordPlan {
                key_count: 1,
                ..plan(keys)
            };
            let mut keys = Keys::new(&one, 1);
            assert!((0..100).all(|_| keys.next() == Some([0; 8])));
        }
    }

    #[test]
    fn partitions_are_java_s() {
        // From Kafka's UtilsTest.
        for (text, expected) in [("21", -973_932_308), ("foobar", -790_332_482)] {
            assert_eq!(murmur2(text.as_bytes()) as i32, expected, "{text}");
        }
        let partitioner = Partitioner::new(7, 0);
        assert_eq!(partitioner.of_key(b"21"), partitioner.of_key(b"21"));
        let mut turns = Partitioner::new(3, 4);
        let got: Vec<u32> = (0..5).map(|_| turns.next_batch()).collect();
        assert_eq!(got, [1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_burst_s_records_are_due_within_its_on_part() {
        let burst = Burst {
            on_ms: 10,
            off_ms: 90,
        };
        let schedule = Schedule::new(1000.0, Some(burst), 0, 1);
        let due: Vec<u64> = (0..300).map(|n| schedule.due(n) / 1000).collect();
        assert_eq!(due[..3], [0, 100, 200]);
        assert_eq!(due[99..102], [9_900, 100_000, 100_100]);
        assert!(due.iter().all(|us| us % 100_000 < 10_000));
    }

    #[test]
    fn the_clock_is_the_same_for_all() {
        let one = Clock::of_process();
        let before = one.now();
        let other = std::thread::spawn(|| Clock::of_process().now());
        let there = other.join().unwrap();
        assert!(before <= there && there <= one.now());
    }

    proptest! {
        #[test]
        fn producers_share_the_whole_schedule(
            rate in 0.5f64..5e6,
            producers in 1u32..50,
            burst in prop::option::of((1u64..100, 1u64..100)),
        ) {
            let burst = burst.map(|(on_ms, off_ms)| Burst { on_ms, off_ms });
            let whole = Schedule::new(rate, burst, 0, 1);
            for n in 0..200u64 {
                let producer = (n % u64::from(producers)) as u32;
                let mine = Schedule::new(rate, burst, producer, producers);
                prop_assert_eq!(mine.due(n / u64::from(producers)), whole.due(n));
            }
        }

        #[test]
        fn due_times_rise_and_are_counted(
            rate in 0.5f64..5e6,
            (producer, producers) in (1u32..50).prop_flat_map(|all| (0..all, Just(all))),
            burst in prop::option::of((1u64..100, 1u64..100)),
            n in 0u64..10_000_000_000,
            time in 0u64..3_600_000_000_000,
        ) {
            let burst = burst.map(|(on_ms, off_ms)| Burst { on_ms, off_ms });
            let schedule = Schedule::new(rate, burst, producer, producers);
            prop_assert!(schedule.due(n) <= schedule.due(n + 1));
            let count = schedule.due_before(time);
            prop_assert!(schedule.due(count) >= time);
            prop_assert!(count == 0 || schedule.due(count - 1) < time);
        }
    }
}
