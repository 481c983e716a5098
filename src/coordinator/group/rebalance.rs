//! The way from one generation to the next.

use super::{AfterAppend, Group, InitialDelay, Preparing, State};
use crate::coordinator::outbox::Turn;
use crate::protocol::{ErrorCode, Str};
use std::collections::BTreeMap;
use std::time::Duration;

impl Group {
    /// Begins a rebalance, or, if one is being prepared, looks whether it is done.
    pub(super) fn rebalance_or_complete_join(&mut self, turn: &mut Turn, why: &str) {
        match self.state {
            State::Empty | State::Completing | State::Stable => self.prepare_rebalance(turn, why),
            State::Preparing(_) => self.complete_join_if_all_joined(turn),
            State::Dead => {}
        }
    }

    /// The members are to join again. Those that wait for their assignment are told so.
    pub(super) fn prepare_rebalance(&mut self, turn: &mut Turn, why: &str) {
        tracing::debug!(group = %self.id, generation = self.generation, why, "preparing a rebalance");
        if self.state == State::Completing {
            self.reset_assignments(turn, ErrorCode::RebalanceInProgress);
        }
        self.forget_syncs();
        let timeout = self.rebalance_timeout();
        let delay = turn.settings.initial_rebalance_delay;
        let is_initial = self.state == State::Empty;
        let initial = is_initial.then(|| InitialDelay {
            delay,
            remaining: timeout.saturating_sub(delay),
            has_grown: false,
        });
        let at = turn.now.mono + if is_initial { delay } else { timeout };
        self.enter(turn, State::Preparing(Preparing { at, initial }));
        match is_initial {
            true if delay.is_zero() => self.complete_join(turn),
            true => self.look_again(turn, at),
            false if self.has_all_joined() => self.complete_join(turn),
            false => self.look_again(turn, at),
        }
    }

    /// Goes on once every member has joined. A group that was empty waits for more.
    pub(super) fn complete_join_if_all_joined(&mut self, turn: &mut Turn) {
        if let State::Preparing(Preparing { initial: None, .. }) = self.state {
            if self.has_all_joined() {
                self.complete_join(turn);
            }
        }
    }

    /// The time of a rebalance is over: the delay of a first one grows if members came,
    /// any other goes on with those that are there.
    pub(super) fn join_time_is_over(&mut self, turn: &mut Turn) {
        let delay_max = turn.settings.initial_rebalance_delay;
        if let State::Preparing(preparing) = &mut self.state {
            if let Some(initial) = &mut preparing.initial {
                if initial.has_grown && !initial.remaining.is_zero() {
                    let next = delay_max.min(initial.remaining);
                    *initial = InitialDelay {
                        delay: next,
                        remaining: initial.remaining.saturating_sub(initial.delay),
                        has_grown: false,
                    };
                    preparing.at = turn.now.mono + next;
                    let at = preparing.at;
                    return self.look_again(turn, at);
                }
            }
            self.complete_join(turn);
        }
    }

    /// Begins the next generation with the members that have joined; dynamic members that
    /// did not are left behind. Static ones stay until their session ends.
    pub(super) fn complete_join(&mut self, turn: &mut Turn) {
        let is_behind = |member: &super::Member| member.join.is_none() && member.instance.is_none();
        let behind = self.members.values().filter(|member| is_behind(member));
        let behind: Vec<Str> = behind.map(|member| member.id.clone()).collect();
        for id in &behind {
            self.remove(turn, id, ErrorCode::UnknownMemberId);
        }
        if !self.members.is_empty() && !self.elect_joined_leader() {
            // Static members only, and none has joined: until their sessions end.
            let at = turn.now.mono + self.rebalance_timeout().max(NOBODY_JOINED_MIN);
            if let State::Preparing(preparing) = &mut self.state {
                preparing.at = at;
                preparing.initial = preparing.initial.map(|initial| InitialDelay {
                    has_grown: false,
                    ..initial
                });
            }
            return self.look_again(turn, at);
        }
        self.generation = self.generation.wrapping_add(1).max(1);
        self.forget_syncs();
        self.is_assigning = false;
        if self.members.is_empty() {
            self.protocol = None;
            self.enter(turn, State::Empty);
            tracing::debug!(group = %self.id, generation = self.generation, "the group is empty");
            return self.append_metadata(turn, &BTreeMap::new(), AfterAppend::Recorded);
        }
        self.protocol = self.select_protocol();
        self.enter(turn, State::Completing);
        let sync_deadline = turn.now.mono + self.rebalance_timeout();
        for id in self.member_ids() {
            let response = self.generation_for(&id);
            self.answer_join(turn, &id, response);
            self.update(&id, |member| {
                member.is_new = false;
                member.owes_sync = true;
            });
            self.touch(turn, &id);
        }
        self.sync_deadline = Some(sync_deadline);
        self.look_again(turn, sync_deadline);
    }

    /// No sync is waited for any more.
    fn forget_syncs(&mut self) {
        for member in self.members.values_mut() {
            member.owes_sync = false;
        }
        self.owing_syncs = 0;
        self.sync_deadline = None;
    }

    /// Makes sure that the leader has joined; false if nobody has.
    fn elect_joined_leader(&mut self) -> bool {
        let has_joined = |id: &Str| self.members.get(id).is_some_and(|m| m.join.is_some());
        if self.leader.as_ref().is_some_and(has_joined) {
            return true;
        }
        let mut members = self.members.values();
        match members.find(|member| member.join.is_some()) {
            Some(joined) => {
                self.leader = Some(joined.id.clone());
                true
            }
            None => false,
        }
    }

    /// Of the protocols that all members know, the one that most of them prefer; among
    /// equals the one that the leader likes best.
    pub(super) fn select_protocol(&self) -> Option<Str> {
        let all = self.members.len();
        let is_candidate = |name: &Str| self.knowing.get(name).is_some_and(|count| *count == all);
        let mut votes: BTreeMap<&Str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let mut names = member.terms.protocols.iter().map(|protocol| &protocol.name);
            if let Some(vote) = names.find(|name| is_candidate(name)) {
                *votes.entry(vote).or_insert(0) += 1;
            }
        }
        let most = votes.values().max()?;
        let leader = self.leader.as_ref().and_then(|id| self.members.get(id));
        let mut preferred = leader?
            .terms
            .protocols
            .iter()
            .map(|protocol| &protocol.name);
        preferred
            .find(|name| votes.get(name) == Some(most))
            .cloned()
    }
}

/// The least time between two looks whether anybody has joined, whatever rebalance timeout
/// the members ask for.
const NOBODY_JOINED_MIN: Duration = Duration::from_secs(1);
