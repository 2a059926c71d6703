//! TLS client configuration for peers, from files that may change.

use anyhow::{Context, Result};
use base_task::Tasks;
use base_tls::rustls::ClientConfig;
use base_tls::{ClientTls, client_config};
use kv_config::ServeFlags;
use kv_raft::{PeerTls, ReplaceOutcome};
use kv_rpc::ServerContext;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Interval at which the files are checked; only with TLS.
const EVERY: Duration = Duration::from_secs(10);

fn read_file(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("can't read {}", path.display()))
}

/// Returns the files of the certificate for calls to other members, and of its key.
fn client_files(flags: &ServeFlags) -> [&Option<PathBuf>; 2] {
    match &flags.peer_client_cert_file {
        Some(_) => [&flags.peer_client_cert_file, &flags.peer_client_key_file],
        None => [&flags.peer_cert_file, &flags.peer_key_file],
    }
}

/// Returns the TLS configuration of connections to other members; `None` without certificates.
pub(crate) fn outgoing_config(flags: &ServeFlags) -> Result<Option<Arc<ClientConfig>>> {
    let [Some(certificate), Some(key)] = client_files(flags) else {
        return Ok(None);
    };
    let tls = ClientTls {
        ca: flags
            .peer_trusted_ca_file
            .as_deref()
            .map(read_file)
            .transpose()?,
        identity: Some((read_file(certificate)?, read_file(key)?)),
        // Without a CA the server's certificate is not verified, as in etcd.
        insecure: flags.peer_trusted_ca_file.is_none(),
        alpn: vec![b"h2".to_vec()],
    };
    Ok(Some(client_config(&tls)?))
}

fn modification_times(flags: &ServeFlags) -> Vec<Option<SystemTime>> {
    let [certificate, key] = client_files(flags);
    let files = [certificate, key, &flags.peer_trusted_ca_file];
    let modified = |path: &Path| {
        std::fs::metadata(path)
            .and_then(|meta| meta.modified())
            .ok()
    };
    files
        .into_iter()
        .map(|file| file.as_deref().and_then(modified))
        .collect()
}

/// Watches the files, and uses changed ones for new connections, which replace the open ones.
pub(crate) fn follow_files(
    flags: &ServeFlags,
    tls: PeerTls,
    core: &Arc<ServerContext>,
    tasks: &Tasks,
) {
    if flags.peer_cert_file.is_none() {
        return;
    }
    let (flags, core, shutdown) = (flags.clone(), core.clone(), tasks.shutdown().clone());
    tasks.spawn("peer certificates", async move {
        let mut seen = modification_times(&flags);
        // Members whose failure was logged: an attempt is repeated at each interval.
        let mut reported = HashSet::new();
        loop {
            tokio::select! {
                // Polled: secrets in containers are replaced by renaming a directory, which watches
                // of the files miss.
                () = tokio::time::sleep(EVERY) => {}
                () = shutdown.cancelled() => return,
            }
            let now = modification_times(&flags);
            if now != seen {
                // The files may be written one after the other. A pair that does not match is tried
                // again, because `seen` stays.
                match outgoing_config(&flags) {
                    Ok(config) => {
                        *tls.write() = config;
                        seen = now;
                        reported.clear();
                    }
                    Err(error) => {
                        tracing::warn!("changed peer certificates can't be used, the former ones remain in use: {error:#}");
                    }
                }
            }
            let replace = core.node.replace_outdated_connections();
            let outcomes = shutdown.run_until_cancelled(replace).await;
            log_outcomes(&outcomes.unwrap_or_default(), &mut reported);
        }
    });
}

/// Logs each new connection, and the first failure for each member.
fn log_outcomes(outcomes: &[(u64, ReplaceOutcome)], reported: &mut HashSet<u64>) {
    for (id, outcome) in outcomes {
        let member = format!("{id:x}");
        match outcome {
            Ok(()) => {
                tracing::info!(
                    member,
                    "connected to a member with the changed certificates"
                );
            }
            Err(error) if reported.insert(*id) => {
                tracing::warn!(member, %error, "no connection to a member with the changed certificates; the former one stays in use");
            }
            Err(_) => {}
        }
    }
}
