//! Endpoints, nodes, Ingresses and NetworkPolicies.

use crate::field::Path;
use crate::ip::{cidr_warnings, ip_warning};
use api_meta::tree::{get, has, list, text, texts};
use serde_json::Value;

const CLASS: &str = "kubernetes.io/ingress.class";
const ENDPOINTS_MANAGER: &str = "endpoints.kubernetes.io/managed-by";
const SLICE_MANAGER: &str = "endpointslice.kubernetes.io/managed-by";
/// Controllers that write canonical addresses only.
const SLICE_CONTROLLERS: [&str; 2] = [
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
];

fn label<'a>(object: &'a Value, name: &str) -> &'a str {
    text(get(get(object, "metadata"), "labels"), name)
}

pub(super) fn endpoints_warnings(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if label(object, ENDPOINTS_MANAGER) == "endpoint-controller" {
        return warnings;
    }
    let path = Path::ROOT.child("subsets");
    for (i, subset) in list(object, "subsets").iter().enumerate() {
        let at = path.index(i);
        for field in ["addresses", "notReadyAddresses"] {
            let at = at.child(field);
            for (j, address) in list(subset, field).iter().enumerate() {
                let at = at.index(j);
                warnings.extend(ip_warning(&at.child("ip"), text(address, "ip")));
            }
        }
    }
    warnings
}

pub(super) fn endpoint_slice_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    let kind = text(object, "addressType");
    if old.is_none() && kind == "FQDN" {
        warnings.push("spec.addressType: FQDN endpoints are deprecated".into());
    }
    let manager = label(object, SLICE_MANAGER);
    if kind == "FQDN" || SLICE_CONTROLLERS.contains(&manager) {
        return warnings;
    }
    let path = Path::ROOT.child("endpoints");
    for (i, endpoint) in list(object, "endpoints").iter().enumerate() {
        let at = path.index(i);
        let at = at.child("addresses");
        for (j, address) in texts(endpoint, "addresses").iter().enumerate() {
            warnings.extend(ip_warning(&at.index(j), address));
        }
    }
    warnings
}

pub(super) fn node_warnings(object: &Value) -> Vec<String> {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let mut warnings = Vec::new();
    if has(spec, "configSource") {
        warnings.push("spec.configSource: the feature is removed".into());
    }
    if !text(spec, "externalID").is_empty() {
        let text = "spec.externalID: this field is deprecated, and is unused by Kubernetes";
        warnings.push(text.into());
    }
    let at = path.child("podCIDRs");
    for (i, block) in texts(spec, "podCIDRs").iter().enumerate() {
        warnings.extend(cidr_warnings(&at.index(i), block));
    }
    warnings
}

pub(super) fn ingress_warnings(object: &Value) -> Vec<String> {
    let annotated = has(get(get(object, "metadata"), "annotations"), CLASS);
    if annotated && !has(get(object, "spec"), "ingressClassName") {
        return vec![format!(
            "annotation \"{CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"
        )];
    }
    Vec::new()
}

pub(super) fn network_policy_warnings(object: &Value) -> Vec<String> {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let mut warnings = Vec::new();
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let at = path.child(direction);
        for (i, rule) in list(spec, direction).iter().enumerate() {
            let at = at.index(i);
            let at = at.child(peers);
            for (j, peer) in list(rule, peers).iter().enumerate() {
                let at = at.index(j);
                let at = at.child("ipBlock");
                let block = get(peer, "ipBlock");
                warnings.extend(cidr_warnings(&at.child("cidr"), text(block, "cidr")));
                let at = at.child("except");
                for (k, except) in texts(block, "except").iter().enumerate() {
                    warnings.extend(cidr_warnings(&at.index(k), except));
                }
            }
        }
    }
    warnings
}
