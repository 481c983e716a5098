//! DeleteTopics.

use uuid::Uuid;

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for topics to be deleted: by name up to version 5, by name or id from 6.
    request DeleteTopicsRequest (DeleteTopics) versions 1..=6 flexible 4 {
        topics: Vec<DeleteTopicState> => { versions: 6.. },
        topic_names: Vec<Str> => { versions: ..=5, ignorable },
        timeout_ms: i32,
    }

    /// A topic, by name or by id.
    struct DeleteTopicState {
        name: Option<Str>,
        topic_id: Uuid,
    }

    /// What became of each topic.
    response DeleteTopicsResponse (DeleteTopics) versions 1..=6 flexible 4 {
        throttle_time_ms: i32,
        responses: Vec<DeletableTopicResult>,
    }

    /// What became of one topic.
    struct DeletableTopicResult {
        name: Option<Str> => { nullable: 6.., default: Some(Str::default()) },
        topic_id: Uuid => { versions: 6.., ignorable },
        error_code: i16,
        error_message: Option<Str> => { versions: 5.., ignorable },
    }
}
