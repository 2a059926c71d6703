//! Claims and volume sources, which pods, volumes and templates share.

use crate::resources::round_up_resources;
use api_meta::tree::{at_mut, fill, fill_text, make};
use serde_json::Value;

/// Sets the defaults in `spec` of a PersistentVolumeClaim or of a template of one.
pub fn default_claim_spec(claim: &mut Value) {
    if let Some(spec) = make(claim, "spec") {
        fill(spec, "volumeMode", "Filesystem");
        round_up_resources(spec);
    }
}

/// Sets the defaults of sources that pods and persistent volumes share.
pub fn default_volume_source(volume: &mut Value) {
    if let Some(path) = at_mut(volume, "hostPath") {
        // The empty type means no check, as for volumes that are older than the field.
        fill(path, "type", "");
    }
    // Sources of removed in-tree plugins keep their defaults, because stored volumes have them.
    if let Some(iscsi) = at_mut(volume, "iscsi") {
        fill_text(iscsi, "iscsiInterface", "default");
    }
    if let Some(rbd) = at_mut(volume, "rbd") {
        fill_text(rbd, "pool", "rbd");
        fill_text(rbd, "user", "admin");
        fill_text(rbd, "keyring", "/etc/ceph/keyring");
    }
    if let Some(disk) = at_mut(volume, "azureDisk") {
        fill(disk, "cachingMode", "ReadWrite");
        fill(disk, "kind", "Shared");
        fill(disk, "fsType", "ext4");
        fill(disk, "readOnly", false);
    }
    if let Some(scale) = at_mut(volume, "scaleIO") {
        fill_text(scale, "storageMode", "ThinProvisioned");
        fill_text(scale, "fsType", "xfs");
    }
}
