//! DescribeConfigs: the settings of topics and brokers, and where each comes from.

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for settings.
    request DescribeConfigsRequest (DescribeConfigs) versions 1..=4 flexible 4 {
        resources: Vec<DescribeConfigsResource>,
        include_synonyms: bool,
        include_documentation: bool => { versions: 3.. },
    }

    /// What has the settings.
    struct DescribeConfigsResource {
        /// 2: a topic, 4: a broker, 8: a broker's loggers, 16: client metrics, 32: a group.
        resource_type: i8,
        resource_name: Str,
        /// Null: all of them.
        configuration_keys: Option<Vec<Str>> => { default: Some(Vec::new()) },
    }

    /// The settings.
    response DescribeConfigsResponse (DescribeConfigs) versions 1..=4 flexible 4 {
        throttle_time_ms: i32,
        results: Vec<DescribeConfigsResult>,
    }

    /// The settings of one resource.
    struct DescribeConfigsResult {
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
        resource_type: i8,
        resource_name: Str,
        configs: Vec<DescribeConfigsResourceResult>,
    }

    /// One setting.
    struct DescribeConfigsResourceResult {
        name: Str,
        value: Option<Str> => { default: Some(Str::default()) },
        read_only: bool,
        /// 1: the topic, 2: one broker while it runs, 3: all brokers while they run,
        /// 4: one broker's file, 5: the default.
        config_source: i8 => { default: -1 },
        is_sensitive: bool,
        /// Where the value would come from else, the nearest first.
        synonyms: Vec<DescribeConfigsSynonym>,
        /// 1: boolean, 2: string, 3: int, 4: short, 5: long, 6: double, 7: list,
        /// 8: class, 9: password.
        config_type: i8 => { versions: 3.., ignorable },
        documentation: Option<Str> => {
            versions: 3.., default: Some(Str::default()), ignorable
        },
    }

    /// The same setting in another place.
    struct DescribeConfigsSynonym {
        name: Str,
        value: Option<Str> => { default: Some(Str::default()) },
        /// As `config_source`.
        source: i8,
    }
}
