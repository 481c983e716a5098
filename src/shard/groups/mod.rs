//! The groups' coordinators on a shard: one for each partition of `__consumer_offsets`
//! that it owns, which is read when the shard gets it (`load.rs`), written by
//! (`append.rs`) and woken in time (`ticker.rs`).
//!
//! A call goes to the owner of its group's partition and is answered at once or later. A
//! ticket names it: it says which shard asked, and that shard keeps who waits. So nothing
//! that waits holds a credit of the mesh, and one that is given up leaves nothing behind:
//! its guard tells the owner.
//!
//! What it is not: it decides nothing about groups (`coordinator/`).

mod append;
mod load;
#[cfg(test)]
mod tests;
mod ticker;
mod topic;

pub(super) use ticker::start;

use super::messages::{GroupOrder, PartitionKey, Reply, Request};
use super::metrics::first_by;
use super::{CommittedFigures, GroupFigures, Shard};
use crate::coordinator::{
    Coordinator, Effects, GroupCall, GroupOverview, GroupResponse, GroupSettings, Now, Ticket,
};
use crate::partition::{Partition, PartitionState};
use crate::protocol::{ErrorCode, Str};
use crate::runtime::local::{oneshot, Budget, Event, OneshotSender};
use crate::runtime::{Mono, Queue};
use append::Appends;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// The coordinators of a shard, and its own calls that wait.
pub(super) struct Groups {
    slots: RefCell<BTreeMap<PartitionKey, Slot>>,
    next_call: Cell<u64>,
    /// Calls of this shard's connections, wherever they are answered.
    waiting: RefCell<HashMap<Ticket, OneshotSender<GroupResponse>>>,
    /// Notified when a coordinator wants to be woken earlier.
    earlier: Event,
    /// When the ticker wakes by itself.
    wakes_at: Cell<Option<Mono>>,
    /// One creation of the topic at a time.
    creating: Budget,
}

impl Default for Groups {
    fn default() -> Groups {
        Groups {
            slots: RefCell::default(),
            next_call: Cell::new(0),
            waiting: RefCell::default(),
            earlier: Event::new(),
            wakes_at: Cell::new(None),
            creating: Budget::new(1),
        }
    }
}

/// A partition of `__consumer_offsets` that this shard owns and that is online.
enum Slot {
    Loading,
    Ready(Rc<Held>),
    /// It could not be read; the reason was logged.
    Failed,
}

/// A coordinator at work.
struct Held {
    partition: Partition,
    coordinator: RefCell<Coordinator>,
    appends: Appends,
}

/// Keeps a call's place among those that wait; says so when it is given up.
struct Waiting {
    shard: Shard,
    key: PartitionKey,
    ticket: Ticket,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let groups = &self.shard.0.groups;
        // One that was answered has been taken out.
        let given_up = groups.waiting.borrow_mut().remove(&self.ticket);
        if given_up.is_some() {
            self.shard.give_up(self.key, self.ticket);
        }
    }
}

impl Shard {
    /// Asks the coordinator of the call's group, on whichever shard it is. A join or a
    /// sync waits for other members, a commit for the disk. Dropping this gives the answer
    /// up; the call stands.
    ///
    /// The answer says COORDINATOR_LOAD_IN_PROGRESS while the group's partition is read,
    /// COORDINATOR_NOT_AVAILABLE where it is offline or could not be created or read, and
    /// NOT_COORDINATOR once the shard stops.
    pub async fn group(&self, call: GroupCall) -> GroupResponse {
        let key = match self.coordinator_key(call.body.group_id()).await {
            Ok(key) => key,
            Err(code) => return call.body.refused(call.api_version, code),
        };
        let not_coordinator = call
            .body
            .refused(call.api_version, ErrorCode::NotCoordinator);
        let (waiting, answer) = self.wait_for_answer(key);
        let ticket = waiting.ticket;
        let owner = self.owner(&key);
        let at_once = if owner == self.0.me {
            self.ask_here(key, ticket, call)
        } else {
            let order = GroupOrder { key, ticket, call };
            match self.call(owner, Request::Group(Box::new(order))).await {
                Ok(Reply::Group(answer)) => Some(*answer),
                Ok(Reply::Later) => None,
                Ok(_) | Err(_) => Some(not_coordinator.clone()),
            }
        };
        if let Some(answer) = at_once {
            self.0.groups.waiting.borrow_mut().remove(&ticket);
            return answer;
        }
        answer.await.unwrap_or(not_coordinator)
    }

