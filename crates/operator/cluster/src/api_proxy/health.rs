//! Health checks of the API servers: `/readyz` over TLS, since a server that hangs accepts
//! connections.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Config, Request, Source};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};

use super::servers::{CheckResult, Servers};
use crate::connect::USER_AGENT;
use crate::layout::Layout;

const INTERVAL: Duration = Duration::from_secs(1);
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Checks all servers until it is dropped. Each has its own task: one that hangs does not delay the
/// others.
pub(super) async fn check_servers(servers: Arc<Servers>, layout: Layout) {
    let mut tasks = JoinSet::new();
    let mut checks: HashMap<String, AbortHandle> = HashMap::new();
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        servers.close_drained();
        let names = servers.list();
        checks.retain(|name, check| {
            // A check that panicked begins again.
            let stays = names.contains(name) && !check.is_finished();
            if !stays {
                check.abort();
            }
            stays
        });
        while tasks.try_join_next().is_some() {}
        for name in names {
            checks.entry(name.clone()).or_insert_with(|| {
                let check = Check::new(&name, &layout);
                tasks.spawn(check_server(name, check, servers.clone()))
            });
        }
    }
}

async fn check_server(name: String, check: Check, servers: Arc<Servers>) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        // Taken before the request: a slow response says nothing about the time since.
        let began = Instant::now();
        servers.record_check(&name, began, check.run_once().await);
    }
}

struct Check {
    client: Client,
}

impl Check {
    fn new(name: &str, layout: &Layout) -> Self {
        // Without a credential: health checks need none.
        let config = Config::builder(format!("https://{name}"))
            .with_ca(Source::File(layout.pki().join("ca.crt")))
            .user_agent(USER_AGENT);
        Self {
            client: Client::new(config),
        }
    }

    async fn run_once(&self) -> CheckResult {
        let mut request = Request::get("/readyz");
        request.timeout = Some(CHECK_TIMEOUT);
        let response = tokio::time::timeout(CHECK_TIMEOUT, self.client.bytes(request)).await;
        if matches!(response, Ok(Ok(_))) {
            return CheckResult::Passed;
        }
        // A connection whose other end hangs would be used again.
        self.client.reconnect().await;
        CheckResult::Failed
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::IpAddr;

    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// The paused clock advances as soon as every task waits.
    #[tokio::test(start_paused = true)]
    async fn server_that_hangs_does_not_delay_the_checks_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        operator_pki::Authority::ensure(&layout.pki(), "ca", "ca").unwrap();
        // The kernel accepts connections, and nothing answers.
        let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // Bound and not listening.
        let refusing = TcpSocket::new_v4().unwrap();
        refusing.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let names = [hanging.local_addr(), refusing.local_addr()];
        let names = names.map(|address| address.unwrap().to_string());
        let servers = Arc::new(Servers::new(None, None, &names));
        let mut tasks = JoinSet::new();
        tasks.spawn(check_servers(servers.clone(), layout));
        let began = Instant::now();
        let refusing: IpAddr = "127.0.0.2".parse().unwrap();
        while servers.healthy_addresses().contains(&refusing) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let elapsed = began.elapsed();
        assert!(elapsed < CHECK_TIMEOUT, "{elapsed:?}");
    }
}
