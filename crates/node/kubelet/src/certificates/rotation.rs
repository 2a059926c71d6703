//! Renews certificates before they expire.

use std::net::IpAddr;
use std::time::Duration;

use base_task::CancellationToken;
use client::{Client, ListParams};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
use tokio::time::Instant;

use super::desired::DesiredCertificate;
use super::error::CertificateError;
use super::request::obtain_pair;
use super::store::{PairStore, Validity};

/// Back-off after the first failed renewal. It doubles with each further one.
const FIRST_BACK_OFF: Duration = Duration::from_secs(5);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(300);
/// The longest sleep: a clock that was set, or a machine that slept, is noticed after it.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);
/// The shortest time between two renewals: a signer may issue certificates that are due at once.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of the checks whether the client certificate is still usable, and whether a renewal was
/// requested.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time for which the client certificate may be missing or unreadable, as upstream.
const UNREADABLE_LIMIT: Duration = Duration::from_secs(300);

/// Returns the time at which a certificate is renewed: between 70 % and 90 % of its lifetime, as
/// upstream. `share`, from 0 to 1, spreads the nodes of a cluster over that interval.
fn renewal_time(validity: &Validity, share: f64) -> Timestamp {
    // The cluster has not issued one yet.
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

/// Returns why a client certificate can't be used any more, if so. `unreadable_for` is the time
/// since it was last read.
fn find_loss(
    validity: Option<&Validity>,
    unreadable_for: Duration,
    now: Timestamp,
) -> Option<&'static str> {
    match validity {
        Some(validity) if validity.end <= now => Some("it has expired"),
        Some(_) => None,
        None if unreadable_for > UNREADABLE_LIMIT => Some("it can't be read for five minutes"),
        None => None,
    }
}

/// Renews each time that `wait` returns, at most once a minute, and each time that `requested`
/// returns, until `renew` returns false.
async fn renew_repeatedly<W, Q, R>(
    wait: impl Fn() -> W,
    requested: impl Fn() -> Q,
    renew: impl Fn() -> R,
) where
    W: Future<Output = ()>,
    Q: Future<Output = ()>,
    R: Future<Output = bool>,
{
    loop {
        tokio::select! {
            () = wait() => {}
            () = requested() => {}
        }
        if !renew().await {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(SHORTEST_INTERVAL) => {}
            () = requested() => {}
        }
    }
}

/// Renewal of one certificate.
struct Renewal {
    client: Client,
    store: PairStore,
    desired: DesiredCertificate,
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

