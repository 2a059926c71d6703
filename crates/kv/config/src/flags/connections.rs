//! Flags about connections.

use super::time::parse_duration;
use anyhow::Result;
use clap::{ArgAction, Args};
use kv_transport::ConnectionOptions;
use std::time::Duration;

/// Limits of client connections.
#[derive(Args, Debug, Clone)]
pub struct ConnectionFlags {
    /// Maximum number of concurrent streams per client connection
    #[arg(long, env = "ETCD_MAX_CONCURRENT_STREAMS", default_value_t = 20_000)]
    max_concurrent_streams: u32,
    /// Interval of keep-alive pings on an idle client connection; 0: never
    #[arg(long, env = "ETCD_GRPC_KEEPALIVE_INTERVAL", default_value = "30s")]
    grpc_keepalive_interval: String,
    /// Timeout of a keep-alive ping before the connection is closed; 0: no pings
    #[arg(long, env = "ETCD_GRPC_KEEPALIVE_TIMEOUT", default_value = "20s")]
    grpc_keepalive_timeout: String,
}

/// Self-signed certificates.
#[derive(Args, Debug, Clone)]
pub struct AutoTls {
    /// Create a self-signed certificate for clients if none is given, in DATA/fixtures/client
    #[arg(long, env = "ETCD_AUTO_TLS", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub auto_tls: bool,
    /// Create a self-signed certificate for peers if none is given, in DATA/fixtures/peer
    #[arg(long, env = "ETCD_PEER_AUTO_TLS", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub peer_auto_tls: bool,
    /// Validity of self-signed certificates in years
    #[arg(long, env = "ETCD_SELF_SIGNED_CERT_VALIDITY", default_value_t = 1)]
    pub self_signed_cert_validity: u32,
}

impl ConnectionFlags {
    /// Parses the flags.
    pub fn parse(&self) -> Result<ConnectionOptions> {
        let second = Duration::from_secs(1);
        let interval = parse_duration(
            "grpc-keepalive-interval",
            &self.grpc_keepalive_interval,
            second,
        )?;
        let timeout = parse_duration(
            "grpc-keepalive-timeout",
            &self.grpc_keepalive_timeout,
            second,
        )?;
        // A ping without a timeout would never close the connection, so either 0 disables both.
        let pings = (!interval.is_zero() && !timeout.is_zero()).then_some((interval, timeout));
        Ok(ConnectionOptions {
            streams: self.max_concurrent_streams,
            pings,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::flags::Flags;
    use clap::Parser;

    fn connected(words: &[&str]) -> ConnectionOptions {
        let words = std::iter::once("kvstore").chain(words.iter().copied());
        Flags::try_parse_from(words)
            .unwrap()
            .serve
            .connections
            .parse()
            .unwrap()
    }

    #[test]
    fn either_time_turns_pings_off() {
        assert_eq!(connected(&[]), ConnectionOptions::default());
        assert_eq!(connected(&["--grpc-keepalive-interval=0"]).pings, None);
        assert_eq!(connected(&["--grpc-keepalive-timeout=0s"]).pings, None);
        let some = connected(&["--grpc-keepalive-interval=2h", "--max-concurrent-streams=7"]);
        assert_eq!(
            (some.streams, some.pings.unwrap().0),
            (7, Duration::from_secs(7_200))
        );
    }
}
