//! What calls about committed offsets ask of a group's members and state, and the end of
//! a group that nobody needs.

use super::subscription::Subscriptions;
use super::{AfterAppend, Group, State};
use crate::coordinator::call::{GroupResponse, Ticket};
use crate::coordinator::offsets::{CommitTerms, GroupOffsets, RetentionFrom};
use crate::coordinator::outbox::Turn;
use crate::coordinator::records::OffsetsRecord;
use crate::protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    OffsetFetchRequestGroup, OffsetFetchResponseGroup,
};
use crate::protocol::ErrorCode;

impl Group {
    /// OffsetCommit by a member, or by somebody outside while there are none. A member's
    /// commit counts as a sign of life.
    pub fn commit(
        &mut self,
        turn: &mut Turn,
        ticket: Ticket,
        request: &OffsetCommitRequest,
    ) -> Result<(), ErrorCode> {
        self.check_commit(request)?;
        if self.state == State::Stable || self.is_preparing() {
            self.touch(turn, &request.member_id);
        }
        let terms = CommitTerms {
            now_ms: turn.now.wall_ms,
            retention_time_ms: request.retention_time_ms,
            metadata_bytes_max: turn.settings.offset_metadata_bytes_max,
        };
        let (topics, prepared) = self.offsets.commit(&self.id, &request.topics, terms);
        let before = turn.appends();
        if let Some(prepared) = prepared {
            let after = AfterAppend::Offsets(prepared.change);
            turn.append(&self.id, prepared.records, after);
        }
        let response = GroupResponse::OffsetsCommitted(OffsetCommitResponse {
            topics,
            ..Default::default()
        });
        turn.answer_after_appends(before, ticket, response);
        Ok(())
    }

    fn check_commit(&self, request: &OffsetCommitRequest) -> Result<(), ErrorCode> {
        let generation = request.generation_id_or_member_epoch;
        let instance = request.group_instance_id.as_ref();
        match self.state {
            State::Dead => return Err(ErrorCode::CoordinatorNotAvailable),
            // A consumer that assigns its partitions itself, or an operator's tool.
            State::Empty if generation < 0 => return Ok(()),
            _ => {}
        }
        if generation >= 0 || !request.member_id.is_empty() || instance.is_some() {
            self.check_member(&request.member_id, instance)?;
            if generation != self.generation {
                return Err(ErrorCode::IllegalGeneration);
            }
        } else if self.state != State::Empty {
            return Err(ErrorCode::UnknownMemberId);
        }
        match self.state {
            State::Completing => Err(ErrorCode::RebalanceInProgress),
            _ => Ok(()),
        }
    }

    /// OffsetDelete: of topics that no member is subscribed to. That can be told of
    /// consumers only.
    pub fn delete_offsets(
        &mut self,
        turn: &mut Turn,
        ticket: Ticket,
        request: &OffsetDeleteRequest,
    ) -> Result<(), ErrorCode> {
        match self.state {
            State::Dead => return Err(ErrorCode::GroupIdNotFound),
            State::Empty => {}
            _ if self.is_of_consumers() => {}
            _ => return Err(ErrorCode::NonEmptyGroup),
        }
        let subscriptions = self.subscriptions();
        let is_subscribed = |topic: &str| subscriptions.contain(topic);
        let (topics, prepared) = self
            .offsets
            .delete(&self.id, &request.topics, &is_subscribed);
        let before = turn.appends();
        if let Some(prepared) = prepared {
            let after = AfterAppend::Offsets(prepared.change);
            turn.append(&self.id, prepared.records, after);
        }
        let response = GroupResponse::OffsetsDeleted(OffsetDeleteResponse {
            topics,
            ..Default::default()
        });
        turn.answer_after_appends(before, ticket, response);
        Ok(())
    }

    /// Topics are gone, and with them what was committed for them; also while the group is
    /// being deleted, since that may fail.
    pub fn topics_deleted(&mut self, turn: &mut Turn, names: &[&str]) {
        for prepared in self.offsets.topics_deleted(&self.id, names) {
            let after = AfterAppend::Offsets(prepared.change);
            turn.append(&self.id, prepared.records, after);
        }
    }

