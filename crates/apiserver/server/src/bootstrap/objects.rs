//! Namespaces, priority classes, flow control and the default ServiceCIDR.

use super::{cluster_authentication_trust, create_missing, find_resource};
use crate::options::ServerOptions;
use crate::server::Server;
use api_kinds::Resource;
use api_meta::{ApiError, Meta, time};
use apiserver_registry::{Mode, Update, Write};
use futures::FutureExt;
use futures::future::try_join_all;
use serde_json::{Value, json};
use std::sync::Arc;

const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];

/// Creates the system namespaces.
pub async fn ensure_namespaces(server: &Server) -> Result<(), ApiError> {
    let spaces = NAMESPACES
        .iter()
        .map(|name| json!({"metadata": {"name": name}}))
        .collect();
    all_missing(server, find_resource("", "namespaces")?, spaces).await
}

/// Creates all other objects; needs the namespaces.
pub async fn ensure_objects(server: &Server, options: &ServerOptions) -> Result<(), ApiError> {
    let (classes, schemas, levels) = (
        find_resource("scheduling.k8s.io", "priorityclasses")?,
        find_resource("flowcontrol.apiserver.k8s.io", "flowschemas")?,
        find_resource(
            "flowcontrol.apiserver.k8s.io",
            "prioritylevelconfigurations",
        )?,
    );
    let parts = [
        all_missing(server, classes, priority_classes()).boxed(),
        all_missing(server, levels, priority_levels()).boxed(),
        all_missing(server, schemas, flow_schemas()).boxed(),
        service_cidr(server, options).boxed(),
        cluster_authentication_trust::ensure_authentication_info(server, options).boxed(),
    ];
    try_join_all(parts).await.map(|_| ())
}

/// Creates the missing objects concurrently.
async fn all_missing(
    server: &Server,
    resource: &Arc<Resource>,
    objects: Vec<Value>,
) -> Result<(), ApiError> {
    let each: Vec<_> = objects
        .into_iter()
        .map(|object| create_missing(server, resource, object).boxed())
        .collect();
    try_join_all(each).await.map(|_| ())
}

fn priority_classes() -> Vec<Value> {
    let class = |name: &str, value: i64, about: &str| {
        json!({"metadata": {"name": name}, "value": value,
            "description": format!("Used for system critical pods that {about}.")})
    };
    vec![
        class(
            "system-node-critical",
            // Above HighestUserDefinablePriority (10^9), so that no user's pod can preempt these.
            2_000_001_000,
            "must not be moved from their current node",
        ),
        class(
            "system-cluster-critical",
            2_000_000_000,
            "must run in the cluster, but can be moved to another node if necessary",
        ),
    ]
}

fn priority_levels() -> Vec<Value> {
    // Upstream's values: this server has no queues, but stock servers beside it obey the same
    // objects.
    let hands = |queues: i64, hand: i64| json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50}});
    let queues = |queues: i64| hands(queues, 6);
    let limited = |name: &str, shares: i64, lendable: i64, response: Value| {
        json!({"metadata": {"name": name, "annotations": auto_limit_response()}, "spec": {"type": "Limited",
            "limited": {"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response}}})
    };
    let exempt = json!({"metadata": {"name": "exempt", "annotations": auto_limit_response()},
        "spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}});
    vec![
        exempt,
        limited("catch-all", 5, 0, json!({"type": "Reject"})),
        limited("global-default", 20, 50, queues(128)),
        limited("leader-election", 10, 0, hands(16, 4)),
        limited("node-high", 40, 25, queues(64)),
        limited("system", 30, 33, queues(64)),
        limited("workload-high", 40, 50, queues(128)),
        limited("workload-low", 100, 90, queues(128)),
    ]
}

fn auto_limit_response() -> Value {
    // Stock servers update the spec only of objects with this annotation.
    json!({"apf.kubernetes.io/autoupdate-spec": "true"})
}

/// The parts of a flow schema beside its rule.
struct FlowSchemaBuilder {
    name: &'static str,
    level: &'static str,
    precedence: i64,
    distinguisher: Option<&'static str>,
}

impl FlowSchemaBuilder {
    fn new(name: &'static str, level: &'static str, precedence: i64) -> Self {
        Self {
            name,
            level,
            precedence,
            distinguisher: None,
        }
    }

    fn by_user(self) -> Self {
        Self {
            distinguisher: Some("ByUser"),
            ..self
        }
    }

    fn by_namespace(self) -> Self {
        Self {
            distinguisher: Some("ByNamespace"),
            ..self
        }
    }

    /// Returns the object that matches all requests of the subjects.
    fn build_for_subjects(&self, subjects: Value) -> Value {
        self.build_for_rule(json!({"resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true,
            "namespaces": ["*"]}], "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}], "subjects": subjects}))
    }

    /// Returns the object that matches the requests of a rule.
    fn build_for_rule(&self, rule: Value) -> Value {
        let mut spec = json!({"priorityLevelConfiguration": {"name": self.level}, "matchingPrecedence": self.precedence,
            "rules": [rule]});
        if let Some(method) = self.distinguisher {
            spec["distinguisherMethod"] = json!({"type": method});
        }
        json!({"metadata": {"name": self.name, "annotations": auto_limit_response()}, "spec": spec})
    }
}

fn build_group_subjects(names: &[&str]) -> Value {
    names
        .iter()
        .map(|name| json!({"kind": "Group", "group": {"name": name}}))
        .collect()
}

fn build_user_subject(name: &str) -> Value {
    json!({"kind": "User", "user": {"name": name}})
}

/// Returns the subject that matches all ServiceAccounts of `kube-system`.
fn build_account_subject() -> Value {
    json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}})
}

fn build_lease_rule(verbs: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]})
}

