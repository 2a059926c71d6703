//! The choice of the pod network's plugin.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Device of the tunnels of `ironclad-cni`.
pub(crate) const TUNNEL: &str = "vxlan-pods";

/// Device of the encrypted tunnels of `ironclad-cni`.
pub(crate) const ENCRYPTED_TUNNEL: &str = "wireguard-pods";

/// The plugin of the pod network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CniPlugin {
    /// `bridge`, `host-local` and `portmap` of the CNI project.
    #[default]
    Bridge,
    /// The cluster's own program, `ironclad-cni`.
    Ironclad,
    /// Another network that the user installs in the cluster, such as flannel, Calico or Cilium.
    None,
}

/// Backend of `ironclad-cni`: how packets reach the pods of other nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CniBackend {
    /// Routes to nodes on a link of this node, VXLAN to the others.
    #[default]
    Auto,
    /// Routes only.
    Direct,
    /// VXLAN only.
    Vxlan,
    /// WireGuard only: packets to pods of other nodes are encrypted.
    Wireguard,
}

impl CniBackend {
    /// Returns whether nodes on one link need the backend at both ends.
    pub(crate) fn has_only_tunnels(self) -> bool {
        matches!(self, Self::Vxlan | Self::Wireguard)
    }
}

impl fmt::Display for CniBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Direct => "direct",
            Self::Vxlan => "vxlan",
            Self::Wireguard => "wireguard",
        })
    }
}

impl FromStr for CniBackend {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "direct" => Ok(Self::Direct),
            "vxlan" => Ok(Self::Vxlan),
            "wireguard" => Ok(Self::Wireguard),
            _ => Err("is not auto, direct, vxlan or wireguard"),
        }
    }
}

impl CniPlugin {
    /// Returns the plugin of an option, or the stored one. It can't change: the new one would not
    /// know the addresses of the pods.
    ///
    /// # Errors
    /// The option differs from the stored plugin.
    pub(crate) fn keep(given: Option<Self>, stored: Option<Self>) -> Result<Option<Self>> {
        match (given, stored) {
            (Some(given), Some(stored)) if given != stored => Err(Error::Refused(format!(
                "--cni is {stored} on this machine and can't change; leave the flag out, or start over with \
                 `ironclad down --purge` or `ironclad reset`"
            ))),
            (given, stored) => Ok(given.or(stored)),
        }
    }
}

impl fmt::Display for CniPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bridge => "bridge",
            Self::Ironclad => "ironclad",
            Self::None => "none",
        })
    }
}

impl FromStr for CniPlugin {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text {
            "bridge" => Ok(Self::Bridge),
            "ironclad" => Ok(Self::Ironclad),
            "none" => Ok(Self::None),
            _ => Err("is not bridge, ironclad or none"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_those_of_the_options() {
        for plugin in [CniPlugin::Bridge, CniPlugin::Ironclad, CniPlugin::None] {
            assert_eq!(plugin.to_string().parse(), Ok(plugin));
        }
        for backend in [
            CniBackend::Auto,
            CniBackend::Direct,
            CniBackend::Vxlan,
            CniBackend::Wireguard,
        ] {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        assert!("x".parse::<CniPlugin>().is_err() && "x".parse::<CniBackend>().is_err());
    }
}
