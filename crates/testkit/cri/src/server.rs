//! Serves the fake runtime on a socket until its handle is dropped.

use crate::dispatch::handle_call;
use crate::state::State;
use anyhow::Context;
use base_task::{CancellationToken, Tasks};
use futures::future::BoxFuture;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::DropGuard;
use tonic::body::Body;

/// A running fake runtime; dropping it stops it.
pub struct FakeRuntime {
    endpoint: String,
    state: Arc<State>,
    _stop: DropGuard,
}

impl std::fmt::Debug for FakeRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeRuntime")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl FakeRuntime {
    /// Serves on `folder/simulated.sock`; sandboxes have addresses of 10.88.0.0/16.
    ///
    /// # Errors
    /// The socket can't be made.
    pub async fn start(folder: &Path) -> anyhow::Result<Self> {
        Self::start_in(folder, Ipv4Addr::new(10, 88, 0, 0)).await
    }

    /// Serves on `folder/simulated.sock`; sandboxes have addresses of the /16 of `network`.
    ///
    /// # Errors
    /// The socket can't be made.
    pub async fn start_in(folder: &Path, network: Ipv4Addr) -> anyhow::Result<Self> {
        tokio::fs::create_dir_all(folder)
            .await
            .with_context(|| format!("can't create {}", folder.display()))?;
        let path = folder.join("simulated.sock");
        // A former process may have left a socket.
        let _ = tokio::fs::remove_file(&path).await;
        let listener = UnixListener::bind(&path)
            .with_context(|| format!("can't listen on {}", path.display()))?;
        let stop = CancellationToken::new();
        let tasks = Tasks::new(stop.clone());
        let state = State::new(tasks.clone(), network);
        let server = serve_calls(state.clone(), listener, stop.clone());
        tasks.spawn_critical("simulated runtime", async move {
            if let Err(e) = server.await {
                tracing::error!(error = %e, "the simulated runtime ended");
            }
        });
        Ok(FakeRuntime {
            endpoint: format!("unix://{}", path.display()),
            state,
            _stop: stop.drop_guard(),
        })
    }

    /// Returns the number of calls of the runtime and image services so far.
    pub fn calls(&self) -> u64 {
        self.state.calls.load(Ordering::Relaxed)
    }

    /// Returns the endpoint (`unix://...`).
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

/// Serves calls until `stop`. Boxed here, so that its code is not compiled again in each caller.
fn serve_calls(
    state: Arc<State>,
    listener: UnixListener,
    stop: CancellationToken,
) -> BoxFuture<'static, Result<(), tonic::transport::Error>> {
    let calls = tower::service_fn(move |request: http::Request<axum::body::Body>| {
        handle_call(state.clone(), request.map(Body::new))
    });
    let served = tonic::transport::Server::builder()
        .add_routes(axum::Router::new().fallback_service(calls).into())
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop.cancelled_owned());
    Box::pin(served)
}
