//! Tables of the group `resource.k8s.io`.

use super::Name;
use super::table::{check_create, check_update, check_writes};
use serde_json::{Value, json};

const CLAIM: Name = ("resource.k8s.io", "ResourceClaim");
const TEMPLATE: Name = ("resource.k8s.io", "ResourceClaimTemplate");
const CLASS: Name = ("resource.k8s.io", "DeviceClass");
const SLICE: Name = ("resource.k8s.io", "ResourceSlice");

fn claim() -> Value {
    json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}})
}

fn slice() -> Value {
    json!({"spec": {"driver": "d.io", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n",
        "devices": [{"name": "x", "attributes": {"a": {"int": 1}}, "capacity": {"m": {"value": "10Gi"}}}]}})
}

#[test]
fn requests_of_new_claims() {
    check_create(
        CLAIM,
        &claim(),
        r#"
        => ok
        /spec/devices/requests/0/name="" => spec.devices.requests[0].name: Invalid value: "": a lowercase RFC 1123 label
        /spec/devices/requests/0/name="A" => spec.devices.requests[0].name: Invalid value: "A"
        /spec/devices/requests/-={"name":"r","exactly":{"deviceClassName":"c"}} => spec.devices.requests[1]: Duplicate value: "r"
        /spec/devices/requests/0/exactly=null => spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required
        /spec/devices/requests/0/firstAvailable=[{"name":"s","deviceClassName":"c"}] => spec.devices.requests[0]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set
        /spec/devices/requests/0/exactly=null & /spec/devices/requests/0/firstAvailable=[{"name":"s","deviceClassName":"c"}] => ok
        /spec/devices/requests/0/exactly=null & /spec/devices/requests/0/firstAvailable=[{"name":"S","deviceClassName":""}] => spec.devices.requests[0].firstAvailable[0].name: Invalid value: "S" ;; spec.devices.requests[0].firstAvailable[0].deviceClassName: Required value
        /spec/devices/requests/0/exactly=null & /spec/devices/requests/0/firstAvailable=[{"name":"s","deviceClassName":"c"},{"name":"s","deviceClassName":"c"}] => spec.devices.requests[0].firstAvailable[1]: Duplicate value: "s"
        /spec/devices/requests/0/exactly=null & /spec/devices/requests/0/firstAvailable=[{"name":"1"},{"name":"2"},{"name":"3"},{"name":"4"},{"name":"5"},{"name":"6"},{"name":"7"},{"name":"8"},{"name":"9"}] => spec.devices.requests[0].firstAvailable: Too many: 9: must have at most 8 items
        /spec/devices/requests/0/exactly/deviceClassName="" => spec.devices.requests[0].exactly.deviceClassName: Required value
        /spec/devices/requests/0/exactly/deviceClassName="A" => spec.devices.requests[0].exactly.deviceClassName: Invalid value: "A"
        /spec/devices/requests/0/exactly/allocationMode="Some" => spec.devices.requests[0].exactly.allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount"
        /spec/devices/requests/0/exactly/allocationMode="All" => ok
        /spec/devices/requests/0/exactly/allocationMode="All" & /spec/devices/requests/0/exactly/count=1 => spec.devices.requests[0].exactly.count: Invalid value: 1: must not be specified when allocationMode is 'All'
        /spec/devices/requests/0/exactly/count=-1 => spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero
        /spec/devices/requests/0/exactly/selectors=[{}] => spec.devices.requests[0].exactly.selectors[0].cel: Required value
        /spec/devices/requests/0/exactly/selectors=[{"cel":{"expression":"device.driver == 'a'"}}] => ok
        /spec/devices/requests/0/exactly/selectors=[{"cel":{"expression":"(device"}}] => spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: "(device"
        /spec/devices/requests/0/exactly/tolerations=[{"key":"a","operator":"Exists"}] => ok
        /spec/devices/requests/0/exactly/tolerations=[{"key":"a","operator":"Exists","value":"b"}] => spec.devices.requests[0].exactly.tolerations[0].value: Invalid value: "b": must be empty for operator `Exists`
        /spec/devices/requests/0/exactly/tolerations=[{"key":"a b","operator":"Exists"}] => spec.devices.requests[0].exactly.tolerations[0].key: Invalid value: "a b"
        /spec/devices/requests/0/exactly/tolerations=[{"key":"a","operator":"In"}] => spec.devices.requests[0].exactly.tolerations[0].operator: Unsupported value: "In": supported values: "Equal", "Exists"
        /spec/devices/requests/0/exactly/tolerations=[{"key":"a","value":"b c"}] => spec.devices.requests[0].exactly.tolerations[0].value: Invalid value: "b c"
        /spec/devices/requests/0/exactly/tolerations=[{"key":"a","effect":"Never"}] => spec.devices.requests[0].exactly.tolerations[0].effect: Unsupported value: "Never": supported values: "NoExecute", "NoSchedule", "None"
    "#,
    );
    let many: Vec<Value> = (0..33)
        .map(|i| json!({"name": format!("r{i}"), "exactly": {"deviceClassName": "c"}}))
        .collect();
    let table = format!(
        "/spec/devices/requests={} => spec.devices.requests: Too many: 33: must have at most 32 items",
        json!(many)
    );
    check_create(CLAIM, &claim(), &table);
}

