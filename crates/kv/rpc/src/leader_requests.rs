//! Requests that the leader executes: locally on the leader, by a peer RPC on other members.

use crate::context::ServerContext;
use crate::leader_leases::{LeaderRequest, handle_leader_request};
use crate::membership::change_membership;
use crate::peer_rpc::{
    CHANGE, Change, ChangeMessage, ChangeResponse, LEFT, MembershipResult, RENEW, RESPONSE_TIMEOUT,
    call_leader,
};
use bytes::Bytes;
use kv_machine::EtcdError;
use prost::Message;
use std::time::Duration;

async fn ask_leader_number(
    core: &ServerContext,
    question: LeaderRequest,
) -> Result<i64, EtcdError> {
    let (kind, id) = match question {
        LeaderRequest::Renew(id) => (RENEW, id),
        LeaderRequest::Left(id) => (LEFT, id),
    };
    let deadline = tokio::time::Instant::now() + RESPONSE_TIMEOUT;
    loop {
        if let Some(answer) = handle_leader_request(core, question).await {
            return answer;
        }
        if core.node.status().leader != Some(core.identity.member) {
            let answer = call_leader(core, kind, Bytes::copy_from_slice(&id.to_be_bytes())).await?;
            return answer
                .as_ref()
                .try_into()
                .map(i64::from_be_bytes)
                .map_err(|_| EtcdError::TimedOut);
        }
        // This member is the leader, but can't confirm it at the moment.
        if tokio::time::Instant::now() >= deadline {
            return Err(EtcdError::TimedOut);
        }
        // A successful ReadIndex renews the leader lease, which `handle_leader_request` requires.
        let _ = core.node.read_index(Duration::from_millis(500)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Renews a lease. Returns its TTL, 0 if it does not exist.
pub(crate) async fn request_renewal(core: &ServerContext, id: i64) -> Result<i64, EtcdError> {
    ask_leader_number(core, LeaderRequest::Renew(id)).await
}

/// Returns granted and remaining TTL of a lease; the latter is -1 if it does not exist.
pub(crate) async fn request_time_to_live(
    core: &ServerContext,
    id: i64,
) -> Result<(i64, i64), EtcdError> {
    let left = ask_leader_number(core, LeaderRequest::Left(id)).await?;
    let granted = core
        .machine
        .with_leases(|leases| leases.lease_info(id, tokio::time::Instant::now().into_std()));
    Ok(match granted {
        Some(info) if left >= 0 => (info.granted, left),
        _ => (0, -1),
    })
}

/// Sends a membership change to the leader. Retries if the leader transfers its leadership for it.
pub(crate) async fn request_membership_change(
    core: &ServerContext,
    change: Change,
) -> Result<MembershipResult, EtcdError> {
    // Two rounds: the removal of the leader first transfers its leadership, which ends with
    // LeaderChanged, and then is sent to the new leader.
    let deadline = tokio::time::Instant::now() + 2 * RESPONSE_TIMEOUT;
    loop {
        let changed = change_once(core, change.clone()).await;
        if !matches!(changed, Err(EtcdError::LeaderChanged))
            || tokio::time::Instant::now() >= deadline
        {
            return changed;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn change_once(core: &ServerContext, change: Change) -> Result<MembershipResult, EtcdError> {
    if core.node.status().leading {
        return change_membership(core, change).await;
    }
    let body = ChangeMessage {
        change: Some(change),
    }
    .encode_to_vec();
    let answer = call_leader(core, CHANGE, body.into()).await?;
    let answer = ChangeResponse::decode(answer).map_err(|_| EtcdError::TimedOut)?;
    match error_from_text(&answer.refusal) {
        Some(refusal) => Err(refusal),
        None => Ok((answer.members, answer.added)),
    }
}

fn error_from_text(text: &str) -> Option<EtcdError> {
    use EtcdError::*;
    let known = [
        MemberExists,
        PeerUrlExists,
        MemberNotFound,
        BadMemberUrls,
        NotLearner,
        LearnerNotReady,
        TooManyLearners,
        NotEnoughMembers,
        Unhealthy,
        TimedOut,
        NoLeader,
        NotLeader,
        LeaderChanged,
    ];
    (!text.is_empty()).then(|| {
        known
            .into_iter()
            .find(|refusal| refusal.to_string() == text)
            // A leader of another version may know more errors. A timeout says what is certain: the
            // outcome is unknown.
            .unwrap_or(TimedOut)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_membership_change_survives_the_way_from_the_leader() {
        for error in [
            EtcdError::MemberNotFound,
            EtcdError::Unhealthy,
            EtcdError::LearnerNotReady,
            EtcdError::LeaderChanged,
        ] {
            let text = error.to_string();
            let received = error_from_text(&text).map(|error| error.to_string());
            assert_eq!(received, Some(text));
        }
    }

    #[test]
    fn unknown_error_of_the_leader_is_a_timeout() {
        let received = error_from_text("etcdserver: an error of a later version");
        assert!(
            matches!(received, Some(EtcdError::TimedOut)),
            "{received:?}"
        );
        assert!(error_from_text("").is_none(), "no text is success");
    }
}
