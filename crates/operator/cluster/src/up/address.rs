//! Rejects a new address of a machine whose store has other members: they dial it at the address
//! that they know, and the change needs a quorum, which the machine can't have at an address that
//! the others do not know.

use std::net::IpAddr;

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::settings::Settings;
use crate::store_members::{find_members, find_other_urls};

/// The other members of the store, as far as a machine knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OtherMembers {
    /// The store lists this number of members, this machine's included.
    Listed(usize),
    /// No member responds, and the machine knows API servers or members on others.
    Silent,
    /// No member responds, and the machine never knew another one: it was restored, or is the only
    /// one.
    Absent,
}

/// Rejects `settings` with another address than the stored ones, unless this machine has the only
/// member.
///
/// # Errors
/// The store has other members, or may have.
pub(super) async fn check_address(settings: &Settings, layout: &Layout) -> Result<()> {
    let Some(before) = Settings::load(&settings.data_dir)? else {
        return Ok(());
    };
    // Without a shared control plane the store listens on the loopback address only.
    if before.control_plane.is_none() || before.node_address == settings.node_address {
        return Ok(());
    }
    let others = match find_members(&before, layout).await {
        Ok((list, _)) => OtherMembers::Listed(list.members.len()),
        Err(_) if find_other_urls(&before, layout).is_empty() => OtherMembers::Absent,
        Err(_) => OtherMembers::Silent,
    };
    reject_change(others, before.node_address, settings.node_address)
}

fn reject_change(others: OtherMembers, old: IpAddr, new: IpAddr) -> Result<()> {
    let (reason, otherwise) = match others {
        OtherMembers::Absent | OtherMembers::Listed(0 | 1) => return Ok(()),
        OtherMembers::Listed(count) => (format!("the store has {count} members"), ""),
        OtherMembers::Silent => (
            "the store may have other members, none of which responds".to_owned(),
            ". If the other machines are lost for good, restore a backup with `ironclad restore`",
        ),
    };
    Err(Error::Refused(format!(
        "{reason}, and the others reach this machine at {old}, so its address can't become {new}: leave --node-ip out, or run \
         `ironclad reset` here, and then `ironclad join` with --node-ip {new}{otherwise}"
    )))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn address_of_a_member_of_several_can_not_change() {
        let (old, new) = ("192.0.2.3".parse().unwrap(), "192.0.2.9".parse().unwrap());
        for (others, is_rejected) in [
            (OtherMembers::Absent, false),
            (OtherMembers::Listed(1), false),
            (OtherMembers::Listed(2), true),
            (OtherMembers::Silent, true),
        ] {
            let rejected = reject_change(others, old, new);
            assert_eq!(rejected.is_err(), is_rejected, "{others:?}");
            if let Err(error) = rejected {
                let error = error.to_string();
                assert!(error.contains("`ironclad reset` here"), "{error}");
            }
        }
    }

    /// No member responds in either case.
    #[tokio::test]
    async fn machine_that_knows_others_keeps_its_address() {
        let dir = tempfile::tempdir().unwrap();
        let mut before = Settings {
            data_dir: dir.path().into(),
            ..Settings::example_shared()
        };
        before.control_plane.as_mut().unwrap().joined = None;
        before.save().unwrap();
        let layout = Layout::new(dir.path(), false);
        let moved = Settings {
            node_address: "192.0.2.9".parse().unwrap(),
            ..before.clone()
        };
        check_address(&before, &layout).await.unwrap();
        check_address(&moved, &layout).await.unwrap();
        crate::files::write_file(&layout.api_servers(), b"[\"192.0.2.4:6443\"]").unwrap();
        check_address(&before, &layout).await.unwrap();
        let error = check_address(&moved, &layout)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("192.0.2.3"), "{error}");
    }
}
