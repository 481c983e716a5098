//! The broker on any runtime: what the control executor and the shards do from start
//! to end.
//!
//! Nothing here names a thread, a core or a signal, so the same code runs in
//! production (`broker.rs` starts the executors) and in the simulator (its tests).

use super::acceptor::Acceptor;
use super::http::{Admin, Phase};
use super::registry::{Host, Registry};
use super::service::Service;
use crate::config::{BrokerConfig, HostPort};
use crate::observe::Stalls;
use crate::runtime::local::oneshot;
use crate::runtime::native::{ExecutorDied, ServiceManager, StartError};
use crate::runtime::{IoError, Listener, MeshError, Queue, Rt};
use crate::shard::{Control, ControlError, ControlOptions, LoadSummary, Seat, Shard, ShardSizes};
use crate::storage::StartKind;
use futures_lite::future::or;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

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
    /// Where the admin HTTP listens, if it does.
    pub admin: Option<SocketAddr>,
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
    /// The data directory's path can't be made absolute.
    #[error("log.dir: {0}")]
    DataDir(std::io::Error),
    /// The listener's host name has no address.
    #[error("listeners: {host} has no address: {detail}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        detail: String,
    },
    /// A host of `max.connections.per.ip.overrides` has no address.
    #[error("max.connections.per.ip.overrides: {host} has no address: {detail}")]
    ResolveOverride {
        /// The name.
        host: String,
        /// What the resolver said.
        detail: String,
    },
    /// The address is taken, or may not be used.
    #[error("listeners: {0}")]
    Listen(IoError),
    /// The admin HTTP's address is taken, or may not be used.
    #[error("admin.listener: {0}")]
    ListenAdmin(IoError),
    /// The admin HTTP's host name has no address.
    #[error("admin.listener: {host} has no address: {detail}")]
    ResolveAdmin {
        /// The name.
        host: String,
        /// What the resolver said.
        detail: String,
    },
    /// Listening on every address needs an address to tell to clients.
    #[error("listening on {0}, clients need to be told a host name or address: set advertised.listeners (--advertised-listener HOST:PORT)")]
    Advertise(SocketAddr),
    /// SIGINT and SIGTERM could not be taken over.
    #[error("signals can't be received: {0}")]
    Signals(String),
    /// An executor ended by a panic.
    #[error(transparent)]
    Died(#[from] ExecutorDied),
    /// It was told to stop before its partitions were loaded.
    #[error("stopped while partitions were being loaded: nothing is lost, but this was no clean stop, so the next start recovers again")]
    StoppedWhileLoading,
    /// The data directory failed while the broker ran.
    #[error("stopped: {0}; repair the disk, then start again")]
    Failed(String),
}

impl From<MeshError> for ServeError {
    fn from(error: MeshError) -> ServeError {
        ServeError::Control(ControlError::Shard(error))
    }
}

/// What the control executor starts with.
pub(super) struct ControlPlan {
    pub config: BrokerConfig,
    pub addr: SocketAddr,
    /// The CPU of each shard.
    pub cpus: Vec<Option<usize>>,
    pub sizes: ShardSizes,
    /// Where the admin HTTP listens, if it does.
    pub admin_addr: Option<SocketAddr>,
    /// Where stalls are recorded.
    pub stalls: Stalls,
    /// `max.connections.per.ip.overrides`, with the names resolved.
    pub connection_overrides: Vec<(IpAddr, usize)>,
    /// Who is told how it goes.
    pub manager: ServiceManager,
}

/// A control executor that holds the data directory and the port.
pub(super) struct Prepared {
    rt: Rt,
    control: Control,
    listener: Listener,
    admin: Option<Listener>,
    plan: ControlPlan,
}

impl Prepared {
    /// The settings, with what clients are told filled in.
    pub fn config(&self) -> &BrokerConfig {
        &self.plan.config
    }
}

/// Locks the data directory, reads the metadata log, and takes the port.
pub(super) async fn prepare(rt: &Rt, mut plan: ControlPlan) -> Result<Prepared, ServeError> {
    let control = Control::prepare(
        rt,
        &ControlOptions {
            config: Arc::new(plan.config.clone()),
            shards: plan.cpus.len(),
        },
    )
    .await?;
    let listener = rt.listen(plan.addr).await.map_err(ServeError::Listen)?;
    let admin = listen_admin(rt, &plan).await?;
    plan.config.advertised_listener = Some(advertised(&plan.config, listener.local_addr())?);
    Ok(Prepared {
        rt: rt.clone(),
        control,
        listener,
        admin,
        plan,
    })
}

/// Takes the admin port. One that nobody asked for by name is done without.
async fn listen_admin(rt: &Rt, plan: &ControlPlan) -> Result<Option<Listener>, ServeError> {
    let Some(addr) = plan.admin_addr else {
        return Ok(None);
    };
    match rt.listen(addr).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if plan.config.given.get("admin.listener").is_some() => {
            Err(ServeError::ListenAdmin(error))
        }
        Err(error) => {
            tracing::warn!("no metrics over HTTP: admin.listener: {error}");
            Ok(None)
        }
    }
}

