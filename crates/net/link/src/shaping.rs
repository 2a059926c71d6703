//! Rates of devices: a token bucket, and the redirection of received packets to a device that has
//! one.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo};
use netlink_packet_route::tc::{
    TcAction, TcActionAttribute, TcActionMirrorOption, TcActionOption, TcActionType, TcAttribute,
    TcFilterU32Option, TcHandle, TcMessage, TcMirror, TcMirrorActionType, TcOption, TcU32Key,
    TcU32Selector, TcU32SelectorFlags,
};

use crate::device::DeviceName;
use crate::error::Error;
use crate::request::Netlink;

/// Attributes of the discipline `tbf`: `TCA_TBF_PARMS`, `TCA_TBF_RATE64` and `TCA_TBF_BURST`.
const PARAMETERS: u16 = 1;
const RATE64: u16 = 4;
const BURST: u16 = 6;
/// `TC_LINKLAYER_ETHERNET`: the kernel computes the times of packets, without a table of them.
const ETHERNET: u8 = 1;
/// Time that a packet waits at most, in milliseconds, beside that of a burst.
const LATENCY: u64 = 25;
/// Limit of the burst's part of the waiting bytes: they are memory of the node.
const MAX_WAITING_BURST: u64 = 1 << 20;
/// Limit of the waiting bytes.
const MAX_WAITING: u64 = 64 << 20;
/// Priority 1, and all protocols (`ETH_P_ALL`, in the order of the network).
const FIRST_OF_ALL: u32 = (1 << 16) | 3u16.to_be() as u32;

/// A rate of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// Bytes for each second; not 0.
    pub rate: u64,
    /// Bytes that may be sent at once.
    pub burst: u32,
}

impl Netlink {
    /// Creates a device that sends what is redirected to it (`ifb`).
    ///
    /// # Errors
    /// The name is in use, or the kernel has no such devices.
    pub fn create_redirect_target(&mut self, name: &DeviceName, mtu: u32) -> Result<(), Error> {
        self.create_device(
            || format!("create the device {name} (kernel module ifb)"),
            vec![
                LinkAttribute::IfName(name.to_string()),
                LinkAttribute::Mtu(mtu),
                LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ifb)]),
            ],
        )
    }

    /// Limits what a device sends.
    ///
    /// # Errors
    /// The device does not exist, or the kernel has no token buckets.
    pub fn limit_rate(&mut self, device: u32, bucket: &TokenBucket) -> Result<(), Error> {
        let mut message = new_message(device, "tbf");
        message.header.handle = TcHandle { major: 1, minor: 0 };
        message.header.parent = TcHandle::ROOT;
        message.attributes.push(TcAttribute::Options(vec![
            other(PARAMETERS, encode_parameters(bucket)),
            other(RATE64, bucket.rate.to_ne_bytes().to_vec()),
            other(BURST, bucket.burst.to_ne_bytes().to_vec()),
        ]));
        let message = RouteNetlinkMessage::NewQueueDiscipline(message);
        let action = || format!("limit the rate of the device {device} (kernel module sch_tbf)");
        self.request(action, message, NLM_F_CREATE | NLM_F_EXCL)
            .map(drop)
    }

    /// Redirects all packets that a device receives to another one, from which they come back.
    ///
    /// # Errors
    /// A device does not exist, or the kernel has no filters or redirection.
    pub fn redirect_received(&mut self, device: u32, target: u32) -> Result<(), Error> {
        let mut discipline = new_message(device, "ingress");
        discipline.header.handle = TcHandle {
            major: u16::MAX,
            minor: 0,
        };
        discipline.header.parent = TcHandle::INGRESS;
        let action = || {
            format!(
                "redirect packets of the device {device} (kernel modules sch_ingress, cls_u32, act_mirred)"
            )
        };
        let message = RouteNetlinkMessage::NewQueueDiscipline(discipline);
        self.request(action, message, NLM_F_CREATE | NLM_F_EXCL)?;
        let mut filter = new_message(device, "u32");
        filter.header.parent = TcHandle {
            major: u16::MAX,
            minor: 0,
        };
        filter.header.info = FIRST_OF_ALL;
        let options = [
            TcFilterU32Option::Selector(match_everything()),
            TcFilterU32Option::Action(vec![redirection(target)]),
        ];
        let options = options.into_iter().map(TcOption::U32).collect();
        filter.attributes.push(TcAttribute::Options(options));
        let message = RouteNetlinkMessage::NewTrafficFilter(filter);
        self.request(action, message, NLM_F_CREATE | NLM_F_EXCL)
            .map(drop)
    }
}