/// The groups of all users, with and without credentials.
const EVERYONE: [&str; 2] = ["system:unauthenticated", "system:authenticated"];

fn flow_schemas() -> Vec<Value> {
    // Names, levels and precedences are those of upstream's bootstrap configuration.
    let exempt = FlowSchemaBuilder::new("exempt", "exempt", 1);
    let mut schemas = vec![exempt.build_for_subjects(build_group_subjects(&["system:masters"]))];
    schemas.extend(build_selective_schemas());
    schemas.extend(build_component_schemas());
    schemas.extend(build_general_schemas());
    schemas
}

/// Returns the flow schemas of probes, leader elections and heartbeats.
fn build_selective_schemas() -> [Value; 3] {
    // Probes come without credentials, and a kubelet that gets no response restarts the server.
    let probes = FlowSchemaBuilder::new("probes", "exempt", 2).build_for_rule(
        json!({"subjects": build_group_subjects(&EVERYONE), "nonResourceRules": [{"verbs": ["get"],
        "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]}),
    );
    let leaders = json!([
        build_user_subject("system:kube-controller-manager"),
        build_user_subject("system:kube-scheduler"),
        build_account_subject()
    ]);
    let leases = build_lease_rule(&["get", "create", "update"]);
    let elections = FlowSchemaBuilder::new("system-leader-election", "leader-election", 100)
        .by_user()
        .build_for_rule(json!({"subjects": leaders, "resourceRules": [leases]}));
    let nodes = json!({"verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"], "clusterScope": true,
        "namespaces": ["*"]});
    // Above other requests of nodes: a heartbeat that is late marks a node as not ready.
    let heartbeats = FlowSchemaBuilder::new("system-node-high", "node-high", 400)
        .by_user()
        .build_for_rule(
            json!({"subjects": build_group_subjects(&["system:nodes"]), "resourceRules": [nodes, build_lease_rule(&["*"])]}),
        );
    [probes, elections, heartbeats]
}

/// Returns the flow schemas of the cluster's own components.
fn build_component_schemas() -> [Value; 4] {
    let workload = |name, precedence, subject: Value| {
        FlowSchemaBuilder::new(name, "workload-high", precedence)
            .by_namespace()
            .build_for_subjects(json!([subject]))
    };
    [
        workload(
            "kube-controller-manager",
            800,
            build_user_subject("system:kube-controller-manager"),
        ),
        workload(
            "kube-scheduler",
            800,
            build_user_subject("system:kube-scheduler"),
        ),
        workload("kube-system-service-accounts", 900, build_account_subject()),
        FlowSchemaBuilder::new("system-nodes", "system", 500)
            .by_user()
            .build_for_subjects(build_group_subjects(&["system:nodes"])),
    ]
}

/// Returns the flow schemas of all other requests.
fn build_general_schemas() -> [Value; 3] {
    let row = |name, level, precedence, groups: &[&str]| {
        FlowSchemaBuilder::new(name, level, precedence)
            .by_user()
            .build_for_subjects(build_group_subjects(groups))
    };
    [
        row(
            "service-accounts",
            "workload-low",
            9000,
            &["system:serviceaccounts"],
        ),
        row("global-default", "global-default", 9900, &EVERYONE),
        row("catch-all", "catch-all", 10000, &EVERYONE),
    ]
}

/// Creates the ServiceCIDR `kubernetes` with the ranges of the flag and the condition Ready.
async fn service_cidr(server: &Server, options: &ServerOptions) -> Result<(), ApiError> {
    let resource = find_resource("networking.k8s.io", "servicecidrs")?;
    let cidrs: Vec<String> = options
        .service_cluster_ip_range
        .iter()
        .map(ToString::to_string)
        .collect();
    create_missing(
        server,
        resource,
        json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": cidrs}}),
    )
    .await?;
    let now = time::now();
    let change = move |old: &Value| Ok(complete_service_cidr(old, &cidrs, &now));
    let mut write = Write::internal(resource, "", "kubernetes");
    let update = Update {
        change: &change,
        replaces: false,
        mode: Mode::Raw,
    };
    server
        .registry
        .update(&mut write, &update)
        .await
        .map(|_| ())
}

/// Adds the second range of a cluster that has become dual-stack. Adds the condition Ready if the
/// ServiceCIDR has the ranges of the flag and no such condition.
fn complete_service_cidr(old: &Value, cidrs: &[String], now: &str) -> Value {
    let mut new = old.clone();
    let known = old.pointer("/spec/cidrs").and_then(Value::as_array);
    // Addresses of the first range are in use, so only a second one may be added.
    if known.is_some_and(|known| known.len() == 1 && known.first() == json!(cidrs).get(0)) {
        new["spec"]["cidrs"] = json!(cidrs);
    }
    let conditions = old
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let is_decided = conditions
        .iter()
        .any(|c| c["type"] == "Ready" && c["status"] != "Unknown");
    // The condition of a deletion is that of the controller manager.
    if is_decided || old.is_being_deleted() || new["spec"]["cidrs"] != json!(cidrs) {
        return new;
    }
    let others = conditions.into_iter().filter(|c| c["type"] != "Ready");
    let ready = json!({"type": "Ready", "status": "True", "reason": "",
        "message": "Kubernetes default Service CIDR is ready", "lastTransitionTime": now});
    new["status"]["conditions"] = others.chain([ready]).collect();
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_service_cidr_gets_a_second_range_and_becomes_ready() {
        const NOW: &str = "2026-01-01T00:00:00Z";
        let (four, six) = ("10.0.0.0/24", "2001:db8::/112");
        let ready = json!({"type": "Ready", "status": "True", "reason": "",
            "message": "Kubernetes default Service CIDR is ready", "lastTransitionTime": NOW});
        let blocked = json!({"type": "Ready", "status": "False"});
        let unknown = json!({"type": "Ready", "status": "Unknown"});
        let other = json!({"type": "Other", "status": "False"});
        for (old, conditions, flag, cidrs, expect) in [
            (
                &[four][..],
                json!([]),
                &[four][..],
                &[four][..],
                json!([ready]),
            ),
            (
                &[four],
                json!([other]),
                &[four],
                &[four],
                json!([other, ready]),
            ),
            (&[four], json!([unknown]), &[four], &[four], json!([ready])),
            (
                &[four],
                json!([blocked]),
                &[four],
                &[four],
                json!([blocked]),
            ),
            (
                &[four],
                json!([]),
                &[four, six],
                &[four, six],
                json!([ready]),
            ),
            (
                &[four],
                json!([blocked]),
                &[four, six],
                &[four, six],
                json!([blocked]),
            ),
            // The flag names other ranges.
            (&[four], json!([]), &[six], &[four], json!([])),
            (&[four], json!([]), &[six, four], &[four], json!([])),
            (&[four, six], json!([]), &[four], &[four, six], json!([])),
        ] {
            let flag: Vec<String> = flag.iter().map(|&cidr| cidr.to_owned()).collect();
            let old = json!({"spec": {"cidrs": old}, "status": {"conditions": conditions}});
            let new = complete_service_cidr(&old, &flag, NOW);
            assert_eq!(new["spec"]["cidrs"], json!(cidrs), "{old} {flag:?}");
            assert_eq!(new["status"]["conditions"], expect, "{old} {flag:?}");
        }
        let deleted = json!({"metadata": {"deletionTimestamp": NOW}, "spec": {"cidrs": [four]}});
        let flag = [four.to_owned()];
        assert_eq!(complete_service_cidr(&deleted, &flag, NOW), deleted);
    }
}
