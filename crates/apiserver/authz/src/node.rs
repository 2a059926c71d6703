//! The Node authorizer: a kubelet (`system:node:NAME` in the group `system:nodes`) may access
//! objects that the pods bound to its node use, its own Node, Lease and CSINode, and all that the
//! role `system:node` allows.
//!
//! Invariant: Secrets, ConfigMaps, claims, volumes and accounts are never listed as a whole; each
//! read needs a path in the graph from the object to the node.

mod graph;
mod references;
mod target;

use crate::rbac::Rule;
use api_meta::fields::FieldSelector;
use apiserver_request::{
    Attributes, Decision, GroupResource, LocalAuthorizer, ObjectEvent, Objects, Observer, User,
    UserRules,
};
use graph::Graph;
use parking_lot::RwLock;
use std::sync::Arc;
use target::Target;

const USER_PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";

/// Returns the node's name if the user is a node.
pub fn node_name(user: &User) -> Option<&str> {
    user.in_group(GROUP)
        .then(|| user.name.strip_prefix(USER_PREFIX))
        .flatten()
}

/// Authorizes kubelets.
pub struct NodeAuthorizer {
    graph: RwLock<Graph>,
    rules: Vec<Rule>,
}

fn allow_node() -> Decision {
    Decision::Allow(String::new())
}

fn deny_node(reason: impl Into<String>) -> Decision {
    Decision::NoOpinion(reason.into())
}

impl NodeAuthorizer {
    /// Creates an authorizer whose graph follows the watch caches of pods, volumes and attachments.
    pub fn observing(objects: &dyn Objects) -> Arc<NodeAuthorizer> {
        let node = Arc::new(NodeAuthorizer::new());
        // Only objects that lead to others: the graph needs no content of Secrets or ConfigMaps.
        let followed = [
            ("", "pods"),
            ("", "persistentvolumes"),
            ("storage.k8s.io", "volumeattachments"),
            ("resource.k8s.io", "resourceslices"),
            ("certificates.k8s.io", "podcertificaterequests"),
        ];
        for (group, resource) in followed {
            objects.observe(&GroupResource::new(group, resource), node.clone());
        }
        node
    }

    fn new() -> Self {
        // The built-in rules, not the stored role: an administrator's change of system:node must
        // not widen this authorizer.
        // Bundles are public, and without their gate they are not served.
        let policy = crate::bootstrap::bootstrap_objects(|gate| gate == "ClusterTrustBundle");
        let role = policy
            .iter()
            .find(|(r, o)| *r == "clusterroles" && o["metadata"]["name"] == "system:node");
        NodeAuthorizer {
            graph: RwLock::default(),
            rules: role
                .map(|(_, o)| Rule::parse_list(&o["rules"]))
                .unwrap_or_default(),
        }
    }

    fn authorize_node(&self, node: &str, a: &Attributes) -> Decision {
        if !a.is_resource {
            return self.authorize_by_rules(a);
        }
        match (a.group.as_str(), a.resource.as_str()) {
            // list and watch of one name as well: the kubelet watches each Secret separately.
            ("", "secrets") => self.authorize_read(node, Target::Secret, a),
            ("", "configmaps") => self.authorize_read(node, Target::ConfigMap, a),
            ("", "persistentvolumeclaims") if a.subresource == "status" => {
                self.authorize_claim_status(node, a)
            }
            ("", "persistentvolumeclaims") => self.authorize_get(node, Target::Claim, a),
            ("", "persistentvolumes") => self.authorize_get(node, Target::Volume, a),
            ("resource.k8s.io", "resourceclaims") => {
                self.authorize_get(node, Target::ResourceClaim, a)
            }
            ("resource.k8s.io", "resourceslices") => self.authorize_slice(node, a),
            ("certificates.k8s.io", "podcertificaterequests") => {
                self.authorize_certificate_request(node, a)
            }
            ("storage.k8s.io", "volumeattachments") => {
                self.authorize_get(node, Target::Attachment, a)
            }
            // Tokens only for accounts of pods on the node: a stolen kubelet credential must not
            // impersonate others.
            ("", "serviceaccounts") => self.authorize_account(node, a),
            ("coordination.k8s.io", "leases") => authorize_lease(node, a),
            ("storage.k8s.io", "csinodes") => authorize_csi_node(node, a),
            // A kubelet registers its Node, so create must be possible before the Node exists.
            ("", "nodes") => authorize_own_node(node, a),
            ("", "pods") => self.authorize_pod(node, a),
            _ => self.authorize_by_rules(a),
        }
    }

