//! The room that one shard's writers may still take in one data directory.
//!
//! Whoever looks at the file system (`shard/space.rs`) gives an allowance, until the next
//! look. What is admitted and what is reserved ahead of it count against it at once, so
//! the disk cannot fill between two looks, however fast the writers are: at half of the
//! allowance a look is asked for, and beyond it nothing more is admitted before one.
//! What a look may not have seen, because it is not on the disk yet, stays counted.
//! Where nobody guards the directory everything is admitted, but what is reserved ahead is
//! limited all the same: one file must not take what the others need for their next write.
//!
//! What it is not: it knows no file system, and decides no threshold.

use crate::runtime::local::Event;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The room in one data directory, as one shard has it. Cheap to clone, `!Send`.
#[derive(Clone, Default)]
pub struct Room(Rc<Shared>);

#[derive(Default)]
struct Shared {
    /// Bytes until the next look; `None`: nobody has looked.
    allowance: Cell<Option<Allowance>>,
    /// Bytes counted against the allowance.
    taken: Cell<u64>,
    /// Bytes of these that are not on the disk yet.
    outstanding: Cell<u64>,
    /// Why nothing is admitted, if nothing is.
    refusal: RefCell<Option<Rc<str>>>,
    refused: Cell<u64>,
    look_wanted: Cell<bool>,
    wanted: Event,
}

/// What a look at the file system allows until the next, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// So much may be written and reserved.
    Guarded(u64),
    /// Anything may be written; so much may be reserved ahead of the writes, less what is
    /// written.
    Unguarded(u64),
}

/// Room that is taken for something that is not written yet; dropped once it is, or has
/// failed.
#[must_use]
pub struct Taken {
    room: Option<Rc<Shared>>,
    bytes: u64,
}

/// A look at the file system that is under way.
pub struct Look {
    taken: u64,
    outstanding: u64,
}

impl Room {
    /// Takes room for a write, or says why there is none.
    pub fn admit(&self, bytes: u64) -> Result<Taken, Rc<str>> {
        self.check()?;
        let guarded = !matches!(self.0.allowance.get(), Some(Allowance::Unguarded(_)));
        if !guarded || self.fits(bytes) {
            return Ok(self.take(bytes));
        }
        self.want_look();
        self.count_refused();
        Err(Rc::from(format!(
            "{bytes} bytes more could fill the data directory before its free space is looked at again (log.dir.min.free.bytes); try again"
        )))
    }

    /// Says why nothing is admitted, if nothing is.
    pub fn check(&self) -> Result<(), Rc<str>> {
        match &*self.0.refusal.borrow() {
            None => Ok(()),
            Some(reason) => {
                self.count_refused();
                Err(reason.clone())
            }
        }
    }

    /// Takes room to reserve blocks ahead of the writes, if there is so much.
    pub(super) fn reserve(&self, bytes: u64) -> Option<Taken> {
        let open = self.0.refusal.borrow().is_none();
        (open && self.fits(bytes)).then(|| self.take(bytes))
    }

    /// True while nothing is admitted.
    pub fn is_low(&self) -> bool {
        self.0.refusal.borrow().is_some()
    }

    /// How many writes were refused for want of room.
    pub fn refused(&self) -> u64 {
        self.0.refused.get()
    }

    /// Resolves when so much was taken that the file system should be looked at.
    pub async fn look_wanted(&self) {
        let shared = &self.0;
        shared.wanted.wait_until(|| shared.look_wanted.get()).await;
    }

    /// To be called right before the file system is asked.
    pub fn begin_look(&self) -> Look {
        self.0.look_wanted.set(false);
        Look {
            taken: self.0.taken.get(),
            outstanding: self.0.outstanding.get(),
        }
    }

    /// What a look has led to: an allowance until the next (`None`: no limit), or why
    /// nothing is admitted.
    pub fn end_look(&self, look: &Look, verdict: Result<Option<Allowance>, String>) {
        let since = self.0.taken.get() - look.taken;
        self.0.taken.set(look.outstanding + since);
        let (allowance, refusal) = match verdict {
            Ok(allowance) => (allowance, None),
            Err(reason) => (Some(Allowance::Guarded(0)), Some(Rc::from(reason))),
        };
        self.0.allowance.set(allowance);
        self.0.refusal.replace(refusal);
    }

