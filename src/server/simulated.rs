//! The whole broker on a machine of the simulator: for tests, and for whoever counts the work of a request.
//!
//! The code is the broker's own from the accepted connection to the log; what stands in for the system is the
//! simulator's. It has no CPUs to pin to, no stalls to watch and no service manager.

use super::run::{self, ControlPlan, Ready, ServeError};
use crate::config::BrokerConfig;
use crate::observe::Stalls;
use crate::runtime::local::{oneshot, OneshotReceiver, OneshotSender};
use crate::runtime::native::ServiceManager;
use crate::runtime::sim::{self, SimNode};
use crate::runtime::{Queue, Rt};
use crate::shard::ShardSizes;
use std::net::SocketAddr;
use std::sync::Arc;

/// What a simulated broker starts with.
pub struct SimulatedPlan {
    /// The settings. The listener's port is taken on the machine's own address.
    pub config: BrokerConfig,
    /// Executors that own partitions and connections.
    pub shards: usize,
    /// The sizes that each shard works within.
    pub sizes: ShardSizes,
    /// Requests that one executor may have under way at another.
    pub mesh_window: usize,
    /// Where the admin HTTP listens, if it does.
    pub admin: Option<SocketAddr>,
}

/// A simulated broker that serves.
pub struct Simulated {
    /// What is in force.
    pub ready: Ready,
    /// Tells it to stop. Dropped, it runs on until its machine or its world ends.
    pub stop: OneshotSender<()>,
    /// How it ended. A machine that loses its power tells nothing.
    pub ended: OneshotReceiver<Result<(), ServeError>>,
}

/// Starts the broker on `node`, and waits until it serves. To be run on the executor after those of the shards,
/// `node.rt_shard(plan.shards)`.
///
/// # Errors
/// It refuses to start, or ends before it serves: as the real one would.
pub async fn start_simulated(node: SimNode, plan: SimulatedPlan) -> Result<Simulated, ServeError> {
    let SimulatedPlan {
        config,
        shards,
        sizes,
        mesh_window,
        admin,
    } = plan;
    let rt = node.rt_shard(shards);
    let plan = ControlPlan {
        addr: SocketAddr::new(node.ip(), config.listener.port),
        config,
        cpus: vec![None; shards],
        sizes: sizes.clone(),
        admin_addr: admin,
        stalls: Stalls::new(|_| None),
        connection_overrides: Vec::new(),
        manager: ServiceManager::default(),
    };
    let executors: Vec<Rt> = (0..shards).map(|shard| node.rt_shard(shard)).collect();
    let prepared = run::prepare(&rt, plan).await?;
    let config = Arc::new(prepared.config().clone());
    let mut seats = sim::mesh(shards + 1, mesh_window);
    let seat = seats.pop().expect("one seat for each executor");
    for (me, (seat, rt)) in seats.into_iter().zip(executors).enumerate() {
        let (config, sizes) = (config.clone(), sizes.clone());
        rt.clone().spawn(
            Queue::Latency,
            run::shard(rt, seat, me, shards, config, sizes),
        );
    }
    let (stop, stopped) = oneshot::<()>();
    let (tell_ready, is_ready) = oneshot();
    let (end, mut ended) = oneshot();
    rt.spawn(Queue::Latency, async move {
        let stop = Box::pin(async move {
            if stopped.await.is_none() {
                // Nobody can stop it any more.
                std::future::pending::<()>().await;
            }
        });
        let told = |ready: &Ready| {
            // Nobody waits if the world ends here.
            let _ = tell_ready.send(ready.clone());
        };
        let result = run::control(prepared, seat, stop, told).await;
        let _ = end.send(result);
    });
    match is_ready.await {
        Some(ready) => Ok(Simulated { ready, stop, ended }),
        None => match (&mut ended).await {
            Some(Err(error)) => Err(error),
            Some(Ok(())) | None => unreachable!("it ends well only after it was told to stop"),
        },
    }
}
