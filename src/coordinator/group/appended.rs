//! What the end of an append means for its group.

use super::statics::Replacement;
use super::{Group, State};
use crate::coordinator::offsets::PendingChange;
use crate::coordinator::outbox::Turn;
use crate::coordinator::records::OffsetsRecord;
use crate::protocol::{ErrorCode, Str};
use crate::runtime::local::Permit;
use bytes::Bytes;
use std::collections::BTreeMap;

/// What an append was for.
#[derive(Debug)]
pub(in crate::coordinator) enum AfterAppend {
    /// A generation without members. If it fails, the log says the one before, whose
    /// members will not be heard from.
    Recorded,
    /// The leader's assignments of a generation.
    Assigned {
        generation: i32,
        assignments: BTreeMap<Str, Bytes>,
        /// What they are charged until then.
        memory: Permit,
    },
    /// A static member's new id.
    Replaced(Box<Replacement>),
    /// Offsets were committed, deleted, or have expired.
    Offsets(PendingChange),
    /// The group is deleted, with what is left of its offsets.
    Deleted(Option<PendingChange>),
    /// A part of the offsets of a group that is being deleted; the record that ends it
    /// goes with the last part.
    Deleting(PendingChange, OffsetsRecord),
}

/// What is left of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::coordinator) enum Left {
    /// The group.
    Group,
    /// Nothing.
    Nothing,
}

impl Group {
    /// An append of this group has ended. An error is one that calls are answered with.
    pub fn landed(
        &mut self,
        turn: &mut Turn,
        after: AfterAppend,
        result: Result<(), ErrorCode>,
    ) -> Left {
        match after {
            AfterAppend::Recorded => {
                self.records_under_way = self.records_under_way.saturating_sub(1);
                if let Err(error) = result {
                    tracing::warn!(group = %self.id, error = error.name(), "an empty group could not be recorded");
                }
            }
            AfterAppend::Assigned {
                generation,
                assignments,
                memory,
            } => {
                // From here on they are at most what a record can hold.
                drop(memory);
                self.records_under_way = self.records_under_way.saturating_sub(1);
                self.assigned(turn, generation, assignments, result);
            }
            AfterAppend::Replaced(replacement) => {
                self.records_under_way = self.records_under_way.saturating_sub(1);
                self.replaced(turn, *replacement, result);
            }
            AfterAppend::Offsets(change) => self.end_change(change, result),
            AfterAppend::Deleting(change, tombstone) => {
                self.end_change(change, result);
                match result {
                    Ok(()) => self.delete_next(turn, tombstone),
                    Err(_) => self.state = State::Empty,
                }
            }
            AfterAppend::Deleted(change) => {
                if let Some(change) = change {
                    self.end_change(change, result);
                }
                match result {
                    Ok(()) => return Left::Nothing,
                    Err(_) if self.state == State::Dead => self.state = State::Empty,
                    Err(_) => {}
                }
            }
        }
        match self.is_unused() {
            true => Left::Nothing,
            false => Left::Group,
        }
    }

    fn end_change(&mut self, change: PendingChange, result: Result<(), ErrorCode>) {
        match result {
            Ok(()) => self.offsets.done(change),
            Err(_) => self.offsets.failed(change),
        }
    }
}
