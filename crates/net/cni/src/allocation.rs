//! The choice of a pod's addresses. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::config::AddressRange;
use crate::error::{ErrorCode, PluginError};

/// Chooses one address of each set of ranges. `last` are the addresses that were chosen last: the
/// search begins after them, so that an address rests before it is used again.
///
/// # Errors
/// All addresses of a set are taken.
pub(crate) fn choose_addresses(
    sets: &[Vec<AddressRange>],
    taken: &BTreeSet<IpAddr>,
    last: &[IpAddr],
) -> Result<Vec<IpAddr>, PluginError> {
    sets.iter()
        .map(|set| choose_address(set, taken, last).ok_or_else(|| exhausted(set, taken)))
        .collect()
}

fn exhausted(set: &[AddressRange], taken: &BTreeSet<IpAddr>) -> PluginError {
    let ranges: Vec<_> = set
        .iter()
        .map(|range| format!("{} ({} to {})", range.subnet, range.start, range.end))
        .collect();
    let count = set
        .iter()
        .map(|range| taken.range(range.start..=range.end).count())
        .sum::<usize>();
    PluginError::new(
        ErrorCode::AddressesExhausted,
        format!(
            "no address is free in {}: {count} are taken; delete pods of this node, lower the kubelet's maxPods, \
             or give the node a larger range",
            ranges.join(", ")
        ),
    )
}

fn choose_address(
    set: &[AddressRange],
    taken: &BTreeSet<IpAddr>,
    last: &[IpAddr],
) -> Option<IpAddr> {
    let position = set.iter().enumerate().find_map(|(index, range)| {
        let last = last
            .iter()
            .find(|address| (range.start..=range.end).contains(*address))?;
        Some((index, *last))
    });
    let (begin, after) = match position {
        Some((index, last)) => (index, Some(last)),
        None => (0, None),
    };
    // The rest of the range of the last address, then the other ranges, then all of it.
    let rest = set.get(begin).and_then(|range| {
        let start = next_address(after?)?;
        find_free(range, start, taken)
    });
    rest.or_else(|| {
        (0..set.len()).find_map(|step| {
            let offset = usize::from(after.is_some());
            let range = set.get((begin + offset + step) % set.len())?;
            find_free(range, range.start, taken)
        })
    })
}

/// Returns the first free address from `start` on. It passes over taken addresses only, of which
/// there are few, however large the range.
fn find_free(range: &AddressRange, start: IpAddr, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
    let mut candidate = start;
    while candidate <= range.end {
        if candidate != range.gateway && !taken.contains(&candidate) {
            return Some(candidate);
        }
        candidate = next_address(candidate)?;
    }
    None
}

fn next_address(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => u32::from(address)
            .checked_add(1)
            .map(|next| IpAddr::V4(next.into())),
        IpAddr::V6(address) => u128::from(address)
            .checked_add(1)
            .map(|next| IpAddr::V6(next.into())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn set(ranges: &[&str]) -> Vec<AddressRange> {
        ranges
            .iter()
            .map(|range| AddressRange::of_network(range.parse().unwrap()).unwrap())
            .collect()
    }

    #[track_caller]
    fn check(ranges: &[&str], taken: &[&str], last: &str, expect: Option<&str>) {
        let taken = taken.iter().map(|text| text.parse().unwrap()).collect();
        let last: Vec<IpAddr> = last.parse().into_iter().collect();
        let found = choose_addresses(&[set(ranges)], &taken, &last).ok();
        let expect = expect.map(|text| vec![text.parse().unwrap()]);
        assert_eq!(found, expect, "{ranges:?} {taken:?} {last:?}");
    }

    #[test]
    fn free_address_after_the_last_one_is_chosen() {
        let small = ["10.0.0.0/29"];
        check(&small, &[], "", Some("10.0.0.2"));
        check(&small, &["10.0.0.2"], "", Some("10.0.0.3"));
        check(&small, &[], "10.0.0.4", Some("10.0.0.5"));
        check(&small, &[], "10.0.0.6", Some("10.0.0.2"));
        check(&small, &["10.0.0.2"], "10.0.0.6", Some("10.0.0.3"));
        check(&["fd00::/64"], &["fd00::2"], "", Some("fd00::3"));
        check(
            &["255.255.255.252/30"],
            &[],
            "255.255.255.254",
            Some("255.255.255.254"),
        );
        let all = ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"];
        check(&small, &all, "10.0.0.4", None);
        check(
            &["10.0.0.0/29", "10.0.1.0/29"],
            &all,
            "10.0.0.4",
            Some("10.0.1.2"),
        );
        check(
            &["10.0.0.0/29", "10.0.1.0/29"],
            &[],
            "10.0.1.6",
            Some("10.0.0.2"),
        );
    }

    #[test]
    fn exhaustion_names_the_range_and_the_remedy() {
        let taken = ["10.0.0.2"].iter().map(|text| text.parse().unwrap());
        let error = choose_addresses(&[set(&["10.0.0.0/30"])], &taken.collect(), &[])
            .unwrap_err()
            .to_string();
        for part in ["10.0.0.0/30", "1 are taken", "maxPods"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
