//! Kafka's rules for topic names.

/// The longest topic name, in characters (a partition's directory name, with the
/// partition and a suffix, must stay within 255).
pub const TOPIC_NAME_LEN_MAX: usize = 249;

/// The topic whose only partition is the metadata log. No client may create it.
pub const METADATA_TOPIC_NAME: &str = "__cluster_metadata";

/// The topic that keeps groups and their committed offsets. Compacted: clients may not ask
/// for that yet, but this topic needs it, to be never deleted from.
pub const OFFSETS_TOPIC_NAME: &str = "__consumer_offsets";

/// Checks a topic name by Kafka's rule: 1 to 249 of `a-z A-Z 0-9 . _ -`, and neither
/// `.` nor `..`. The error is a sentence for the client.
pub fn validate_topic_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("Topic name is invalid: the empty string is not allowed".into());
    }
    if name == "." || name == ".." {
        return Err(format!("Topic name is invalid: '{name}' is not allowed"));
    }
    // The length comes before anything that echoes the name back.
    if name.len() > TOPIC_NAME_LEN_MAX {
        return Err(format!(
            "Topic name is invalid: the length of {} is longer than the max allowed length {TOPIC_NAME_LEN_MAX}",
            name.len()
        ));
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if let Some(c) = name.chars().find(|c| !legal(*c)) {
        return Err(format!(
            "Topic name is invalid: '{}' contains {c:?}; use only ASCII letters, digits, '.', '_' and '-'",
            name.escape_debug()
        ));
    }
    Ok(())
}

/// The name with `.` turned into `_`, for names that hold either: metric names cannot
/// tell them apart, so Kafka refuses a topic whose key is another's. `None` for names
/// that cannot collide.
pub fn collision_key(name: &str) -> Option<String> {
    name.contains(['.', '_']).then(|| name.replace('.', "_"))
}

/// True for the topics that Kafka keeps its own state in.
pub fn is_internal_topic(name: &str) -> bool {
    matches!(
        name,
        METADATA_TOPIC_NAME | OFFSETS_TOPIC_NAME | "__transaction_state" | "__share_group_state"
    )
}