    /// DeleteGroups: the group and its offsets go with one append, or, if these are more
    /// than one batch should hold, with several, one after the other. Until the last has
    /// ended the group is dead; if one fails, what is left of it is as it was.
    pub fn delete(&mut self, turn: &mut Turn, ticket: Ticket) -> Result<(), ErrorCode> {
        match self.state {
            State::Empty => {}
            State::Dead => return Err(ErrorCode::GroupIdNotFound),
            _ => return Err(ErrorCode::NonEmptyGroup),
        }
        let tombstone = self.tombstone()?;
        let before = turn.appends();
        self.delete_next(turn, tombstone);
        let response = GroupResponse::GroupDeleted(ErrorCode::None);
        turn.answer_after_appends(before, ticket, response);
        Ok(())
    }

    /// Has the next part of the offsets deleted, and with the last of them the group.
    pub(super) fn delete_next(&mut self, turn: &mut Turn, tombstone: OffsetsRecord) {
        let (offsets, is_all) = self.offsets.delete_some(&self.id);
        let (change, mut records) = match offsets {
            Some(prepared) => (Some(prepared.change), prepared.records),
            None => (None, Vec::new()),
        };
        let after = match change {
            Some(change) if !is_all => AfterAppend::Deleting(change, tombstone),
            change => {
                records.push(tombstone);
                AfterAppend::Deleted(change)
            }
        };
        self.die(turn, records, after);
    }

    /// Offsets that have expired go, and with the last of them an empty group.
    pub fn expire_offsets(&mut self, turn: &mut Turn) {
        let subscriptions = self.subscriptions();
        let from = match (self.state, self.state_since_ms) {
            (State::Dead, _) => return,
            _ if self.protocol_type.is_none() => Some(RetentionFrom::Commit),
            (State::Empty, Some(since)) => Some(RetentionFrom::Empty(since)),
            (State::Empty, None) => Some(RetentionFrom::Commit),
            (State::Stable, _) if self.is_of_consumers() && subscriptions.are_known() => {
                Some(RetentionFrom::Commit)
            }
            _ => None,
        };
        let Some(from) = from else {
            return;
        };
        let now_ms = turn.now.wall_ms;
        let retention_ms = turn.settings.offsets_retention_ms;
        let is_subscribed = |topic: &str| subscriptions.contain(topic);
        let expired = self
            .offsets
            .expire(&self.id, now_ms, retention_ms, from, &is_subscribed);
        let (change, mut records) = match expired.prepared {
            Some(prepared) => (Some(prepared.change), prepared.records),
            None => (None, Vec::new()),
        };
        let may_go = expired.is_all
            && self.state == State::Empty
            && self.pending.is_empty()
            && self.records_under_way == 0;
        let tombstone = may_go.then(|| self.tombstone().ok()).flatten();
        match (tombstone, change) {
            (Some(tombstone), change) => {
                records.push(tombstone);
                self.die(turn, records, AfterAppend::Deleted(change));
            }
            (None, Some(change)) => {
                turn.append(&self.id, records, AfterAppend::Offsets(change));
            }
            (None, None) => {}
        }
    }

    fn die(&mut self, turn: &mut Turn, records: Vec<OffsetsRecord>, after: AfterAppend) {
        self.state = State::Dead;
        turn.append(&self.id, records, after);
    }

    fn tombstone(&self) -> Result<OffsetsRecord, ErrorCode> {
        let record = OffsetsRecord::group(&self.id, None);
        record.map_err(|_| ErrorCode::UnknownServerError)
    }

    fn is_of_consumers(&self) -> bool {
        let protocol_type = self.protocol_type.as_ref();
        protocol_type.is_some_and(|own| *own == CONSUMER_PROTOCOL_TYPE)
    }

    fn subscriptions(&self) -> Subscriptions {
        let members = self.members.values();
        let metadata = members.map(|member| member.metadata(self.protocol.as_ref()));
        match self.is_of_consumers() {
            true => Subscriptions::of(metadata),
            false => Subscriptions::none(),
        }
    }
}

/// OffsetFetch: what is durable, whatever state the group is in.
pub(in crate::coordinator) fn fetched(
    offsets: &GroupOffsets,
    request: &OffsetFetchRequestGroup,
    require_stable: bool,
) -> GroupResponse {
    GroupResponse::OffsetsFetched(OffsetFetchResponseGroup {
        group_id: request.group_id.clone(),
        topics: offsets.fetch(request.topics.as_deref(), require_stable),
        ..Default::default()
    })
}

/// The protocol type of consumers.
const CONSUMER_PROTOCOL_TYPE: &str = "consumer";
