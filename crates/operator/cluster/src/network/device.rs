//! Network devices of the calling thread's network namespace.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::command::run_command;
use crate::error::Result;

/// Creates a device without a physical one, and gives it addresses. `kind` is that of `ip link`.
pub(super) fn ensure_device(
    name: &str,
    kind: &str,
    addresses: impl IntoIterator<Item = IpNet>,
) -> Result<()> {
    let addresses: Vec<_> = addresses.into_iter().collect();
    if !device_exists(name) {
        let mac = addresses.first().map(|address| make_mac(address.addr()));
        let mut words = vec!["link", "add", name];
        words.extend(mac.iter().flat_map(|mac| ["address", mac.as_str()]));
        words.extend(["type", kind]);
        run_command("ip", &words)?;
    }
    for address in addresses {
        add_address(name, address)?;
    }
    run_command("ip", &["link", "set", name, "up"]).map(drop)
}

/// Returns a hardware address that follows from an IP address. A bridge without a fixed one changes
/// it with its ports, and the entries of neighbours become stale.
fn make_mac(address: IpAddr) -> String {
    let digest = crate::files::digest_hex(address.to_string().as_bytes());
    // Locally administered, and of one device.
    let digits: String = "0a58".chars().chain(digest.chars().take(8)).collect();
    let pairs: Vec<_> = digits
        .as_bytes()
        .chunks(2)
        .map(String::from_utf8_lossy)
        .collect();
    pairs.join(":")
}

/// Adds an address to a device, or changes the length of its prefix.
pub(super) fn add_address(device: &str, address: IpNet) -> Result<()> {
    let text = address.to_string();
    // `replace` is idempotent; `add` would fail in the second run.
    let mut words = vec!["address", "replace", &text, "dev", device];
    if address.addr().is_ipv6() {
        // Duplicate address detection is off: on a bridge without ports it never ends.
        words.push("nodad");
    }
    run_command("ip", &words).map(drop)
}

/// Returns the option of `ip` for the family of a range.
pub(super) fn family_option(range: IpNet) -> &'static str {
    match range {
        IpNet::V4(_) => "-4",
        IpNet::V6(_) => "-6",
    }
}

/// Returns whether a device of this name exists. Queries the kernel instead of `/sys`, which may
/// show another network namespace.
pub(super) fn device_exists(device: &str) -> bool {
    run_command("ip", &["link", "show", "dev", device]).is_ok()
}

/// Removes a device if it exists: a second `down` must succeed as well.
pub(super) fn remove_device(device: &str) -> Result<()> {
    if !device_exists(device) {
        return Ok(());
    }
    match run_command("ip", &["link", "delete", device]) {
        // The kernel removed it in between, with the namespace of its other end.
        Err(_) if !device_exists(device) => Ok(()),
        done => done.map(drop),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn hardware_address_follows_from_the_address() {
        let mac = |text: &str| make_mac(text.parse().unwrap());
        assert_eq!(mac("10.244.0.1").len(), "0a:58:00:00:00:00".len());
        assert!(mac("fd00::1").starts_with("0a:58:"));
        assert_ne!(mac("10.244.0.1"), mac("10.244.1.1"));
        assert_eq!(mac("fd00::1"), mac("fd00:0::1"));
    }
}
