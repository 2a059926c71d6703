//! The ports of the process for Gateways with addresses of their own.

use std::str::FromStr;

use crate::listener_ports::Ports;
use crate::placement::Slot;

/// Maximum number of Gateways with addresses of their own.
pub const MAX_GATEWAYS: Slot = 128;

/// A range of ports, of which each Gateway has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
    gateways: Slot,
}

/// Error of a range that can't be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "expected FIRST-LAST: 2 to {} ports, none of them below 1024",
    2 * MAX_GATEWAYS
)]
pub struct PortRangeError;

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let (first, last) = text.split_once('-').ok_or(PortRangeError)?;
        let parse = |port: &str| port.parse::<u16>().map_err(|_| PortRangeError);
        let (first, last) = (parse(first)?, parse(last)?);
        let count = last.checked_sub(first).ok_or(PortRangeError)?;
        match first >= 1024 && (1..2 * MAX_GATEWAYS).contains(&count) {
            true => Ok(Self {
                first,
                last,
                gateways: count.div_ceil(2),
            }),
            false => Err(PortRangeError),
        }
    }
}

impl PortRange {
    /// Returns the number of Gateways for which the ports suffice.
    pub fn capacity(self) -> Slot {
        self.gateways
    }

    /// Returns whether a port is in the range.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Returns the ports of a Gateway.
    pub fn ports_of(self, slot: Slot) -> Ports {
        let http = self.first.saturating_add(slot.saturating_mul(2));
        Ports {
            http,
            https: http.saturating_add(1),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_gateway_has_two_ports_of_the_range() {
        for (text, gateways) in [
            ("20000-20001", 1),
            ("20000-20002", 1),
            ("20000-20255", 128),
            ("65534-65535", 1),
        ] {
            let range: PortRange = text.parse().unwrap();
            assert_eq!(range.capacity(), gateways, "{text}");
            let last = range.ports_of(gateways - 1);
            let (_, end) = text.split_once('-').unwrap();
            assert!(last.https <= end.parse().unwrap(), "{text}: {last:?}");
        }
        let range: PortRange = "20000-20063".parse().unwrap();
        let ports = range.ports_of(31);
        assert_eq!((ports.http, ports.https), (20062, 20063));
    }

    #[test]
    fn range_with_too_few_or_many_or_privileged_ports_is_refused() {
        for text in [
            "",
            "20000",
            "20000-20000",
            "20001-20000",
            "1023-1030",
            "20000-20256",
            "1-x",
            "65535-65536",
        ] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
    }
}
