//! Single calls, each on a connection of its own.

use crate::wire::Wire;
use anyhow::{Context, Result};
use prost::Message;
use proto_etcd::etcdserverpb as pb;
use std::time::Duration;

/// Reading keys.
pub const RANGE: &str = "/etcdserverpb.KV/Range";

/// The answer to one request.
pub async fn ask<M: Message + Default>(address: &str, path: &'static str, request: &impl Message) -> Result<M> {
    Wire::connect(address, path).await?.ask(request).await
}

/// The store's revision, as a member has it after everything that was acknowledged.
pub async fn revision(address: &str) -> Result<i64> {
    let absent = pb::RangeRequest { key: "absent".into(), ..Default::default() };
    let answer: pb::RangeResponse = ask(address, RANGE, &absent).await?;
    Ok(answer.header.context("an answer without a header")?.revision)
}

/// Whether a server answers a linearizable read.
pub async fn answers(address: &str) -> Result<()> {
    tokio::time::timeout(Duration::from_secs(2), revision(address)).await?.map(drop)
}
