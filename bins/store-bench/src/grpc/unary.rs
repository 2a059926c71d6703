//! Single requests, each on its own connection.

use crate::grpc::wire::Wire;
use anyhow::{Context, Result};
use prost::Message;
use proto_etcd::etcdserverpb as pb;
use std::time::Duration;

/// Path of range requests.
pub const RANGE: &str = "/etcdserverpb.KV/Range";

/// Sends a request and returns the response.
pub async fn call_once<M: Message + Default>(
    address: &str,
    path: &'static str,
    request: &impl Message,
) -> Result<M> {
    Wire::connect(address, path)
        .await?
        .call_unary(request)
        .await
}

/// Returns a member's revision by a linearizable read.
pub async fn read_revision(address: &str) -> Result<i64> {
    let absent = pb::RangeRequest {
        key: "absent".into(),
        ..Default::default()
    };
    let response: pb::RangeResponse = call_once(address, RANGE, &absent).await?;
    Ok(response
        .header
        .context("an answer without a header")?
        .revision)
}

/// Returns an error if a server does not serve a linearizable read.
pub async fn check_serving(address: &str) -> Result<()> {
    // A member without a leader may hold the read for long, and the next attempt should not wait
    // for that.
    tokio::time::timeout(Duration::from_secs(2), read_revision(address))
        .await?
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn closed_port_does_not_serve() {
        assert!(check_serving("127.0.0.1:1").await.is_err());
    }
}
