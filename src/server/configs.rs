//! DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.
//!
//! What is described is read from the table of settings (`config/`). Topics and brokers are
//! altered by the controller, and the answer leaves after every shard has put the change in
//! force.
//!
//! An answer can be far larger than its request, so the memory of a description is
//! reserved before it is made, and one that could not be sent is refused.

use super::respond::{Answer, Asked, BadRequest};
use crate::config::{
    describe_broker, describe_cluster, describe_topic, ConfigSource, ConfigType, Described, Given,
};
use crate::controller::{
    AlterConfigOp, ConfigTarget, ConfigsAlteration, ConfigsChange, ControllerFault,
};
use crate::metadata::validate_topic_name;
use crate::observe::log_levels;
use crate::protocol::messages::{
    AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse,
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
    DescribeConfigsResponse, DescribeConfigsResult, DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
};
use crate::protocol::{ErrorCode, Str};
use crate::shard::Shard;

/// Answers DescribeConfigs.
pub(super) async fn describe(
    shard: &Shard,
    asked: Asked,
    request: DescribeConfigsRequest,
) -> Result<Answer, BadRequest> {
    let detail = Detail {
        synonyms: request.include_synonyms,
        documentation: request.include_documentation,
    };
    let bytes_max = DESCRIPTION_BYTES_MAX.min(shard.memory().response_bytes_max());
    let bytes = detail.bytes_of_all(shard, &request.resources, bytes_max);
    // One alone is always described.
    let refusal = (bytes > bytes_max && request.resources.len() > 1).then(|| {
        invalid_request(format!(
            "The answer would be too large; describe fewer than {} resources in one request.",
            (bytes_max / detail.bytes_per_resource()).max(2)
        ))
    });
    let charge = match refusal {
        None => Some(shard.memory().whole_response(bytes as usize).await),
        Some(_) => None,
    };
    let mut results = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let described = match &refusal {
            None => settings_of(shard, &resource),
            Some(fault) => Err(fault.clone()),
        };
        results.push(detail.result(resource, described));
        shard.rt().yield_if_needed().await;
    }
    let response = DescribeConfigsResponse {
        results,
        ..Default::default()
    };
    let mut answer = asked.answer(&response)?;
    answer.charge = charge;
    Ok(answer)
}

/// Answers AlterConfigs.
pub(super) async fn alter(
    shard: &Shard,
    asked: Asked,
    request: AlterConfigsRequest,
) -> Result<Answer, BadRequest> {
    let mut resources = Vec::with_capacity(request.resources.len());
    let mut changes = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let configs = resource.configs.into_iter();
        let pairs = configs.map(|config| (config.name.to_string(), owned(config.value)));
        changes.push(ConfigsChange::Replace(pairs.collect()));
        resources.push((resource.resource_type, resource.resource_name));
    }
    let results = apply(shard, &resources, changes, request.validate_only).await;
    let responses = resources.into_iter().zip(results);
    let responses = responses.map(|((resource_type, resource_name), result)| {
        let (error_code, error_message) = outcome(result);
        AlterConfigsResourceResponse {
            error_code,
            error_message,
            resource_type,
            resource_name,
        }
    });
    Ok(asked.answer(&AlterConfigsResponse {
        responses: responses.collect(),
        ..Default::default()
    })?)
}

/// Answers IncrementalAlterConfigs.
pub(super) async fn alter_incrementally(
    shard: &Shard,
    asked: Asked,
    request: IncrementalAlterConfigsRequest,
) -> Result<Answer, BadRequest> {
    let mut resources = Vec::with_capacity(request.resources.len());
    let mut changes = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let configs = resource.configs.into_iter();
        let ops = configs.map(|config| {
            let op = operation(config.config_operation, owned(config.value));
            (config.name.to_string(), op)
        });
        changes.push(ConfigsChange::Incremental(ops.collect()));
        resources.push((resource.resource_type, resource.resource_name));
    }
    let results = apply(shard, &resources, changes, request.validate_only).await;
    let responses = resources.into_iter().zip(results);
    let responses = responses.map(|((resource_type, resource_name), result)| {
        let (error_code, error_message) = outcome(result);
        IncrementalAlterConfigsResourceResponse {
            error_code,
            error_message,
            resource_type,
            resource_name,
        }
    });
    Ok(asked.answer(&IncrementalAlterConfigsResponse {
        responses: responses.collect(),
        ..Default::default()
    })?)
}

