//! Tables of the group `storage.k8s.io`.

use super::Name;
use super::table::{check_create, check_update, check_writes};
use serde_json::{Value, json};

const STORAGE_CLASS: Name = ("storage.k8s.io", "StorageClass");
const ATTRIBUTES_CLASS: Name = ("storage.k8s.io", "VolumeAttributesClass");
const CSI_DRIVER: Name = ("storage.k8s.io", "CSIDriver");
const CSI_NODE: Name = ("storage.k8s.io", "CSINode");
const CAPACITY: Name = ("storage.k8s.io", "CSIStorageCapacity");
const ATTACHMENT: Name = ("storage.k8s.io", "VolumeAttachment");

#[test]
fn storage_classes() {
    let base = json!({"provisioner": "a.io/b"});
    check_create(
        STORAGE_CLASS,
        &base,
        r#"
        => ok
        /provisioner="" => provisioner: Required value
        /provisioner="A.io/B" => ok
        /provisioner="a b" => provisioner: Invalid value: "a b": name part must consist
        /parameters={"a":"b"} => ok
        /parameters={"":"b"} => parameters: Invalid value: "": field can not be empty.
        /reclaimPolicy="Recycle" => reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"
        /volumeBindingMode="Later" => volumeBindingMode: Unsupported value: "Later": supported values: "Immediate", "WaitForFirstConsumer"
        /allowedTopologies=[{"matchLabelExpressions":[{"key":"a","values":["b"]}]}] => ok
        /allowedTopologies=[{"matchLabelExpressions":[{"key":"a","values":[]}]}] => allowedTopologies[0].matchLabelExpressions[0].values: Required value
        /allowedTopologies=[{"matchLabelExpressions":[{"key":"a","values":["b","b"]}]}] => allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "b"
        /allowedTopologies=[{"matchLabelExpressions":[{"key":"a b","values":["b"]}]}] => allowedTopologies[0].matchLabelExpressions[0].key: Invalid value: "a b"
        /allowedTopologies=[{"matchLabelExpressions":[{"key":"a","values":["b"]},{"key":"a","values":["c"]}]}] => allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value: "a"
        /allowedTopologies=[{"matchLabelExpressions":[{"key":"a","values":["b","c"]}]},{"matchLabelExpressions":[{"key":"a","values":["c","b"]}]}] => allowedTopologies[1].matchLabelExpressions: Duplicate value: ""
    "#,
    );
    check_update(
        STORAGE_CLASS,
        &base,
        r#"
        /allowVolumeExpansion=true => ok
        /mountOptions=["ro"] => ok
        /parameters={"a":"b"} => parameters: Invalid value: {"a":"b"}: field is immutable
        /provisioner="a.io/c" => provisioner: Invalid value: "a.io/c": field is immutable
        /reclaimPolicy="Retain" => reclaimPolicy: Invalid value: "Retain": field is immutable
        /volumeBindingMode="WaitForFirstConsumer" => volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable
    "#,
    );
    let large = json!({"provisioner": "a.io/b", "parameters": {"a": "x".repeat(256 * 1024)}});
    check_create(
        STORAGE_CLASS,
        &large,
        "=> parameters: Too long: may not be more than 262144 bytes",
    );
}

#[test]
fn volume_attributes_classes() {
    let base = json!({"driverName": "a.io", "parameters": {"a": "b"}});
    check_create(
        ATTRIBUTES_CLASS,
        &base,
        r#"
        => ok
        /driverName="" => driverName: Required value
        /driverName="a b" => driverName: Invalid value: "a b"
        /parameters=null => parameters: Required value: must contain at least one key/value pair
        /parameters={"":"b"} => parameters: Invalid value: "": field can not be empty.
    "#,
    );
    check_update(
        ATTRIBUTES_CLASS,
        &base,
        r#"
        /metadata/labels={"a":"b"} => ok
        /driverName="b.io" => driverName: Forbidden: updates to driverName are forbidden.
        /parameters={"a":"c"} => parameters: Forbidden: updates to parameters are forbidden.
        /parameters=null => parameters: Forbidden: updates to parameters are forbidden. ;; parameters: Required value
    "#,
    );
}

