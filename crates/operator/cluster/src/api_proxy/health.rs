//! Health checks of the API servers: `/readyz` over TLS, since a server that hangs accepts connections.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Config, Request, Source};
use tokio::time::MissedTickBehavior;

use super::servers::Servers;
use crate::layout::Layout;

const INTERVAL: Duration = Duration::from_secs(1);
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// Consecutive failures after which a server is lost. One may be a connection that the server closed.
const FAILURES: u32 = 2;

/// Checks all servers until it is dropped.
pub(super) async fn check_servers(servers: Arc<Servers>, layout: Layout) {
    let mut checks: HashMap<String, Check> = HashMap::new();
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let names = servers.list();
        checks.retain(|name, _| names.contains(name));
        for name in &names {
            let new = || Check::new(name, &layout);
            checks.entry(name.clone()).or_insert_with(new);
        }
        let results = checks
            .iter_mut()
            .map(|(name, check)| async move { (name.clone(), check.is_healthy().await) });
        for (name, is_healthy) in futures::future::join_all(results).await {
            servers.set_health(&name, is_healthy);
        }
    }
}

struct Check {
    client: Client,
    failures: u32,
}

impl Check {
    fn new(name: &str, layout: &Layout) -> Self {
        // Without a credential: health checks need none.
        let config = Config::builder(format!("https://{name}"))
            .with_ca(Source::File(layout.pki().join("ca.crt")))
            .user_agent("ironclad");
        Self {
            client: Client::new(config),
            failures: 0,
        }
    }

    /// Returns whether the server is ready, or failed for the first time.
    async fn is_healthy(&mut self) -> bool {
        let mut request = Request::get("/readyz");
        request.timeout = Some(CHECK_TIMEOUT);
        let response = tokio::time::timeout(CHECK_TIMEOUT, self.client.bytes(request)).await;
        if matches!(response, Ok(Ok(_))) {
            self.failures = 0;
            return true;
        }
        // A connection whose other end hangs would be used again.
        self.client.reconnect().await;
        self.failures = self.failures.saturating_add(1);
        self.failures < FAILURES
    }
}
