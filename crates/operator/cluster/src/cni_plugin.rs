//! The choice of the pod network's plugin.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The plugin of the pod network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CniPlugin {
    /// `bridge`, `host-local` and `portmap` of the CNI project.
    #[default]
    Bridge,
    /// The cluster's own program, `ironclad-cni`.
    Ironclad,
}

impl CniPlugin {
    /// Returns the plugin of an option, or the stored one. It can't change: the new one would not
    /// know the addresses of the pods.
    ///
    /// # Errors
    /// The option differs from the stored plugin.
    pub(crate) fn choose(given: Option<Self>, stored: Option<Self>) -> Result<Self> {
        match (given, stored) {
            (Some(given), Some(stored)) if given != stored => Err(Error::Refused(format!(
                "--cni is {stored} on this machine and can't change; leave the flag out, or start over with \
                 `ironclad down --purge` or `ironclad reset`"
            ))),
            (given, stored) => Ok(given.or(stored).unwrap_or_default()),
        }
    }
}

impl fmt::Display for CniPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bridge => "bridge",
            Self::Ironclad => "ironclad",
        })
    }
}

impl FromStr for CniPlugin {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text {
            "bridge" => Ok(Self::Bridge),
            "ironclad" => Ok(Self::Ironclad),
            _ => Err("is not bridge or ironclad"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn plugin_of_a_cluster_does_not_change() {
        let (bridge, own) = (CniPlugin::Bridge, CniPlugin::Ironclad);
        for (given, stored, expect) in [
            (None, None, Some(bridge)),
            (Some(own), None, Some(own)),
            (None, Some(own), Some(own)),
            (Some(own), Some(own), Some(own)),
            (Some(bridge), Some(own), None),
            (Some(own), Some(bridge), None),
        ] {
            assert_eq!(
                CniPlugin::choose(given, stored).ok(),
                expect,
                "{given:?} {stored:?}"
            );
        }
        for plugin in [bridge, own] {
            assert_eq!(plugin.to_string().parse(), Ok(plugin));
        }
        assert!("none".parse::<CniPlugin>().is_err());
    }
}