    fn authorize_by_rules(&self, a: &Attributes) -> Decision {
        if self.rules.iter().any(|r| r.allows_request(a, &a.name)) {
            allow_node()
        } else {
            deny_node("")
        }
    }

    fn authorize_reachable(&self, node: &str, target: Target, a: &Attributes) -> Decision {
        if a.name.is_empty() {
            return deny_node("No Object name found");
        }
        if self
            .graph
            .read()
            .reaches_object(node, target, &a.namespace, &a.name)
        {
            return allow_node();
        }
        // NoOpinion, not a denial: RBAC may still grant the request to the node's user or group.
        deny_node(format!(
            "no relationship found between node '{node}' and this object"
        ))
    }

    fn authorize_read(&self, node: &str, target: Target, a: &Attributes) -> Decision {
        if !matches!(a.verb.as_str(), "get" | "list" | "watch") {
            return deny_node("can only read resources of this type");
        }
        if !a.subresource.is_empty() {
            return deny_node("cannot read subresource");
        }
        // A list across namespaces would reveal all Secrets.
        if a.namespace.is_empty() {
            return deny_node("can only read namespaced object of this type");
        }
        self.authorize_reachable(node, target, a)
    }

    fn authorize_get(&self, node: &str, target: Target, a: &Attributes) -> Decision {
        if a.verb != "get" {
            return deny_node("can only get individual resources of this type");
        }
        if !a.subresource.is_empty() {
            return deny_node("cannot get subresource");
        }
        self.authorize_reachable(node, target, a)
    }

    fn authorize_claim_status(&self, node: &str, a: &Attributes) -> Decision {
        // The kubelet reports the new capacity after it has expanded the file system.
        if !matches!(a.verb.as_str(), "update" | "patch") {
            return deny_node("can only get/update/patch this type");
        }
        self.authorize_reachable(node, Target::Claim, a)
    }

    fn authorize_account(&self, node: &str, a: &Attributes) -> Decision {
        match (a.verb.as_str(), a.subresource.as_str()) {
            ("get", "") | ("create", "token") => self.authorize_reachable(node, Target::Account, a),
            _ => deny_node(
                "can only get service accounts or create tokens for individual service accounts",
            ),
        }
    }

    fn authorize_slice(&self, node: &str, a: &Attributes) -> Decision {
        match (a.subresource.as_str(), a.verb.as_str()) {
            // The admission plugin NodeRestriction checks the new slice's node.
            ("", "create") => allow_node(),
            // A slice without a node belongs to a network-attached device, which no kubelet
            // manages.
            ("", "get" | "update" | "patch" | "delete") => {
                self.authorize_reachable(node, Target::Slice, a)
            }
            ("", "list" | "watch" | "deletecollection") if selects_node(node, a) => allow_node(),
            ("", "list" | "watch" | "deletecollection") => deny_node(
                "can only list/watch/deletecollection resourceslices with spec.nodeName field selector",
            ),
            ("", _) => deny_node("unexpected verb for a ResourceSlice"),
            _ => deny_node("cannot authorize ResourceSlice subresources"),
        }
    }

    fn authorize_certificate_request(&self, node: &str, a: &Attributes) -> Decision {
        if !a.subresource.is_empty() {
            return deny_node(
                "nodes may not access the status subresource of PodCertificateRequests",
            );
        }
        match a.verb.as_str() {
            // The admission plugin NodeRestriction checks the pod of the new request.
            "create" => allow_node(),
            "get" => self.authorize_reachable(node, Target::CertificateRequest, a),
            "list" | "watch" if selects_node(node, a) => allow_node(),
            "list" | "watch" => {
                deny_node("can only list/watch podcertificaterequests with nodeName field selector")
            }
            verb => deny_node(format!("nodes may not {verb} podcertificaterequests")),
        }
    }