    fn fits(&self, bytes: u64) -> bool {
        let taken = self.0.taken.get().saturating_add(bytes);
        let allowance = self.0.allowance.get();
        allowance.is_none_or(|allowance| taken <= allowance.bytes())
    }

    fn take(&self, bytes: u64) -> Taken {
        let shared = &self.0;
        shared.taken.set(shared.taken.get() + bytes);
        shared.outstanding.set(shared.outstanding.get() + bytes);
        let most = shared.allowance.get();
        if most.is_some_and(|most| shared.taken.get() >= most.bytes() / 2) {
            self.want_look();
        }
        Taken {
            room: Some(shared.clone()),
            bytes,
        }
    }

    fn want_look(&self) {
        if !self.0.look_wanted.replace(true) {
            self.0.wanted.notify_all();
        }
    }

    fn count_refused(&self) {
        self.0.refused.set(self.0.refused.get() + 1);
    }
}

impl Allowance {
    fn bytes(self) -> u64 {
        match self {
            Allowance::Guarded(bytes) | Allowance::Unguarded(bytes) => bytes,
        }
    }
}

impl Taken {
    /// No room at all.
    pub fn none() -> Taken {
        Taken {
            room: None,
            bytes: 0,
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(shared) = &self.room {
            shared
                .outstanding
                .set(shared.outstanding.get() - self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(room: &Room, verdict: Result<Option<Allowance>, String>) {
        let look = room.begin_look();
        room.end_look(&look, verdict);
    }

    #[test]
    fn what_is_admitted_never_exceeds_the_allowance_and_half_of_it_asks_for_a_look() {
        let room = Room::default();
        look(&room, Ok(Some(Allowance::Guarded(100))));
        let first = room.admit(40).unwrap();
        assert!(!room.0.look_wanted.get());
        let second = room.admit(20).unwrap();
        assert!(room.0.look_wanted.get());
        let refusal = room.admit(41).err().unwrap();
        assert!(refusal.contains("log.dir.min.free.bytes"), "{refusal}");
        assert!(room.reserve(41).is_none());
        assert_eq!(
            room.refused(),
            1,
            "what is reserved ahead is only not taken"
        );
        let third = room.admit(40).unwrap();
        drop((first, second, third));
        assert!(room.admit(1).is_err(), "written or not, it was taken");
    }

    #[test]
    fn what_a_look_may_not_have_seen_stays_counted() {
        let room = Room::default();
        look(&room, Ok(Some(Allowance::Guarded(100))));
        let unwritten = room.admit(60).unwrap();
        let written = room.admit(10).unwrap();
        drop(written);
        let look = room.begin_look();
        let meanwhile = room.admit(20).unwrap();
        drop((unwritten, meanwhile));
        room.end_look(&look, Ok(Some(Allowance::Guarded(100))));
        assert_eq!(room.0.taken.get(), 80);
        assert_eq!(room.0.outstanding.get(), 0);
    }

    #[test]
    fn a_refusal_admits_nothing_until_a_look_takes_it_back_and_no_limit_admits_all() {
        let room = Room::default();
        drop(room.admit(u64::MAX / 4).unwrap());
        look(&room, Err("full".into()));
        assert_eq!(room.admit(0).err().as_deref(), Some("full"));
        assert!(room.is_low());
        assert_eq!(room.refused(), 1);
        look(&room, Ok(None));
        assert!(room.admit(1 << 40).is_ok());
    }

    #[test]
    fn without_a_guard_everything_is_admitted_and_what_is_reserved_ahead_is_limited() {
        let room = Room::default();
        look(&room, Ok(Some(Allowance::Unguarded(100))));
        let reserved = room.reserve(40).unwrap();
        assert!(!room.0.look_wanted.get());
        let written = room.admit(1_000).unwrap();
        assert!(room.0.look_wanted.get(), "a writer took what was there");
        assert!(room.reserve(1).is_none());
        drop((reserved, written));
        assert!(room.reserve(1).is_none(), "the next look says what is left");
        look(&room, Ok(Some(Allowance::Unguarded(10))));
        assert!(room.reserve(11).is_none());
        assert!(room.reserve(10).is_some());
        assert!(!room.is_low());
        assert_eq!(room.refused(), 0);
    }
}
