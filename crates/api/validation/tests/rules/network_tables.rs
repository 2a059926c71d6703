//! Tables of the group `networking.k8s.io`.

use super::Name;
use super::table::{check_create, check_update, check_writes};
use serde_json::{Value, json};

const INGRESS: Name = ("networking.k8s.io", "Ingress");
const CLASS: Name = ("networking.k8s.io", "IngressClass");
const POLICY: Name = ("networking.k8s.io", "NetworkPolicy");
const SERVICE_CIDR: Name = ("networking.k8s.io", "ServiceCIDR");
const IP_ADDRESS: Name = ("networking.k8s.io", "IPAddress");

fn ingress() -> Value {
    json!({"spec": {"rules": [{"host": "a.b", "http": {"paths": [{"path": "/", "pathType": "Prefix",
        "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}})
}

#[test]
fn hosts_and_classes_of_new_ingresses() {
    check_create(
        INGRESS,
        &ingress(),
        r#"
        => ok
        /spec/rules=[] => spec: Invalid value: []: either `defaultBackend` or `rules` must be specified
        /spec/rules=[] & /spec/defaultBackend={"service":{"name":"s","port":{"name":"http"}}} => ok
        /spec/rules/0/host="" => ok
        /spec/rules/0/host="*.a.b" => ok
        /spec/rules/0/host="*" => spec.rules[0].host: Invalid value: "*": a wildcard DNS-1123 subdomain must start with '*.'
        /spec/rules/0/host="a.*" => spec.rules[0].host: Invalid value: "a.*": a wildcard DNS-1123 subdomain must start with '*.'
        /spec/rules/0/host="A" => spec.rules[0].host: Invalid value: "A": a lowercase RFC 1123 subdomain must
        /spec/rules/0/host="1.2.3.4" => spec.rules[0].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address
        /spec/rules/0/host="01.2.3.4" => spec.rules[0].host: Invalid value: "01.2.3.4": must be a DNS name, not an IP address
        /spec/rules/0/host="a.b:80" => spec.rules[0].host: Invalid value: "a.b:80": a lowercase RFC 1123 subdomain must
        /spec/tls=[{"hosts":["a.b","*.c"],"secretName":"s"}] => ok
        /spec/tls=[{"hosts":["A"]}] => spec.tls[0].hosts[0]: Invalid value: "A": a lowercase RFC 1123 subdomain
        /spec/tls=[{"hosts":["*"]}] => spec.tls[0].hosts[0]: Invalid value: "*": a wildcard DNS-1123 subdomain
        /spec/tls=[{"secretName":"A"}] => spec.tls[0].secretName: Invalid value: "A": a lowercase RFC 1123 subdomain
        /spec/ingressClassName="A" => spec.ingressClassName: Invalid value: "A": a lowercase RFC 1123 subdomain
        /spec/ingressClassName="a" & /metadata/annotations={"kubernetes.io/ingress.class":"a"} => ok
        /spec/ingressClassName="a" & /metadata/annotations={"kubernetes.io/ingress.class":"b"} => annotations.kubernetes.io/ingress.class: Invalid value: "b": must match `ingressClassName` when both are specified
    "#,
    );
}

#[test]
fn paths_of_new_ingresses() {
    check_create(
        INGRESS,
        &ingress(),
        r#"
        /spec/rules/0/http={"paths":[]} => spec.rules[0].http.paths: Required value
        /spec/rules/0/http=null => ok
        /spec/rules/0/http/paths/0/pathType=null => spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified
        /spec/rules/0/http/paths/0/pathType="Regex" => spec.rules[0].http.paths[0].pathType: Unsupported value: "Regex": supported values: "Exact", "ImplementationSpecific", "Prefix"
        /spec/rules/0/http/paths/0/path="a" => spec.rules[0].http.paths[0].path: Invalid value: "a": must be an absolute path
        /spec/rules/0/http/paths/0/path="" => spec.rules[0].http.paths[0].path: Invalid value: "": must be an absolute path
        /spec/rules/0/http/paths/0/path="/a//b" => spec.rules[0].http.paths[0].path: Invalid value: "/a//b": must not contain '//'
        /spec/rules/0/http/paths/0/path="/a/./b" => spec.rules[0].http.paths[0].path: Invalid value: "/a/./b": must not contain '/./'
        /spec/rules/0/http/paths/0/path="/a/../b" => spec.rules[0].http.paths[0].path: Invalid value: "/a/../b": must not contain '/../'
        /spec/rules/0/http/paths/0/path="/a%2fb" => spec.rules[0].http.paths[0].path: Invalid value: "/a%2fb": must not contain '%2f'
        /spec/rules/0/http/paths/0/path="/a%2Fb" => spec.rules[0].http.paths[0].path: Invalid value: "/a%2Fb": must not contain '%2F'
        /spec/rules/0/http/paths/0/path="/a/.." => spec.rules[0].http.paths[0].path: Invalid value: "/a/..": cannot end with '/..'
        /spec/rules/0/http/paths/0/path="/a/." => spec.rules[0].http.paths[0].path: Invalid value: "/a/.": cannot end with '/.'
        /spec/rules/0/http/paths/0/pathType="ImplementationSpecific" & /spec/rules/0/http/paths/0/path="/a//b" => ok
        /spec/rules/0/http/paths/0/pathType="ImplementationSpecific" & /spec/rules/0/http/paths/0/path="" => ok
        /spec/rules/0/http/paths/0/pathType="ImplementationSpecific" & /spec/rules/0/http/paths/0/path="a" => spec.rules[0].http.paths[0].path: Invalid value: "a": must be an absolute path
    "#,
    );
}

#[test]
fn backends_of_new_ingresses() {
    check_create(
        INGRESS,
        &ingress(),
        r#"
        /spec/rules/0/http/paths/0/backend={} => spec.rules[0].http.paths[0].backend: Invalid value: "": resource or service backend is required
        /spec/rules/0/http/paths/0/backend/service/name="" => spec.rules[0].http.paths[0].backend.service.name: Required value
        /spec/rules/0/http/paths/0/backend/service/name="1a" => ok
        /spec/rules/0/http/paths/0/backend/service/name="A" => spec.rules[0].http.paths[0].backend.service.name: Invalid value: "A": a lowercase RFC 1123 label
        /spec/rules/0/http/paths/0/backend/service/port={} => spec.rules[0].http.paths[0].backend: Required value: port name or number is required
        /spec/rules/0/http/paths/0/backend/service/port={"name":"a","number":1} => spec.rules[0].http.paths[0].backend: Invalid value: "": cannot set both port name & port number
        /spec/rules/0/http/paths/0/backend/service/port={"number":70000} => spec.rules[0].http.paths[0].backend.service.port.number: Invalid value: 70000: must be between
        /spec/rules/0/http/paths/0/backend/service/port={"name":"A"} => spec.rules[0].http.paths[0].backend.service.port.name: Invalid value: "A": must contain only ;; ...
        /spec/rules/0/http/paths/0/backend={"resource":{"apiGroup":"a.b","kind":"K","name":"n"}} => ok
        /spec/rules/0/http/paths/0/backend={"resource":{"apiGroup":"A","kind":"K","name":"n"}} => spec.rules[0].http.paths[0].backend.resource.apiGroup: Invalid value: "A"
        /spec/rules/0/http/paths/0/backend={"resource":{}} => spec.rules[0].http.paths[0].backend.resource.kind: Required value ;; spec.rules[0].http.paths[0].backend.resource.name: Required value
        /spec/rules/0/http/paths/0/backend={"resource":{"kind":"a/b","name":"c%"}} => spec.rules[0].http.paths[0].backend.resource.kind: Invalid value: "a/b": may not contain '/' ;; spec.rules[0].http.paths[0].backend.resource.name: Invalid value: "c%": may not contain '%'
        /spec/rules/0/http/paths/0/backend/resource={"kind":"K","name":"n"} => spec.rules[0].http.paths[0].backend: Invalid value: "": cannot set both resource and service backends
        /spec/defaultBackend={} => spec.defaultBackend: Invalid value: "": resource or service backend is required
    "#,
    );
}

#[test]
fn changed_ingresses_and_their_status() {
    check_update(
        INGRESS,
        &ingress(),
        r#"
        => ok
        /spec/rules/0/host="A" => spec.rules[0].host: Invalid value: "A"
        /spec/ingressClassName="a" & /metadata/annotations={"kubernetes.io/ingress.class":"b"} => ok
        /spec/tls=[{"secretName":"A"}] >> /spec/tls=[{"secretName":"B"}] => ok
        /spec/tls=[{"secretName":"a"}] >> /spec/tls=[{"secretName":"B"}] => spec.tls[0].secretName: Invalid value: "B"
        /spec/rules/0/host="*.a" & /spec/rules/0/http/paths=[] >> /metadata/labels={"a":"b"} => ok
        /spec/rules/0/host="a" & /spec/rules/0/http/paths=[] >> /metadata/labels={"a":"b"} => spec.rules[0].http.paths: Required value
    "#,
    );
    check_writes(
        INGRESS,
        "status",
        &ingress(),
        r#"
        /status={"loadBalancer":{"ingress":[{"ip":"1.2.3.4"},{"hostname":"a.b"}]}} => ok
        /status={"loadBalancer":{"ingress":[{"ip":"x"}]}} => status.loadBalancer.ingress[0].ip: Invalid value: "x": must be a valid IP address
        /status={"loadBalancer":{"ingress":[{"ip":"01.2.3.4"}]}} => status.loadBalancer.ingress[0].ip: Invalid value: "01.2.3.4": must not have leading 0s
        /status={"loadBalancer":{"ingress":[{"ip":"01.2.3.4"}]}} >> /status/loadBalancer/ingress/-={"ip":"1.1.1.1"} => ok
        /status={"loadBalancer":{"ingress":[{"hostname":"1.2.3.4"}]}} => status.loadBalancer.ingress[0].hostname: Invalid value: "1.2.3.4": must be a DNS name, not an IP address
        /status={"loadBalancer":{"ingress":[{"hostname":"A"}]}} => status.loadBalancer.ingress[0].hostname: Invalid value: "A"
    "#,
    );
}

#[test]
fn ingress_classes() {
    let base = json!({"spec": {"controller": "a.io/b"}});
    check_create(
        CLASS,
        &base,
        r#"
        => ok
        /spec/controller="" => spec.controller: Required value
        /spec/controller="a" => spec.controller: Invalid value: "a": must be a domain-prefixed path (such as "acme.io/foo")
        /spec/controller="/a" => spec.controller: Invalid value: "/a": must be a domain-prefixed path
        /spec/controller="A/b" => spec.controller: Invalid value: "A": a lowercase RFC 1123 subdomain
        /spec/controller="a/b c" => spec.controller: Invalid value: "b c": Invalid path (regex used for validation is
        /spec/controller="a/b/c" => ok
        /spec/parameters={"kind":"K","name":"n"} => ok
        /spec/parameters={"kind":"K","name":"n","scope":"Cluster"} => ok
        /spec/parameters={"kind":"","name":"","scope":"Cluster"} => spec.parameters.kind: Required value ;; spec.parameters.name: Required value
        /spec/parameters={"kind":"a/b","name":"n","scope":"Cluster"} => spec.parameters.kind: Invalid value: "a/b": may not contain '/'
        /spec/parameters={"apiGroup":"A","kind":"K","name":"n","scope":"Cluster"} => spec.parameters.apiGroup: Invalid value: "A"
        /spec/parameters={"kind":"K","name":"n","scope":"Cluster","namespace":"a"} => spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'
        /spec/parameters={"kind":"K","name":"n","scope":"Namespace"} => spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'
        /spec/parameters={"kind":"K","name":"n","scope":"Namespace","namespace":"A"} => spec.parameters.namespace: Invalid value: "A": a lowercase RFC 1123 label
        /spec/parameters={"kind":"K","name":"n","scope":"Galaxy"} => spec.parameters.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespace"
    "#,
    );
    check_update(
        CLASS,
        &base,
        r#"
        /metadata/labels={"a":"b"} => ok
        /spec/controller="a.io/c" => spec.controller: Invalid value: "a.io/c": field is immutable
        /spec/parameters={"kind":"","name":"n","scope":"Cluster"} => spec.parameters.kind: Required value
    "#,
    );
}

fn policy() -> Value {
    json!({"spec": {"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 80}]}]}})
}

#[test]
fn new_network_policies() {
    check_create(
        POLICY,
        &policy(),
        r#"
        => ok
        /spec/podSelector={"matchLabels":{"a b":"c"}} => spec.podSelector.matchLabels: Invalid value: "a b"
        /spec/podSelector={"matchExpressions":[{"key":"a","operator":"Is"}]} => spec.podSelector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator
        /spec/ingress/0/from=[{}] => spec.ingress[0].from[0]: Required value: must specify a peer
        /spec/ingress/0/from/0/namespaceSelector={} => ok
        /spec/ingress/0/from/0/ipBlock={"cidr":"10.0.0.0/8"} => spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer
        /spec/ingress/0/from/0/podSelector={"matchExpressions":[{"key":"a","operator":"In"}]} => spec.ingress[0].from[0].podSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
        /spec/ingress/0/from=[{"ipBlock":{"cidr":""}}] => spec.ingress[0].from[0].ipBlock.cidr: Required value
        /spec/ingress/0/from=[{"ipBlock":{"cidr":"10.0.0.0"}}] => spec.ingress[0].from[0].ipBlock.cidr: Invalid value: "10.0.0.0": must be a valid CIDR value
        /spec/ingress/0/from=[{"ipBlock":{"cidr":"10.0.0.1/8"}}] => spec.ingress[0].from[0].ipBlock.cidr: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length
        /spec/ingress/0/from=[{"ipBlock":{"cidr":"10.0.0.0/08"}}] => spec.ingress[0].from[0].ipBlock.cidr: Invalid value: "10.0.0.0/08": must not have leading 0s in IP or prefix length
        /spec/egress=[{"to":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}]}] => ok
        /spec/egress=[{"to":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["x"]}}]}] => spec.egress[0].to[0].ipBlock.except[0]: Invalid value: "x": must be a valid CIDR value
        /spec/egress=[{"to":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.0.0.0/8"]}}]}] => spec.egress[0].to[0].ipBlock.except[0]: Invalid value: "10.0.0.0/8": must be a strict subset of `cidr`
        /spec/egress=[{"to":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["11.0.0.0/16"]}}]}] => spec.egress[0].to[0].ipBlock.except[0]: Invalid value: "11.0.0.0/16": must be a strict subset of `cidr`
        /spec/ingress/0/ports/0/protocol="ICMP" => spec.ingress[0].ports[0].protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP", "SCTP"
        /spec/ingress/0/ports/0/port=0 => spec.ingress[0].ports[0].port: Invalid value: 0: must be between
        /spec/ingress/0/ports/0/port="A" => spec.ingress[0].ports[0].port: Invalid value: "A": must contain only ;; ...
        /spec/ingress/0/ports/0/endPort=90 => ok
        /spec/ingress/0/ports/0/endPort=70 => spec.ingress[0].ports[0].endPort: Invalid value: 80: must be greater than or equal to `port`
        /spec/ingress/0/ports/0/endPort=70000 => spec.ingress[0].ports[0].endPort: Invalid value: 70000: must be between
        /spec/ingress/0/ports/0={"port":"http","endPort":90} => spec.ingress[0].ports[0].endPort: Invalid value: 90: may not be specified when `port` is non-numeric
        /spec/ingress/0/ports/0={"endPort":90} => spec.ingress[0].ports[0].endPort: Invalid value: 90: may not be specified when `port` is not specified
        /spec/policyTypes=["Ingress","Egress"] => ok
        /spec/policyTypes=["Both"] => spec.policyTypes[0]: Unsupported value: "Both": supported values: "Ingress", "Egress"
        /spec/policyTypes=["Ingress","Egress","Ingress"] => spec.policyTypes: Invalid value: ["Ingress","Egress","Ingress"]: may not specify more than two policyTypes
    "#,
    );
}

#[test]
fn changed_network_policies() {
    check_update(
        POLICY,
        &policy(),
        r#"
        => ok
        /spec/ingress/0/from=[{}] => spec.ingress[0].from[0]: Required value: must specify a peer
        /spec/ingress/0/from=[{"ipBlock":{"cidr":"10.0.0.1/8"}}] >> /spec/egress=[{"to":[{"ipBlock":{"cidr":"10.0.0.1/8"}}]}] => ok
        /spec/ingress/0/from=[{"ipBlock":{"cidr":"10.0.0.1/8"}}] >> /spec/egress=[{"to":[{"ipBlock":{"cidr":"10.0.0.2/8"}}]}] => spec.egress[0].to[0].ipBlock.cidr: Invalid value: "10.0.0.2/8": must not have bits set
        /spec/podSelector={"matchExpressions":[{"key":"a","operator":"In","values":["b c"]}]} >> /metadata/labels={"a":"b"} => ok
        /spec/podSelector={"matchExpressions":[{"key":"a","operator":"In","values":["b c"]}]} => spec.podSelector.matchExpressions[0].values[0]: Invalid value: "b c": a valid label must
    "#,
    );
}

#[test]
fn service_cidrs() {
    let base = json!({"spec": {"cidrs": ["10.0.0.0/24"]}});
    check_create(
        SERVICE_CIDR,
        &base,
        r#"
        => ok
        /spec/cidrs=[] => spec.cidrs: Required value: at least one CIDR required
        /spec/cidrs=["10.0.0.0/24","fd00::/64"] => ok
        /spec/cidrs=["10.0.0.0/24","fd00::/64","10.1.0.0/24"] => spec.cidrs: Invalid value: {"cidrs":["10.0.0.0/24","fd00::/64","10.1.0.0/24"]}: may only hold up to 2 values
        /spec/cidrs=["10.0.0.0/24","10.1.0.0/24"] => spec.cidrs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64
        /spec/cidrs=["x"] => spec.cidrs[0]: Invalid value: "x": must be a valid CIDR value
        /spec/cidrs=["10.0.0.1/24"] => spec.cidrs[0]: Invalid value: "10.0.0.1/24": must not have bits set beyond the prefix length
        /spec/cidrs=["FD00::/64"] => spec.cidrs[0]: Invalid value: "FD00::/64": must be in canonical form ("fd00::/64")
    "#,
    );
    check_update(
        SERVICE_CIDR,
        &base,
        r#"
        => ok
        /spec/cidrs=["10.1.0.0/24"] => spec.cidrs[0]: Invalid value: "10.1.0.0/24": field is immutable
        /spec/cidrs=["10.0.0.0/24","fd00::/64"] => ok
        /spec/cidrs=["10.1.0.0/24","fd00::/64"] => spec.cidrs[0]: Invalid value: "10.1.0.0/24": field is immutable
        /spec/cidrs=["10.0.0.0/24","10.1.0.0/24"] => spec.cidrs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: may specify no more than one IP
        /spec/cidrs=[] => spec.cidrs: Invalid value: []: field is immutable
    "#,
    );
}

#[test]
fn ip_addresses() {
    let base = json!({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": {"resource": "services", "name": "s", "namespace": "n"}}});
    check_create(
        IP_ADDRESS,
        &base,
        r#"
        => ok
        /metadata/name="fd00::1" => ok
        /metadata/name="FD00::1" => metadata.name: Invalid value: "FD00::1": must be in canonical form ("fd00::1")
        /metadata/name="010.0.0.1" => metadata.name: Invalid value: "010.0.0.1": must not have leading 0s
        /metadata/name="x" => metadata.name: Invalid value: "x": must be a valid IP address
        /spec/parentRef=null => spec.parentRef: Required value
        /spec/parentRef/resource="" => spec.parentRef.resource: Required value
        /spec/parentRef/name="" => spec.parentRef.name: Required value
        /spec/parentRef/name="a/b" => spec.parentRef.name: Invalid value: "a/b": may not contain '/'
        /spec/parentRef/namespace="a/b" => spec.parentRef.namespace: Invalid value: "a/b": may not contain '/'
        /spec/parentRef/namespace=null => ok
        /spec/parentRef/group="A" => spec.parentRef.group: Invalid value: "A": a lowercase RFC 1123 subdomain
    "#,
    );
    check_update(
        IP_ADDRESS,
        &base,
        r#"
        /metadata/labels={"a":"b"} => ok
        /spec/parentRef/name="t" => spec.parentRef: Invalid value: {"
    "#,
    );
}
