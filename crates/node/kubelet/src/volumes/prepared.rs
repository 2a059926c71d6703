//! The volumes of a pod that are set up.

use jiff::Timestamp;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A volume that is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PreparedVolume {
    /// Path on the node.
    pub(crate) path: PathBuf,
    /// All mounts of the volume are read-only.
    pub(crate) read_only: bool,
    /// The kubelet created it for this pod.
    pub(crate) own: bool,
}

/// All volumes of a pod by name, and the time of the next content refresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Volumes {
    pub(crate) by_name: BTreeMap<String, PreparedVolume>,
    pub(crate) refresh_at: Option<Timestamp>,
}

impl Volumes {
    /// Returns the time of the next refresh in nanoseconds since 1970.
    pub(crate) fn refresh_nanos(&self) -> Option<i64> {
        i64::try_from(self.refresh_at?.as_nanosecond()).ok()
    }
}
