//! ListConfigResources: what has settings (KIP-1142); version 0 is Kafka's older
//! ListClientMetricsResources (KIP-714).

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for resources.
    request ListConfigResourcesRequest (ListConfigResources) versions 0..=1 flexible 0 {
        /// Empty: of all types.
        resource_types: Vec<i8> => { versions: 1.. },
    }

    /// The resources.
    response ListConfigResourcesResponse (ListConfigResources) versions 0..=1 flexible 0 {
        throttle_time_ms: i32,
        error_code: i16,
        config_resources: Vec<ConfigResource>,
    }

    /// A resource.
    struct ConfigResource {
        resource_name: Str,
        /// 2: a topic, 4: a broker, 8: a broker's loggers, 16: client metrics, 32: a group.
        resource_type: i8 => { versions: 1.., default: 16, ignorable },
    }
}
