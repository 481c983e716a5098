//! What time does to a group.

use super::{Group, Preparing, State};
use crate::coordinator::outbox::Turn;
use crate::protocol::{ErrorCode, Str};

impl Group {
    /// The group is looked at: what is due happens, and what is not says when to look again.
    /// Its entry in the deadlines was taken out.
    pub fn on_time(&mut self, turn: &mut Turn) {
        self.queued = None;
        let now = turn.now.mono;
        if matches!(self.state, State::Preparing(Preparing { at, .. }) if at <= now) {
            self.join_time_is_over(turn);
        }
        if self.sync_deadline.is_some_and(|at| at <= now) {
            self.sync_time_is_over(turn);
        }
        self.expire_pending(turn);
        self.expire_members(turn);
        self.look_at_the_next(turn);
    }

    /// After a load every member has a whole session to be heard from, and a group that
    /// is larger than is allowed now has its members join again.
    pub fn loaded(&mut self, turn: &mut Turn) {
        for id in self.member_ids() {
            self.touch(turn, &id);
        }
        if self.members.len() > turn.settings.members_max {
            self.prepare_rebalance(turn, "the group is larger than group.max.size");
        }
    }

    fn expire_members(&mut self, turn: &mut Turn) {
        let now = turn.now.mono;
        let due = self
            .members
            .values()
            .filter(|member| member.deadline <= now);
        let due: Vec<Str> = due.map(|member| member.id.clone()).collect();
        for id in due {
            let Some(member) = self.members.get(&id).filter(|it| it.deadline <= now) else {
                continue;
            };
            if member.is_excused() {
                self.touch(turn, &id);
                continue;
            }
            // A new member whose client still waits joins again.
            self.remove(turn, &id, ErrorCode::UnknownMemberId);
            match self.state {
                State::Completing | State::Stable => {
                    self.prepare_rebalance(turn, "a member's session ended");
                }
                State::Preparing(_) if self.has_all_joined() => self.complete_join(turn),
                State::Preparing(_) | State::Empty | State::Dead => {}
            }
        }
    }

    fn look_at_the_next(&mut self, turn: &mut Turn) {
        let join = match self.state {
            State::Preparing(Preparing { at, .. }) => Some(at),
            _ => None,
        };
        let members = self.members.values().map(|member| member.deadline);
        let pending = self.pending.values().map(|pending| pending.deadline);
        let all = members.chain(pending).chain(join).chain(self.sync_deadline);
        if let Some(at) = all.min() {
            self.look_again(turn, at);
        }
    }
}