    fn authorize_pod(&self, node: &str, a: &Attributes) -> Decision {
        match (a.subresource.as_str(), a.verb.as_str()) {
            // The admission plugin NodeRestriction checks the content of these writes.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                allow_node()
            }
            ("", "get") => self.authorize_reachable(node, Target::Pod, a),
            ("", "list" | "watch") => {
                if selects_node(node, a) {
                    return allow_node();
                }
                deny_node("can only list/watch pods with spec.nodeName field selector")
            }
            _ => deny_node(""),
        }
    }
}

/// Returns whether the field selector limits the request to objects of `node`.
fn selects_node(node: &str, a: &Attributes) -> bool {
    let selector = FieldSelector::parse(&a.field_selector).unwrap_or_default();
    // A selector is a conjunction: one term for the node is enough.
    selector
        .terms
        .iter()
        .any(|term| term.field == "spec.nodeName" && term.value == node && !term.negated)
}

fn authorize_lease(node: &str, a: &Attributes) -> Decision {
    if !matches!(
        a.verb.as_str(),
        "get" | "create" | "update" | "patch" | "delete"
    ) {
        return deny_node("can only get, create, update, patch, or delete a node lease");
    }
    if a.namespace != "kube-node-lease" {
        return deny_node("can only access leases in the \"kube-node-lease\" system namespace");
    }
    // The name of a create is not known yet. Admission checks it.
    if a.verb != "create" && a.name != node {
        return deny_node("can only access node lease with the same name as the requesting node");
    }
    allow_node()
}

fn authorize_csi_node(node: &str, a: &Attributes) -> Decision {
    if !matches!(
        a.verb.as_str(),
        "get" | "create" | "update" | "patch" | "delete"
    ) {
        return deny_node("can only get, create, update, patch, or delete a CSINode");
    }
    if !a.subresource.is_empty() {
        return deny_node("cannot authorize CSINode subresources");
    }
    // As for leases, admission checks the name of a create.
    if a.verb != "create" && a.name != node {
        return deny_node("can only access CSINode with the same name as the requesting node");
    }
    allow_node()
}

fn authorize_own_node(node: &str, a: &Attributes) -> Decision {
    match (a.subresource.as_str(), a.verb.as_str()) {
        // Writes to other nodes are rejected by the admission plugin NodeRestriction, whose message
        // gives the reason.
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => allow_node(),
        ("", "get" | "list" | "watch") => match a.name.as_str() {
            name if name == node => allow_node(),
            "" => deny_node(format!(
                "node '{node}' cannot read all nodes, only its own Node object"
            )),
            other => deny_node(format!(
                "node '{node}' cannot read '{other}', only its own Node object"
            )),
        },
        _ => deny_node(""),
    }
}

impl Observer for NodeAuthorizer {
    fn object_changed(&self, resource: &GroupResource, event: &ObjectEvent) {
        let mut graph = self.graph.write();
        let (object, deleted) = match event {
            ObjectEvent::Applied(object) => (object, false),
            ObjectEvent::Deleted(object) => (object, true),
        };
        match resource.resource.as_str() {
            "pods" => graph.update_pod(object, deleted),
            "persistentvolumes" => graph.update_volume(object, deleted),
            "resourceslices" => graph.update_owned(Target::Slice, object, deleted),
            "podcertificaterequests" => {
                graph.update_owned(Target::CertificateRequest, object, deleted);
            }
            _ => graph.update_owned(Target::Attachment, object, deleted),
        }
    }
}

impl LocalAuthorizer for NodeAuthorizer {
    fn decide(&self, attributes: &Attributes) -> Decision {
        if !attributes.user.in_group(GROUP) {
            return deny_node("");
        }
        match node_name(&attributes.user) {
            Some(node) if !node.is_empty() => self.authorize_node(node, attributes),
            // The group alone grants nothing, not even the rules of the role.
            Some(_) => deny_node(format!("unknown node for user {:?}", attributes.user.name)),
            None => deny_node(""),
        }
    }

