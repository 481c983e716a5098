//! Start and stop of the whole broker in one process.
//!
//! Start: the control executor locks the data directory, reads the metadata log and
//! binds the listener, so that every reason to refuse is known before a shard runs.
//! Then the shards start, load their partitions, and connections are accepted. Stop
//! is the same backwards, and ends with the clean marker.

use super::run::{self, ControlPlan, Ready, ServeError};
use crate::config::{BrokerConfig, HostPort};
use crate::observe::Stalls;
use crate::protocol::ApiKey;
use crate::runtime::native::{self, ExecutorHandle, ExecutorPlan, ServiceManager, StallWatch};
use crate::runtime::Rt;
use crate::shard::{ControlError, Seat, ShardSizes};
use std::net::{IpAddr, SocketAddr};
use std::sync::{mpsc, Arc};
use std::time::Duration;

/// Requests that one executor may have under way at another.
const MESH_WINDOW: usize = 1024;
/// A broker that is being started.
pub struct Broker {
    control: ExecutorHandle<Result<(), ServeError>>,
    shards: Vec<ExecutorHandle<()>>,
}

impl Broker {
    /// Waits for the broker's end: a signal, or a failure.
    pub fn join(self) -> Result<(), ServeError> {
        let ended = self.control.join()?;
        for shard in self.shards {
            shard.join()?;
        }
        ended
    }
}

/// What the control executor tells before the shards may start.
type Bound = Result<BrokerConfig, ServeError>;

/// Starts the broker. `on_ready` is called on the control executor when connections
/// are accepted; `manager` is told how the start goes on, and that it lives.
pub fn start(
    mut config: BrokerConfig,
    manager: ServiceManager,
    on_ready: impl FnOnce(&Ready) + Send + 'static,
) -> Result<Broker, ServeError> {
    // Clients are told where it lies, whatever directory this process runs in.
    for dir in &mut config.data_dirs {
        *dir = native::absolute(dir).map_err(ServeError::DataDir)?;
    }
    for (at, one) in config.data_dirs.iter().enumerate() {
        let mut others = config.data_dirs[..at].iter();
        if let Some(other) = others.find(|other| native::is_same_place(one, other)) {
            return Err(ServeError::Control(ControlError::Twins {
                one: other.display().to_string(),
                other: one.display().to_string(),
            }));
        }
    }
    let usable = native::cpus();
    let shards = match config.shards {
        0 => usable.len().max(1),
        asked => asked,
    };
    let pinned = shards <= usable.len();
    let cpus: Vec<Option<usize>> = (0..shards)
        .map(|shard| usable.get(shard).copied().filter(|_| pinned))
        .collect();
    let (_, files_max) = native::raise_nofile_limit();
    let sizes = sizes(&config, shards, files_max);
    let addr = resolve(&config.listener)?;
    let admin_addr = resolve_admin(&config)?;
    let connection_overrides = resolve_overrides(&config)?;
    let stalls = Stalls::new(|key| ApiKey::declared(key).map(ApiKey::name));
    let watch = (config.stall_threshold_ms > 0).then(|| StallWatch {
        stalls: stalls.clone(),
        threshold: Duration::from_millis(config.stall_threshold_ms.into()),
    });
    let mut seats = native::mesh(shards + 1, MESH_WINDOW);
    let control_seat = seats.pop().expect("one seat for each executor");
    let (bound_tx, bound_rx) = mpsc::channel::<Bound>();
    let plan = ControlPlan {
        config,
        addr,
        cpus: cpus.clone(),
        sizes: sizes.clone(),
        admin_addr,
        stalls,
        connection_overrides,
        manager,
    };
    let executor = |name: String| ExecutorPlan {
        stalls: watch.clone(),
        ..ExecutorPlan::new(name)
    };
    let control = native::spawn_executor(executor("control".to_owned()), move |rt| {
        control_main(rt, plan, control_seat, bound_tx, on_ready)
    })?;
    let bound = match bound_rx.recv() {
        Ok(Ok(bound)) => bound,
        Ok(Err(error)) => {
            control.join()??;
            return Err(error);
        }
        Err(_) => {
            control.join()??;
            unreachable!("the control executor says what it bound, or why it did not")
        }
    };
    let config = Arc::new(bound);
    let mut handles = Vec::with_capacity(shards);
    for (me, seat) in seats.into_iter().enumerate() {
        let (config, sizes) = (config.clone(), sizes.clone());
        handles.push(native::spawn_executor(
            ExecutorPlan {
                cpu: cpus[me],
                ..executor(format!("shard-{me}"))
            },
            move |rt| run::shard(rt, seat, me, shards, config, sizes),
        )?);
    }
    Ok(Broker {
        control,
        shards: handles,
    })
}