/// The settings of a resource as the table has them.
fn settings_of(
    shard: &Shard,
    resource: &DescribeConfigsResource,
) -> Result<Vec<Described>, ControllerFault> {
    let name = resource.resource_name.as_str();
    let wanted = |described: &Described| match &resource.configuration_keys {
        // Null, and as in Kafka an empty list too, stands for all.
        Some(keys) if !keys.is_empty() => keys.iter().any(|key| *key == described.name),
        _ => true,
    };
    let config = shard.config();
    match resource.resource_type {
        TOPIC => {
            let invalid = |message| ControllerFault::new(ErrorCode::InvalidTopicException, message);
            validate_topic_name(name).map_err(invalid)?;
            let topic = shard.image().and_then(|image| image.topic(name).cloned());
            let topic = topic.ok_or_else(|| {
                ControllerFault::new(
                    ErrorCode::UnknownTopicOrPartition,
                    format!("The topic '{name}' does not exist."),
                )
            })?;
            let all = describe_topic(&config, &topic.configs);
            Ok(all.filter(wanted).collect())
        }
        BROKER if name.is_empty() => Ok(describe_cluster(&config).filter(wanted).collect()),
        BROKER => {
            this_broker(shard, name, "expected {} or empty string,")?;
            Ok(describe_broker(&config).filter(wanted).collect())
        }
        BROKER_LOGGER if name.is_empty() => Err(invalid_request("Broker id must not be empty")),
        BROKER_LOGGER => {
            this_broker(shard, name, "expected {}")?;
            Ok(describe_loggers().filter(wanted).collect())
        }
        // They have none of their own, which Kafka says in the same way.
        CLIENT_METRICS if name.is_empty() => Err(invalid_request(
            "Client metrics subscription name must not be empty",
        )),
        GROUP if name.is_empty() => Err(invalid_request("Group name must not be empty")),
        CLIENT_METRICS | GROUP => Ok(Vec::new()),
        other => Err(unsupported_type(other)),
    }
}

/// The levels that the log started with; nothing changes them while the broker runs.
fn describe_loggers() -> impl Iterator<Item = Described> {
    log_levels().iter().map(|(name, level)| Described {
        name,
        value: Some(level.clone()),
        source: ConfigSource::DynamicBrokerLogger,
        read_only: true,
        config_type: ConfigType::String,
        doc: "The least level that is logged; set HIGHWATER_LOG and restart the broker to change it.",
        synonyms: Vec::new(),
    })
}

/// What of a setting was asked for.
struct Detail {
    synonyms: bool,
    documentation: bool,
}

impl Detail {
    /// What the description of one resource takes, roughly, in memory and on the wire.
    fn bytes_per_resource(&self) -> u64 {
        let per_setting =
            300 + if self.synonyms { 400 } else { 0 } + if self.documentation { 200 } else { 0 };
        per_setting * SETTINGS_PER_RESOURCE
    }

    /// The same of all resources of a request; once it is too much, no more is looked at.
    fn bytes_of_all(
        &self,
        shard: &Shard,
        resources: &[DescribeConfigsResource],
        bytes_max: u64,
    ) -> u64 {
        let mut bytes = 0;
        for resource in resources {
            bytes += self.bytes_of(shard, resource);
            if bytes > bytes_max {
                break;
            }
        }
        bytes
    }

    /// The same with the values that were given, which can be long: the topic's own, and
    /// those of the broker that stand under them.
    fn bytes_of(&self, shard: &Shard, resource: &DescribeConfigsResource) -> u64 {
        let name = resource.resource_name.as_str();
        let topic = shard.image().and_then(|image| image.topic(name).cloned());
        let own = topic.map_or(0, |topic| topic.configs.values().map(String::len).sum());
        let config = shard.config();
        let layers = [&config.given, &config.dynamic_cluster, &config.dynamic_own];
        let given = layers.into_iter().flat_map(Given::iter);
        let given: usize = given.map(|(_, value)| value.len()).sum();
        self.bytes_per_resource() + 4 * (own + given) as u64
    }

    fn result(
        &self,
        resource: DescribeConfigsResource,
        described: Result<Vec<Described>, ControllerFault>,
    ) -> DescribeConfigsResult {
        let (configs, (error_code, error_message)) = match described {
            Ok(all) => (
                all.into_iter().map(|one| self.setting(one)).collect(),
                outcome(Ok(())),
            ),
            Err(fault) => (Vec::new(), outcome(Err(fault))),
        };
        DescribeConfigsResult {
            error_code,
            error_message,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            configs,
        }
    }

    fn setting(&self, described: Described) -> DescribeConfigsResourceResult {
        let synonyms = match self.synonyms {
            true => described.synonyms,
            false => Vec::new(),
        };
        DescribeConfigsResourceResult {
            name: Str::from_static(described.name),
            value: described.value.map(Str::from),
            read_only: described.read_only,
            config_source: described.source as i8,
            is_sensitive: false,
            synonyms: synonyms
                .into_iter()
                .map(|synonym| DescribeConfigsSynonym {
                    name: Str::from_static(synonym.name),
                    value: Some(Str::from(synonym.value)),
                    source: synonym.source as i8,
                })
                .collect(),
            config_type: described.config_type as i8,
            documentation: self
                .documentation
                .then_some(Str::from_static(described.doc)),
        }
    }
}