#[test]
fn csi_drivers() {
    let base = json!({"metadata": {"name": "a.io"}, "spec": {}});
    check_create(
        CSI_DRIVER,
        &base,
        r#"
        => ok
        /spec/fsGroupPolicy="Any" => spec.fsGroupPolicy: Unsupported value: "Any": supported values: "File", "None", "ReadWriteOnceWithFSType"
        /spec/volumeLifecycleModes=["Persistent","Ephemeral"] => ok
        /spec/volumeLifecycleModes=["Short"] => spec.volumeLifecycleModes: Unsupported value: "Short": supported values: "Persistent", "Ephemeral"
        /spec/tokenRequests=[{"audience":"a"},{"audience":"b","expirationSeconds":600}] => ok
        /spec/tokenRequests=[{"audience":"a"},{"audience":"a"}] => spec.tokenRequests[1].audience: Duplicate value: "a"
        /spec/tokenRequests=[{"audience":"a","expirationSeconds":599}] => spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes
        /spec/tokenRequests=[{"audience":"a","expirationSeconds":4294967297}] => spec.tokenRequests[0].expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds
        /spec/nodeAllocatableUpdatePeriodSeconds=9 => spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds
        /spec/nodeAllocatableUpdatePeriodSeconds=10 => ok
        /spec/serviceAccountTokenInSecrets=true => spec.serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no tokenRequests are specified
        /spec/serviceAccountTokenInSecrets=true & /spec/tokenRequests=[{"audience":"a"}] => ok
    "#,
    );
    check_update(
        CSI_DRIVER,
        &base,
        r#"
        => ok
        /spec/podInfoOnMount=true => ok
        /spec/attachRequired=false => spec.attachedRequired: Invalid value: false: field is immutable
        /spec/volumeLifecycleModes=["Ephemeral"] => spec.volumeLifecycleModes: Invalid value: ["Ephemeral"]: field is immutable
        /spec/fsGroupPolicy="File" => ok
    "#,
    );
}

