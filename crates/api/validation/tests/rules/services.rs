//! Tables of Services.

use super::Name;
use super::table::{check_create, check_update, check_writes};
use serde_json::{Value, json};

const SERVICE: Name = ("", "Service");

fn service() -> Value {
    json!({"spec": {"ports": [{"name": "a", "port": 80}]}})
}

fn allocated() -> Value {
    json!({"spec": {"ports": [{"name": "a", "port": 80}], "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
        "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}})
}

fn dual_stack() -> Value {
    json!({"spec": {"ports": [{"name": "a", "port": 80}], "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"],
        "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}})
}

fn balancer() -> Value {
    json!({"spec": {"type": "LoadBalancer", "ports": [{"name": "a", "port": 80, "nodePort": 30080}], "clusterIP": "10.0.0.1",
        "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"},
        "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}]}}})
}

#[test]
fn ports_of_new_services() {
    check_create(
        SERVICE,
        &service(),
        r#"
        => ok
        /spec/ports=[] => spec.ports: Required value
        /spec/ports=[] & /spec/clusterIP="None" => ok
        /spec/ports=[] & /spec/type="ExternalName" & /spec/externalName="a.b" => ok
        /spec/ports/0/name=null => ok
        /spec/ports/-={"port":81} => spec.ports[1].name: Required value
        /spec/ports/-={"port":81,"name":"a"} => spec.ports[1].name: Duplicate value: "a"
        /spec/ports/-={"port":81,"name":"b"} => ok
        /spec/ports/0/name="A_b" => spec.ports[0].name: Invalid value: "A_b": a lowercase RFC 1123 label must consist
        /spec/ports/0/port=0 => spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive ;; spec.ports[0].targetPort: Invalid value: 0: must be between
        /spec/ports/0/port=65536 & /spec/ports/0/targetPort=80 => spec.ports[0].port: Invalid value: 65536: must be between
        /spec/ports/0/protocol="ICMP" => spec.ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"
        /spec/ports/0/targetPort="http" => ok
        /spec/ports/0/targetPort="-" => spec.ports[0].targetPort: Invalid value: "-": must contain at least one letter ;; spec.ports[0].targetPort: Invalid value: "-": must not begin or end with a hyphen
        /spec/ports/0/targetPort="a--b" => spec.ports[0].targetPort: Invalid value: "a--b": must not contain consecutive hyphens
        /spec/ports/0/targetPort="abcdefghijklmnop" => spec.ports[0].targetPort: Invalid value: "abcdefghijklmnop": must be no more than 15 characters
        /spec/ports/0/targetPort=70000 => spec.ports[0].targetPort: Invalid value: 70000: must be between
        /spec/ports/0/appProtocol="kubernetes.io/h2c" => ok
        /spec/ports/0/appProtocol="a b" => spec.ports[0].appProtocol: Invalid value: "a b": name part must consist of
        /spec/ports/0/nodePort=30000 => spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'
        /spec/type="NodePort" & /spec/ports/0/nodePort=30000 & /spec/ports/-={"name":"b","port":81,"nodePort":30000} => spec.ports[1].nodePort: Duplicate value: 30000
        /spec/type="NodePort" & /spec/ports/0/nodePort=30000 & /spec/ports/-={"name":"b","port":81,"nodePort":30000,"protocol":"UDP"} => ok
        /spec/ports/-={"name":"b","port":80} => spec.ports[1]: Duplicate value: {"port":80,"protocol":"TCP"}
        /spec/ports/-={"name":"b","port":80,"protocol":"UDP"} => ok
    "#,
    );
}

#[test]
fn types_and_names_of_new_services() {
    check_create(
        SERVICE,
        &service(),
        r#"
        /metadata/name="1a" => ok
        /metadata/name="a.b" => metadata.name: Invalid value: "a.b": must not contain dots
        /spec/type="Magic" => spec.type: Unsupported value: "Magic": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort" ;; ...
        /spec/type="NodePort" & /spec/clusterIP="None" => spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services
        /spec/type="LoadBalancer" & /spec/clusterIP="None" => spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for LoadBalancer services
        /spec/type="ExternalName" => spec.externalName: Required value
        /spec/type="ExternalName" & /spec/externalName="." => spec.externalName: Required value
        /spec/type="ExternalName" & /spec/externalName="a.b." => ok
        /spec/type="ExternalName" & /spec/externalName="A" => spec.externalName: Invalid value: "A": a lowercase RFC 1123 subdomain must
        /spec/type="ExternalName" & /spec/externalName="a" & /spec/clusterIP="10.0.0.1" => spec.clusterIPs: Forbidden: may not be set for ExternalName services
        /spec/type="ExternalName" & /spec/externalName="a" & /spec/ipFamilies=["IPv4"] => spec.ipFamilies: Forbidden: may not be set for ExternalName services
        /spec/type="ExternalName" & /spec/externalName="a" & /spec/ipFamilyPolicy="SingleStack" => spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services
        /spec/type="ExternalName" & /spec/externalName="a" & /spec/internalTrafficPolicy="Local" => ok
        /spec/selector={"a b":"c"} => spec.selector: Invalid value: "a b": name part must consist of
        /spec/selector={"a":"b c"} => spec.selector: Invalid value: "b c": a valid label must be
        /spec/sessionAffinity="Server" => spec.sessionAffinity: Unsupported value: "Server": supported values: "ClientIP", "None"
        /spec/sessionAffinity="ClientIP" => ok
        /spec/sessionAffinity="ClientIP" & /spec/sessionAffinityConfig={"clientIP":{"timeoutSeconds":0}} => spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and less than 86400
        /spec/sessionAffinity="ClientIP" & /spec/sessionAffinityConfig={"clientIP":{"timeoutSeconds":86401}} => spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401
        /spec/sessionAffinity="ClientIP" & /spec/sessionAffinityConfig={"clientIP":{"timeoutSeconds":86400}} => ok
        /spec/sessionAffinity="None" & /spec/sessionAffinityConfig={"clientIP":{"timeoutSeconds":1}} => ok
        /metadata/annotations={"service.kubernetes.io/topology-mode":"Auto","service.kubernetes.io/topology-aware-hints":"Auto"} => ok
        /metadata/annotations={"service.kubernetes.io/topology-mode":"Auto","service.kubernetes.io/topology-aware-hints":"Disabled"} => metadata.annotations[service.kubernetes.io/topology-mode]: Invalid value: "Auto": must match annotations[service.kubernetes.io/topology-aware-hints] when both are specified
    "#,
    );
}

#[test]
fn addresses_of_new_services() {
    check_create(
        SERVICE,
        &service(),
        r#"
        /spec/clusterIP="None" => ok
        /spec/clusterIP="" => ok
        /spec/clusterIP="10.0.0.1" => ok
        /spec/clusterIP="10.0.0" => spec.clusterIPs[0]: Invalid value: "10.0.0": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
        /spec/clusterIP="010.0.0.1" => spec.clusterIPs[0]: Invalid value: "010.0.0.1": must not have leading 0s
        /spec/clusterIP="::ffff:10.0.0.1" => spec.clusterIPs[0]: Invalid value: "::ffff:10.0.0.1": must not be an IPv4-mapped IPv6 address
        /spec/clusterIPs=["10.0.0.1"] => spec.clusterIPs: Invalid value: ["10.0.0.1"]: must be empty when `clusterIP` is not specified
        /spec/clusterIP="10.0.0.2" & /spec/clusterIPs=["10.0.0.1"] => spec.clusterIPs: Invalid value: ["10.0.0.1"]: first value must match `clusterIP`
        /spec/clusterIP="None" & /spec/clusterIPs=["None","10.0.0.1"] => spec.clusterIPs: Invalid value: ["None","10.0.0.1"]: 'None' must be the first and only value
        /spec/clusterIP="10.0.0.1" & /spec/clusterIPs=["10.0.0.1","None"] => spec.clusterIPs[1]: Invalid value: "None": must be a valid IP address
        /spec/clusterIP="10.0.0.1" & /spec/clusterIPs=["10.0.0.1","10.0.0.2"] => spec.clusterIPs: Invalid value: ["10.0.0.1","10.0.0.2"]: may specify no more than one IP for each IP family
        /spec/clusterIP="10.0.0.1" & /spec/clusterIPs=["10.0.0.1","fd00::1"] => ok
        /spec/clusterIP="10.0.0.1" & /spec/clusterIPs=["10.0.0.1","fd00::1","10.0.0.2"] => spec.clusterIPs: Invalid value: ["10.0.0.1","fd00::1","10.0.0.2"]: may only hold up to 2 values ;; spec.clusterIPs: Invalid value: ["10.0.0.1","fd00::1","10.0.0.2"]: may specify
        /spec/clusterIP="10.0.0.1" & /spec/ipFamilies=["IPv6"] => spec.clusterIPs[0]: Invalid value: "10.0.0.1": expected an IPv6 value as indicated by `ipFamilies[0]`
        /spec/clusterIP="fd00::1" & /spec/ipFamilies=["IPv4"] => spec.clusterIPs[0]: Invalid value: "fd00::1": expected an IPv4 value as indicated by `ipFamilies[0]`
        /spec/clusterIP="None" & /spec/ipFamilies=["IPv6"] => ok
        /spec/ipFamilies=["IPv5"] => spec.ipFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"
        /spec/ipFamilies=["IPv4","IPv4"] => spec.ipFamilies[1]: Duplicate value: "IPv4"
        /spec/ipFamilyPolicy="Any" => spec.ipFamilyPolicy: Unsupported value: "Any": supported values: "PreferDualStack", "RequireDualStack", "SingleStack"
        # Errors of the addresses come alone: they are found before the other rules run.
        /spec/ports=[] & /spec/clusterIP="x" => spec.clusterIPs[0]: Invalid value: "x"
        /spec/externalIPs=["1.2.3.4","fd00::1"] => ok
        /spec/externalIPs=["x"] => spec.externalIPs[0]: Invalid value: "x": must be a valid IP address, (e.g.
        /spec/externalIPs=["01.2.3.4"] => spec.externalIPs[0]: Invalid value: "01.2.3.4": must not have leading 0s
        /spec/externalIPs=["0.0.0.0"] => spec.externalIPs[0]: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)
        /spec/externalIPs=["::1"] => spec.externalIPs[0]: Invalid value: "::1": may not be in the loopback range (127.0.0.0/8, ::1/128)
        /spec/externalIPs=["169.254.169.254"] => spec.externalIPs[0]: Invalid value: "169.254.169.254": may not be in the link-local range (169.254.0.0/16, fe80::/10)
        /spec/externalIPs=["224.0.0.9"] => spec.externalIPs[0]: Invalid value: "224.0.0.9": may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)
        /spec/externalIPs=["::ffff:127.0.0.1"] => spec.externalIPs[0]: Invalid value: "::ffff:127.0.0.1": must not be an IPv4-mapped IPv6 address
    "#,
    );
}

#[test]
fn load_balancers_and_traffic_of_new_services() {
    check_create(
        SERVICE,
        &service(),
        r#"
        /spec/loadBalancerSourceRanges=["10.0.0.0/8"] => spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'
        /spec/type="LoadBalancer" & /spec/loadBalancerSourceRanges=[" 10.0.0.0/8 "] => ok
        /spec/type="LoadBalancer" & /spec/loadBalancerSourceRanges=["10.0.0.1/8"] => spec.LoadBalancerSourceRanges[0]: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length
        /spec/type="LoadBalancer" & /spec/loadBalancerSourceRanges=["010.0.0.0/8"] => spec.LoadBalancerSourceRanges[0]: Invalid value: "010.0.0.0/8": must not have leading 0s in IP or prefix length
        /spec/type="LoadBalancer" & /spec/loadBalancerSourceRanges=["::ffff:10.0.0.0/104"] => spec.LoadBalancerSourceRanges[0]: Invalid value: "::ffff:10.0.0.0/104": must not have an IPv4-mapped IPv6 address
        /spec/type="LoadBalancer" & /spec/loadBalancerSourceRanges=["10.0.0.0"] => spec.LoadBalancerSourceRanges[0]: Invalid value: "10.0.0.0": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)
        /metadata/annotations={"service.beta.kubernetes.io/load-balancer-source-ranges":"10.0.0.0/8"} => metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: Forbidden: may only be used when `type` is 'LoadBalancer'
        /spec/type="LoadBalancer" & /metadata/annotations={"service.beta.kubernetes.io/load-balancer-source-ranges":"10.0.0.0/8, x"} => metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: Invalid value: "x": must be a valid CIDR value
        /spec/type="LoadBalancer" & /metadata/annotations={"service.beta.kubernetes.io/load-balancer-source-ranges":" "} => ok
        /spec/allocateLoadBalancerNodePorts=true => spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'
        /spec/type="LoadBalancer" & /spec/allocateLoadBalancerNodePorts=false => ok
        /spec/loadBalancerClass="a/b" => spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'
        /spec/type="LoadBalancer" & /spec/loadBalancerClass="a/b" => ok
        /spec/type="LoadBalancer" & /spec/loadBalancerClass="a b" => spec.loadBalancerClass: Invalid value: "a b": name part must consist of
        /spec/externalTrafficPolicy="Local" => spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services
        /spec/externalIPs=["1.2.3.4"] & /spec/externalTrafficPolicy="Local" => ok
        /spec/type="NodePort" & /spec/externalTrafficPolicy="Near" => spec.externalTrafficPolicy: Unsupported value: "Near": supported values: "Cluster", "Local"
        /spec/healthCheckNodePort=30000 => spec.healthCheckNodePort: Invalid value: 30000: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'
        /spec/type="LoadBalancer" & /spec/externalTrafficPolicy="Local" => ok
        /spec/type="LoadBalancer" & /spec/externalTrafficPolicy="Local" & /spec/healthCheckNodePort=70000 => spec.healthCheckNodePort: Invalid value: 70000: must be between 1 and 65535, inclusive
        /spec/internalTrafficPolicy="Near" => spec.internalTrafficPolicy: Unsupported value: "Near": supported values: "Cluster", "Local"
        /spec/trafficDistribution="PreferSameNode" => ok
        /spec/trafficDistribution="Near" => spec.trafficDistribution: Unsupported value: "Near": supported values: "PreferClose", "PreferSameZone", "PreferSameNode"
    "#,
    );
}

#[test]
fn changed_addresses_of_services() {
    check_update(
        SERVICE,
        &allocated(),
        r#"
        => ok
        /spec/clusterIP=null & /spec/clusterIPs=null => ok
        /spec/clusterIP="10.0.0.2" => spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set
        /spec/clusterIP="10.0.0.2" & /spec/clusterIPs=["10.0.0.2"] => spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set
        /spec/clusterIP="None" & /spec/clusterIPs=["None"] => spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set
        /spec/clusterIPs=["10.0.0.1","fd00::1"] & /spec/ipFamilies=["IPv4","IPv6"] & /spec/ipFamilyPolicy="PreferDualStack" => ok
        /spec/ipFamilies=["IPv6"] => spec.ipFamilies[0]: Invalid value: ["IPv6"]: may not change once set ;; spec.clusterIPs[0]: Invalid value: "10.0.0.1": expected an IPv6 value
        /spec/ipFamilies=["IPv6","IPv4"] => spec.ipFamilies[0]: Invalid value: ["10.0.0.1"]: may not change once set ;; spec.clusterIPs[0]: Invalid value
        /spec/type="ExternalName" & /spec/externalName="a.b" => ok
        /spec/type="ExternalName" & /spec/externalName="a.b" & /spec/clusterIP="10.0.0.2" & /spec/clusterIPs=["10.0.0.2"] => spec.clusterIPs: Forbidden: may not be set for ExternalName services
        # Values that older releases accepted may stay.
        /spec/clusterIP="010.0.0.1" & /spec/clusterIPs=["010.0.0.1"] >> /metadata/labels={"a":"b"} => ok
        /spec/externalIPs=["01.2.3.4"] >> /metadata/labels={"a":"b"} => ok
        /spec/externalIPs=["01.2.3.4"] >> /spec/externalIPs=["01.2.3.4","01.2.3.5"] => spec.externalIPs[1]: Invalid value: "01.2.3.5": must not have leading 0s
    "#,
    );
    check_update(
        SERVICE,
        &dual_stack(),
        r#"
        => ok
        /spec/clusterIPs=["10.0.0.1"] & /spec/ipFamilies=["IPv4"] & /spec/ipFamilyPolicy="SingleStack" => ok
        /spec/clusterIPs=["10.0.0.1"] & /spec/ipFamilies=["IPv4"] => spec.ipFamilyPolicy: Invalid value: "RequireDualStack": must be set to 'SingleStack' when releasing the secondary clusterIP ;; spec.ipFamilyPolicy: Invalid value: "RequireDualStack": must be set to 'SingleStack' when releasing the secondary ipFamily
        /spec/clusterIP="fd00::1" & /spec/clusterIPs=["fd00::1"] & /spec/ipFamilies=["IPv6"] & /spec/ipFamilyPolicy="SingleStack" => spec.clusterIPs[0]: Invalid value: ["fd00::1"]: may not change once set ;; spec.ipFamilies[0]: Invalid value: ["fd00::1"]: may not change once set
        /spec/clusterIPs=["10.0.0.1","fd00::2"] => spec.clusterIPs[1]: Invalid value: ["10.0.0.1","fd00::2"]: may not change once set
    "#,
    );
}

#[test]
fn changed_load_balancers() {
    check_update(
        SERVICE,
        &balancer(),
        r#"
        => ok
        /spec/type="ClusterIP" => ok
        /spec/type="ClusterIP" & /spec/ports/0/nodePort=30081 => spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'
        /spec/type="ExternalName" & /spec/externalName="a.b" => ok
        /spec/loadBalancerClass="a/b" => spec.loadBalancerClass: Invalid value: "a/b": may not change once set
        /spec/loadBalancerClass="a/b" >> /spec/loadBalancerClass=null => spec.loadBalancerClass: Invalid value: null: may not change once set
        /spec/loadBalancerClass="a/b" >> /spec/type="NodePort" => ok
        /spec/loadBalancerClass="a/b" >> /spec/type="NodePort" & /spec/loadBalancerClass="c/d" => spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'
        /spec/externalTrafficPolicy="Local" => spec.healthCheckNodePort: Required value
        /spec/externalTrafficPolicy="Local" & /spec/healthCheckNodePort=30001 >> /spec/healthCheckNodePort=30002 => spec.healthCheckNodePort: Forbidden: field is immutable
        /spec/externalTrafficPolicy="Local" & /spec/healthCheckNodePort=30001 >> /spec/healthCheckNodePort=null => ok
        /spec/externalTrafficPolicy="Local" & /spec/healthCheckNodePort=30001 >> /spec/externalTrafficPolicy="Cluster" => ok
        /spec/externalTrafficPolicy="Local" & /spec/healthCheckNodePort=30001 >> /spec/type="ClusterIP" => ok
        /spec/loadBalancerSourceRanges=["10.0.0.1/8"] >> /spec/loadBalancerSourceRanges=[" 10.0.0.1/8"] => ok
        /spec/loadBalancerSourceRanges=["10.0.0.1/8"] >> /spec/loadBalancerSourceRanges=["10.0.0.2/8"] => spec.LoadBalancerSourceRanges[0]: Invalid value: "10.0.0.2/8": must not have bits set
        /metadata/annotations={"service.beta.kubernetes.io/load-balancer-source-ranges":"x"} >> /metadata/labels={"a":"b"} => ok
        /spec/allocateLoadBalancerNodePorts=false => ok
        /metadata/name="y" => metadata.name: Invalid value: "y": field is immutable
    "#,
    );
}

#[test]
fn status_of_services() {
    check_writes(
        SERVICE,
        "status",
        &balancer(),
        r#"
        => ok
        /status/loadBalancer/ingress/0/ip="x" => status.loadBalancer.ingress[0].ip: Invalid value: "x": must be a valid IP address
        /status/loadBalancer/ingress/0/ip="01.2.3.4" => status.loadBalancer.ingress[0].ip: Invalid value: "01.2.3.4": must not have leading 0s
        /status/loadBalancer/ingress/0/ip="01.2.3.4" >> /status/loadBalancer/ingress/-={"hostname":"a.b"} => ok
        /status/loadBalancer/ingress/0/ipMode="Magic" => status.loadBalancer.ingress[0].ipMode: Unsupported value: "Magic": supported values: "Proxy", "VIP"
        /status/loadBalancer/ingress/0/ipMode="Proxy" => ok
        /status/loadBalancer/ingress/0={"hostname":"a.b","ipMode":"VIP"} => status.loadBalancer.ingress[0].ipMode: Forbidden: may not be specified when `ip` is not set
        /status/loadBalancer/ingress/0={"hostname":"A"} => status.loadBalancer.ingress[0].hostname: Invalid value: "A": a lowercase RFC 1123 subdomain must
        /status/loadBalancer/ingress/0={"hostname":"1.2.3.4"} => status.loadBalancer.ingress[0].hostname: Invalid value: "1.2.3.4": must be a DNS name, not an IP address
        /spec/type="ClusterIP" >> /status/loadBalancer/ingress=[{"ip":"1.2.3.4"}] => status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'
        # The specification belongs to the main resource.
        /spec/ports=[] => ok
    "#,
    );
}
