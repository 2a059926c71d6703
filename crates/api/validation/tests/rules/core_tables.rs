//! Tables of nodes, namespaces, quotas and limit ranges.

use super::Name;
use super::table::{check_create, check_update, check_writes};
use serde_json::{Value, json};

const NODE: Name = ("", "Node");
const NAMESPACE: Name = ("", "Namespace");
const QUOTA: Name = ("", "ResourceQuota");
const LIMITS: Name = ("", "LimitRange");

fn node() -> Value {
    json!({"spec": {"podCIDRs": ["10.0.0.0/24"], "podCIDR": "10.0.0.0/24", "providerID": "cloud://1",
        "taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}, "addresses": [{"type": "InternalIP", "address": "10.1.0.1"}]}})
}

#[test]
fn new_nodes() {
    check_create(
        NODE,
        &node(),
        r#"
        => ok
        /metadata/name="N" => metadata.name: Invalid value: "N": a lowercase RFC 1123 subdomain must
        /metadata/namespace="n" => metadata.namespace: Forbidden: not allowed on this type
        /spec/taints/0/key="a b" => metadata.taints[0].key: Invalid value: "a b": name part must consist
        /spec/taints/0/key="" => metadata.taints[0].key: Invalid value: "": name part must be non-empty ;; ...
        /spec/taints/0/value="a b" => metadata.taints[0].value: Invalid value: "a b": a valid label must
        /spec/taints/0/effect="" => metadata.taints[0].effect: Required value
        /spec/taints/0/effect="Never" => metadata.taints[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"
        /spec/taints/-={"key":"a","effect":"NoSchedule","value":"b"} => metadata.taints[1]: Duplicate value: {"effect":"NoSchedule","key":"a","value":"b"}: taints must be unique by key and effect pair
        /spec/taints/-={"key":"a","effect":"NoExecute"} => ok
        /spec/podCIDRs=["10.0.0.0"] => spec.podCIDRs[0]: Invalid value: "10.0.0.0": must be a valid CIDR value
        /spec/podCIDRs=["10.0.0.1/24"] => spec.podCIDRs[0]: Invalid value: "10.0.0.1/24": must not have bits set beyond the prefix length
        /spec/podCIDRs=["10.0.0.0/24","fd00::/64"] => ok
        /spec/podCIDRs=["10.0.0.0/24","10.0.1.0/24"] => spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: may specify no more than one CIDR for each IP family
        /spec/podCIDRs=["10.0.0.0/24","fd00::/64","10.0.1.0/24"] => spec.podCIDRs: Invalid value
        /status/capacity/cpu="-1" => status.capacity.cpu: Invalid value: "-1": must be greater than or equal to 0
        /status/allocatable={"example.com~1gpu":"1"} => ok
        /status/allocatable={"example.com/gpu":"500m"} => status.allocatable.example.com/gpu: Invalid value: "500m": must be an integer
        /status/capacity/pods="1500m" => status.capacity.pods: Invalid value: "1500m": must be an integer
        /status/nodeInfo={"swap":{"capacity":0}} => metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than zero
        /status/nodeInfo={"swap":{"capacity":1}} => ok
        /status/declaredFeatures=["A","B/c"] => ok
        /status/declaredFeatures=["a"] => status.declaredFeatures[0]: Invalid value: "a": invalid feature name "a": must start with an UpperCamelCase segment
        /status/declaredFeatures=["A/"] => status.declaredFeatures[0]: Invalid value: "A/": invalid feature name
        /status/declaredFeatures=["A-b"] => status.declaredFeatures[0]: Invalid value: "A-b": invalid feature name
        /status/declaredFeatures=["B","A"] => status.declaredFeatures[1]: Invalid value: "A": list must be sorted alphabetically
        /status/declaredFeatures=["A","A"] => status.declaredFeatures[1]: Duplicate value: "A"
        /metadata/annotations={"scheduler.alpha.kubernetes.io/taints":"x"} => metadata.annotations: Invalid value: "scheduler.alpha.kubernetes.io/taints": 
        /metadata/annotations={"scheduler.alpha.kubernetes.io/taints":"[{\"key\":\"a\"}]"} => metadata.annotations.scheduler.alpha.kubernetes.io/taints[0].effect: Required value
        /metadata/annotations={"scheduler.alpha.kubernetes.io/preferAvoidPods":"x"} => metadata.annotations.AvoidPods: Invalid value: "scheduler.alpha.kubernetes.io/preferAvoidPods": 
        /metadata/annotations={"scheduler.alpha.kubernetes.io/preferAvoidPods":"{\"preferAvoidPods\":[{\"podSignature\":{}}]}"} => metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[0].PodSignature: Required value
        /metadata/annotations={"scheduler.alpha.kubernetes.io/preferAvoidPods":"{\"preferAvoidPods\":[{\"podSignature\":{\"podController\":{\"controller\":false}}}]}"} => metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[0].PodSignature.PodController.Controller: Invalid value: false: must point to a controller
        # A field of releases before v1.24 is dropped.
        /spec/configSource={} => ok
    "#,
    );
}

#[test]
fn changed_nodes() {
    check_update(
        NODE,
        &node(),
        r#"
        => ok
        /spec/unschedulable=true => ok
        /spec/podCIDRs=["10.0.1.0/24"] => spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid
        /spec/podCIDRs=[] => spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid
        /spec/podCIDRs=null >> /spec/podCIDRs=["10.0.1.0/24"] => ok
        /spec/providerID="cloud://2" => spec.providerID: Forbidden: node updates may not change providerID except from "" to valid
        /spec/providerID=null => spec.providerID: Forbidden: node updates
        /spec/providerID=null >> /spec/providerID="cloud://2" => ok
        /spec/externalID="x" => spec.externalID: Forbidden: may not be updated
        # Both functions of upstream check taints.
        /spec/taints/0/effect="" => metadata.taints[0].effect: Required value ;; metadata.taints[0].effect: Required value
        /status/capacity/cpu="-1" => ok
        /spec/configSource={"configMap":{"name":"a","namespace":"b","kubeletConfigKey":"c"}} >> /spec/configSource/configMap/uid="1" => spec.configSource.configMap.uid: Forbidden: uid must not be set in spec
        /spec/configSource={"configMap":{"name":"a","namespace":"b","kubeletConfigKey":"c"}} >> /spec/configSource/configMap=null => spec.configSource: Invalid value: {}: exactly one reference subfield must be non-nil
        /spec/configSource={"configMap":{"name":"a","namespace":"b","kubeletConfigKey":"c"}} >> /spec/configSource/configMap/name="" => spec.configSource.configMap.name: Required value
        /spec/configSource={"configMap":{"name":"a","namespace":"b","kubeletConfigKey":"c"}} >> /spec/configSource/configMap/namespace="B" => spec.configSource.configMap.namespace: Invalid value: "B"
    "#,
    );
}

#[test]
fn status_of_nodes() {
    check_writes(
        NODE,
        "status",
        &node(),
        r#"
        => ok
        /status/capacity/cpu="-1" => status.capacity.cpu: Invalid value: "-1": must be greater than or equal to 0
        /status/addresses/-={"type":"InternalIP","address":"10.1.0.1"} => status.addresses[1]: Duplicate value: {"
        /status/addresses/-={"type":"ExternalIP","address":"10.1.0.1"} => ok
        /status/declaredFeatures=["B","A"] => status.declaredFeatures[1]: Invalid value: "A": list must be sorted alphabetically
        /status/config={"assigned":{}} => status.config.assigned: Invalid value: {}: exactly one reference subfield must be non-nil
        /status/config={"active":{"configMap":{"name":"a","namespace":"b","kubeletConfigKey":"c"}}} => status.config.active.configMap.uid: Required value ;; status.config.active.configMap.resourceVersion: Required value
        /status/config={"lastKnownGood":{"configMap":{"name":"a","namespace":"b","kubeletConfigKey":"..","uid":"1","resourceVersion":"2"}}} => status.config.lastKnownGood.configMap.kubeletConfigKey: Invalid value: "..": must not be '..'
    "#,
    );
}

#[test]
fn namespaces() {
    let base = json!({});
    check_create(
        NAMESPACE,
        &base,
        r#"
        => ok
        /metadata/name="a.b" => metadata.name: Invalid value: "a.b": must not contain dots ;; ...
        /spec/finalizers=["kubernetes","example.com/a"] => ok
        /spec/finalizers=["x"] => spec.finalizers: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified
        /spec/finalizers=["a b/c"] => spec.finalizers: Invalid value: "a b/c": prefix part a lowercase
    "#,
    );
    check_update(
        NAMESPACE,
        &base,
        r#"
        => ok
        /metadata/labels={"a":"b"} => ok
        # Only the subresource writes them.
        /spec/finalizers=["x"] => ok
    "#,
    );
    let active = json!({"status": {"phase": "Active"}});
    check_writes(
        NAMESPACE,
        "status",
        &active,
        r#"
        => ok
        /status/phase="Terminating" => status.Phase: Invalid value: "Terminating": may only be 'Active' if `deletionTimestamp` is empty
        /metadata/deletionTimestamp="2024-01-01T00:00:00Z" >> /status/phase="Terminating" => ok
        /metadata/deletionTimestamp="2024-01-01T00:00:00Z" >> /status/phase="Active" => status.Phase: Invalid value: "Active": may only be 'Terminating' if `deletionTimestamp` is not empty
    "#,
    );
    check_writes(
        NAMESPACE,
        "finalize",
        &active,
        r#"
        /spec/finalizers=[] => ok
        /spec/finalizers=["x"] => spec.finalizers[0]: Invalid value: "x": name is neither a standard finalizer name
    "#,
    );
}

#[test]
fn new_quotas() {
    check_create(
        QUOTA,
        &json!({"spec": {"hard": {"pods": "3"}}}),
        r#"
        => ok
        /spec/hard={"requests.cpu":"1","limits.memory":"1Gi","requests.storage":"1Gi","count/pods":"2"} => ok
        /spec/hard={"requests.example.com/gpu":"1","gold.storageclass.storage.k8s.io/requests.storage":"1Gi"} => ok
        /spec/hard={"hugepages-2Mi":"2Mi","requests.hugepages-2Mi":"2Mi"} => ok
        /spec/hard={"things":"1"} => spec.hard[things]: Invalid value: "things": must be a standard resource type or fully qualified ;; spec.hard[things]: Invalid value: "things": must be a standard resource for quota
        /spec/hard={"storage":"1"} => spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota
        /spec/hard={"a b":"1"} => spec.hard[a b]: Invalid value: "a b": name part must consist of ;; ...
        /spec/hard={"pods":"-1"} => spec.hard[pods]: Invalid value: "-1": must be greater than or equal to 0
        /spec/hard={"pods":"1500m"} => spec.hard[pods]: Invalid value: "1500m": must be an integer
        /spec/hard={"services.nodeports":"1500m"} => spec.hard[services.nodeports]: Invalid value: "1500m": must be an integer
        /spec/hard={"count/pods":"1500m"} => spec.hard[count/pods]: Invalid value: "1500m": must be an integer
        /spec/hard={"cpu":"1500m"} => ok
        /spec/scopes=["BestEffort"] => ok
        /spec/scopes=["Best"] => spec.scopes: Invalid value: ["Best"]: unsupported scope
        /spec/scopes=["BestEffort"] & /spec/hard={"cpu":"1"} => spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource
        /spec/scopes=["Terminating"] & /spec/hard={"cpu":"1","pods":"1"} => ok
        /spec/scopes=["Terminating"] & /spec/hard={"services":"1","secrets":"1"} => spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource ;; spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource
        /spec/scopes=["VolumeAttributesClass"] & /spec/hard={"persistentvolumeclaims":"1","requests.storage":"1Gi"} => ok
        /spec/scopes=["VolumeAttributesClass"] => spec.scopes: Invalid value: ["VolumeAttributesClass"]: unsupported scope applied to resource
        /spec/scopes=["BestEffort","NotBestEffort"] => spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes
        /spec/scopes=["Terminating","NotTerminating"] => spec.scopes: Invalid value: ["Terminating","NotTerminating"]: conflicting scopes
        /spec/scopeSelector={"matchExpressions":[{"scopeName":"PriorityClass","operator":"In","values":["high"]}]} => ok
        /spec/scopeSelector={"matchExpressions":[{"scopeName":"PriorityClass","operator":"In"}]} => spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector
        /spec/scopeSelector={"matchExpressions":[{"scopeName":"PriorityClass","operator":"Exists","values":["high"]}]} => spec.scopeSelector.matchExpressions.values: Invalid value: ["high"]: must be no value when `operator` is 'Exist' or 'DoesNotExist'
        /spec/scopeSelector={"matchExpressions":[{"scopeName":"PriorityClass","operator":"Is"}]} => spec.scopeSelector.matchExpressions.operator: Invalid value: "Is": not a valid selector operator
        /spec/scopeSelector={"matchExpressions":[{"scopeName":"Best","operator":"Exists"}]} => spec.scopeSelector.matchExpressions.scopeName: Invalid value: "Best": unsupported scope
        /spec/scopeSelector={"matchExpressions":[{"scopeName":"BestEffort","operator":"DoesNotExist"}]} => spec.scopeSelector.matchExpressions.operator: Invalid value: "DoesNotExist": must be 'Exists' when scope is any of ResourceQuotaScopeTerminating
        /spec/scopeSelector={"matchExpressions":[{"scopeName":"BestEffort","operator":"Exists"},{"scopeName":"NotBestEffort","operator":"Exists"}]} => spec.scopeSelector.matchExpressions: Invalid value: null: conflicting scopes
        /spec/scopeSelector={"matchExpressions":[{"scopeName":"BestEffort","operator":"Exists"}]} & /spec/hard={"cpu":"1"} => spec.scopeSelector.matchExpressions: Invalid value: {"
    "#,
    );
}

#[test]
fn changed_quotas_and_their_status() {
    let base = json!({"spec": {"hard": {"pods": "3"}, "scopes": ["Terminating", "NotBestEffort"]}});
    check_update(
        QUOTA,
        &base,
        r#"
        => ok
        /spec/hard/pods="4" => ok
        /spec/hard/pods="-4" => spec.hard[pods]: Invalid value: "-4"
        /spec/scopes=["NotBestEffort","Terminating"] => ok
        /spec/scopes=["Terminating"] => spec.scopes: Invalid value: ["Terminating"]: field is immutable
        /spec/scopes=null => spec.scopes: Invalid value: null: field is immutable
    "#,
    );
    check_writes(
        QUOTA,
        "status",
        &base,
        r#"
        /status={"hard":{"pods":"3"},"used":{"pods":"1"}} => ok
        /status={"hard":{"things":"3"}} => status.hard[things]: Invalid value: "things": must be a standard resource type ;; status.hard[things]: Invalid value: "things": must be a standard resource for quota
        /status={"used":{"pods":"-1"}} => status.used[pods]: Invalid value: "-1": must be greater than or equal to 0
        /status={"used":{"pods":"500m"}} => status.used[pods]: Invalid value: "500m": must be an integer
    "#,
    );
}

#[test]
fn limit_ranges() {
    let base = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}}]}});
    let table = r#"
        => ok
        /spec/limits/0/type="Deployment" => spec.limits[0].type: Invalid value: "Deployment": must be a standard limit type or fully qualified
        /spec/limits/0/type="example.com/thing" => ok
        /spec/limits/0/type="a b" => spec.limits[0].type: Invalid value: "a b": name part must
        /spec/limits/-={"type":"Container"} => spec.limits[1].type: Duplicate value: "Container"
        /spec/limits/-={"type":"Pod","max":{"memory":"1Gi"}} => ok
        /spec/limits/0/type="Pod" & /spec/limits/0/default={"cpu":"1"} => spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod' ;; ...
        /spec/limits/0/type="Pod" & /spec/limits/0/defaultRequest={"cpu":"1"} => spec.limits[0].defaultRequest: Forbidden: may not be specified when `type` is 'Pod' ;; ...
        /spec/limits/0/max={"things":"1"} & /spec/limits/0/min=null => spec.limits[0].max[things]: Invalid value: "things": must be a standard resource type ;; spec.limits[0].max[things]: Invalid value: "things": must be a standard resource for containers ;; ...
        /spec/limits/0/max={"storage":"1"} & /spec/limits/0/min=null => spec.limits[0].max[storage]: Invalid value: "storage": must be a standard resource for containers ;; ...
        /spec/limits/0/min/cpu="3" => spec.limits[0].min[cpu]: Invalid value: "3": min value 3 is greater than max value 2 ;; ...
        /spec/limits/0/default={"cpu":"3"} & /spec/limits/0/defaultRequest={"cpu":"1"} => spec.limits[0].default[cpu]: Invalid value: "2": default value 3 is greater than max value 2
        /spec/limits/0/default={"cpu":"500m"} & /spec/limits/0/defaultRequest={"cpu":"500m"} => spec.limits[0].defaultRequest[cpu]: Invalid value: "500m": min value 1 is greater than default request value 500m ;; spec.limits[0].default[cpu]: Invalid value: "1": min value 1 is greater than default value 500m
        /spec/limits/0/defaultRequest={"cpu":"3"} => spec.limits[0].defaultRequest[cpu]: Invalid value: "3": default request value 3 is greater than max value 2 ;; ...
        /spec/limits/0/default={"cpu":"1"} & /spec/limits/0/defaultRequest={"cpu":"1500m"} => spec.limits[0].defaultRequest[cpu]: Invalid value: "1500m": default request value 1500m is greater than default limit value 1
        /spec/limits/0/maxLimitRequestRatio={"cpu":"500m"} => spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1
        /spec/limits/0/maxLimitRequestRatio={"cpu":"2"} => ok
        /spec/limits/0/maxLimitRequestRatio={"cpu":"3"} => spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000
        /spec/limits/0={"type":"Container","default":{"example.com/gpu":"2"},"defaultRequest":{"example.com/gpu":"1"}} => spec.limits[0].defaultRequest[example.com/gpu]: Invalid value: "1": default value 2 must equal to defaultRequest value 1 in example.com/gpu
        /spec/limits/0={"type":"Container","default":{"hugepages-2Mi":"4Mi"},"defaultRequest":{"hugepages-2Mi":"2Mi"}} => spec.limits[0].defaultRequest[hugepages-2Mi]: Invalid value: "2Mi": default value 4Mi must equal to defaultRequest value 2Mi
        /spec/limits/0={"type":"PersistentVolumeClaim"} => spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided
        /spec/limits/0={"type":"PersistentVolumeClaim","max":{"storage":"1Gi"}} => ok
    "#;
    check_create(LIMITS, &base, table);
    check_update(LIMITS, &base, table);
}
