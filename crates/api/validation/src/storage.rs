//! PersistentVolumes and the group `storage.k8s.io`.

mod class;
mod csi;
mod driver_name;
mod sources;
mod volume;

pub use class::{STORAGE_CLASS, VOLUME_ATTRIBUTES_CLASS};
pub use csi::{CSI_DRIVER, CSI_NODE, CSI_STORAGE_CAPACITY, VOLUME_ATTACHMENT};
pub use volume::VOLUME;
