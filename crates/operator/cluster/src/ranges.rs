//! Address ranges of one or both families.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// One range, or one of each family. The first one is that of the primary family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ranges {
    primary: IpNet,
    secondary: Option<IpNet>,
}

/// Error of parsing ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangesError {
    /// A part is not a range.
    #[error("is neither a CIDR nor two CIDRs separated by a comma")]
    Syntax,
    /// Two ranges have the same family, or there are more than two.
    #[error("has several ranges of one family; give one IPv4 range, one IPv6 range, or both")]
    SameFamily,
}

impl Ranges {
    /// Returns one range.
    #[must_use]
    pub fn single(range: impl Into<IpNet>) -> Self {
        Self {
            primary: range.into(),
            secondary: None,
        }
    }

    /// Returns the range of the primary family.
    #[must_use]
    pub fn primary(&self) -> IpNet {
        self.primary
    }

    /// Iterates over the ranges, the primary one first.
    pub fn iter(&self) -> impl Iterator<Item = IpNet> + use<> {
        [Some(self.primary), self.secondary].into_iter().flatten()
    }

    /// Returns the IPv4 range.
    #[must_use]
    pub fn v4(&self) -> Option<Ipv4Net> {
        self.iter().find_map(|range| match range {
            IpNet::V4(range) => Some(range),
            IpNet::V6(_) => None,
        })
    }

    /// Returns the IPv6 range.
    #[must_use]
    pub fn v6(&self) -> Option<Ipv6Net> {
        self.iter().find_map(|range| match range {
            IpNet::V4(_) => None,
            IpNet::V6(range) => Some(range),
        })
    }

    /// Returns the families in their order: true for IPv4.
    #[must_use]
    pub fn families(&self) -> Vec<bool> {
        self.iter().map(|range| range.addr().is_ipv4()).collect()
    }

    /// Returns whether one of the ranges has the address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.iter().any(|range| range.contains(&address))
    }

    /// Returns whether each range of `inner` is a part of one of these.
    #[must_use]
    pub fn includes_all(&self, inner: &Self) -> bool {
        inner
            .iter()
            .all(|part| self.iter().any(|range| range.contains(&part)))
    }

    /// Returns whether a range has addresses in common with these.
    #[must_use]
    pub fn overlap(&self, other: IpNet) -> bool {
        self.iter()
            .any(|range| range.contains(&other) || other.contains(&range))
    }

    /// Returns the ranges with their host bits cleared: 10.244.3.0/16 is 10.244.0.0/16.
    #[must_use]
    pub fn trunc(&self) -> Self {
        self.map(|range| range.trunc())
    }

    /// Returns a range for each of these.
    #[must_use]
    pub fn map(&self, change: impl Fn(IpNet) -> IpNet) -> Self {
        Self {
            primary: change(self.primary),
            secondary: self.secondary.map(change),
        }
    }

    /// Returns the ranges in this list.
    ///
    /// # Errors
    /// There are none, or two of one family.
    pub fn from_list(ranges: &[IpNet]) -> Result<Self, RangesError> {
        match ranges {
            [primary] => Ok(Self::single(*primary)),
            [primary, secondary] if primary.addr().is_ipv4() != secondary.addr().is_ipv4() => {
                Ok(Self {
                    primary: *primary,
                    secondary: Some(*secondary),
                })
            }
            [] => Err(RangesError::Syntax),
            _ => Err(RangesError::SameFamily),
        }
    }
}

impl FromStr for Ranges {
    type Err = RangesError;

    fn from_str(text: &str) -> Result<Self, RangesError> {
        let parts: Result<Vec<IpNet>, _> =
            text.split(',').map(|part| part.trim().parse()).collect();
        Self::from_list(&parts.map_err(|_| RangesError::Syntax)?)
    }
}

impl TryFrom<String> for Ranges {
    type Error = RangesError;

    fn try_from(text: String) -> Result<Self, RangesError> {
        text.parse()
    }
}

impl From<Ranges> for String {
    fn from(ranges: Ranges) -> Self {
        ranges.to_string()
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.primary)?;
        self.secondary
            .map_or(Ok(()), |secondary| write!(f, ",{secondary}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranges_are_one_of_each_family_at_most() {
        for (text, expect) in [
            ("10.244.0.0/16", Ok("10.244.0.0/16")),
            ("10.244.3.0/16", Ok("10.244.0.0/16")),
            ("fd00::1/48", Ok("fd00::/48")),
            ("10.0.0.0/8,fd00::/48", Ok("10.0.0.0/8,fd00::/48")),
            ("fd00::/48, 10.0.0.0/8", Ok("fd00::/48,10.0.0.0/8")),
            ("10.0.0.0/8,11.0.0.0/8", Err(RangesError::SameFamily)),
            (
                "10.0.0.0/8,fd00::/48,fd01::/48",
                Err(RangesError::SameFamily),
            ),
            ("10.0.0.0", Err(RangesError::Syntax)),
            ("", Err(RangesError::Syntax)),
        ] {
            let found = text.parse::<Ranges>().map(|ranges| ranges.trunc());
            let found = found.map(|ranges| ranges.to_string());
            assert_eq!(found, expect.map(str::to_owned), "{text}");
        }
    }

    /// Settings of releases with one family have the text of one range.
    #[test]
    fn ranges_are_stored_as_text() {
        for text in ["\"10.244.0.0/16\"", "\"10.244.0.0/16,fd00::/48\""] {
            let ranges: Ranges = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&ranges).unwrap(), text);
        }
        assert!(serde_json::from_str::<Ranges>("\"x\"").is_err());
    }

    #[test]
    fn overlaps_and_parts_are_found_in_both_families() {
        let ranges: Ranges = "10.0.0.0/8,fd00::/48".parse().unwrap();
        for (other, overlaps) in [
            ("10.1.0.0/16", true),
            ("0.0.0.0/0", true),
            ("11.0.0.0/8", false),
            ("fd00:0:0:5::/64", true),
            ("fd01::/48", false),
        ] {
            assert_eq!(ranges.overlap(other.parse().unwrap()), overlaps, "{other}");
        }
        let part = |text: &str| ranges.includes_all(&text.parse().unwrap());
        assert!(part("10.1.0.0/24,fd00:0:0:1::/64") && part("fd00::/64"));
        assert!(!part("10.1.0.0/24,fd01::/64"));
        assert_eq!(ranges.families(), [true, false]);
    }
}
