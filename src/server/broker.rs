//! Start and stop of the whole broker in one process.
//!
//! Start: the control executor locks the data directory, reads the metadata log and
//! binds the listener, so that every reason to refuse is known before a shard runs.
//! Then the shards start, load their partitions, and connections are accepted. Stop
//! is the same backwards, and ends with the clean marker.

use super::registry::{self, Host, Registry};
use crate::config::{BrokerConfig, HostPort};
use crate::runtime::native::{self, ExecutorDied, ExecutorHandle, ExecutorPlan, StartError};
use crate::runtime::{IoError, Listener, MeshError, Queue, Rt};
use crate::shard::{Control, ControlError, ControlOptions, LoadSummary, Seat, Shard, ShardSizes};
use crate::storage::StartKind;
use futures_lite::future::or;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::time::Duration;
use uuid::Uuid;

/// Requests that one executor may have under way at another.
const MESH_WINDOW: usize = 1024;
/// The pause after accept(2) failed, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What is in force once the broker serves.
#[derive(Debug, Clone)]
pub struct Ready {
    /// The address that is listened on.
    pub listen: SocketAddr,
    /// What clients are told.
    pub advertised: HostPort,
    /// The settings.
    pub config: Arc<BrokerConfig>,
    /// The CPU of each shard; `None` for one that is not pinned.
    pub cpus: Vec<Option<usize>>,
    /// The sizes that each shard works within.
    pub sizes: ShardSizes,
    /// The cluster's id.
    pub cluster_id: Uuid,
    /// How the last stop was.
    pub start: StartKind,
    /// What loading found.
    pub loaded: LoadSummary,
}

/// Why the broker did not start, or did not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An executor could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The data directory or the metadata log can't be used.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The listener's host name has no address.
    #[error("listeners: {host} has no address: {detail}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        detail: String,
    },
    /// The address is taken, or may not be used.
    #[error("listeners: {0}")]
    Listen(IoError),
    /// Listening on every address needs an address to tell to clients.
    #[error("listening on {0}, clients need to be told a host name or address: set advertised.listeners (--advertised-listener HOST:PORT)")]
    Advertise(SocketAddr),
    /// SIGINT and SIGTERM could not be taken over.
    #[error("signals can't be received: {0}")]
    Signals(String),
    /// An executor ended by a panic.
    #[error(transparent)]
    Died(#[from] ExecutorDied),
    /// The data directory failed while the broker ran.
    #[error("stopped: {0}; repair the disk, then start again")]
    Failed(String),
}

impl From<MeshError> for ServeError {
    fn from(error: MeshError) -> ServeError {
        ServeError::Control(ControlError::Shard(error))
    }
}

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
/// are accepted.
pub fn start(
    config: BrokerConfig,
    on_ready: impl FnOnce(&Ready) + Send + 'static,
) -> Result<Broker, ServeError> {
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
    let mut seats = native::mesh(shards + 1, MESH_WINDOW);
    let control_seat = seats.pop().expect("one seat for each executor");
    let loads = registry::loads(shards);
    let (bound_tx, bound_rx) = mpsc::channel::<Bound>();
    let control = {
        let (cpus, sizes, loads) = (cpus.clone(), sizes.clone(), loads.clone());
        native::spawn_executor(ExecutorPlan::new("control"), move |rt| {
            control_main(ControlMain {
                rt,
                config,
                addr,
                seat: control_seat,
                cpus,
                sizes,
                loads,
                bound: bound_tx,
                on_ready: Box::new(on_ready),
            })
        })?
    };
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
        let (config, sizes, load) = (config.clone(), sizes.clone(), loads[me].clone());
        handles.push(native::spawn_executor(
            ExecutorPlan {
                cpu: cpus[me],
                ..ExecutorPlan::new(format!("shard-{me}"))
            },
            move |rt| async move {
                let shard = Shard::start(rt, seat, me, shards, config, &sizes, |shard| {
                    Rc::new(Host(Registry::new(shard, load)))
                })
                .await;
                shard.released().await;
            },
        )?);
    }
    Ok(Broker {
        control,
        shards: handles,
    })
}

struct ControlMain {
    rt: Rt,
    config: BrokerConfig,
    addr: SocketAddr,
    seat: Seat,
    cpus: Vec<Option<usize>>,
    sizes: ShardSizes,
    loads: Vec<Arc<AtomicUsize>>,
    bound: mpsc::Sender<Bound>,
    on_ready: Box<dyn FnOnce(&Ready) + Send>,
}

