//! Tables of endpoints, events, ConfigMaps, Secrets and ServiceAccounts.

use super::Name;
use super::table::{check_create, check_update};
use serde_json::{Value, json};

const ENDPOINTS: Name = ("", "Endpoints");
const SLICE: Name = ("discovery.k8s.io", "EndpointSlice");
const EVENT: Name = ("", "Event");
const SERIES: Name = ("events.k8s.io", "Event");
const CONFIG_MAP: Name = ("", "ConfigMap");
const SECRET: Name = ("", "Secret");

fn endpoints() -> Value {
    json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"name": "a", "port": 80}]}]})
}

fn slice() -> Value {
    json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"name": "a", "port": 80}]})
}

#[test]
fn new_endpoints() {
    check_create(
        ENDPOINTS,
        &endpoints(),
        r#"
        => ok
        /subsets/0/addresses=[] => subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`
        /subsets/0/addresses=[] & /subsets/0/notReadyAddresses=[{"ip":"10.0.0.2"}] => ok
        /subsets/0/addresses/0/ip="x" => subsets[0].addresses[0].ip: Invalid value: "x": must be a valid IP address, (e.g. ;; subsets[0].addresses[0].ip: Invalid value: "x": must be a valid IP address
        /subsets/0/addresses/0/ip="010.0.0.1" => subsets[0].addresses[0].ip: Invalid value: "010.0.0.1": must not have leading 0s
        /subsets/0/addresses/0/ip="::ffff:127.0.0.1" => subsets[0].addresses[0].ip: Invalid value: "::ffff:127.0.0.1": must not be an IPv4-mapped ;; subsets[0].addresses[0].ip: Invalid value: "::ffff:127.0.0.1": may not be in the loopback range
        /subsets/0/addresses/0/ip="169.254.169.254" => subsets[0].addresses[0].ip: Invalid value: "169.254.169.254": may not be in the link-local range
        /subsets/0/notReadyAddresses=[{"ip":"0.0.0.0"}] => subsets[0].notReadyAddresses[0].ip: Invalid value: "0.0.0.0": may not be unspecified
        /subsets/0/addresses/0/hostname="A" => subsets[0].addresses[0].hostname: Invalid value: "A": a lowercase RFC 1123 label
        /subsets/0/addresses/0/nodeName="A" => subsets[0].addresses[0].nodeName: Invalid value: "A": a lowercase RFC 1123 subdomain
        /subsets/0/ports/0/port=0 => subsets[0].ports[0].port: Invalid value: 0: must be between
        /subsets/0/ports/0/protocol="X" => subsets[0].ports[0].protocol: Unsupported value: "X"
        /subsets/0/ports/0/name=null => ok
        /subsets/0/ports/0/name="A" => subsets[0].ports[0].name: Invalid value: "A"
        /subsets/0/ports/-={"port":81} => subsets[0].ports[1].name: Required value
        /subsets/0/ports/0/appProtocol="a b" => subsets[0].ports[0].appProtocol: Invalid value: "a b"
    "#,
    );
    check_update(
        ENDPOINTS,
        &endpoints(),
        r#"
        /subsets/0/addresses/0/ip="010.0.0.1" >> /metadata/labels={"a":"b"} => ok
        /subsets/0/addresses/0/ip="010.0.0.1" >> /subsets/0/ports/0/port=81 => subsets[0].addresses[0].ip: Invalid value: "010.0.0.1": must not have leading 0s
    "#,
    );
}

#[test]
fn new_endpoint_slices() {
    check_create(
        SLICE,
        &slice(),
        r#"
        => ok
        /addressType=null => addressType: Required value
        /addressType="IPX" => addressType: Unsupported value: "IPX": supported values: "FQDN", "IPv4", "IPv6"
        /endpoints/0/addresses=[] => endpoints[0].addresses: Required value: must contain at least 1 address
        /endpoints/0/addresses=["fd00::1"] => endpoints[0].addresses: Invalid value: "fd00::1": must be an IPv4 address
        /endpoints/0/addresses=["010.0.0.1"] => endpoints[0].addresses[0]: Invalid value: "010.0.0.1": must not have leading 0s
        /endpoints/0/addresses=["127.0.0.1"] => endpoints[0].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range
        /addressType="IPv6" & /endpoints/0/addresses=["FD00::1"] => endpoints[0].addresses[0]: Invalid value: "FD00::1": must be in canonical form ("fd00::1")
        /addressType="IPv6" & /endpoints/0/addresses=["10.0.0.1"] => endpoints[0].addresses: Invalid value: "10.0.0.1": must be an IPv6 address
        /addressType="FQDN" & /endpoints/0/addresses=["a.b."] => ok
        /addressType="FQDN" & /endpoints/0/addresses=["a"] => endpoints[0].addresses[0]: Invalid value: "a": should be a domain with at least two segments separated by dots
        /addressType="FQDN" & /endpoints/0/addresses=[""] => endpoints[0].addresses[0]: Required value
        /addressType="FQDN" & /endpoints/0/addresses=["A.b"] => endpoints[0].addresses[0]: Invalid value: "A.b": a lowercase RFC 1123 subdomain
        /endpoints/0/hostname="a.b" => endpoints[0].hostname: Invalid value: "a.b"
        /endpoints/0/nodeName="A" => endpoints[0].nodeName: Invalid value: "A"
        /endpoints/0/hints={"forZones":[{"name":"a"},{"name":"a"}]} => endpoints[0].hints.forZones[1].name: Duplicate value: "a"
        /endpoints/0/hints={"forZones":[{"name":"a b"}]} => endpoints[0].hints.forZones[0].name: Invalid value: "a b": a valid label must
        /endpoints/0/hints={"forNodes":[{"name":"A"}]} => endpoints[0].hints.forNodes[0].name: Invalid value: "A": a lowercase RFC 1123 subdomain
        /endpoints/0/hints={"forNodes":[{"name":"a"},{"name":"a"}]} => endpoints[0].hints.forNodes[1].name: Duplicate value: "a"
        /endpoints/0/hints={"forZones":[{"name":"1"},{"name":"2"},{"name":"3"},{"name":"4"},{"name":"5"},{"name":"6"},{"name":"7"},{"name":"8"},{"name":"9"}]} => endpoints[0].hints.forZones: Too many: 9: must have at most 8 items
        /endpoints/0/deprecatedTopology={"a b":"c"} => endpoints[0].deprecatedTopology: Invalid value: "a b"
        /ports/0/name="A" => ports[0].name: Invalid value: "A"
        /ports/-={"name":"a"} => ports[1].name: Duplicate value: "a"
        /ports/0/protocol="X" => ports[0].protocol: Unsupported value: "X"
        /ports/0/appProtocol="a b" => ports[0].appProtocol: Invalid value: "a b"
        /ports/0/port=null => ok
    "#,
    );
}

#[test]
fn endpoint_slices_have_limits() {
    let endpoint = json!({"addresses": ["10.0.0.1"]});
    let many = json!(vec![endpoint; 1001]).to_string();
    let addresses = json!(vec!["10.0.0.1"; 101]).to_string();
    let table = format!(
        "/endpoints={many} => endpoints: Too many: 1001: must have at most 1000 items
        /endpoints/0/addresses={addresses} => endpoints[0].addresses: Too many: 101: must have at most 100 items"
    );
    check_create(SLICE, &slice(), &table);
}

#[test]
fn changed_endpoint_slices() {
    check_update(
        SLICE,
        &slice(),
        r#"
        => ok
        /addressType="IPv6" & /endpoints=[] => addressType: Invalid value: "IPv6": field is immutable
        /endpoints/0/addresses=["127.0.0.1"] >> /ports/0/port=81 => ok
        /endpoints/0/addresses=["127.0.0.1"] >> /endpoints/0/hostname="a" => endpoints[0].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range
    "#,
    );
}

#[test]
fn core_events() {
    let base = json!({"metadata": {"namespace": "n"}, "involvedObject": {"namespace": "n", "kind": "Pod", "name": "p"}});
    check_create(
        EVENT,
        &base,
        r#"
        => ok
        /metadata/name="A_b" => ok
        /involvedObject/namespace="m" => involvedObject.namespace: Invalid value: "m": does not match event.namespace
        /involvedObject/namespace="" => involvedObject.namespace: Invalid value: "": does not match event.namespace
        /involvedObject/namespace="" & /metadata/namespace="default" => ok
        /eventTime="2024-01-01T00:00:00.000000Z" => reportingComponent: Required value ;; reportingComponent: Invalid value: "": name part must be non-empty ;; reportingComponent: Invalid value: "": name part must consist ;; reportingInstance: Required value ;; action: Required value ;; reason: Required value
        /eventTime="2024-01-01T00:00:00.000000Z" & /reportingComponent="a b" & /reportingInstance="i" & /action="a" & /reason="r" => reportingComponent: Invalid value: "a b": name part must consist
        /eventTime="2024-01-01T00:00:00.000000Z" & /reportingComponent="c" & /reportingInstance="i" & /action="a" & /reason="r" & /involvedObject/namespace="m" => ok
        /eventTime="2024-01-01T00:00:00.000000Z" & /reportingComponent="c" & /reportingInstance="i" & /action="a" & /reason="r" & /involvedObject/namespace="" => involvedObject.namespace: Invalid value: "": does not match event.namespace
        /eventTime="2024-01-01T00:00:00.000000Z" & /reportingComponent="c" & /reportingInstance="i" & /action="a" & /reason="r" & /involvedObject/namespace="" & /metadata/namespace="kube-system" => ok
    "#,
    );
    let long = |size| "x".repeat(size);
    let row = "/eventTime=\"2024-01-01T00:00:00.000000Z\" & /reportingComponent=\"c\" & /reportingInstance=\"i\" & /action=\"a\" & /reason=\"r\"";
    let table = format!(
        "{row} & /reason=\"{}\" => reason: Invalid value: \"\": can have at most 128 characters
        {row} & /action=\"{}\" => action: Invalid value: \"\": can have at most 128 characters
        {row} & /message=\"{}\" => message: Invalid value: \"\": can have at most 1024 characters",
        long(129),
        long(129),
        long(1025)
    );
    check_create(EVENT, &base, &table);
}

#[test]
fn series_events() {
    let base = json!({"metadata": {"namespace": "n"}, "regarding": {"namespace": "n"}, "eventTime": "2024-01-01T00:00:00.000000Z",
        "reportingController": "c", "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal", "note": "t"});
    check_create(
        SERIES,
        &base,
        r#"
        => ok
        /metadata/name="A" => metadata.name: Invalid value: "A"
        /eventTime=null => eventTime: Required value
        /type="Bad" => type: Invalid value: "": has invalid value: Bad
        /reportingController="" => reportingController: Required value ;; ...
        /action="" => action: Required value
        /deprecatedFirstTimestamp="2024-01-01T00:00:00Z" => firstTimestamp: Invalid value: "": needs to be unset
        /deprecatedLastTimestamp="2024-01-01T00:00:00Z" => lastTimestamp: Invalid value: "": needs to be unset
        /deprecatedCount=1 => count: Invalid value: "": needs to be unset
        /deprecatedSource={"component":"c"} => source: Invalid value: "": needs to be unset
        /series={"count":1,"lastObservedTime":"2024-01-01T00:00:00.000000Z"} => series.count: Invalid value: "": should be at least 2
        /series={"count":2} => series.lastObservedTime: Required value
        /series={"count":2,"lastObservedTime":"2024-01-01T00:00:00.000000Z"} => ok
    "#,
    );
    check_update(
        SERIES,
        &base,
        r#"
        => ok
        /series={"count":2,"lastObservedTime":"2024-01-01T00:00:00.000000Z"} => ok
        /series={"count":1,"lastObservedTime":"2024-01-01T00:00:00.000000Z"} => series.count: Invalid value: "": should be at least 2
        /regarding/name="p" => involvedObject: Invalid value: {"
        /reason="s" => reason: Invalid value: "s": field is immutable ;; reason: Invalid value: "s": field is immutable
        /note="u" => message: Invalid value: "u": field is immutable
        /type="Warning" => type: Invalid value: "Warning": field is immutable
        /action="b" => action: Invalid value: "b": field is immutable
        /related={"name":"x"} => related: Invalid value: {"
        /eventTime="2024-01-01T00:00:01.000000Z" => eventTime: Invalid value: "2024-01-01T00:00:01.000000Z": field is immutable
        /reportingController="d" => reportingController: Invalid value: "d": field is immutable
        /reportingInstance="j" => reportingInstance: Invalid value: "j": field is immutable
        /deprecatedCount=3 => count: Invalid value: 3: field is immutable
    "#,
    );
}

#[test]
fn config_maps() {
    let base = json!({"data": {"a": "b"}});
    check_create(
        CONFIG_MAP,
        &base,
        r#"
        => ok
        /data={"a b":"c"} => data[a b]: Invalid value: "a b": a valid config key must consist of
        /data={"..":"c"} => data[..]: Invalid value: "..": must not be '..'
        /data={"..a":"c"} => data[..a]: Invalid value: "..a": must not start with '..'
        /data={".":"c"} => data[.]: Invalid value: ".": must not be '.'
        /binaryData={"a":"Yg=="} => data[a]: Invalid value: "a": duplicate of key present in binaryData
        /binaryData={"b!":"Yg=="} => binaryData[b!]: Invalid value: "b!"
    "#,
    );
    check_update(
        CONFIG_MAP,
        &base,
        r#"
        /data/a="c" => ok
        /immutable=true => ok
        /immutable=true >> /data/a="c" => data: Forbidden: field is immutable when `immutable` is set
        /immutable=true >> /binaryData={"b":"Yg=="} => binaryData: Forbidden: field is immutable when `immutable` is set
        /immutable=true >> /immutable=false => immutable: Forbidden: field is immutable when `immutable` is set
        /immutable=true >> /metadata/labels={"a":"b"} => ok
    "#,
    );
    let large = json!({"data": {"a": "x".repeat(1024 * 1024)}});
    check_create(
        CONFIG_MAP,
        &large,
        "/data/b=\"\" => ok\n/data/b=\"y\" => []: Too long: may not be more than 1048576 bytes",
    );
}

#[test]
fn secrets() {
    let base = json!({"type": "Opaque", "data": {"a": "Yg=="}});
    check_create(
        SECRET,
        &base,
        r#"
        => ok
        /data={"a b":"Yg=="} => data[a b]: Invalid value: "a b": a valid config key
        /type="kubernetes.io/tls" => data[tls.crt]: Required value ;; data[tls.key]: Required value
        /type="kubernetes.io/tls" & /data={"tls.crt":"","tls.key":""} => ok
        /type="kubernetes.io/ssh-auth" => data[ssh-privatekey]: Required value
        /type="kubernetes.io/ssh-auth" & /data={"ssh-privatekey":""} => data[ssh-privatekey]: Required value
        /type="kubernetes.io/basic-auth" => data[username]: Required value ;; data[password]: Required value
        /type="kubernetes.io/basic-auth" & /data={"password":"Yg=="} => ok
        /type="kubernetes.io/dockercfg" => data[.dockercfg]: Required value
        /type="kubernetes.io/dockercfg" & /data={".dockercfg":"e30="} => ok
        /type="kubernetes.io/dockercfg" & /data={".dockercfg":"Yg=="} => data[.dockercfg]: Invalid value: "<secret contents redacted>": 
        /type="kubernetes.io/dockerconfigjson" & /data={".dockerconfigjson":"W10="} => data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": 
        /type="kubernetes.io/dockerconfigjson" => data[.dockerconfigjson]: Required value
        /type="kubernetes.io/service-account-token" => metadata.annotations[kubernetes.io/service-account.name]: Required value
        /type="kubernetes.io/service-account-token" & /metadata/annotations={"kubernetes.io/service-account.name":"a"} => ok
    "#,
    );
    check_update(
        SECRET,
        &base,
        r#"
        /type="kubernetes.io/tls" & /data={"tls.crt":"","tls.key":""} => type: Invalid value: "kubernetes.io/tls": field is immutable
        /type="" => ok
        /immutable=true >> /data/a="Yw==" => data: Forbidden: field is immutable when `immutable` is set
        /immutable=true >> /immutable=null => immutable: Forbidden: field is immutable when `immutable` is set
    "#,
    );
}