/// Brings the changes of topics and of this broker to the controller and refuses all others.
/// One result for each resource, in order.
async fn apply(
    shard: &Shard,
    resources: &[(i8, Str)],
    changes: Vec<ConfigsChange>,
    validate_only: bool,
) -> Vec<Result<(), ControllerFault>> {
    let mut results = Vec::with_capacity(resources.len());
    let mut alterations = Vec::new();
    let mut places = Vec::new();
    for ((resource_type, name), change) in resources.iter().zip(changes) {
        let target = match *resource_type {
            TOPIC => Ok(ConfigTarget::Topic(name.to_string())),
            BROKER if name.is_empty() => Ok(ConfigTarget::Broker(None)),
            BROKER => {
                this_broker(shard, name, "expected {},").map(|id| ConfigTarget::Broker(Some(id)))
            }
            other => Err(unsupported_type(other)),
        };
        let refused = target.map(|target| {
            places.push(results.len());
            alterations.push(ConfigsAlteration { target, change });
        });
        results.push(refused);
    }
    if alterations.is_empty() {
        return results;
    }
    match shard.alter_configs(alterations, validate_only).await {
        Ok(altered) => {
            for (place, result) in places.into_iter().zip(altered) {
                results[place] = result;
            }
        }
        Err(code) => {
            for place in places {
                results[place] = Err(ControllerFault::new(code, "The broker is stopping."));
            }
        }
    }
    results
}

/// The id of this broker, if that is what the name of the resource says; `expected` is how
/// Kafka puts it otherwise.
fn this_broker(shard: &Shard, name: &str, expected: &str) -> Result<i32, ControllerFault> {
    let node_id = shard.config().node_id;
    let id: i32 = name
        .parse()
        .map_err(|_| invalid_request(format!("Broker id must be an integer, but it is: {name}")))?;
    if id != node_id {
        let expected = expected.replace("{}", &node_id.to_string());
        return Err(invalid_request(format!(
            "Unexpected broker id, {expected} but received {name}"
        )));
    }
    Ok(id)
}

fn operation(number: i8, value: Option<String>) -> AlterConfigOp {
    match number {
        0 => AlterConfigOp::Set(value),
        1 => AlterConfigOp::Delete,
        2 => AlterConfigOp::Append(value),
        3 => AlterConfigOp::Subtract(value),
        _ => AlterConfigOp::Unknown(number),
    }
}

fn unsupported_type(resource_type: i8) -> ControllerFault {
    let what = match resource_type {
        8 => "the levels of loggers change with HIGHWATER_LOG and a restart",
        16 => "there are no client metrics",
        32 => "groups have no settings of their own",
        _ => "use 2 (topic) or 4 (broker)",
    };
    invalid_request(format!(
        "Unsupported resource type: {resource_type} ({what})."
    ))
}

fn outcome(result: Result<(), ControllerFault>) -> (i16, Option<Str>) {
    match result {
        Ok(()) => (ErrorCode::None.code(), None),
        Err(fault) => (fault.code.code(), Some(Str::from(fault.message))),
    }
}

fn invalid_request(message: impl Into<String>) -> ControllerFault {
    ControllerFault::new(ErrorCode::InvalidRequest, message)
}

fn owned(value: Option<Str>) -> Option<String> {
    value.map(|value| value.to_string())
}

/// DescribeConfigs' number of a topic.
const TOPIC: i8 = 2;
/// DescribeConfigs' number of a broker.
const BROKER: i8 = 4;
/// DescribeConfigs' number of a broker's loggers.
const BROKER_LOGGER: i8 = 8;
/// DescribeConfigs' number of a client's metrics.
const CLIENT_METRICS: i8 = 16;
/// DescribeConfigs' number of a group.
const GROUP: i8 = 32;
/// How many settings a topic or a broker has, rounded up.
const SETTINGS_PER_RESOURCE: u64 = 110;
/// The most that one answer may take, by the estimate of [`Detail::bytes_per_resource`].
const DESCRIPTION_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BrokerConfig, SETTINGS};

    #[test]
    fn the_estimate_covers_every_setting() {
        let broker = BrokerConfig::default();
        let counts = [
            describe_broker(&broker).count(),
            describe_topic(&broker, &Default::default()).count(),
        ];
        for count in counts {
            assert!(count as u64 <= SETTINGS_PER_RESOURCE, "{count}");
        }
        let settings = SETTINGS.iter();
        let docs: usize = settings.map(|row| row.doc.len()).sum();
        assert!(docs / SETTINGS.len() < 200, "{docs} bytes of documentation");
    }
}
