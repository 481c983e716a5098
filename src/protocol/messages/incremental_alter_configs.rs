//! IncrementalAlterConfigs: changes single settings of a topic or broker (KIP-339).

use crate::protocol::codec::{messages, Str};

messages! {
    /// The changes.
    request IncrementalAlterConfigsRequest (IncrementalAlterConfigs) versions 0..=1 flexible 1 {
        resources: Vec<IncrementalAlterConfigsResource>,
        validate_only: bool,
    }

    /// What has the settings.
    struct IncrementalAlterConfigsResource {
        /// As in DescribeConfigs.
        resource_type: i8,
        resource_name: Str,
        configs: Vec<IncrementalAlterableConfig>,
    }

    /// One change.
    struct IncrementalAlterableConfig {
        name: Str,
        /// 0: set, 1: delete, 2: append to a list, 3: subtract from a list.
        config_operation: i8,
        value: Option<Str> => { default: Some(Str::default()) },
    }

    /// What became of them.
    response IncrementalAlterConfigsResponse (IncrementalAlterConfigs) versions 0..=1 flexible 1 {
        throttle_time_ms: i32,
        responses: Vec<IncrementalAlterConfigsResourceResponse>,
    }

    /// What became of one resource.
    struct IncrementalAlterConfigsResourceResponse {
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
        resource_type: i8,
        resource_name: Str,
    }
}
