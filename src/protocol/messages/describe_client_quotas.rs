//! DescribeClientQuotas: the quotas of users, client ids and addresses (KIP-546).

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for quotas.
    request DescribeClientQuotasRequest (DescribeClientQuotas) versions 0..=1 flexible 1 {
        components: Vec<ClientQuotaFilter>,
        /// Only those of entities that have no component beside these.
        strict: bool,
    }

    /// What an entity must have (Kafka's `ComponentData`).
    struct ClientQuotaFilter {
        /// `user`, `client-id` or `ip`.
        entity_type: Str,
        /// 0: this name, 1: the default, 2: any.
        match_type: i8,
        /// Null unless the match type is 0.
        _match: Option<Str> => { default: Some(Str::default()) },
    }

    /// The quotas.
    response DescribeClientQuotasResponse (DescribeClientQuotas) versions 0..=1 flexible 1 {
        throttle_time_ms: i32,
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
        /// Null with an error.
        entries: Option<Vec<ClientQuotaEntry>> => { default: Some(Vec::new()) },
    }

    /// Those of one entity (Kafka's `EntryData`).
    struct ClientQuotaEntry {
        entity: Vec<ClientQuotaEntity>,
        values: Vec<ClientQuotaValue>,
    }

    /// A component of an entity (Kafka's `EntityData`).
    struct ClientQuotaEntity {
        entity_type: Str,
        /// Null: the default.
        entity_name: Option<Str> => { default: Some(Str::default()) },
    }

    /// One quota (Kafka's `ValueData`).
    struct ClientQuotaValue {
        key: Str,
        value: f64,
    }
}