async fn control_main(
    rt: Rt,
    plan: ControlPlan,
    seat: Seat,
    bound: mpsc::Sender<Bound>,
    on_ready: impl FnOnce(&Ready),
) -> Result<(), ServeError> {
    let signals = match native::signals() {
        Ok(signals) => signals,
        Err(error) => return Err(ServeError::Signals(error.to_string())),
    };
    let prepared = match run::prepare(&rt, plan).await {
        Ok(prepared) => prepared,
        Err(error) => {
            // The main thread returns this error; ours has nothing to add.
            let _ = bound.send(Err(error));
            return Ok(());
        }
    };
    if bound.send(Ok(prepared.config().clone())).is_err() {
        return Ok(());
    }
    let stop = Box::pin(async move {
        // Either signal means the same.
        signals.recv().await;
    });
    run::control(prepared, seat, stop, on_ready).await
}

fn resolve(listener: &HostPort) -> Result<SocketAddr, ServeError> {
    native::resolve(&listener.host, listener.port).map_err(|error| ServeError::Resolve {
        host: listener.host.clone(),
        detail: error.to_string(),
    })
}

fn resolve_admin(config: &BrokerConfig) -> Result<Option<SocketAddr>, ServeError> {
    let Some(listener) = &config.admin_listener else {
        return Ok(None);
    };
    match native::resolve(&listener.host, listener.port) {
        Ok(addr) => Ok(Some(addr)),
        Err(error) => Err(ServeError::ResolveAdmin {
            host: listener.host.clone(),
            detail: error.to_string(),
        }),
    }
}

/// As Kafka does: once, when it starts.
fn resolve_overrides(config: &BrokerConfig) -> Result<Vec<(IpAddr, usize)>, ServeError> {
    let overrides = &config.max_connections_per_ip_overrides;
    overrides
        .iter()
        .map(|(host, limit)| match native::resolve(host, 0) {
            Ok(addr) => Ok((addr.ip(), *limit as usize)),
            Err(error) => Err(ServeError::ResolveOverride {
                host: host.clone(),
                detail: error.to_string(),
            }),
        })
        .collect()
}

/// Shares of memory: requests 1/16 of RAM over all shards, the cache 1/8, each with
/// a cap for one shard.
fn sizes(config: &BrokerConfig, shards: usize, files_max: u64) -> ShardSizes {
    let ram = native::ram_bytes();
    let shards = shards as u64;
    let request_bytes = match config.request_memory_bytes {
        0 => (ram / 16 / shards).min(1 << 30),
        total => total / shards,
    }
    .max(1 << 20);
    let cache_bytes = match config.cache_bytes {
        0 => (ram / 8 / shards).min(4 << 30),
        total => total / shards,
    };
    ShardSizes {
        request_bytes,
        response_bytes: request_bytes,
        frame_bytes_max: u64::from(config.socket_request_max_bytes).min(request_bytes / 8) as usize,
        write_bytes: (request_bytes / 4).max(16 << 20),
        cache_bytes,
        cold_read_bytes: (request_bytes / 4).max(16 << 20),
        open_segments_max: (files_max / 2 / shards).max(64) as usize,
    }
}