async fn control_main(main: ControlMain) -> Result<(), ServeError> {
    let signals = match native::signals() {
        Ok(signals) => signals,
        Err(error) => return Err(ServeError::Signals(error.to_string())),
    };
    let (control, listener, advertised) = match prepare(&main).await {
        Ok(prepared) => prepared,
        Err(error) => {
            // The main thread returns this error; ours has nothing to add.
            let _ = main.bound.send(Err(error));
            return Ok(());
        }
    };
    let listen = listener.local_addr();
    let mut config = main.config;
    config.advertised_listener = Some(advertised.clone());
    if main.bound.send(Ok(config.clone())).is_err() {
        return Ok(());
    }
    control.join(main.seat).await;
    let loaded = control.load_shards().await?;
    (main.on_ready)(&Ready {
        listen,
        advertised,
        config: Arc::new(config.clone()),
        cpus: main.cpus,
        sizes: main.sizes,
        cluster_id: control.cluster_id(),
        start: control.start_kind(),
        loaded,
    });
    let listener = Rc::new(listener);
    let acceptor = {
        let (control, listener, rt) = (control.clone(), listener.clone(), main.rt.clone());
        let connections_max = config.max_connections as usize;
        let loads = main.loads;
        async move { accept(&rt, &control, &listener, &loads, connections_max).await }
    };
    main.rt.spawn(Queue::Latency, acceptor);
    let failure = or(
        async {
            signals.recv().await;
            None
        },
        async { Some(control.failed().await) },
    )
    .await;
    listener.close();
    match &failure {
        None => tracing::info!("stopping: connections are drained, then everything is flushed"),
        Some(reason) => tracing::error!(%reason, "stopping: the data directory has failed"),
    }
    let stopped = control.stop().await;
    control.leave().await;
    match failure {
        Some(reason) => Err(ServeError::Failed(reason)),
        None => {
            stopped?;
            tracing::info!("stopped cleanly");
            Ok(())
        }
    }
}

async fn prepare(main: &ControlMain) -> Result<(Control, Listener, HostPort), ServeError> {
    let control = Control::prepare(
        &main.rt,
        &ControlOptions {
            config: Arc::new(main.config.clone()),
            shards: main.cpus.len(),
        },
    )
    .await?;
    let listener = main
        .rt
        .listen(main.addr)
        .await
        .map_err(ServeError::Listen)?;
    let advertised = advertised(&main.config, listener.local_addr())?;
    Ok((control, listener, advertised))
}

/// What clients are told: the setting, or the address that is listened on.
fn advertised(config: &BrokerConfig, listen: SocketAddr) -> Result<HostPort, ServeError> {
    match &config.advertised_listener {
        Some(address) if address.port != 0 => Ok(address.clone()),
        Some(address) => Ok(HostPort {
            host: address.host.clone(),
            port: listen.port(),
        }),
        None if listen.ip().is_unspecified() => Err(ServeError::Advertise(listen)),
        None => Ok(HostPort {
            host: config.listener.host.clone(),
            port: listen.port(),
        }),
    }
}

async fn accept(
    rt: &Rt,
    control: &Control,
    listener: &Listener,
    loads: &[Arc<AtomicUsize>],
    connections_max: usize,
) {
    loop {
        let accepted = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) if error.kind == crate::runtime::IoErrorKind::Disconnected => return,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                rt.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let counts: Vec<usize> = loads
            .iter()
            .map(|load| load.load(Ordering::Relaxed))
            .collect();
        if counts.iter().sum::<usize>() >= connections_max {
            tracing::warn!(
                limit = connections_max,
                "connection refused: max.connections are open"
            );
            drop(accepted);
            continue;
        }
        let shard = (0..counts.len())
            .min_by_key(|shard| counts[*shard])
            .expect("there is at least one shard");
        loads[shard].fetch_add(1, Ordering::Relaxed);
        if let Err(error) = control.connection(shard, accepted).await {
            tracing::error!(%error, "a connection could not be handed over");
            return;
        }
    }
}

fn resolve(listener: &HostPort) -> Result<SocketAddr, ServeError> {
    native::resolve(&listener.host, listener.port).map_err(|error| ServeError::Resolve {
        host: listener.host.clone(),
        detail: error.to_string(),
    })
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