    /// Waits until an operator requests a renewal.
    async fn wait_until_requested(&self) {
        let path = self.store.due_path();
        while !tokio::fs::try_exists(&path).await.unwrap_or(false) {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    async fn renew(&self) -> Result<(), CertificateError> {
        // A request that is written from now on needs another renewal.
        let request = self.store.find_request();
        obtain_pair(&self.client, &self.desired, &self.store).await?;
        // The certificate is there: a failure here must not request another one.
        if let Err(error) = self.store.clear_request(request) {
            tracing::warn!(%error, "the request for a renewal stays, and is met again");
        }
        tracing::info!(file = %self.store.current_path().display(), "certificate renewed");
        Ok(())
    }

    /// Renews with back-off until it succeeds.
    async fn renew_with_retries(&self) {
        let mut back_off = FIRST_BACK_OFF;
        while let Err(error) = self.renew().await {
            tracing::warn!(%error, "a certificate can't be renewed; trying again");
            tokio::time::sleep(back_off).await;
            back_off = (back_off * 2).min(LONGEST_BACK_OFF);
        }
    }

    /// Renews the serving certificate. Returns true: there is no other way to get one.
    async fn renew_serving(&self) -> bool {
        self.renew_with_retries().await;
        true
    }

    /// Renews the client certificate. With a bootstrap kubeconfig, returns false if the certificate
    /// is lost meanwhile.
    async fn renew_client(&self, has_bootstrap: bool) -> bool {
        tokio::select! {
            () = self.renew_with_retries() => {}
            loss = self.wait_until_lost(), if has_bootstrap => {
                tracing::error!(loss, "the client certificate can't be used; the kubelet ends, to request another with \
                    --bootstrap-kubeconfig at its next start");
                return false;
            }
        }
        // A connection keeps the certificate with which it was opened.
        self.client.reconnect().await;
        true
    }

    /// Waits until the client certificate can't be used any more although the API server responds.
    /// As upstream: while it does not respond, a restart of the kubelet can't help.
    async fn wait_until_lost(&self) -> &'static str {
        let mut last_read = Instant::now();
        loop {
            let validity = self.store.current_validity();
            if validity.is_some() {
                last_read = Instant::now();
            }
            let loss = find_loss(validity.as_ref(), last_read.elapsed(), Timestamp::now());
            if let Some(loss) = loss
                && self.is_server_responsive().await
            {
                return loss;
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Returns whether the API server responds, also if it rejects the certificate.
    async fn is_server_responsive(&self) -> bool {
        // The old connection was authenticated with the certificate when that was still valid.
        self.client.reconnect().await;
        let probe = ListParams::new().with_limit(1);
        match self.client.api::<Csr>().list(&probe).await {
            Ok(_) => true,
            Err(error) => error.code().is_some() && !error.is_unavailable(),
        }
    }
}

/// Keeps the client certificate valid until `shutdown`. With a bootstrap kubeconfig, returns
/// earlier if the certificate is lost: only a new start can then request another one.
pub(crate) async fn keep_client_certificate(
    client: Client,
    store: PairStore,
    node: String,
    has_bootstrap: bool,
    shutdown: CancellationToken,
) {
    let renewal = Renewal {
        desired: DesiredCertificate {
            node,
            addresses: None,
        },
        client,
        store,
    };
    let wait = || renewal.wait_until_due();
    let requested = || renewal.wait_until_requested();
    let renew = || renewal.renew_client(has_bootstrap);
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = renew_repeatedly(wait, requested, renew) => {}
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
        desired: DesiredCertificate {
            node,
            addresses: Some(addresses),
        },
        client,
        store,
    };
    let wait = || renewal.wait_until_due();
    let requested = || renewal.wait_until_requested();
    let renew = || renewal.renew_serving();
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = renew_repeatedly(wait, requested, renew) => {}
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
        let self_signed = renewal_time(&validity(true), 0.5);
        assert_eq!(self_signed, validity(true).begin);
    }

    #[test]
    fn certificate_is_lost_when_it_has_expired_or_is_unreadable_for_long() {
        let valid = Validity {
            begin: "2026-01-01T00:00:00Z".parse().unwrap(),
            end: "2026-01-01T10:00:00Z".parse().unwrap(),
            is_self_signed: false,
        };
        for (validity, seconds, now, lost) in [
            (Some(&valid), 0, "2026-01-01T09:59:59Z", false),
            (Some(&valid), 0, "2026-01-01T10:00:00Z", true),
            (None, 0, "2026-01-01T09:59:59Z", false),
            (None, 300, "2026-01-01T11:00:00Z", false),
            (None, 301, "2026-01-01T09:59:59Z", true),
        ] {
            let found = find_loss(validity, Duration::from_secs(seconds), now.parse().unwrap());
            assert_eq!(found.is_some(), lost, "{validity:?} {seconds} {now}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn certificates_that_are_due_at_once_are_renewed_once_a_minute() {
        let renewals = std::cell::Cell::new(0);
        let renew = async || {
            renewals.set(renewals.get() + 1);
            true
        };
        let limit = Duration::from_secs(599);
        let end = renew_repeatedly(async || {}, std::future::pending, renew);
        assert!(tokio::time::timeout(limit, end).await.is_err());
        assert_eq!(renewals.get(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn requested_renewal_waits_for_no_other_one() {
        let (renewals, requested) = (std::cell::Cell::new(0), std::cell::Cell::new(1));
        let request = async || {
            while requested.get() <= renewals.get() {
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        };
        let renew = async || {
            renewals.set(renewals.get() + 1);
            // Another request right after the first renewal.
            requested.set(2);
            true
        };
        let limit = Duration::from_secs(30);
        let end = renew_repeatedly(std::future::pending, request, renew);
        assert!(tokio::time::timeout(limit, end).await.is_err());
        assert_eq!(renewals.get(), 2);
    }
}