fn new_message(device: u32, kind: &str) -> TcMessage {
    let index = i32::try_from(device).unwrap_or_default();
    let mut message = TcMessage::with_index(index);
    message.attributes.push(TcAttribute::Kind(kind.to_owned()));
    message
}

fn other(kind: u16, value: Vec<u8>) -> TcOption {
    TcOption::Other(DefaultNla::new(kind, value))
}

/// Returns `struct tc_tbf_qopt`: the rate, no peak rate, and the limit of waiting bytes. The
/// kernel computes the time of a burst.
fn encode_parameters(bucket: &TokenBucket) -> Vec<u8> {
    let waiting = bucket.rate.saturating_mul(LATENCY) / 1000;
    let burst = u64::from(bucket.burst).min(MAX_WAITING_BURST);
    let limit = waiting.saturating_add(burst).min(MAX_WAITING);
    let rate = u32::try_from(bucket.rate).unwrap_or(u32::MAX);
    // cell_log, linklayer, overhead, cell_align, mpu, rate.
    let mut bytes = vec![0, ETHERNET, 0, 0, 0, 0, 0, 0];
    bytes.extend(rate.to_ne_bytes());
    bytes.extend([0; 12]);
    bytes.extend(u32::try_from(limit).unwrap_or(u32::MAX).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes
}

fn match_everything() -> TcU32Selector {
    let mut selector = TcU32Selector::default();
    selector.flags = TcU32SelectorFlags::Terminal;
    selector.nkeys = 1;
    selector.keys = vec![TcU32Key::default()];
    selector
}

fn redirection(target: u32) -> TcAction {
    let mut mirror = TcMirror::default();
    mirror.generic.action = TcActionType::Stolen;
    mirror.eaction = TcMirrorActionType::EgressRedir;
    mirror.ifindex = target;
    let parameters = TcActionOption::Mirror(TcActionMirrorOption::Parms(mirror));
    let mut action = TcAction::default();
    action.tab = 1;
    action.attributes = vec![
        TcActionAttribute::Kind("mirred".to_owned()),
        TcActionAttribute::Options(vec![parameters]),
    ];
    action
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tc` shows the same limit for these values.
    #[test]
    fn parameters_have_the_size_of_the_kernels_structure() {
        let bucket = TokenBucket {
            rate: 1_000_000,
            burst: 64_000,
        };
        let bytes = encode_parameters(&bucket);
        assert_eq!(bytes.len(), 36);
        assert_eq!(bytes.get(8..12), Some(&1_000_000u32.to_ne_bytes()[..]));
        assert_eq!(bytes.get(24..28), Some(&89_000u32.to_ne_bytes()[..]));
    }

    /// Whatever the rate, a pod's packets take a bounded part of the node's memory.
    #[test]
    fn waiting_bytes_are_limited() {
        for rate in [1, 1 << 40, u64::MAX] {
            let bucket = TokenBucket {
                rate,
                burst: u32::MAX,
            };
            let bytes = encode_parameters(&bucket);
            let limit = bytes.get(24..28).and_then(|bytes| bytes.try_into().ok());
            let limit = limit.map(u32::from_ne_bytes);
            assert!(limit.is_some_and(|limit| u64::from(limit) <= MAX_WAITING));
        }
    }
}
