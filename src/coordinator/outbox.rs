//! What one call may touch besides its group: time, answers, appends and timers.

use super::call::{GroupResponse, Now, Ticket};
use super::effects::{Append, AppendId, Effects};
use super::group::AfterAppend;
use super::records::OffsetsRecord;
use super::settings::GroupSettings;
use crate::protocol::Str;
use crate::runtime::Mono;
use std::collections::{BTreeMap, BTreeSet};

/// A call, a tick, or the end of an append, while it is worked on.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub settings: &'a GroupSettings,
    pub now: Now,
    pub outbox: &'a mut Outbox,
    pub deadlines: &'a mut Deadlines,
}

/// The calls that wait, the appends under way, and the effects of this turn.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    effects: Effects,
    /// Every call that has no answer yet, and whether somebody still waits for it.
    waiting: BTreeMap<Ticket, bool>,
    under_way: BTreeMap<AppendId, UnderWay>,
    next_append: u64,
}

/// An append that has not ended.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub group: Str,
    /// What its end means for the group.
    pub after: AfterAppend,
    /// The call that is answered when it has ended, and its answer if it succeeds.
    pub answer: Option<(Ticket, GroupResponse)>,
}

/// When to look at which group: at most one entry for each. A group that is looked at too
/// early says when to look again, so that a heartbeat, which only puts a deadline off,
/// needs no work here.
#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(Mono, Str)>);

impl Turn<'_> {
    pub fn answer(&mut self, ticket: Ticket, response: GroupResponse) {
        self.outbox.answer(ticket, response);
    }

    /// Asks for an append; `after` is what its end means for the group.
    pub fn append(&mut self, group: &Str, records: Vec<OffsetsRecord>, after: AfterAppend) {
        debug_assert!(!records.is_empty(), "an append of nothing");
        let outbox = &mut *self.outbox;
        let under_way = UnderWay {
            group: group.clone(),
            after,
            answer: None,
        };
        let id = AppendId(outbox.next_append);
        outbox.next_append += 1;
        outbox.under_way.insert(id, under_way);
        outbox.effects.appends.push(Append { id, records });
    }

    /// How many appends there were; for [`Turn::answer_after_appends`].
    pub fn appends(&self) -> u64 {
        self.outbox.next_append
    }

    /// Answers a call when the last append since `before` has ended: with `response`, or its
    /// failure. If there was none, at once.
    pub fn answer_after_appends(&mut self, before: u64, ticket: Ticket, response: GroupResponse) {
        let outbox = &mut *self.outbox;
        if outbox.next_append == before {
            return outbox.answer(ticket, response);
        }
        let last = outbox.under_way.last_entry();
        match last.filter(|last| last.key().0 >= before) {
            Some(mut last) => last.get_mut().answer = Some((ticket, response)),
            None => outbox.answer(ticket, response),
        }
    }
}

impl Outbox {
    /// A call comes in: it waits until it is answered.
    pub fn begin(&mut self, ticket: Ticket) {
        let before = self.waiting.insert(ticket, true);
        debug_assert!(before.is_none(), "{ticket:?} names two calls");
    }

    pub fn answer(&mut self, ticket: Ticket, response: GroupResponse) {
        match self.waiting.remove(&ticket) {
            Some(true) => self.effects.answers.push((ticket, response)),
            Some(false) => {}
            None => debug_assert!(false, "{ticket:?} is answered twice: {response:?}"),
        }
    }

    /// Nobody waits for the answer any more.
    pub fn gone(&mut self, ticket: Ticket) {
        if let Some(is_there) = self.waiting.get_mut(&ticket) {
            *is_there = false;
        }
    }

    /// An append has ended; `None` if it is none of ours.
    pub fn landed(&mut self, id: AppendId) -> Option<UnderWay> {
        self.under_way.remove(&id)
    }

    /// Every append that was under way, because the coordinator ends.
    pub fn abandoned(&mut self) -> Vec<UnderWay> {
        std::mem::take(&mut self.under_way).into_values().collect()
    }

    pub fn take(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// How many calls somebody waits for.
    #[cfg(test)]
    pub fn awaited(&self) -> usize {
        self.waiting.values().filter(|is_there| **is_there).count()
    }

    /// How many calls have no answer yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

impl Deadlines {
    pub fn first(&self) -> Option<Mono> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes out a group whose time has come.
    pub fn due(&mut self, now: Mono) -> Option<Str> {
        if self.first()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, group)| group)
    }

    /// Looks at the group at `at` if it would be looked at later than that. `queued` is
    /// the group's own note of its entry.
    pub fn no_later(&mut self, group: &Str, queued: &mut Option<Mono>, at: Mono) {
        if queued.is_some_and(|queued| queued <= at) {
            return;
        }
        self.forget(group, queued);
        self.0.insert((at, group.clone()));
        *queued = Some(at);
    }

    pub fn forget(&mut self, group: &Str, queued: &mut Option<Mono>) {
        if let Some(queued) = queued.take() {
            self.0.remove(&(queued, group.clone()));
        }
    }

    #[cfg(test)]
    pub fn has(&self, group: &Str, at: Mono) -> bool {
        self.0.contains(&(at, group.clone()))
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}