/// Runs the control executor until `stop` resolves or the data directory fails.
/// Whatever happens, the shards are released at the end.
pub(super) async fn control(
    prepared: Prepared,
    seat: Seat,
    stop: Pin<Box<dyn Future<Output = ()>>>,
    on_ready: impl FnOnce(&Ready),
) -> Result<(), ServeError> {
    let mut prepared = prepared;
    let control = prepared.control.clone();
    control.join(seat).await;
    let admin = prepared.admin.take().map(|listener| {
        let config = Arc::new(prepared.plan.config.clone());
        let stalls = prepared.plan.stalls.clone();
        Admin::new(&prepared.rt, &control, config, stalls, listener)
    });
    if let Some(admin) = &admin {
        tracing::info!(addr = %admin.addr(), "metrics and health are served over HTTP");
        admin.start();
    }
    let service = Service::new(&prepared.rt, prepared.plan.manager.clone());
    let served = load_and_serve(prepared, admin.as_ref(), &service, stop, on_ready);
    let ended = or(served, async {
        match service.feed_watchdog(&control).await {}
    })
    .await;
    if let Some(admin) = &admin {
        admin.close();
    }
    control.leave().await;
    if ended.is_ok() {
        tracing::info!("stopped cleanly");
    }
    ended
}

/// Runs one shard until the control executor releases it.
pub(super) async fn shard(
    rt: Rt,
    seat: Seat,
    me: usize,
    shards: usize,
    config: Arc<BrokerConfig>,
    sizes: ShardSizes,
) {
    let shard = Shard::start(rt, seat, me, shards, config, &sizes, |shard| {
        Rc::new(Host(Registry::new(shard)))
    })
    .await;
    shard.released().await;
}

async fn load_and_serve(
    prepared: Prepared,
    admin: Option<&Admin>,
    service: &Service,
    mut stop: Pin<Box<dyn Future<Output = ()>>>,
    on_ready: impl FnOnce(&Ready),
) -> Result<(), ServeError> {
    let Prepared {
        rt,
        control,
        listener,
        plan,
        ..
    } = prepared;
    let enter = |phase| {
        if let Some(admin) = admin {
            admin.enter(phase);
        }
    };
    tracing::info!(start = ?control.start_kind(), "loading partitions");
    let (tell, loaded) = oneshot();
    let loading = control.clone();
    // A task of its own, so that a stop need not drop I/O that is under way.
    rt.spawn(Queue::Latency, async move {
        // Nobody waits any more if the stop came first.
        let _ = tell.send(loading.load_shards().await);
    });
    let told_to_stop = async {
        stop.as_mut().await;
        None
    };
    let tell_loading = async { match service.loading(&control).await {} };
    let Some(loaded) = or(told_to_stop, or(loaded, tell_loading)).await else {
        return Err(ServeError::StoppedWhileLoading);
    };
    let shards = plan.cpus.len();
    let loaded = loaded?;
    enter(Phase::Serving);
    let ready = Ready {
        listen: listener.local_addr(),
        advertised: advertised(&plan.config, listener.local_addr())?,
        config: control.config(),
        cpus: plan.cpus,
        sizes: plan.sizes,
        cluster_id: control.cluster_id(),
        start: control.start_kind(),
        loaded,
        admin: admin.map(Admin::addr),
    };
    on_ready(&ready);
    let listener = Rc::new(listener);
    let acceptor = Acceptor {
        rt: rt.clone(),
        control: control.clone(),
        listener: listener.clone(),
        shards,
        overrides: plan.connection_overrides,
    };
    rt.spawn(Queue::Latency, async move { acceptor.run().await });
    let (online, offline) = (ready.loaded.online, ready.loaded.offline.len());
    let serving = format!(
        "READY=1\nSTATUS=Serving on {}: {online} partitions online, {offline} offline",
        ready.listen
    );
    let told_to_stop = async {
        stop.await;
        None
    };
    let tell_serving = async {
        service.tell(&serving).await;
        std::future::pending().await
    };
    let failed = async { Some(control.failed().await) };
    let failure = or(told_to_stop, or(failed, tell_serving)).await;
    listener.close();
    enter(Phase::Stopping);
    service
        .tell("STOPPING=1\nSTATUS=Stopping: connections are drained, then everything is flushed")
        .await;
    match &failure {
        None => tracing::info!("stopping: connections are drained, then everything is flushed"),
        Some(reason) => tracing::error!(%reason, "stopping: the data directory has failed"),
    }
    let stopped = control.stop().await;
    match failure {
        Some(reason) => {
            if let Err(error) = stopped {
                tracing::warn!("{error}");
            }
            Err(ServeError::Failed(reason))
        }
        None => Ok(stopped?),
    }
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