    fn list_rules(&self, user: &User, _namespace: &str) -> UserRules {
        if node_name(user).is_none() {
            return UserRules::default();
        }
        UserRules {
            incomplete: true,
            errors: vec!["node authorizer does not support user rule resolution".to_owned()],
            ..UserRules::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn authorizer() -> NodeAuthorizer {
        let node = NodeAuthorizer::new();
        let apply = |resource: &str, object: Value| {
            node.object_changed(
                &GroupResource::new("", resource),
                &ObjectEvent::Applied(Arc::new(object)),
            );
        };
        apply(
            "pods",
            json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {
            "nodeName": "one", "serviceAccountName": "sa", "imagePullSecrets": [{"name": "pull"}],
            "volumes": [{"name": "a", "secret": {"secretName": "mine"}}, {"name": "b", "persistentVolumeClaim": {"claimName": "claim"}},
                        {"name": "c", "projected": {"sources": [{"configMap": {"name": "cm"}}]}}],
            "containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "from"}}]}]}}),
        );
        apply(
            "persistentvolumes",
            json!({"metadata": {"name": "pv"}, "spec": {
            "claimRef": {"namespace": "n", "name": "claim"},
            "csi": {"nodePublishSecretRef": {"name": "csi", "namespace": "csi-ns"}}}}),
        );
        node
    }

    fn attributes(verb: &str, resource: &str, namespace: &str, name: &str) -> Attributes {
        let (group, resource) = resource.split_once(':').unwrap_or(("", resource));
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes {
            user: User {
                name: "system:node:one".into(),
                groups: vec![GROUP.into()],
                ..User::default()
            },
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            namespace: namespace.into(),
            name: name.into(),
            is_resource: true,
            ..Attributes::default()
        }
    }

    #[test]
    fn node_may_read_objects_that_its_pods_use() {
        let node = authorizer();
        let check = |verb: &str, resource: &str, namespace: &str, name: &str, expect: bool| {
            let decision = node.decide(&attributes(verb, resource, namespace, name));
            assert_eq!(
                matches!(decision, Decision::Allow(_)),
                expect,
                "{verb} {resource} {namespace}/{name}: {decision:?}"
            );
        };
        check("get", "secrets", "n", "mine", true);
        check("watch", "secrets", "n", "pull", true);
        check("get", "secrets", "n", "from", true);
        check("get", "secrets", "n", "other", false);
        check("get", "secrets", "m", "mine", false);
        check("list", "secrets", "n", "", false);
        check("update", "secrets", "n", "mine", false);
        check("get", "secrets", "csi-ns", "csi", true);
        check("get", "configmaps", "n", "cm", true);
        check("get", "persistentvolumeclaims", "n", "claim", true);
        check("get", "persistentvolumes", "", "pv", true);
        check("get", "persistentvolumes", "", "other", false);
        check("create", "serviceaccounts/token", "n", "sa", true);
        check("create", "serviceaccounts/token", "n", "default", false);
        check("get", "pods", "n", "p", true);
        check("get", "pods", "n", "q", false);
        check(
            "update",
            "coordination.k8s.io:leases",
            "kube-node-lease",
            "one",
            true,
        );
        check(
            "update",
            "coordination.k8s.io:leases",
            "kube-node-lease",
            "two",
            false,
        );
        check(
            "update",
            "coordination.k8s.io:leases",
            "default",
            "one",
            false,
        );
        check("get", "nodes", "", "one", true);
        check("get", "nodes", "", "two", false);
        check("delete", "nodes", "", "one", false);
        check("list", "services", "", "", true);
        check("create", "services", "n", "x", false);
        check("create", "authentication.k8s.io:tokenreviews", "", "", true);
    }

    #[test]
    fn pods_are_listed_with_the_selector_of_the_node() {
        let node = authorizer();
        let mut list = attributes("list", "pods", "", "");
        assert!(matches!(node.decide(&list), Decision::NoOpinion(_)));
        list.field_selector = "spec.nodeName=one".into();
        assert!(matches!(node.decide(&list), Decision::Allow(_)));
        list.field_selector = "spec.nodeName=two".into();
        assert!(matches!(node.decide(&list), Decision::NoOpinion(_)));
    }

    #[test]
    fn slices_of_other_nodes_are_not_accessible() {
        let node = authorizer();
        let slices = GroupResource::new("resource.k8s.io", "resourceslices");
        for (name, of) in [("mine", "one"), ("theirs", "two")] {
            let slice = json!({"metadata": {"name": name}, "spec": {"nodeName": of}});
            node.object_changed(&slices, &ObjectEvent::Applied(Arc::new(slice)));
        }
        let allows = |verb: &str, name: &str, selector: &str| {
            let mut request = attributes(verb, "resource.k8s.io:resourceslices", "", name);
            request.field_selector = selector.into();
            matches!(node.decide(&request), Decision::Allow(_))
        };
        for verb in ["get", "update", "patch", "delete"] {
            assert!(allows(verb, "mine", ""), "{verb}");
            assert!(
                !allows(verb, "theirs", "") && !allows(verb, "unknown", ""),
                "{verb}"
            );
        }
        for verb in ["list", "watch", "deletecollection"] {
            assert!(allows(verb, "", "spec.nodeName=one"), "{verb}");
            assert!(
                !allows(verb, "", "spec.nodeName=two") && !allows(verb, "", ""),
                "{verb}"
            );
            assert!(!allows(verb, "", "spec.nodeName!=one"), "{verb}");
        }
        assert!(allows("create", "", ""));
    }

    #[test]
    fn certificate_requests_of_other_nodes_are_not_accessible() {
        let node = authorizer();
        let path = "certificates.k8s.io:podcertificaterequests";
        let requests = GroupResource::new("certificates.k8s.io", "podcertificaterequests");
        for (name, of) in [("mine", "one"), ("theirs", "two"), ("gone", "one")] {
            let request =
                json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"nodeName": of}});
            let request = Arc::new(request);
            node.object_changed(&requests, &ObjectEvent::Applied(request.clone()));
            if name == "gone" {
                node.object_changed(&requests, &ObjectEvent::Deleted(request));
            }
        }
        let allows = |verb: &str, path: &str, namespace: &str, name: &str, selector: &str| {
            let mut request = attributes(verb, path, namespace, name);
            request.field_selector = selector.into();
            matches!(node.decide(&request), Decision::Allow(_))
        };
        assert!(allows("create", path, "n", "", ""));
        for (namespace, name, expect) in [
            ("n", "mine", true),
            ("m", "mine", false),
            ("n", "theirs", false),
            ("n", "gone", false),
            ("n", "", false),
        ] {
            assert_eq!(
                allows("get", path, namespace, name, ""),
                expect,
                "{namespace}/{name}"
            );
        }
        for verb in ["list", "watch"] {
            for (selector, expect) in [
                ("spec.nodeName=one", true),
                ("spec.nodeName=one,spec.podName=p", true),
                ("spec.nodeName=two", false),
                ("spec.nodeName!=one", false),
                ("metadata.name=mine", false),
                ("", false),
            ] {
                assert_eq!(
                    allows(verb, path, "", "", selector),
                    expect,
                    "{verb} {selector}"
                );
            }
        }
        for verb in ["update", "patch", "delete", "deletecollection"] {
            assert!(
                !allows(verb, path, "n", "mine", "spec.nodeName=one"),
                "{verb}"
            );
        }
        for verb in ["get", "update", "patch", "create"] {
            let status = format!("{path}/status");
            assert!(!allows(verb, &status, "n", "mine", ""), "{verb}");
        }
    }

