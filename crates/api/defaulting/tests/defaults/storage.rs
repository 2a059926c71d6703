//! Defaults of volumes, claims and their classes and drivers.

use super::*;

#[test]
fn volumes_and_claims_are_file_systems() {
    let volume = default("", "PersistentVolume", json!({"spec": {}}));
    check(
        &volume,
        &[
            ("/spec/persistentVolumeReclaimPolicy", json!("Retain")),
            ("/spec/volumeMode", json!("Filesystem")),
            ("/status/phase", json!("Pending")),
        ],
    );
    let claim = default("", "PersistentVolumeClaim", json!({"spec": {}}));
    check(
        &claim,
        &[
            ("/spec/volumeMode", json!("Filesystem")),
            ("/status/phase", json!("Pending")),
        ],
    );
}

#[test]
fn storage_class_deletes_volumes_and_binds_at_once() {
    let class = default("storage.k8s.io", "StorageClass", json!({}));
    check(
        &class,
        &[
            ("/reclaimPolicy", json!("Delete")),
            ("/volumeBindingMode", json!("Immediate")),
        ],
    );
}

#[test]
fn csi_driver_attaches_persistent_volumes() {
    let driver = default("storage.k8s.io", "CSIDriver", json!({"spec": {}}));
    check(
        &driver,
        &[
            ("/spec/attachRequired", json!(true)),
            ("/spec/podInfoOnMount", json!(false)),
            ("/spec/volumeLifecycleModes", json!(["Persistent"])),
            ("/spec/fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
        ],
    );
}
