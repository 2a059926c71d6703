//! Rates of a pod, in both directions.

use net_link::{DeviceName, Netlink, TokenBucket};
use serde::Deserialize;

use crate::error::PluginError;

/// Smallest burst in bytes: the largest packet after segments were merged.
const LEAST_BURST: u64 = 65_536;
const BITS: u64 = 8;
/// Burst that stands for none in particular: containerd passes this number, because annotations of
/// pods have rates only. As a burst it would make the first 512 MiB exempt from the rate.
const UNSPECIFIED: u64 = 0xffff_ffff;
/// Part of a second whose bytes may be sent at once, without a burst.
const USUAL_SHARE: u64 = 10;

/// The capability `bandwidth`, in bits and bits for each second. containerd writes the names with
/// capitals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Bandwidth {
    #[serde(alias = "IngressRate")]
    ingress_rate: u64,
    #[serde(alias = "IngressBurst")]
    ingress_burst: u64,
    #[serde(alias = "EgressRate")]
    egress_rate: u64,
    #[serde(alias = "EgressBurst")]
    egress_burst: u64,
}

impl Bandwidth {
    /// Returns the rate of what the pod receives, if it has one.
    fn received(&self) -> Option<TokenBucket> {
        to_bucket(self.ingress_rate, self.ingress_burst)
    }

    /// Returns the rate of what the pod sends, if it has one.
    fn sent(&self) -> Option<TokenBucket> {
        to_bucket(self.egress_rate, self.egress_burst)
    }
}

/// Returns a token bucket; none without a rate. A burst that is smaller than a packet would let no
/// packet pass.
fn to_bucket(rate: u64, burst: u64) -> Option<TokenBucket> {
    let bits = match burst {
        0 | UNSPECIFIED => rate / USUAL_SHARE,
        burst => burst,
    };
    let burst = (bits / BITS).clamp(LEAST_BURST, u32::MAX.into());
    (rate > 0).then(|| TokenBucket {
        rate: (rate / BITS).max(1),
        burst: u32::try_from(burst).unwrap_or(u32::MAX),
    })
}

/// Limits the rates of the device `host`, whose other end is the pod's. `target` is the name of a
/// device that is made for what the pod sends.
///
/// # Errors
/// The kernel refuses it; the device may remain.
pub(crate) fn limit_bandwidth(
    netlink: &mut Netlink,
    bandwidth: &Bandwidth,
    host: &DeviceName,
    target: &DeviceName,
) -> Result<(), PluginError> {
    let missing =
        |name: &DeviceName| PluginError::input_output(format!("the device {name} does not exist"));
    let device = netlink
        .find_device(host.as_str())?
        .ok_or_else(|| missing(host))?;
    if let Some(bucket) = bandwidth.received() {
        netlink.limit_rate(device.index, &bucket)?;
    }
    if let Some(bucket) = bandwidth.sent() {
        netlink.create_redirect_target(target, device.mtu)?;
        let other = netlink.find_device(target.as_str())?;
        let other = other.ok_or_else(|| missing(target))?;
        netlink.enable_device(other.index)?;
        netlink.limit_rate(other.index, &bucket)?;
        netlink.redirect_received(device.index, other.index)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bytes_and_bursts_at_least_a_packet() {
        let bucket = |rate, burst| Some(TokenBucket { rate, burst });
        for (rate, burst, expect) in [
            (0, 8_000_000, None),
            (8_000_000, 0, bucket(1_000_000, 100_000)),
            (8_000, 1, bucket(1_000, 65_536)),
            (8_000_000, 8_000_000, bucket(1_000_000, 1_000_000)),
            (1, u64::MAX, bucket(1, u32::MAX)),
            // As containerd passes it.
            (8_000_000, 4_294_967_295, bucket(1_000_000, 100_000)),
        ] {
            assert_eq!(to_bucket(rate, burst), expect, "{rate} {burst}");
        }
    }
}
