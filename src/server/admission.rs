//! Which connections are taken, and by which shard: `max.connections`,
//! `max.connections.per.ip` with its overrides, `max.connection.creation.rate`.
//!
//! The acceptor alone adds to the counts; a connection takes itself out of them where it
//! ends ([`Counted`]). So a limit is never passed, and one that ends is seen a little later.
//!
//! What it is not: it touches no socket and no clock.

use crate::runtime::Mono;
use crate::shard::Counted;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// The limits.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    /// Over all shards.
    pub open_max: usize,
    /// From one address.
    pub per_address_max: usize,
    /// Addresses with limits of their own.
    pub overrides: Vec<(IpAddr, usize)>,
}

impl Limits {
    fn canonical(mut self) -> Limits {
        for (address, _) in &mut self.overrides {
            *address = address.to_canonical();
        }
        self
    }
}

/// Why a connection is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("{open} connections are open; raise max.connections")]
    Full { open: usize },
    #[error("{open} connections from this address are open; raise max.connections.per.ip, or give it a limit of its own in max.connections.per.ip.overrides")]
    Address { open: usize },
}

/// Counts open connections, by shard and by address.
pub(super) struct Admission {
    limits: Limits,
    by_shard: Vec<Arc<AtomicUsize>>,
    by_address: BTreeMap<IpAddr, Arc<AtomicUsize>>,
}

impl Admission {
    pub fn new(shards: usize, limits: Limits) -> Admission {
        Admission {
            limits: limits.canonical(),
            by_shard: (0..shards).map(|_| Arc::default()).collect(),
            by_address: BTreeMap::new(),
        }
    }

    /// Other limits from now on. Connections that are open stay open.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits.canonical();
    }

    /// Takes a connection: the shard that has the fewest serves it.
    pub fn admit(&mut self, address: IpAddr) -> Result<(usize, Counted), Refusal> {
        // An IPv4 client of an IPv6 listener is the same client.
        let address = address.to_canonical();
        let counts = self
            .by_shard
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        let open: usize = counts.clone().sum();
        if open >= self.limits.open_max {
            return Err(Refusal::Full { open });
        }
        let mut overrides = self.limits.overrides.iter();
        let limit = match overrides.find(|(other, _)| *other == address) {
            Some((_, limit)) => *limit,
            None => self.limits.per_address_max,
        };
        let from_it = self.by_address.get(&address);
        let from_it = from_it.map_or(0, |count| count.load(Ordering::Relaxed));
        if from_it >= limit {
            return Err(Refusal::Address { open: from_it });
        }
        // Addresses without connections are forgotten, now and then.
        if self.by_address.len() > 2 * open + ADDRESSES_KEPT {
            self.by_address
                .retain(|_, count| count.load(Ordering::Relaxed) > 0);
        }
        let (shard, _) = counts
            .enumerate()
            .min_by_key(|(_, count)| *count)
            .expect("there is at least one shard");
        let from_it = self.by_address.entry(address).or_default().clone();
        Ok((shard, Counted::new([self.by_shard[shard].clone(), from_it])))
    }
}

/// A bucket of one second's connections: what comes faster waits.
pub(super) struct Pace {
    per_second: f64,
    /// Connections that may come at once.
    allowance: f64,
    at: Mono,
}

impl Pace {
    pub fn new(per_second: u32, now: Mono) -> Pace {
        let per_second = f64::from(per_second);
        Pace {
            per_second,
            allowance: per_second,
            at: now,
        }
    }

    /// Another rate from now on.
    pub fn set_rate(&mut self, per_second: u32) {
        self.per_second = f64::from(per_second);
        self.allowance = self.allowance.min(self.per_second);
    }

    /// Counts a connection; how long to wait before the next is accepted.
    pub fn take(&mut self, now: Mono) -> Duration {
        let passed = now.since(self.at).as_secs_f64();
        self.at = now;
        self.allowance = (self.allowance + passed * self.per_second).min(self.per_second) - 1.0;
        Duration::from_secs_f64((-self.allowance / self.per_second).max(0.0))
    }
}