#[test]
fn constraints_and_configurations_of_new_claims() {
    check_create(
        CLAIM,
        &claim(),
        r#"
        /spec/devices/constraints=[{"requests":["r"],"matchAttribute":"a.io/b"}] => ok
        /spec/devices/constraints=[{"distinctAttribute":"a.io/b"}] => ok
        /spec/devices/constraints=[{"requests":["r"]}] => spec.devices.constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is required
        /spec/devices/constraints=[{"requests":["s"],"matchAttribute":"a.io/b"}] => spec.devices.constraints[0].requests[0]: Invalid value: "s": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'
        /spec/devices/constraints=[{"requests":["r","r"],"matchAttribute":"a.io/b"}] => spec.devices.constraints[0].requests[1]: Duplicate value: "r"
        /spec/devices/constraints=[{"requests":["r/s"],"matchAttribute":"a.io/b"}] => spec.devices.constraints[0].requests[0]: Invalid value: "r/s": must be the name
        /spec/devices/constraints=[{"requests":["r/s/t"],"matchAttribute":"a.io/b"}] => spec.devices.constraints[0].requests[0]: Invalid value: "r/s/t": must be the name
        /spec/devices/constraints=[{"requests":["R"],"matchAttribute":"a.io/b"}] => spec.devices.constraints[0].requests[0]: Invalid value: "R": a lowercase ;; spec.devices.constraints[0].requests[0]: Invalid value: "R": must be the name
        /spec/devices/constraints=[{"matchAttribute":"b"}] => spec.devices.constraints[0].matchAttribute: Invalid value: "b": a fully qualified name must be a domain and a name separated by a slash
        /spec/devices/constraints=[{"matchAttribute":"/b"}] => spec.devices.constraints[0].matchAttribute: Invalid value: "": the domain must not be empty
        /spec/devices/constraints=[{"matchAttribute":"a.io/"}] => spec.devices.constraints[0].matchAttribute: Invalid value: "": the name must not be empty
        /spec/devices/constraints=[{"matchAttribute":"a.io/b-c"}] => spec.devices.constraints[0].matchAttribute: Invalid value: "b-c": a valid C identifier must
        /spec/devices/constraints=[{"matchAttribute":"a_b/c"}] => spec.devices.constraints[0].matchAttribute: Invalid value: "a_b"
        /spec/devices/requests/0={"name":"r","firstAvailable":[{"name":"s","deviceClassName":"c"}]} & /spec/devices/constraints=[{"requests":["r/s"],"matchAttribute":"a.io/b"}] => ok
        /spec/devices/config=[{"requests":["r"],"opaque":{"driver":"d.io","parameters":{"a":1}}}] => ok
        /spec/devices/config=[{}] => spec.devices.config[0].opaque: Required value
        /spec/devices/config=[{"opaque":{"driver":"","parameters":{"a":1}}}] => spec.devices.config[0].opaque.driver: Required value
        /spec/devices/config=[{"opaque":{"driver":"d.io"}}] => spec.devices.config[0].opaque.parameters: Required value
        /spec/devices/config=[{"opaque":{"driver":"d.io","parameters":[1]}}] => spec.devices.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object
        /spec/devices/config=[{"requests":["s"],"opaque":{"driver":"d.io","parameters":{"a":1}}}] => spec.devices.config[0].requests[0]: Invalid value: "s": must be the name
    "#,
    );
    let parameters = json!({"a": "x".repeat(10 * 1024)});
    let table = format!(
        "/spec/devices/config=[{{\"opaque\":{{\"driver\":\"d.io\",\"parameters\":{parameters}}}}}] => spec.devices.config[0].opaque.parameters: Too long: may not be more than 10240 bytes"
    );
    check_create(CLAIM, &claim(), &table);
}

