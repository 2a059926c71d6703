//! Calls whose client requires that this member has a leader.
//!
//! A member that is cut off from the others would let its watchers wait for ever. A client that
//! sends this header gets an error instead, and connects to another member.

use crate::context::{ServerContext, to_status};
use crate::metrics::Call;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::HeaderMap;
use kv_machine::EtcdError;
use tonic::Status;

/// Name and value of the header.
const HEADER: (&str, &str) = ("hasleader", "true");

/// The end of a stream whose client requires a leader.
pub(crate) type LeaderLoss = BoxFuture<'static, ()>;

/// Returns a future that completes when the stream of a call with these headers must end for want
/// of a leader. `None` if its client requires none, or if the call is no stream: its response may
/// tell of a command that was executed after a loss.
///
/// # Errors
/// The call requires a leader, and this member has none.
pub(crate) fn find_leader_loss(
    core: &ServerContext,
    headers: &HeaderMap,
    path: &str,
) -> Result<Option<LeaderLoss>, Status> {
    if headers.get(HEADER.0).is_none_or(|value| value != HEADER.1) {
        return Ok(None);
    }
    let is_unary = Call::from_path(path).kind() == "unary";
    // Before the check, so that no loss after it is missed.
    let losses = (!is_unary).then(|| core.leader_losses.subscribe());
    if !core.node.has_leader() {
        return Err(no_leader());
    }
    let Some(mut losses) = losses else {
        return Ok(None);
    };
    let loss = async move {
        if losses.changed().await.is_err() {
            // The member stops, which ends the stream as well.
            std::future::pending::<()>().await;
        }
    };
    Ok(Some(loss.boxed()))
}

/// Returns the status of calls that require a leader.
pub(crate) fn no_leader() -> Status {
    to_status(EtcdError::NoLeader)
}