const ADDRESSES_KEPT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    fn admission(
        open_max: usize,
        per_address_max: usize,
        overrides: &[(IpAddr, usize)],
    ) -> Admission {
        let limits = Limits {
            open_max,
            per_address_max,
            overrides: overrides.to_vec(),
        };
        Admission::new(3, limits)
    }

    fn admitted(admission: &mut Admission, from: IpAddr) -> Counted {
        admission
            .admit(from)
            .map(|(_, counted)| counted)
            .expect("there is room")
    }

    #[test]
    fn an_address_has_its_own_limit_and_room_again_when_one_ends() {
        let mut admission = admission(100, 2, &[(ip(9), 1), (ip(8), 0)]);
        let first = admitted(&mut admission, ip(1));
        let _second = admitted(&mut admission, ip(1));
        assert_eq!(
            admission.admit(ip(1)).err(),
            Some(Refusal::Address { open: 2 })
        );
        let _other = admitted(&mut admission, ip(2));
        let _override = admitted(&mut admission, ip(9));
        assert_eq!(
            admission.admit(ip(9)).err(),
            Some(Refusal::Address { open: 1 })
        );
        assert_eq!(
            admission.admit(ip(8)).err(),
            Some(Refusal::Address { open: 0 })
        );
        drop(first);
        let _again = admitted(&mut admission, ip(1));
        assert!(admission.admit(ip(1)).is_err());
    }

    #[test]
    fn an_ipv4_client_of_an_ipv6_listener_is_the_same_client() {
        let mapped = |v4: Ipv4Addr| IpAddr::V6(v4.to_ipv6_mapped());
        let mut admission = admission(100, 1, &[(mapped(Ipv4Addr::new(127, 0, 0, 9)), 2)]);
        let _first = admitted(&mut admission, ip(1));
        assert!(admission.admit(mapped(Ipv4Addr::LOCALHOST)).is_err());
        let _two = [
            admitted(&mut admission, ip(9)),
            admitted(&mut admission, ip(9)),
        ];
        assert!(admission.admit(ip(9)).is_err());
    }

    #[test]
    fn all_together_have_a_limit_and_are_spread_over_the_shards() {
        let mut admission = admission(7, usize::MAX, &[]);
        let mut open: Vec<(usize, Counted)> = Vec::new();
        for i in 0..7 {
            open.push(admission.admit(ip(i)).expect("there is room"));
        }
        let on = |shard| open.iter().filter(|(on, _)| *on == shard).count();
        let mut spread = [on(0), on(1), on(2)];
        spread.sort_unstable();
        assert_eq!(spread, [2, 2, 3]);
        assert_eq!(
            admission.admit(ip(0)).err(),
            Some(Refusal::Full { open: 7 })
        );
        // The next one takes the place of the one that ended.
        let (shard, counted) = open.remove(3);
        drop(counted);
        assert_eq!(admission.admit(ip(0)).map(|(on, _)| on).ok(), Some(shard));
    }

    #[test]
    fn addresses_without_connections_take_no_memory_for_ever() {
        let mut admission = admission(1000, 1, &[]);
        let _stays = admitted(&mut admission, IpAddr::from([10, 0, 0, 0]));
        for i in 1..10_000u32 {
            drop(admitted(
                &mut admission,
                IpAddr::from((10 << 24 | i).to_be_bytes()),
            ));
            assert!(admission.by_address.len() <= ADDRESSES_KEPT + 3);
        }
        assert!(
            admission.admit(IpAddr::from([10, 0, 0, 0])).is_err(),
            "it is still counted"
        );
    }

    #[test]
    fn a_second_of_connections_comes_at_once_and_the_rest_at_the_rate() {
        let start = Mono(5_000_000_000);
        let mut pace = Pace::new(10, start);
        for _ in 0..10 {
            assert_eq!(pace.take(start), Duration::ZERO);
        }
        let mut now = start;
        for _ in 0..100 {
            now = now + pace.take(now);
        }
        let took = now.since(start).as_secs_f64();
        assert!((9.8..=10.2).contains(&took), "{took}");
        let mut unlimited = Pace::new(i32::MAX as u32, start);
        for _ in 0..100_000 {
            assert_eq!(unlimited.take(start), Duration::ZERO);
        }
    }
}
