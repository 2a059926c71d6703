//! Tables of persistent volumes and claims.

use super::Name;
use super::table::{check_create, check_update, check_writes};
use serde_json::{Value, json};

const VOLUME: Name = ("", "PersistentVolume");
const CLAIM: Name = ("", "PersistentVolumeClaim");

fn volume() -> Value {
    json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"}}})
}

fn csi_volume() -> Value {
    json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "csi": {"driver": "a.io", "volumeHandle": "h"}}})
}

fn claim() -> Value {
    json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}})
}

#[test]
fn new_volumes() {
    check_create(
        VOLUME,
        &volume(),
        r#"
        => ok
        /spec/accessModes=[] => spec.accessModes: Required value
        /spec/accessModes=["ReadOnce"] => spec.accessModes: Unsupported value: "ReadOnce": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"
        /spec/accessModes=["ReadWriteOncePod"] => ok
        /spec/accessModes=["ReadWriteOncePod","ReadWriteOnce"] => spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes
        /spec/capacity=null => spec.capacity: Required value ;; spec.capacity: Unsupported value: null: supported values: "storage"
        /spec/capacity={"cpu":"1"} => spec.capacity: Unsupported value: {"cpu":"1"}: supported values: "storage"
        /spec/capacity={"storage":"1Gi","cpu":"1"} => spec.capacity: Unsupported value: {
        /spec/capacity={"storage":"0"} => spec.capacity[storage]: Invalid value: "0": must be greater than zero
        /spec/capacity={"storage":"-1"} => spec.capacity[storage]: Invalid value: -1: must be a valid resource quantity ;; spec.capacity[storage]: Invalid value: "-1": must be greater than zero
        /spec/persistentVolumeReclaimPolicy="Keep" => spec.persistentVolumeReclaimPolicy: Unsupported value: "Keep": supported values: "Delete", "Recycle", "Retain"
        /spec/persistentVolumeReclaimPolicy="Recycle" => ok
        /spec/persistentVolumeReclaimPolicy="Recycle" & /spec/hostPath/path="/." => spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'
        /spec/nodeAffinity={} => spec.nodeAffinity.required: Required value: must specify required node constraints
        /spec/nodeAffinity={"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}} => ok
        /spec/nodeAffinity={"required":{"nodeSelectorTerms":[]}} => spec.nodeAffinity.required.nodeSelectorTerms: Required value
        /spec/hostPath=null => spec: Required value: must specify a volume type
        /spec/nfs={"server":"s","path":"/p"} => spec.nfs: Forbidden: may not specify more than 1 volume type
        /spec/cephfs={"monitors":["a"]} => spec.cephFS: Forbidden: may not specify more than 1 volume type
        /spec/flexVolume={"driver":"a/b"} => ok
        /spec/storageClassName="A" => spec.storageClassName: Invalid value: "A": a lowercase RFC 1123 subdomain
        /spec/volumeMode="Disk" => spec.volumeMode: Unsupported value: "Disk": supported values: "Block", "Filesystem"
        /spec/volumeAttributesClassName="a" => spec.csi: Required value: has to be specified when using volumeAttributesClassName
        /spec/volumeAttributesClassName="" => spec.volumeAttributesClassName: Required value: an empty string is disallowed ;; spec.csi: Required value
        /metadata/annotations={"volume.beta.kubernetes.io/mount-options":"ro"} => metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: may not specify mount options for this volume type
        /metadata/annotations={"volume.beta.kubernetes.io/mount-options":"ro"} & /spec/hostPath=null & /spec/nfs={"server":"s","path":"/p"} => ok
        /spec/hostPath={"path":""} => spec.hostPath.path: Required value
        /spec/hostPath={"path":"/a/../b"} => spec.hostPath.path: Invalid value: "/a/../b": must not contain '..'
        /spec/hostPath={"path":"/a","type":"Disk"} => spec.hostPath.type: Unsupported value: "Disk"
    "#,
    );
}

#[test]
fn sources_of_new_volumes() {
    check_create(
        VOLUME,
        &volume(),
        r#"
        /spec/hostPath=null & /spec/gcePersistentDisk={} => spec.persistentDisk.pdName: Required value
        /spec/hostPath=null & /spec/gcePersistentDisk={"pdName":"a","partition":256} => spec.persistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive
        /spec/hostPath=null & /spec/awsElasticBlockStore={"volumeID":"","partition":-1} => spec.awsElasticBlockStore.volumeID: Required value ;; spec.awsElasticBlockStore.partition: Invalid value: -1
        /spec/hostPath=null & /spec/glusterfs={} => spec.glusterfs.endpoints: Required value ;; spec.glusterfs.path: Required value
        /spec/hostPath=null & /spec/glusterfs={"endpoints":"e","path":"p","endpointsNamespace":""} => spec.glusterfs.endpointsNamespace: Invalid value: "": if the endpointnamespace is set, it must be a valid namespace name
        /spec/hostPath=null & /spec/glusterfs={"endpoints":"e","path":"p","endpointsNamespace":"A"} => spec.glusterfs.endpointsNamespace: Invalid value: "A": a lowercase RFC 1123 label
        /spec/hostPath=null & /spec/flocker={} => spec.flocker: Required value: one of datasetName and datasetUUID is required
        /spec/hostPath=null & /spec/flocker={"datasetName":"a/b","datasetUUID":"c"} => spec.flocker: Invalid value: "resource": datasetName and datasetUUID can not be specified simultaneously ;; spec.flocker.datasetName: Invalid value: "a/b": must not contain '/'
        /spec/hostPath=null & /spec/nfs={"server":"","path":""} => spec.nfs.server: Required value ;; spec.nfs.path: Required value ;; spec.nfs.path: Invalid value: "": must be an absolute path
        /spec/hostPath=null & /spec/rbd={} => spec.rbd.monitors: Required value ;; spec.rbd.image: Required value
        /spec/hostPath=null & /spec/quobyte={"registry":"","volume":""} => spec.quobyte.registry: Required value: must be a host:port pair or multiple pairs separated by commas ;; spec.quobyte.volume: Required value
        /spec/hostPath=null & /spec/quobyte={"registry":"a:1,b","volume":"v"} => spec.quobyte.registry: Invalid value: "a:1,b": must be a host:port pair
        /spec/hostPath=null & /spec/cephfs={} => spec.cephfs.monitors: Required value
        /spec/hostPath=null & /spec/iscsi={"targetPortal":"p","iqn":"iqn.2015-02.example.com:test","lun":0} => ok
        /spec/hostPath=null & /spec/iscsi={"targetPortal":"","iqn":"","lun":0} => spec.iscsi.targetPortal: Required value ;; spec.iscsi.iqn: Required value
        /spec/hostPath=null & /spec/iscsi={"targetPortal":"p","iqn":"x","lun":0} => spec.iscsi.iqn: Invalid value: "x": must be valid format
        /spec/hostPath=null & /spec/iscsi={"targetPortal":"p","iqn":"iqn.2015-02.example.com","lun":0} => spec.iscsi.iqn: Invalid value: "iqn.2015-02.example.com": must be valid format
        /spec/hostPath=null & /spec/iscsi={"targetPortal":"p","iqn":"eui.0123456789ABCDEF","lun":0} => ok
        /spec/hostPath=null & /spec/iscsi={"targetPortal":"p","iqn":"naa.62004567BA64678D0123456789ABCDEF","lun":0} => ok
        /spec/hostPath=null & /spec/iscsi={"targetPortal":"p","iqn":"eui.0123456789ABCDEF","lun":256} => spec.iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive
        /spec/hostPath=null & /spec/iscsi={"targetPortal":"p","iqn":"eui.0123456789ABCDEF","lun":0,"chapAuthSession":true} => spec.iscsi.secretRef: Required value
        /spec/hostPath=null & /spec/iscsi={"targetPortal":"p","iqn":"eui.0123456789ABCDEF","lun":0,"secretRef":{}} => spec.iscsi.secretRef.name: Required value
        /spec/hostPath=null & /spec/iscsi={"targetPortal":"p","iqn":"eui.0123456789ABCDEF","lun":0,"initiatorName":"x"} => spec.iscsi.initiatorname: Invalid value: "x": must be valid format
        /spec/hostPath=null & /spec/iscsi={"targetPortal":"0123456789012345678901234567890123456789012345678901234567890123","iqn":"eui.0123456789ABCDEF","lun":0,"initiatorName":"eui.0123456789ABCDEF"} => spec.iscsi.targetportal: Invalid value: "0123456789012345678901234567890123456789012345678901234567890123": Total length of <volume name>:<iscsi.targetPortal>
        /spec/hostPath=null & /spec/cinder={"volumeID":"","secretRef":{}} => spec.cinder.volumeID: Required value ;; spec.cinder.secretRef.name: Required value ;; spec.cinder.secretRef.namespace: Required value
        /spec/hostPath=null & /spec/fc={} => spec.fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both
        /spec/hostPath=null & /spec/fc={"targetWWNs":["a"],"wwids":["b"],"lun":0} => spec.fc.targetWWNs: Invalid value: ["a"]: targetWWNs and wwids can not be specified simultaneously
        /spec/hostPath=null & /spec/fc={"targetWWNs":["a"]} => spec.fc.lun: Required value: lun is required if targetWWNs is specified
        /spec/hostPath=null & /spec/fc={"targetWWNs":["a"],"lun":300} => spec.fc.lun: Invalid value: 300: must be between 0 and 255, inclusive
        /spec/hostPath=null & /spec/flexVolume={} => spec.flexVolume.driver: Required value
        /spec/hostPath=null & /spec/flexVolume={"driver":"a/b","options":{"x.k8s.io/y":"z"}} => spec.flexVolume.options[x.k8s.io/y]: Invalid value: "x.k8s.io/y": kubernetes.io and k8s.io namespaces are reserved
        /spec/hostPath=null & /spec/azureFile={"secretNamespace":""} => spec.azureFile.secretName: Required value ;; spec.azureFile.shareName: Required value ;; spec.azureFile.secretNamespace: Required value
        /spec/hostPath=null & /spec/azureDisk={"diskName":"d","diskURI":"https://a","cachingMode":"X","kind":"Managed"} => spec.azureDisk.cachingMode: Unsupported value: "X": supported values: "None", "ReadOnly", "ReadWrite" ;; spec.azureDisk.diskURI: Unsupported value: "https://a": supported values: "/subscriptions/
        /spec/hostPath=null & /spec/azureDisk={"diskName":"d","diskURI":"/subscriptions/a","kind":"Shared"} => spec.azureDisk.diskURI: Unsupported value: "/subscriptions/a": supported values: "https://
        /spec/hostPath=null & /spec/vsphereVolume={} => spec.vsphereVolume.volumePath: Required value
        /spec/hostPath=null & /spec/photonPersistentDisk={} => spec.photonPersistentDisk.pdID: Required value
        /spec/hostPath=null & /spec/portworxVolume={} => spec.portworxVolume.volumeID: Required value
        /spec/hostPath=null & /spec/scaleIO={} => spec.scaleIO.gateway: Required value ;; spec.scaleIO.system: Required value ;; spec.scaleIO.volumeName: Required value
        /spec/hostPath=null & /spec/local={"path":"/a"} => spec.nodeAffinity: Required value: Local volume requires node affinity
        /spec/hostPath=null & /spec/local={"path":""} => spec.local.path: Required value ;; spec.nodeAffinity: Required value
        /spec/hostPath=null & /spec/local={"path":"/a/.."} => spec.local.path: Invalid value: "/a/..": must not contain '..' ;; spec.nodeAffinity: Required value
        /spec/hostPath=null & /spec/storageos={"volumeName":"A","secretRef":{"name":"s"}} => spec.storageos.volumeName: Invalid value: "A" ;; spec.storageos.secretRef.namespace: Required value
        /spec/hostPath=null & /spec/csi={} => spec.csi.driver: Required value ;; spec.csi.volumeHandle: Required value
        /spec/hostPath=null & /spec/csi={"driver":"A.io","volumeHandle":"h"} => ok
        /spec/hostPath=null & /spec/csi={"driver":"a_b","volumeHandle":"h"} => spec.csi.driver: Invalid value: "a_b": a lowercase RFC 1123 subdomain
        /spec/hostPath=null & /spec/csi={"driver":"a.io","volumeHandle":"h","nodePublishSecretRef":{}} => spec.csi.nodePublishSecretRef.name: Required value ;; spec.csi.nodePublishSecretRef.namespace: Required value
        /spec/hostPath=null & /spec/csi={"driver":"a.io","volumeHandle":"h","controllerExpandSecretRef":{"name":"A","namespace":"B"}} => spec.csi.controllerExpandSecretRef.name: Invalid value: "A" ;; spec.csi.controllerExpandSecretRef.namespace: Invalid value: "B"
    "#,
    );
}

#[test]
fn changed_volumes() {
    check_update(
        VOLUME,
        &csi_volume(),
        r#"
        => ok
        /spec/capacity={"storage":"2Gi"} => ok
        /spec/accessModes=["ReadOnlyMany"] => ok
        /spec/csi/volumeHandle="i" => spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation
        /spec/csi/controllerExpandSecretRef={"name":"a","namespace":"b"} => ok
        /spec/csi/controllerExpandSecretRef={"name":"a","namespace":"b"} >> /spec/csi/controllerExpandSecretRef={"name":"c","namespace":"b"} => spec.persistentvolumesource: Forbidden
        /spec/csi/nodeExpandSecretRef={"name":"a","namespace":"b"} => spec.persistentvolumesource: Forbidden
        /spec/volumeMode="Block" => volumeMode: Invalid value: "Block": field is immutable
        /spec/volumeAttributesClassName="a" => ok
        /spec/volumeAttributesClassName="a" >> /spec/volumeAttributesClassName="b" => ok
        /spec/volumeAttributesClassName="a" >> /spec/volumeAttributesClassName=null => spec.volumeAttributesClassName: Forbidden: update from non-nil value to nil is forbidden
        /spec/nodeAffinity={"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}} => ok
        /spec/nodeAffinity={"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}} >> /spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/key="b" => nodeAffinity: Invalid value: {
        /spec/nodeAffinity={"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"beta.kubernetes.io/os","operator":"Exists"}]}]}} >> /spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/key="kubernetes.io/os" => ok
        /spec/nodeAffinity={"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}} >> /spec/nodeAffinity=null => nodeAffinity: Invalid value: null: field is immutable
    "#,
    );
}

#[test]
fn new_claims() {
    check_create(
        CLAIM,
        &claim(),
        r#"
        => ok
        /spec/accessModes=[] => spec.accessModes: Required value: at least 1 access mode is required
        /spec/accessModes=["Any"] => spec.accessModes: Unsupported value: "Any"
        /spec/accessModes=["ReadWriteOncePod","ReadOnlyMany"] => spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes
        /spec/resources={} => spec.resources[storage]: Required value
        /spec/resources/requests/storage="0" => spec.resources[storage]: Invalid value: "0": must be greater than zero
        /spec/resources/requests/storage="-1Gi" => spec.resources[storage]: Invalid value: "-1Gi": must be greater than zero
        /spec/selector={"matchExpressions":[{"key":"a","operator":"In"}]} => spec.selector.matchExpressions[0].values: Required value
        /spec/selector={"matchLabels":{"a":"b c"}} => spec.selector.matchLabels: Invalid value: "b c"
        /spec/storageClassName="" => ok
        /spec/storageClassName="A" => spec.storageClassName: Invalid value: "A"
        /spec/volumeAttributesClassName="" => ok
        /spec/volumeAttributesClassName="A" => spec.volumeAttributesClassName: Invalid value: "A"
        /spec/volumeMode="Disk" => spec.volumeMode: Unsupported value: "Disk"
        /spec/dataSource={"kind":"PersistentVolumeClaim","name":"a"} => ok
        /spec/dataSource={"kind":"PersistentVolumeClaim","name":""} => spec.dataSource.name: Required value ;; spec.dataSourceRef.name: Required value
        # The older field ignores other kinds.
        /spec/dataSource={"kind":"Pod","name":"a"} => ok
        /spec/dataSourceRef={"apiGroup":"a.b","kind":"K","name":"n"} => ok
        /spec/dataSourceRef={"apiGroup":"A","kind":"K","name":"n"} => spec.dataSource.apiGroup: Invalid value: "A" ;; spec.dataSourceRef.apiGroup: Invalid value: "A"
        /spec/dataSourceRef={"apiGroup":"a.b","kind":"","name":""} => spec.dataSource.name: Required value ;; spec.dataSource.kind: Required value ;; spec.dataSourceRef.name: Required value ;; spec.dataSourceRef.kind: Required value
        /spec/dataSource={"kind":"PersistentVolumeClaim","name":"a"} & /spec/dataSourceRef={"kind":"PersistentVolumeClaim","name":"b"} => spec: Invalid value: "spec.dataSource": must match dataSourceRef
    "#,
    );
}

#[test]
fn changed_claims() {
    let fixed = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
    let table = r#"
        => ok
        /metadata/labels={"a":"b"} => ok
        /spec/volumeName="v" => ok
        /spec/volumeName="v" >> /spec/volumeName="w" => FIXED
        /spec/accessModes=["ReadWriteMany"] => FIXED
        /spec/resources/requests/storage="3Gi" => FIXED
        /spec/storageClassName="a" => ok
        /spec/storageClassName="a" >> /spec/storageClassName="b" => FIXED
        /spec/storageClassName="a" >> /spec/storageClassName=null => FIXED
        /spec/volumeMode="Block" => FIXED ;; volumeMode: Invalid value: "Block": field is immutable
        /spec/volumeAttributesClassName="a" => FIXED
        /metadata/annotations={"volume.beta.kubernetes.io/storage-class":"a"} => metadata.annotations.volume.beta.kubernetes.io/storage-class: Invalid value: "a": field is immutable
        /metadata/annotations={"volume.beta.kubernetes.io/storage-class":"a"} >> /spec/storageClassName="a" => ok
        /metadata/annotations={"volume.beta.kubernetes.io/storage-class":"a"} >> /spec/storageClassName="b" => FIXED
        /metadata/annotations={"volume.beta.kubernetes.io/storage-class":"a"} >> /spec/storageClassName="a" & /metadata/annotations=null => ok
        /spec/selector={"matchExpressions":[{"key":"a","operator":"In","values":["b c"]}]} >> /metadata/labels={"a":"b"} => ok
        /spec/dataSource={"apiGroup":"A","kind":"K","name":"n"} & /spec/dataSourceRef={"apiGroup":"A","kind":"K","name":"n"} >> /metadata/labels={"a":"b"} => ok
    "#;
    check_update(CLAIM, &claim(), &table.replace("FIXED", fixed));
    let mut bound = claim();
    bound["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}});
    let table = r#"
        /spec/resources/requests/storage="3Gi" => ok
        /spec/resources/requests/storage="1500Mi" => ok
        /spec/resources/requests/storage="1Gi" => spec.resources.requests.storage: Forbidden: field can not be less than status.capacity
        /spec/resources/requests/storage="512Mi" => spec.resources.requests.storage: Forbidden: field can not be less than status.capacity
        /spec/resources/limits={"storage":"3Gi"} => FIXED
        /spec/volumeAttributesClassName="a" => ok
        /spec/volumeAttributesClassName="a" >> /spec/volumeAttributesClassName=null => ok
        /spec/volumeAttributesClassName="a" & /status/currentVolumeAttributesClassName="a" >> /spec/volumeAttributesClassName="b" => ok
        /spec/volumeAttributesClassName="a" & /status/currentVolumeAttributesClassName="a" >> /spec/volumeAttributesClassName=null => spec.volumeAttributesClassName: Forbidden: update to nil is forbidden when status.currentVolumeAttributesClassName is not nil
        /spec/volumeAttributesClassName="a" & /status/currentVolumeAttributesClassName="a" >> /spec/volumeAttributesClassName="" => spec.volumeAttributesClassName: Forbidden: update to empty string is forbidden
    "#;
    check_update(CLAIM, &bound, &table.replace("FIXED", fixed));
}

#[test]
fn status_of_claims() {
    check_writes(
        CLAIM,
        "status",
        &claim(),
        r#"
        /status={"phase":"Bound","capacity":{"storage":"2Gi"}} => ok
        /status={"capacity":{"storage":"-1"}} => status.capacity[storage]: Invalid value: -1: must be a valid resource quantity
        /status={"allocatedResourceStatuses":{"storage":"NodeResizePending"}} => ok
        /status={"allocatedResourceStatuses":{"storage":"Growing"}} => status.allocatedResourceStatuses: Unsupported value: "storage": supported values: "ControllerResizeInProgress"
        /status={"allocatedResourceStatuses":{"cpu":"NodeResizePending"}} => status.allocatedResourceStatuses: Unsupported value: "cpu": supported values: "storage"
        /status={"allocatedResourceStatuses":{"example.com/a":"NodeResizePending"}} => ok
        /status={"allocatedResourceStatuses":{"a b":"NodeResizePending"}} => status.allocatedResourceStatuses: Invalid value: "a b"
        /status={"allocatedResources":{"storage":"2Gi"}} => ok
        /status={"allocatedResources":{"memory":"2Gi"}} => status.allocatedResources: Unsupported value: "memory": supported values: "storage"
        /status={"allocatedResources":{"storage":"-2Gi"}} => status.allocatedResources[storage]: Invalid value: -2147483648: must be a valid resource quantity
        /spec/accessModes=[] >> /status={"phase":"Lost"} => Spec.accessModes: Required value
    "#,
    );
}