    /// All groups, for ListGroups.
    ///
    /// # Errors
    /// COORDINATOR_LOAD_IN_PROGRESS while a part of them is read, COORDINATOR_NOT_AVAILABLE
    /// if a part of them can't be.
    pub async fn list_groups(&self) -> Result<Vec<GroupOverview>, ErrorCode> {
        let mut all = self.list_groups_here()?;
        for peer in (0..self.0.shards).filter(|peer| *peer != self.0.me) {
            match self.call(peer, Request::ListGroups).await? {
                Reply::Groups(groups) => all.extend(groups?),
                _ => return Err(ErrorCode::CoordinatorNotAvailable),
            }
        }
        Ok(all)
    }

    pub(super) fn list_groups_here(&self) -> Result<Vec<GroupOverview>, ErrorCode> {
        if self.is_stopping() {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        let mut all = Vec::new();
        for slot in self.0.groups.slots.borrow().values() {
            match slot {
                Slot::Ready(held) => all.extend(held.coordinator.borrow().groups()),
                Slot::Loading => return Err(ErrorCode::CoordinatorLoadInProgress),
                Slot::Failed => return Err(ErrorCode::CoordinatorNotAvailable),
            }
        }
        Ok(all)
    }

    /// The figures of this shard's groups, for metrics, with the first `offsets_max`
    /// committed offsets by group, topic and partition. What is being loaded is not among
    /// them.
    pub(super) async fn group_figures(&self, offsets_max: usize) -> GroupFigures {
        let mut figures = GroupFigures::default();
        for held in self.coordinators() {
            {
                let coordinator = held.coordinator.borrow();
                for group in coordinator.groups() {
                    *figures.states.entry(group.state).or_default() += 1;
                }
                figures.offsets_all += coordinator.committed().count();
                // A coordinator has them in this order.
                let first = coordinator.committed().take(offsets_max);
                figures
                    .offsets
                    .extend(first.map(|committed| CommittedFigures {
                        group: committed.group.clone(),
                        topic: Str::from(committed.topic.to_owned()),
                        partition: committed.partition,
                        offset: committed.offset,
                    }));
            }
            figures.offsets = first_by(figures.offsets, offsets_max, Ord::cmp);
            self.rt().yield_if_needed().await;
        }
        figures
    }

    /// Gives a call to the coordinator of this shard; `None`: the answer comes later.
    pub(super) fn ask_here(
        &self,
        key: PartitionKey,
        ticket: Ticket,
        call: GroupCall,
    ) -> Option<GroupResponse> {
        let held = match self.coordinator(&key) {
            Ok(held) => held,
            Err(code) => return Some(call.body.refused(call.api_version, code)),
        };
        let effects = held
            .coordinator
            .borrow_mut()
            .call(ticket, call, self.group_time());
        self.carry_out(&held, effects, Some(ticket))
    }

    /// An answer that another shard's coordinator gave later.
    pub(super) fn group_answered(&self, ticket: Ticket, answer: GroupResponse) {
        let waiting = self.0.groups.waiting.borrow_mut().remove(&ticket);
        if let Some(waiting) = waiting {
            // Whoever gave up in this moment wants no answer.
            let _ = waiting.send(answer);
        }
    }

    /// Nobody waits for this call's answer any more.
    pub(super) fn group_gone_here(&self, key: PartitionKey, ticket: Ticket) {
        let held = match self.0.groups.slots.borrow().get(&key) {
            Some(Slot::Ready(held)) => held.clone(),
            _ => return,
        };
        held.coordinator.borrow_mut().gone(ticket);
    }

    /// Stops every coordinator of this shard: all that wait are answered, and nothing is
    /// served from here on.
    pub(super) fn stop_groups(&self) {
        for held in self.coordinators() {
            self.stop_coordinator(&held);
        }
    }

    /// Topics were deleted, and with them what was committed for them.
    pub(super) fn forget_offsets_of(&self, topics: &[&str]) {
        for held in self.coordinators() {
            let now = self.group_time();
            let effects = held.coordinator.borrow_mut().topics_deleted(topics, now);
            self.carry_out(&held, effects, None);
        }
    }

    fn stop_coordinator(&self, held: &Rc<Held>) {
        let effects = held.coordinator.borrow_mut().stop();
        self.carry_out(held, effects, None);
    }

    fn wait_for_answer(
        &self,
        key: PartitionKey,
    ) -> (
        Waiting,
        impl std::future::Future<Output = Option<GroupResponse>>,
    ) {
        let groups = &self.0.groups;
        let call = groups.next_call.get();
        groups.next_call.set(call + 1);
        let ticket = Ticket((self.0.me as u64) << TICKET_SHARD_SHIFT | call);
        let (reply, answer) = oneshot();
        groups.waiting.borrow_mut().insert(ticket, reply);
        let waiting = Waiting {
            shard: self.clone(),
            key,
            ticket,
        };
        (waiting, answer)
    }

    fn give_up(&self, key: PartitionKey, ticket: Ticket) {
        let owner = self.owner(&key);
        if owner == self.0.me {
            self.group_gone_here(key, ticket);
            return;
        }
        let shard = self.clone();
        self.rt().spawn(Queue::Latency, async move {
            // An owner that has stopped keeps nothing.
            let _ = shard.call(owner, Request::GroupGone { key, ticket }).await;
        });
    }

    /// Does what a coordinator wants. Returns the answer to `inline`, if it is among the
    /// effects.
    fn carry_out(
        &self,
        held: &Rc<Held>,
        effects: Effects,
        inline: Option<Ticket>,
    ) -> Option<GroupResponse> {
        let mut at_once = None;
        for (ticket, answer) in effects.answers {
            if inline == Some(ticket) {
                at_once = Some(answer);
            } else {
                self.deliver(ticket, answer);
            }
        }
        self.append(held, effects.appends);
        self.note_deadline(held);
        at_once
    }

    fn deliver(&self, ticket: Ticket, answer: GroupResponse) {
        let asker = (ticket.0 >> TICKET_SHARD_SHIFT) as usize;
        if asker == self.0.me {
            self.group_answered(ticket, answer);
            return;
        }
        let shard = self.clone();
        self.rt().spawn(Queue::Latency, async move {
            let answer = Box::new(answer);
            let request = Request::GroupAnswered { ticket, answer };
            // A shard that has stopped has no connection that waits.
            let _ = shard.call(asker, request).await;
        });
    }

    /// The coordinator of a partition, if it can be asked.
    fn coordinator(&self, key: &PartitionKey) -> Result<Rc<Held>, ErrorCode> {
        if self.is_stopping() {
            return Err(ErrorCode::NotCoordinator);
        }
        match self.0.groups.slots.borrow().get(key) {
            Some(Slot::Ready(held)) if held.partition.state() == PartitionState::Offline => {
                Err(ErrorCode::CoordinatorNotAvailable)
            }
            Some(Slot::Ready(held)) => Ok(held.clone()),
            Some(Slot::Loading) => Err(ErrorCode::CoordinatorLoadInProgress),
            Some(Slot::Failed) => Err(ErrorCode::CoordinatorNotAvailable),
            None => Err(match self.0.partitions.online(key) {
                // The topic is gone, or another shard's.
                Err(ErrorCode::UnknownTopicOrPartition) => ErrorCode::NotCoordinator,
                _ => ErrorCode::CoordinatorNotAvailable,
            }),
        }
    }

    /// Those that are at work.
    fn coordinators(&self) -> Vec<Rc<Held>> {
        let slots = self.0.groups.slots.borrow();
        let ready = slots.values().filter_map(|slot| match slot {
            Slot::Ready(held) => Some(held.clone()),
            Slot::Loading | Slot::Failed => None,
        });
        ready.collect()
    }

    fn group_time(&self) -> Now {
        Now {
            mono: self.rt().now(),
            wall_ms: self.rt().wall_clock_ms(),
        }
    }

    fn group_settings(&self) -> GroupSettings {
        let config = self.config();
        GroupSettings {
            session_timeout_ms_min: config.group_min_session_timeout_ms,
            session_timeout_ms_max: config.group_max_session_timeout_ms,
            members_max: config.group_max_size as usize,
            initial_rebalance_delay: std::time::Duration::from_millis(
                config.group_initial_rebalance_delay_ms.into(),
            ),
            offset_metadata_bytes_max: config.offset_metadata_max_bytes as usize,
            offsets_retention_ms: i64::from(config.offsets_retention_minutes) * 60_000,
            offsets_retention_check_interval: std::time::Duration::from_millis(
                config.offsets_retention_check_interval_ms,
            ),
            members_memory: self.memory().group_members().clone(),
        }
    }
}

/// A ticket's low bits count the calls of the shard that its high bits name.
const TICKET_SHARD_SHIFT: u32 = 48;