#[test]
fn changed_claims_and_templates() {
    check_update(
        CLAIM,
        &claim(),
        r#"
        /metadata/labels={"a":"b"} => ok
        /spec/devices/requests/0/name="s" => spec: Invalid value: {
        # A spec that an older release accepted may stay.
        /spec/devices/requests/0/name="R" >> /metadata/labels={"a":"b"} => ok
    "#,
    );
    let template = json!({"spec": {"metadata": {"labels": {"a": "b"}}, "spec": claim()["spec"]}});
    check_create(
        TEMPLATE,
        &template,
        r#"
        => ok
        /spec/metadata/labels={"a b":"c"} => spec.metadata.labels: Invalid value: "a b"
        /spec/metadata/annotations={"a b":"c"} => spec.metadata.annotations: Invalid value: "a b"
        /spec/metadata/name="x" => spec.metadata.name: Forbidden: may not be set
        /spec/metadata/finalizers=["a.io/b"] => spec.metadata.finalizers: Forbidden: may not be set
        /spec/spec/devices/requests/0/name="" => spec.spec.devices.requests[0].name: Invalid value: ""
    "#,
    );
    check_update(
        TEMPLATE,
        &template,
        r#"
        /metadata/labels={"a":"b"} => ok
        /spec/metadata/labels={"a":"c"} => spec: Invalid value: {
    "#,
    );
}

#[test]
fn status_of_claims() {
    let result = json!({"request": "r", "driver": "d.io", "pool": "p", "device": "x"});
    let mut base = claim();
    base["status"] = json!({"allocation": {"devices": {"results": [result]}}});
    check_writes(
        CLAIM,
        "status",
        &claim(),
        r#"
        /status={"allocation":{"devices":{"results":[{"request":"r","driver":"d.io","pool":"p/q","device":"x"}]}}} => ok
        /status={"allocation":{"devices":{"results":[{"request":"s","driver":"d.io","pool":"p","device":"x"}]}}} => status.allocation.devices.results[0].request: Invalid value: "s": must be the name
        /status={"allocation":{"devices":{"results":[{"request":"r","driver":"","pool":"","device":"X"}]}}} => status.allocation.devices.results[0].driver: Required value ;; status.allocation.devices.results[0].pool: Required value ;; status.allocation.devices.results[0].device: Invalid value: "X"
        /status={"allocation":{"devices":{"results":[{"request":"r","driver":"d.io","pool":"P","device":"x"}]}}} => status.allocation.devices.results[0].pool: Invalid value: "P"
        /status={"allocation":{"devices":{"results":[{"request":"r","driver":"d.io","pool":"p","device":"x","bindingConditions":["a"]}]}}} => status.allocation.devices.results[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions
        /status={"allocation":{"devices":{"results":[{"request":"r","driver":"d.io","pool":"p","device":"x","shareID":"1"}]}}} => status.allocation.devices.results[0].shareID: Invalid value: "1"
        /status={"allocation":{"devices":{"config":[{"opaque":{"driver":"d.io","parameters":{"a":1}}}]}}} => status.allocation.devices.config[0].source: Required value
        /status={"allocation":{"devices":{"config":[{"source":"FromSky","opaque":{"driver":"d.io","parameters":{"a":1}}}]}}} => status.allocation.devices.config[0].source: Unsupported value: "FromSky": supported values: "FromClaim", "FromClass"
        /status={"allocation":{"nodeSelector":{"nodeSelectorTerms":[]}}} => status.allocation.nodeSelector.nodeSelectorTerms: Required value
        /status={"reservedFor":[{"resource":"pods","name":"p","uid":"1"}]} => status.reservedFor: Forbidden: may not be specified when `allocated` is not set
    "#,
    );
    check_writes(
        CLAIM,
        "status",
        &base,
        r#"
        /status/reservedFor=[{"resource":"pods","name":"p","uid":"1"}] => ok
        /status/reservedFor=[{}] => status.reservedFor[0].resource: Required value ;; status.reservedFor[0].name: Required value ;; status.reservedFor[0].uid: Required value
        /status/reservedFor=[{"resource":"pods","name":"p","uid":"1"},{"resource":"pods","name":"q","uid":"1"}] => status.reservedFor[1]: Duplicate value: "1"
        /metadata/deletionTimestamp="2024-01-01T00:00:00Z" >> /status/reservedFor=[{"resource":"pods","name":"p","uid":"1"}] => status.reservedFor: Forbidden: new entries may not be added while
        /status/allocation/devices/results/0/device="y" => status.allocation: Invalid value: {
        /status/allocation=null => ok
        /status/devices=[{"driver":"d.io","pool":"p","device":"x"}] => ok
        /status/devices=[{"driver":"d.io","pool":"p","device":"y"}] => status.devices[0]: Invalid value: "d.io/p/y": must be an allocated device in the claim
        /status/devices=[{"driver":"d.io","pool":"p","device":"x"},{"driver":"d.io","pool":"p","device":"x"}] => status.devices[1]: Duplicate value: "d.io/p/x"
        /status/devices=[{"driver":"d.io","pool":"p","device":"x","conditions":[{"type":"Ready","status":"True","reason":"R","lastTransitionTime":"2024-01-01T00:00:00Z"}]}] => ok
        /status/devices=[{"driver":"d.io","pool":"p","device":"x","conditions":[{"type":"Ready","status":"Yes","reason":"","lastTransitionTime":"2024-01-01T00:00:00Z"}]}] => status.devices[0].conditions[0].status: Unsupported value: "Yes" ;; status.devices[0].conditions[0].reason: Required value
        /status/devices=[{"driver":"d.io","pool":"p","device":"x","data":[1]}] => status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object
        /status/devices=[{"driver":"d.io","pool":"p","device":"x","networkData":{"ips":["10.0.0.1/24","fd00::1/64"]}}] => ok
        /status/devices=[{"driver":"d.io","pool":"p","device":"x","networkData":{"ips":["10.0.0.1"]}}] => status.devices[0].networkData.ips[0]: Invalid value: "10.0.0.1": must be a valid address in CIDR form
        /status/devices=[{"driver":"d.io","pool":"p","device":"x","networkData":{"ips":["FD00::1/64"]}}] => status.devices[0].networkData.ips[0]: Invalid value: "FD00::1/64": must be in canonical form ("fd00::1/64")
        /status/devices=[{"driver":"d.io","pool":"p","device":"x","networkData":{"ips":["10.0.0.1/24","10.0.0.1/24"]}}] => status.devices[0].networkData.ips[1]: Duplicate value: "10.0.0.1/24"
    "#,
    );
}

#[test]
fn device_classes() {
    let base = json!({"spec": {"selectors": [{"cel": {"expression": "device.driver == 'a'"}}]}});
    let table = r#"
        => ok
        /metadata/labels={"a":"b"} => ok
        /spec/selectors=[{}] => spec.selectors[0].cel: Required value
        /spec/config=[{"opaque":{"driver":"d.io","parameters":{"a":1}}}] => ok
        /spec/config=[{}] => spec.config[0].opaque: Required value
        /spec/config=[{"opaque":{"driver":"D_","parameters":{"a":1}}}] => spec.config[0].opaque.driver: Invalid value: "D_"
        /spec/extendedResourceName="example.com/gpu" => ok
        /spec/extendedResourceName="gpu" => spec.extendedResourceName: Invalid value: "gpu": must be a valid extended resource name
    "#;
    check_create(CLASS, &base, table);
    check_update(CLASS, &base, table);
}

#[test]
fn new_slices() {
    check_create(
        SLICE,
        &slice(),
        r#"
        => ok
        /spec/driver="" => spec.driver: Required value
        /spec/driver="a_b" => spec.driver: Invalid value: "a_b"
        /spec/pool/name="" => spec.pool.name: Required value
        /spec/pool/name="a/b" => ok
        /spec/pool/name="a//b" => spec.pool.name: Invalid value: "": a lowercase RFC 1123 subdomain
        /spec/pool/resourceSliceCount=0 => spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero
        /spec/pool/generation=-1 => spec.pool.generation: Invalid value: -1: must be greater than or equal to zero
        /spec/nodeName=null => spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required
        /spec/nodeName="" => spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string ;; spec: Required value
        /spec/nodeName="A" => spec.nodeName: Invalid value: "A"
        /spec/allNodes=true => spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set
        /spec/allNodes=false => spec.allNodes: Invalid value: false: must be either unset or set to true
        /spec/nodeName=null & /spec/allNodes=true => ok
        /spec/nodeName=null & /spec/nodeSelector={"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]} => ok
        /spec/nodeName=null & /spec/nodeSelector={"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]},{"matchExpressions":[{"key":"b","operator":"Exists"}]}]} => spec.nodeSelector.nodeSelectorTerms: Invalid value: [
        /spec/sharedCounters=[{"name":"c","counters":{"m":{"value":"1"}}}] => spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed
        /spec/devices=null & /spec/sharedCounters=[{"name":"c","counters":{"m":{"value":"1"}}}] => ok
        /spec/devices=null & /spec/sharedCounters=[{"name":"","counters":{}}] => spec.sharedCounters[0].name: Required value ;; spec.sharedCounters[0].counters: Required value
        /spec/devices=null & /spec/sharedCounters=[{"name":"c","counters":{"M":{"value":"1"}}}] => spec.sharedCounters[0].counters: Invalid value: "M"
        /spec/devices=null & /spec/sharedCounters=[{"name":"c","counters":{"m":{"value":"1"}}},{"name":"c","counters":{"m":{"value":"1"}}}] => spec.sharedCounters[1]: Duplicate value: "c"
        /spec/devices/-={"name":"x"} => spec.devices[1]: Duplicate value: "x"
        /spec/devices/0/name="X" => spec.devices[0].name: Invalid value: "X"
        /spec/devices/0/nodeName="n" => spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true
        /spec/nodeName=null & /spec/perDeviceNodeSelection=true => spec.devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec
        /spec/nodeName=null & /spec/perDeviceNodeSelection=true & /spec/devices/0/nodeName="n" => ok
        /spec/nodeName=null & /spec/perDeviceNodeSelection=true & /spec/devices/0/nodeName="n" & /spec/devices/0/allNodes=true => spec.devices[0]: Invalid value: "{`nodeName`, `allNodes`}": exactly one of
        /spec/nodeName=null & /spec/perDeviceNodeSelection=true & /spec/devices/0/allNodes=false => spec.devices[0].allNodes: Invalid value: false: must be either unset or set to true ;; spec.devices[0]: Required value
    "#,
    );
}

#[test]
fn devices_of_new_slices() {
    check_create(
        SLICE,
        &slice(),
        r#"
        /spec/devices/0/attributes={"a.io/b":{"string":"x"},"c":{"bool":true},"d":{"version":"1.2.3"}} => ok
        /spec/devices/0/attributes={"a-b":{"int":1}} => spec.devices[0].attributes: Invalid value: "a-b": a valid C identifier must
        /spec/devices/0/attributes={"/b":{"int":1}} => spec.devices[0].attributes: Invalid value: "": the domain must not be empty
        /spec/devices/0/attributes={"a":{}} => spec.devices[0].attributes[a]: Invalid value: "": exactly one value must be specified
        /spec/devices/0/attributes={"a":{"int":1,"bool":true}} => spec.devices[0].attributes[a]: Invalid value: {
        /spec/devices/0/attributes={"a":{"version":"1.2"}} => spec.devices[0].attributes[a].version: Invalid value: "1.2": must be a string compatible with semver.org spec 2.0.0
        /spec/devices/0/attributes={"a":{"string":"01234567890123456789012345678901234567890123456789012345678901234"}} => spec.devices[0].attributes[a].string: Too long: may not be more than 64 bytes
        /spec/devices/0/attributes={"a01234567890123456789012345678901":{"int":1}} => spec.devices[0].attributes: Too long: may not be more than 32 bytes
        /spec/devices/0/capacity={"a b":{"value":"1"}} => spec.devices[0].capacity: Invalid value: "a b"
        /spec/devices/0/taints=[{"key":"a","effect":"NoSchedule"}] => ok
        /spec/devices/0/taints=[{"key":"","effect":""}] => spec.devices[0].taints[0].key: Invalid value: "" ;; spec.devices[0].taints[0].key: Invalid value: "" ;; spec.devices[0].taints[0].effect: Required value
        /spec/devices/0/taints=[{"key":"a","value":"b c","effect":"Never"}] => spec.devices[0].taints[0].value: Invalid value: "b c" ;; spec.devices[0].taints[0].effect: Unsupported value: "Never"
        /spec/devices/0/consumesCounters=[{"counterSet":"c","counters":{"m":{"value":"1"}}}] => ok
        /spec/devices/0/consumesCounters=[{"counterSet":"","counters":{}}] => spec.devices[0].consumesCounters[0].counterSet: Required value ;; spec.devices[0].consumesCounters[0].counters: Required value
        /spec/devices/0/consumesCounters=[{"counterSet":"c","counters":{"m":{"value":"1"}}},{"counterSet":"c","counters":{"m":{"value":"1"}}}] => spec.devices[0].consumesCounters[1]: Duplicate value: "c"
        /spec/devices/0/consumesCounters=[{"counterSet":"a"},{"counterSet":"b"},{"counterSet":"c"}] => spec.devices[0].consumesCounters: Too many: 3: must have at most 2 items
        /spec/devices/0/bindingConditions=["a"] & /spec/devices/0/bindingFailureConditions=["b"] => ok
        /spec/devices/0/bindingConditions=["a","a"] & /spec/devices/0/bindingFailureConditions=["b"] => spec.devices[0].bindingConditions[1]: Duplicate value: "a"
        /spec/devices/0/bindingConditions=["a"] & /spec/devices/0/bindingFailureConditions=["a"] => spec.devices[0].bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions must not overlap with bindingConditions
        /spec/devices/0/bindingFailureConditions=["a"] => spec.devices[0].bindingConditions: Invalid value: null: bindingConditions are required to use bindingFailureConditions
        /spec/devices/0/bindingConditions=["1","2","3","4","5"] & /spec/devices/0/bindingFailureConditions=["b"] => spec.devices[0].bindingConditions: Too many: 5: must have at most 4 items
    "#,
    );
}

#[test]
fn shared_capacity_of_new_slices() {
    let mut base = slice();
    base["spec"]["devices"][0]["allowMultipleAllocations"] = true.into();
    check_create(
        SLICE,
        &base,
        r#"
        /spec/devices/0/capacity/m/requestPolicy={"default":"1Gi","validValues":["1Gi","2Gi"]} => ok
        /spec/devices/0/allowMultipleAllocations=false & /spec/devices/0/capacity/m/requestPolicy={"default":"1Gi"} => spec.devices[0].capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true
        /spec/devices/0/capacity/m/requestPolicy={"default":"1Gi","validValues":["1Gi"],"validRange":{"min":"1Gi"}} => spec.devices[0].capacity[m].requestPolicy: Forbidden: exactly one policy can be specified
        /spec/devices/0/capacity/m/requestPolicy={"validValues":["1Gi"]} => spec.devices[0].capacity[m].requestPolicy.default: Required value: required when validValues is defined
        /spec/devices/0/capacity/m/requestPolicy={"default":"3Gi","validValues":["1Gi"]} => spec.devices[0].capacity[m].requestPolicy.validValues: Invalid value: "3Gi": default value is not valid according to the requestPolicy
        /spec/devices/0/capacity/m/requestPolicy={"default":"1Gi","validValues":["2Gi","1Gi"]} => spec.devices[0].capacity[m].requestPolicy.validValues[1]: Invalid value: "1Gi": values must be sorted in ascending order
        /spec/devices/0/capacity/m/requestPolicy={"default":"1Gi","validValues":["1Gi","20Gi"]} => spec.devices[0].capacity[m].requestPolicy.validValues[1]: Invalid value: "20Gi": option is larger than capacity value: 10Gi
        /spec/devices/0/capacity/m/requestPolicy={"default":"1Gi","validValues":["1Gi","1Gi"]} => spec.devices[0].capacity[m].requestPolicy.validValues[1]: Duplicate value: "1073741824"
        /spec/devices/0/capacity/m/requestPolicy={"validRange":{"min":"1Gi"}} => spec.devices[0].capacity[m].requestPolicy.default: Required value: required when validRange is defined
        /spec/devices/0/capacity/m/requestPolicy={"default":"1Gi","validRange":{}} => spec.devices[0].capacity[m].requestPolicy.validRange.min: Required value: required when validRange is defined
        /spec/devices/0/capacity/m/requestPolicy={"default":"1Gi","validRange":{"min":"1Gi","max":"4Gi","step":"1Gi"}} => ok
        /spec/devices/0/capacity/m/requestPolicy={"default":"1Gi","validRange":{"min":"2Gi"}} => spec.devices[0].capacity[m].requestPolicy.validRange.min: Invalid value: "1Gi": default is less than min: 2Gi
        /spec/devices/0/capacity/m/requestPolicy={"default":"2Gi","validRange":{"min":"1Gi","max":"20Gi"}} => spec.devices[0].capacity[m].requestPolicy.validRange.max: Invalid value: "20Gi": max is larger than capacity value: 10Gi
        /spec/devices/0/capacity/m/requestPolicy={"default":"3Gi","validRange":{"min":"1Gi","max":"2Gi"}} => spec.devices[0].capacity[m].requestPolicy.validRange.max: Invalid value: "3Gi": default is more than max: 2Gi
        /spec/devices/0/capacity/m/requestPolicy={"default":"1Gi","validRange":{"min":"1Gi","step":"10Gi"}} => spec.devices[0].capacity[m].requestPolicy.validRange.step: Invalid value: "10Gi": one step 11Gi is larger than capacity value: 10Gi
        /spec/devices/0/capacity/m/requestPolicy={"default":"2Gi","validRange":{"min":"1Gi","step":"2Gi"}} => spec.devices[0].capacity[m].requestPolicy.validRange.step: Invalid value: "2Gi": value is not a multiple of a given step (2Gi) from (1Gi)
        /spec/devices/0/capacity/m/requestPolicy={"default":"1Gi","validRange":{"min":"1Gi","step":"0"}} => spec.devices[0].capacity[m].requestPolicy.validRange.step: Invalid value: "1Gi": value is not a multiple
    "#,
    );
}

#[test]
fn slices_have_limits() {
    let devices = |count: usize, extra: &str| -> String {
        let all: Vec<String> = (0..count)
            .map(|i| format!("{{\"name\":\"d{i}\"{extra}}}"))
            .collect();
        format!("[{}]", all.join(","))
    };
    let attributes: Vec<String> = (0..33).map(|i| format!("\"a{i}\":{{\"int\":1}}")).collect();
    let table = format!(
        "/spec/devices={} => ok
        /spec/devices={} => spec.devices: Too many: 129: must have at most 128 items
        /spec/devices={} => spec.devices: Too many: 65: must have at most 64 items
        /spec/devices/0/capacity=null & /spec/devices/0/attributes={{{}}} => spec.devices[0]: Invalid value: 33: the total number of attributes and capacities must not exceed 32",
        devices(128, ""),
        devices(129, ""),
        devices(65, ",\"taints\":[{\"key\":\"a\",\"effect\":\"None\"}]"),
        attributes.join(",")
    );
    check_create(SLICE, &slice(), &table);
}

#[test]
fn changed_slices() {
    check_update(
        SLICE,
        &slice(),
        r#"
        => ok
        /spec/pool/generation=2 => ok
        /spec/pool/name="q" => spec.pool.name: Invalid value: "q": field is immutable
        /spec/driver="e.io" => spec.driver: Invalid value: "e.io": field is immutable
        /spec/nodeName="m" => spec.nodeName: Invalid value: "m": field is immutable
        /spec/devices/0/taints=[{"key":"a","effect":"Old"}] >> /spec/pool/generation=2 => ok
        /spec/devices/0/taints=[{"key":"a","effect":"Old"}] >> /spec/devices/0/taints/0/key="b" => spec.devices[0].taints[0].effect: Unsupported value: "Old"
    "#,
    );
}

#[test]
fn mappings_of_slices_that_have_them() {
    check_update(
        SLICE,
        &slice(),
        r#"
        /spec/devices/0/nodeAllocatableResourceMappings={"cpu":{"capacityKey":"m"}} >> /spec/devices/0/nodeAllocatableResourceMappings={"cpu":{"allocationMultiplier":"2"}} => ok
        /spec/devices/0/nodeAllocatableResourceMappings={"cpu":{"capacityKey":"m"}} >> /spec/devices/0/nodeAllocatableResourceMappings={"a.io/b":{"capacityKey":"m"}} => spec.devices[0].nodeAllocatableResourceMappings[a.io/b]: Invalid value: "a.io/b": must be a node allocatable resource name
        /spec/devices/0/nodeAllocatableResourceMappings={"cpu":{"capacityKey":"m"}} >> /spec/devices/0/nodeAllocatableResourceMappings={"cpu":{}} => spec.devices[0].nodeAllocatableResourceMappings[cpu]: Invalid value: "": at least one of allocationMultiplier or capacityKey must be set
        /spec/devices/0/nodeAllocatableResourceMappings={"cpu":{"capacityKey":"m"}} >> /spec/devices/0/nodeAllocatableResourceMappings={"cpu":{"allocationMultiplier":"0"}} => spec.devices[0].nodeAllocatableResourceMappings[cpu].allocationMultiplier: Invalid value: "0": must be positive
        /spec/devices/0/nodeAllocatableResourceMappings={"cpu":{"capacityKey":"m"}} >> /spec/devices/0/nodeAllocatableResourceMappings={"cpu":{"capacityKey":""}} => spec.devices[0].nodeAllocatableResourceMappings[cpu].capacityKey: Invalid value: "": capacityKey must not be an empty string
        /spec/devices/0/nodeAllocatableResourceMappings={"cpu":{"capacityKey":"m"}} >> /spec/devices/0/nodeAllocatableResourceMappings={"cpu":{"capacityKey":"n"}} => spec.devices[0].nodeAllocatableResourceMappings[cpu].capacityKey: Not found: "n"
    "#,
    );
}
