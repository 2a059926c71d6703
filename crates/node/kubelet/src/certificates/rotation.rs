//! Renews certificates before they expire.

use std::net::IpAddr;
use std::time::Duration;

use base_task::CancellationToken;
use client::Client;
use jiff::Timestamp;

use super::error::CertificateError;
use super::request::{Desired, obtain_pair};
use super::store::{PairStore, Validity};

/// Back-off of failed renewals.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// The longest sleep: a clock that was set, or a machine that slept, is noticed after it.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);

/// Returns the time at which a certificate is renewed: between 70 % and 90 % of its lifetime, as
/// upstream. `share`, from 0 to 1, spreads the nodes of a cluster over that interval.
fn renewal_time(validity: &Validity, share: f64) -> Timestamp {
    // A stand-in is replaced as soon as possible.
    if validity.is_self_signed {
        return validity.begin;
    }
    let seconds = validity.end.as_second() - validity.begin.as_second();
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
    let spread = (seconds as f64 * 0.2 * share.clamp(0.0, 1.0)) as i64;
    // In whole numbers, since not every part of a second can be expressed.
    let after = seconds.saturating_mul(7) / 10 + spread;
    Timestamp::from_second(validity.begin.as_second().saturating_add(after)).unwrap_or(validity.end)
}

struct Renewal {
    client: Client,
    store: PairStore,
    desired: Desired,
}

impl Renewal {
    /// Waits until the certificate is due.
    async fn wait_until_due(&self) {
        let share = rand::random::<f64>();
        // No usable certificate: due now.
        while let Some(validity) = self.store.current_validity() {
            let (due, now) = (renewal_time(&validity, share), Timestamp::now());
            let left = due.as_second().saturating_sub(now.as_second());
            match u64::try_from(left) {
                Ok(left) if left > 0 => {
                    tokio::time::sleep(Duration::from_secs(left).min(LONGEST_SLEEP)).await;
                }
                _ => return,
            }
        }
    }

    async fn renew(&self) -> Result<(), CertificateError> {
        obtain_pair(&self.client, &self.desired, &self.store).await?;
        tracing::info!(file = %self.store.current_path().display(), "certificate renewed");
        Ok(())
    }

    /// Renews with back-off until it succeeds.
    async fn renew_with_retries(&self) {
        let mut pause = FIRST_PAUSE;
        while let Err(error) = self.renew().await {
            tracing::warn!(%error, "a certificate can't be renewed; trying again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits until the certificate has expired.
    async fn wait_until_expired(&self) {
        while self
            .store
            .current_validity()
            .is_some_and(|validity| validity.end > Timestamp::now())
        {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Keeps the client certificate valid until `shutdown`. Returns earlier if it has expired: only a
/// new start can then request another one with the bootstrap kubeconfig.
pub(crate) async fn keep_client_certificate(
    client: Client,
    store: PairStore,
    node: String,
    shutdown: CancellationToken,
) {
    let renewal = Renewal {
        desired: Desired {
            node,
            addresses: None,
        },
        client,
        store,
    };
    let keep = async {
        loop {
            renewal.wait_until_due().await;
            tokio::select! {
                () = renewal.renew_with_retries() => {}
                () = renewal.wait_until_expired() => {
                    tracing::error!("the client certificate has expired; the kubelet ends, to request another with \
                        --bootstrap-kubeconfig at its next start");
                    return;
                }
            }
            // A connection keeps the certificate with which it was opened.
            renewal.client.reconnect().await;
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = keep => {}
    }
}

/// Keeps the serving certificate valid until `shutdown`. The server reads the file again when it
/// changes.
pub(crate) async fn keep_serving_certificate(
    client: Client,
    store: PairStore,
    node: String,
    addresses: Vec<IpAddr>,
    shutdown: CancellationToken,
) {
    let renewal = Renewal {
        desired: Desired {
            node,
            addresses: Some(addresses),
        },
        client,
        store,
    };
    let keep = async {
        loop {
            renewal.wait_until_due().await;
            renewal.renew_with_retries().await;
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = keep => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn certificate_is_renewed_between_70_and_90_percent_of_its_lifetime() {
        let validity = |is_self_signed| Validity {
            begin: "2026-01-01T00:00:00Z".parse().unwrap(),
            end: "2026-01-01T10:00:00Z".parse().unwrap(),
            is_self_signed,
        };
        for (share, expected) in [
            (0.0, "2026-01-01T07:00:00Z"),
            (0.5, "2026-01-01T08:00:00Z"),
            (1.0, "2026-01-01T09:00:00Z"),
        ] {
            let found = renewal_time(&validity(false), share);
            assert_eq!(found.to_string(), expected, "{share}");
        }
        let stand_in = renewal_time(&validity(true), 0.5);
        assert_eq!(stand_in, validity(true).begin);
    }
}
