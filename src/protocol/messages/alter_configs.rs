//! AlterConfigs: replaces all settings of a topic or broker (superseded by
//! IncrementalAlterConfigs, KIP-339).

use crate::protocol::codec::{messages, Str};

messages! {
    /// The settings that each resource shall have.
    request AlterConfigsRequest (AlterConfigs) versions 0..=2 flexible 2 {
        resources: Vec<AlterConfigsResource>,
        validate_only: bool,
    }

    /// What has the settings.
    struct AlterConfigsResource {
        /// As in DescribeConfigs.
        resource_type: i8,
        resource_name: Str,
        configs: Vec<AlterableConfig>,
    }

    /// One setting.
    struct AlterableConfig {
        name: Str,
        value: Option<Str> => { default: Some(Str::default()) },
    }

    /// What became of it.
    response AlterConfigsResponse (AlterConfigs) versions 0..=2 flexible 2 {
        throttle_time_ms: i32,
        responses: Vec<AlterConfigsResourceResponse>,
    }

    /// What became of one resource.
    struct AlterConfigsResourceResponse {
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
        resource_type: i8,
        resource_name: Str,
    }
}
