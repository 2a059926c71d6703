//! A client that tolerates failures: it connects on demand, every call has a deadline, and a failed
//! member is avoided for a while.

use super::ledger::Found;
use crate::grpc::unary::RANGE;
use crate::grpc::wire::Wire;
use crate::random::Random;
use crate::workloads::calls::PUT;
use anyhow::{Context, Result};
use prost::Message;
use proto_etcd::etcdserverpb as pb;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Timeout of a connection attempt and of a call.
const DEADLINE: Duration = Duration::from_secs(3);
/// Delay before a failed member is used again.
const PAUSE: Duration = Duration::from_millis(500);

/// Outcome of a failed call.
pub enum Failure {
    /// The request was not sent.
    Unsent,
    /// The request may have been executed, or may still be.
    Unknown,
}

/// State of a member for one client.
pub struct Member {
    address: String,
    puts: Option<Wire>,
    reads: Option<Wire>,
    rests_until: Instant,
}

/// Returns a member for each address.
pub fn create_members(addresses: &[String]) -> Vec<Member> {
    let member = |address: &String| Member {
        address: address.clone(),
        puts: None,
        reads: None,
        rests_until: Instant::now(),
    };
    addresses.iter().map(member).collect()
}

/// Chooses a member that has not failed recently; waits if there is none.
pub async fn choose_member(members: &[Member], random: &mut Random) -> usize {
    loop {
        let now = Instant::now();
        let fit: Vec<usize> = (0..members.len())
            .filter(|at| members.get(*at).is_some_and(|m| m.rests_until <= now))
            .collect();
        match fit.get(random.below(fit.len())) {
            Some(at) => return *at,
            // All members rest at once, for instance while they elect a leader.
            None => sleep(PAUSE / 5).await,
        }
    }
}

impl Member {
    /// Returns the address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Waits until the member may be used again.
    pub async fn wait_until_rested(&self) {
        tokio::time::sleep_until(self.rests_until).await;
    }

    /// Puts a number. Returns its revision.
    pub async fn put(&mut self, key: &str, number: u64) -> Result<i64, Failure> {
        let request = pb::PutRequest {
            key: key.to_owned().into(),
            value: number.to_string().into(),
            ..Default::default()
        };
        let response =
            call_member::<pb::PutResponse>(&mut self.puts, &self.address, PUT, &request).await;
        let response = response.and_then(|response| response.header.ok_or(Failure::Unknown));
        self.rest_after(response).map(|header| header.revision)
    }

    /// Reads a number, linearizable.
    pub async fn read(&mut self, key: &str) -> Result<Found, Failure> {
        let request = pb::RangeRequest {
            key: key.to_owned().into(),
            ..Default::default()
        };
        let response =
            call_member::<pb::RangeResponse>(&mut self.reads, &self.address, RANGE, &request).await;
        let response = response
            .and_then(|response| parse_range_response(&response).map_err(|_| Failure::Unknown));
        self.rest_after(response)
    }

    fn rest_after<T>(&mut self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        if outcome.is_err() {
            self.rests_until = Instant::now() + PAUSE;
        }
        outcome
    }
}

fn parse_range_response(response: &pb::RangeResponse) -> Result<Found> {
    let header = response
        .header
        .as_ref()
        .context("an answer without a header")?
        .revision;
    Ok(match response.kvs.first() {
        None => Found {
            header,
            ..Found::default()
        },
        Some(kv) => Found {
            value: std::str::from_utf8(&kv.value)?.parse()?,
            version: kv.version,
            modified: kv.mod_revision,
            header,
        },
    })
}

/// Sends a request. A failed connection is closed.
async fn call_member<M: Message + Default>(
    wire: &mut Option<Wire>,
    address: &str,
    path: &'static str,
    request: &impl Message,
) -> Result<M, Failure> {
    // Taken out: after an error or a cancelled call the connection is in an unknown state and is
    // dropped.
    let mut open = match wire.take() {
        Some(open) => open,
        None => match timeout(DEADLINE, Wire::connect(address, path)).await {
            Ok(Ok(open)) => open,
            // Without a connection no byte of the request was sent, so the same number may be put
            // again.
            _ => return Err(Failure::Unsent),
        },
    };
    match timeout_at(Instant::now() + DEADLINE, open.call_unary(request)).await {
        Ok(Ok(response)) => {
            *wire = Some(open);
            Ok(response)
        }
        // Also after a rejection: the server may have proposed the request before it responded with
        // an error.
        _ => Err(Failure::Unknown),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn range_response_becomes_the_number_with_its_revisions() {
        let header = Some(pb::ResponseHeader {
            revision: 9,
            ..Default::default()
        });
        let kv = proto_etcd::mvccpb::KeyValue {
            value: "12".into(),
            version: 12,
            mod_revision: 7,
            ..Default::default()
        };
        let empty = pb::RangeResponse {
            header,
            ..Default::default()
        };
        let found = parse_range_response(&empty).unwrap();
        assert_eq!(
            (found.value, found.version, found.header),
            (0, 0, 9),
            "absent"
        );
        let full = pb::RangeResponse {
            kvs: vec![kv.clone()],
            ..empty.clone()
        };
        let found = parse_range_response(&full).unwrap();
        assert_eq!(
            (found.value, found.version, found.modified, found.header),
            (12, 12, 7, 9)
        );
        let damaged = pb::RangeResponse {
            kvs: vec![proto_etcd::mvccpb::KeyValue {
                value: "no number".into(),
                ..kv
            }],
            ..empty
        };
        assert!(parse_range_response(&damaged).is_err());
        assert!(
            parse_range_response(&pb::RangeResponse::default()).is_err(),
            "no header"
        );
    }

    #[tokio::test]
    async fn failed_member_is_avoided_for_a_while() {
        let addresses = ["a:1".to_owned(), "b:1".to_owned()];
        let mut members = create_members(&addresses);
        let failed: Result<(), _> = members[0].rest_after(Err(Failure::Unknown));
        assert!(failed.is_err());
        let mut random = Random::new(1);
        for _ in 0..20 {
            assert_eq!(choose_member(&members, &mut random).await, 1);
        }
    }

    #[tokio::test]
    async fn request_to_an_unreachable_member_was_not_sent() {
        let mut member = create_members(&["127.0.0.1:1".to_owned()]).remove(0);
        assert!(matches!(member.put("k", 1).await, Err(Failure::Unsent)));
        assert!(member.rests_until > Instant::now());
    }
}