#[test]
fn csi_nodes() {
    let base = json!({"spec": {"drivers": [{"name": "a.io", "nodeID": "n", "topologyKeys": ["a.io/z"], "allocatable": {"count": 1}}]}});
    check_create(
        CSI_NODE,
        &base,
        r#"
        => ok
        /spec/drivers=[] => ok
        /spec/drivers/0/name="" => spec.drivers[0].name: Required value
        /spec/drivers/0/name="a_b" => spec.drivers[0].name: Invalid value: "a_b"
        /spec/drivers/0/name="a1234567890123456789012345678901234567890123456789012345678901234" => spec.drivers[0].name: Too long: may not be more than 63 bytes ;; ...
        /spec/drivers/0/nodeID="" => spec.drivers[0].nodeID: Required value
        /spec/drivers/0/allocatable/count=-1 => spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0
        /spec/drivers/-={"name":"a.io","nodeID":"m"} => spec.drivers[1].name: Duplicate value: "a.io"
        /spec/drivers/0/topologyKeys=["a","a"] => spec.drivers[0]: Duplicate value: "a"
        /spec/drivers/0/topologyKeys=["a b"] => spec.drivers[0]: Invalid value: "a b"
        /spec/drivers/0/topologyKeys=[""] => spec.drivers[0]: Required value ;; ...
    "#,
    );
    check_update(
        CSI_NODE,
        &base,
        r#"
        /spec/drivers=[] => ok
        /spec/drivers/-={"name":"b.io","nodeID":"m"} => ok
        /spec/drivers/0/allocatable/count=2 => ok
        /spec/drivers/0/nodeID="m" => spec.drivers: Invalid value: {
        /spec/drivers/0/topologyKeys=["b"] => spec.drivers: Invalid value: {
    "#,
    );
}

#[test]
fn storage_capacities() {
    let base = json!({"storageClassName": "a", "nodeTopology": {"matchLabels": {"a": "b"}}, "capacity": "1Gi"});
    check_create(
        CAPACITY,
        &base,
        r#"
        => ok
        /storageClassName="" => storageClassName: Invalid value: "": a lowercase RFC 1123 subdomain
        /nodeTopology={"matchExpressions":[{"key":"a","operator":"In"}]} => nodeTopology.matchExpressions[0].values: Required value
        /nodeTopology=null => ok
        /capacity="-1" => capacity: Invalid value: "-1": must be greater than or equal to 0
    "#,
    );
    check_update(
        CAPACITY,
        &base,
        r#"
        /capacity="2Gi" => ok
        /storageClassName="b" => storageClassName: Invalid value: "b": field is immutable
        /nodeTopology={"matchLabels":{"a":"c"}} => nodeTopology: Invalid value: {
        /nodeTopology={"matchExpressions":[{"key":"a","operator":"In","values":["b c"]}]} >> /capacity="2Gi" => ok
    "#,
    );
}

fn attachment() -> Value {
    json!({"spec": {"attacher": "a.io", "nodeName": "n", "source": {"persistentVolumeName": "v"}}})
}

#[test]
fn new_volume_attachments() {
    check_create(
        ATTACHMENT,
        &attachment(),
        r#"
        => ok
        /spec/attacher="" => spec.attacher: Required value
        /spec/attacher="a_b" => spec.attacher: Invalid value: "a_b"
        /spec/nodeName="" => spec.nodeName: Invalid value: "": a lowercase RFC 1123 subdomain
        /spec/source={} => spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName
        /spec/source/inlineVolumeSpec={} => spec.source: Forbidden: must specify exactly one of inlineVolumeSpec and persistentVolumeName
        /spec/source/persistentVolumeName="" => spec.source.persistentVolumeName: Required value: must specify non empty persistentVolumeName ;; spec.source.persistentVolumeName: Invalid value: ""
        /spec/source/persistentVolumeName="A" => spec.source.persistentVolumeName: Invalid value: "A"
        /spec/source={"inlineVolumeSpec":{"accessModes":["ReadWriteOnce"],"csi":{"driver":"a.io","volumeHandle":"h"}}} => ok
        /spec/source={"inlineVolumeSpec":{"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/a"}}} => spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes
        /spec/source={"inlineVolumeSpec":{"accessModes":["ReadWriteOnce"],"csi":{"driver":"a.io","volumeHandle":"h"},"storageClassName":"a"}} => spec.source.inlineVolumeSpec.storageClassName: Forbidden: may not be specified in the context of inline volumes
        /spec/source={"inlineVolumeSpec":{"accessModes":["ReadWriteOnce"],"csi":{"driver":"a.io","volumeHandle":"h"},"capacity":{"storage":"1"}}} => spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified
        /spec/source={"inlineVolumeSpec":{"accessModes":["ReadWriteOnce"],"csi":{"driver":"a.io","volumeHandle":"h"},"claimRef":{"name":"a"}}} => spec.source.inlineVolumeSpec.claimRef: Forbidden: may not be specified
        /spec/source={"inlineVolumeSpec":{"accessModes":["ReadWriteOnce"],"csi":{"driver":"a.io","volumeHandle":"h"},"persistentVolumeReclaimPolicy":"Delete"}} => spec.source.inlineVolumeSpec.persistentVolumeReclaimPolicy: Forbidden: may only be Retain in the context of inline volumes
        /spec/source={"inlineVolumeSpec":{"accessModes":["ReadWriteOnce"],"csi":{"driver":"a.io","volumeHandle":"h"},"volumeMode":"Block"}} => spec.source.inlineVolumeSpec.volumeMode: Forbidden: may not specify volumeMode other than Filesystem in the context of inline volumes
        /spec/source={"inlineVolumeSpec":{"csi":{"driver":"a.io","volumeHandle":"h"}}} => spec.source.inlineVolumeSpec.accessModes: Required value
    "#,
    );
}

#[test]
fn changed_volume_attachments_and_their_status() {
    check_update(
        ATTACHMENT,
        &attachment(),
        r#"
        /metadata/labels={"a":"b"} => ok
        /spec/nodeName="m" => spec: Invalid value: {
    "#,
    );
    let long = "x".repeat(1025);
    let table = format!(
        "/status={{\"attached\":true,\"attachmentMetadata\":{{\"a\":\"b\"}}}} => ok
        /status={{\"attachError\":{{\"message\":\"{long}\"}}}} => status.attachError.message: Too long
        /status={{\"detachError\":{{\"message\":\"m\",\"errorCode\":-1}}}} => status.detachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive
        /status={{\"detachError\":{{\"message\":\"m\",\"errorCode\":5}}}} => ok"
    );
    check_writes(ATTACHMENT, "status", &attachment(), &table);
}