    #[test]
    fn deleted_pod_ends_access_to_its_objects() {
        let node = authorizer();
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}});
        node.object_changed(
            &GroupResource::new("", "pods"),
            &ObjectEvent::Deleted(Arc::new(pod)),
        );
        assert_eq!(
            node.decide(&attributes("get", "secrets", "n", "mine")),
            Decision::NoOpinion("no relationship found between node 'one' and this object".into())
        );
    }

    fn reason_for(node: &NodeAuthorizer, request: &Attributes) -> String {
        match node.decide(request) {
            Decision::NoOpinion(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn mirror_pod_gives_its_node_no_access_to_secrets() {
        let node = NodeAuthorizer::new();
        let pod = json!({"metadata": {"name": "m", "namespace": "n", "annotations": {"kubernetes.io/config.mirror": "x"}},
            "spec": {"nodeName": "one", "volumes": [{"name": "v", "secret": {"secretName": "any"}}]}});
        node.object_changed(
            &GroupResource::new("", "pods"),
            &ObjectEvent::Applied(Arc::new(pod)),
        );
        assert!(matches!(
            node.decide(&attributes("get", "secrets", "n", "any")),
            Decision::NoOpinion(_)
        ));
    }

    #[test]
    fn secret_shared_by_two_pods_stays_reachable_until_both_are_deleted() {
        let node = NodeAuthorizer::new();
        let pods = GroupResource::new("", "pods");
        let pod = |name: &str| {
            Arc::new(json!({"metadata": {"name": name, "namespace": "n"},
                "spec": {"nodeName": "one", "imagePullSecrets": [{"name": "shared"}]}}))
        };
        let allowed = || {
            matches!(
                node.decide(&attributes("get", "secrets", "n", "shared")),
                Decision::Allow(_)
            )
        };
        for name in ["a", "b"] {
            node.object_changed(&pods, &ObjectEvent::Applied(pod(name)));
        }
        node.object_changed(&pods, &ObjectEvent::Deleted(pod("a")));
        assert!(allowed());
        node.object_changed(&pods, &ObjectEvent::Deleted(pod("b")));
        assert!(!allowed());
    }

    #[test]
    fn rejected_node_requests_give_upstreams_reason() {
        let node = authorizer();
        for (verb, resource, namespace, name, reason) in [
            (
                "update",
                "secrets",
                "n",
                "mine",
                "can only read resources of this type",
            ),
            (
                "list",
                "configmaps",
                "",
                "",
                "can only read namespaced object of this type",
            ),
            (
                "list",
                "persistentvolumes",
                "",
                "",
                "can only get individual resources of this type",
            ),
            ("list", "secrets", "n", "", "No Object name found"),
            (
                "get",
                "persistentvolumeclaims/status",
                "n",
                "claim",
                "can only get/update/patch this type",
            ),
            (
                "list",
                "coordination.k8s.io:leases",
                "kube-node-lease",
                "",
                "can only get, create, update, patch, or delete a node lease",
            ),
            (
                "get",
                "storage.k8s.io:csinodes",
                "",
                "two",
                "can only access CSINode with the same name as the requesting node",
            ),
            (
                "list",
                "nodes",
                "",
                "",
                "node 'one' cannot read all nodes, only its own Node object",
            ),
            (
                "get",
                "nodes",
                "",
                "two",
                "node 'one' cannot read 'two', only its own Node object",
            ),
            (
                "list",
                "pods",
                "",
                "",
                "can only list/watch pods with spec.nodeName field selector",
            ),
        ] {
            let request = attributes(verb, resource, namespace, name);
            assert_eq!(
                reason_for(&node, &request),
                reason,
                "{verb} {resource} {namespace}/{name}"
            );
        }
    }

    #[test]
    fn attachment_is_readable_by_its_node_only() {
        let node = NodeAuthorizer::new();
        let attachments = GroupResource::new("storage.k8s.io", "volumeattachments");
        for (name, of) in [("mine", "one"), ("theirs", "two")] {
            let attachment = json!({"metadata": {"name": name}, "spec": {"nodeName": of}});
            node.object_changed(&attachments, &ObjectEvent::Applied(Arc::new(attachment)));
        }
        for (name, expect) in [("mine", true), ("theirs", false)] {
            let request = attributes("get", "storage.k8s.io:volumeattachments", "", name);
            assert_eq!(
                matches!(node.decide(&request), Decision::Allow(_)),
                expect,
                "{name}"
            );
        }
    }

    #[test]
    fn node_group_without_a_node_name_gets_no_decision() {
        let node = authorizer();
        let mut request = attributes("get", "nodes", "", "one");
        request.user.name = "jane".into();
        assert_eq!(reason_for(&node, &request), "");
        request.user.name = "system:node:".into();
        assert_eq!(
            reason_for(&node, &request),
            "unknown node for user \"system:node:\""
        );
        request.user = User {
            name: "system:node:one".into(),
            ..User::default()
        };
        assert_eq!(reason_for(&node, &request), "");
    }
}
