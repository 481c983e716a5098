//! DescribeUserScramCredentials: which users can log in with SCRAM (KIP-554).

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for users.
    request DescribeUserScramCredentialsRequest (DescribeUserScramCredentials) versions 0..=0 flexible 0 {
        /// Null or empty: all.
        users: Option<Vec<ScramUserName>> => { default: Some(Vec::new()) },
    }

    /// A user (Kafka's `UserName`).
    struct ScramUserName {
        name: Str,
    }

    /// The users.
    response DescribeUserScramCredentialsResponse (DescribeUserScramCredentials) versions 0..=0 flexible 0 {
        throttle_time_ms: i32,
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
        results: Vec<DescribeUserScramCredentialsResult>,
    }

    /// One user.
    struct DescribeUserScramCredentialsResult {
        user: Str,
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
        credential_infos: Vec<ScramCredentialInfo>,
    }

    /// A credential, without the secret (Kafka's `CredentialInfo`).
    struct ScramCredentialInfo {
        /// 1: SCRAM-SHA-256, 2: SCRAM-SHA-512.
        mechanism: i8,
        iterations: i32,
    }
}
