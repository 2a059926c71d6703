//! Handles peer RPCs besides replication.

use crate::context::ServerContext;
use crate::data_hash::respond_hash;
use crate::leader_leases::{LeaderRequest, handle_leader_request};
use crate::membership::change_membership;
use crate::peer_rpc::{
    CHANGE, ChangeMessage, ChangeResponse, ClusterInfo, HASH, LEFT, MEMBERS, RENEW, STATUS,
};
use async_trait::async_trait;
use bytes::Bytes;
use kv_machine::EtcdError;
use kv_raft::PeerHandler;
use kv_wal::Identity;
use prost::Message;
use std::sync::{Arc, OnceLock, Weak};

/// Handles peer RPCs.
pub struct PeerRequestHandler {
    /// IDs of the member and of its cluster.
    pub identity: Identity,
    /// Weak, because the context owns this handler.
    pub core: OnceLock<Weak<ServerContext>>,
    /// Called when a peer reports that the member was removed.
    pub on_removed: Box<dyn Fn() + Send + Sync>,
}

#[async_trait]
impl PeerHandler for PeerRequestHandler {
    // The peer port has already proven that the caller is a member. An absent response makes the
    // caller retry.
    async fn handle_peer_rpc(&self, _: u64, kind: u32, body: Bytes) -> Option<Bytes> {
        let core = &self.core()?;
        let number = || body.as_ref().try_into().ok().map(i64::from_be_bytes);
        match kind {
            RENEW => {
                encode_number(handle_leader_request(core, LeaderRequest::Renew(number()?)).await?)
            }
            LEFT => {
                encode_number(handle_leader_request(core, LeaderRequest::Left(number()?)).await?)
            }
            MEMBERS => Some(self.cluster_info(core)),
            CHANGE => {
                // No response: the caller looks up the leader again.
                if !core.node.status().leading {
                    return None;
                }
                let change = ChangeMessage::decode(body).ok()?.change?;
                let answer = match change_membership(core, change).await {
                    Ok((members, added)) => ChangeResponse {
                        refusal: String::new(),
                        members,
                        added,
                    },
                    // An error of the change itself is a response: without one, the caller would
                    // retry against a leader that has decided.
                    Err(refusal) => ChangeResponse {
                        refusal: refusal.to_string(),
                        ..ChangeResponse::default()
                    },
                };
                Some(answer.encode_to_vec().into())
            }
            // A member that lags behind or has compacted the revision gives no hash; it must not
            // look corrupt.
            HASH => Some(
                respond_hash(core, number()?)
                    .await
                    .ok()?
                    .encode_to_vec()
                    .into(),
            ),
            STATUS => Some(core.node.status().applied.to_be_bytes().to_vec().into()),
            _ => None,
        }
    }

    fn allows_joining(&self, kind: u32) -> bool {
        // A joining member knows only URLs, and needs the members and their IDs before it can prove
        // that it is one.
        kind == MEMBERS
    }

    fn on_removed(&self) {
        (self.on_removed)();
    }

    fn was_removed(&self, id: u64) -> bool {
        let Some(core) = self.core() else {
            return false;
        };
        // A removed voter's messages are accepted until Raft's membership no longer contains it.
        core.machine.with_members(|members| members.was_removed(id))
            && !core.node.status().voters.contains(&id)
    }
}

impl PeerRequestHandler {
    fn core(&self) -> Option<Arc<ServerContext>> {
        self.core.get()?.upgrade()
    }

    fn cluster_info(&self, core: &ServerContext) -> Bytes {
        let (mut members, removed) = core
            .machine
            .with_members(|members| (members.list(), members.removed_ids().collect::<Vec<_>>()));
        // Until the first command is applied, the members are those of the flags.
        if members.is_empty() {
            members.clone_from(&core.initial);
        }
        ClusterInfo {
            cluster: self.identity.cluster,
            members,
            removed,
        }
        .encode_to_vec()
        .into()
    }
}

fn encode_number(answer: Result<i64, EtcdError>) -> Option<Bytes> {
    answer
        .ok()
        .map(|number| Bytes::copy_from_slice(&number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_about_a_lease_is_a_number_and_an_error_is_none() {
        let bytes = encode_number(Ok(-1)).map(|bytes| bytes.to_vec());
        assert_eq!(bytes, Some(vec![0xff; 8]));
        assert_eq!(encode_number(Err(EtcdError::TimedOut)), None);
    }
}
