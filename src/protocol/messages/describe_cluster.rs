//! DescribeCluster: the brokers, or the controllers, of the cluster (KIP-700, KIP-919).

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for the cluster.
    request DescribeClusterRequest (DescribeCluster) versions 0..=2 flexible 0 {
        include_cluster_authorized_operations: bool,
        /// 1: brokers, 2: controllers.
        endpoint_type: i8 => { versions: 1.., default: 1 },
        /// Fenced brokers too (KIP-1073).
        include_fenced_brokers: bool => { versions: 2.. },
    }

    /// The cluster.
    response DescribeClusterResponse (DescribeCluster) versions 0..=2 flexible 0 {
        throttle_time_ms: i32,
        error_code: i16,
        error_message: Option<Str>,
        /// 1: brokers, 2: controllers.
        endpoint_type: i8 => { versions: 1.., default: 1 },
        cluster_id: Str,
        controller_id: i32 => { default: -1 },
        brokers: Vec<DescribeClusterBroker>,
        /// A bit for each operation (KIP-430); `i32::MIN`: it was not asked for.
        cluster_authorized_operations: i32 => { default: i32::MIN },
    }

    /// A broker, or a controller.
    struct DescribeClusterBroker {
        broker_id: i32,
        host: Str,
        port: i32,
        rack: Option<Str>,
        is_fenced: bool => { versions: 2.. },
    }
}
