//! Deletes entries of connection tracking through the program `conntrack`.

use std::process::Stdio;

use tokio::process::Command;

/// Deletes entries, by the arguments of one call of `conntrack` each. It exits with 1 if there was no such entry, which is no error.
pub async fn delete_connections(all: Vec<Vec<String>>) {
    for args in all {
        let done = Command::new("conntrack")
            .args(&args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .await;
        if let Err(error) = done {
            tracing::warn!(%error, "conntrack can't be run; packets of stale connections still pass; install conntrack");
            return;
        }
    }
}
