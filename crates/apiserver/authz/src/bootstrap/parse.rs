//! Parses the policy text into objects.

use super::{AUTOUPDATE, POLICY};
use crate::rbac::GROUP;
use serde_json::{Map, Value, json};

const CONTROLLER: &str = "system:controller:";

/// Word that limits an object, or a rule, to an enabled feature gate.
const GATE: &str = "gate=";

/// Returns all bootstrap objects as (resource, object), roles before bindings. `is_enabled` returns
/// true for the names of enabled feature gates.
pub fn bootstrap_objects(is_enabled: impl Fn(&str) -> bool) -> Vec<(&'static str, Value)> {
    let mut roles: Vec<(&'static str, Value)> = Vec::new();
    let mut bindings = Vec::new();
    // True while the rules belong to an object that is left out.
    let mut is_left_out = false;
    for line in POLICY
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let gate = words.last().and_then(|word| word.strip_prefix(GATE));
        if gate.is_some() {
            words.pop();
        }
        let is_off = gate.is_some_and(|gate| !is_enabled(gate));
        if !line.starts_with(' ') {
            is_left_out = is_off;
        }
        if is_off || is_left_out {
            continue;
        }
        match (line.starts_with(' '), words.as_slice()) {
            (true, words) => add_rule(roles.last_mut(), words),
            (false, ["clusterrole", name, options @ ..]) => {
                roles.push(("clusterroles", cluster_role(name, options)))
            }
            // Each controller has an account, a role and a binding of the same name.
            (false, ["controller", name]) => {
                let role = format!("{CONTROLLER}{name}");
                roles.push(("clusterroles", cluster_role(&role, &[])));
                let account = format!("sa:kube-system/{name}");
                bindings.push((
                    "clusterrolebindings",
                    role_binding("", &role, "ClusterRole", &role, &[&account]),
                ));
            }
            (false, ["role", namespace, name]) => {
                roles.push(("roles", rbac_object("Role", namespace, name)))
            }
            (false, ["bindcluster", name, role, subjects @ ..]) => {
                bindings.push((
                    "clusterrolebindings",
                    role_binding("", name, "ClusterRole", role, subjects),
                ));
            }
            (false, ["bind", namespace, name, role, subjects @ ..]) => {
                let (kind, role) = role.split_once('/').unwrap_or(("Role", role));
                bindings.push((
                    "rolebindings",
                    role_binding(namespace, name, kind, role, subjects),
                ));
            }
            // No input reaches this: the text is compiled in.
            _ => unreachable!("the policy text is part of this program: {line}"),
        }
    }
    // A binding is created after its role, so that it never names a missing one.
    roles.extend(bindings);
    roles
}

fn rbac_object(kind: &str, namespace: &str, name: &str) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".into(), name.into());
    if !namespace.is_empty() {
        metadata.insert("namespace".into(), namespace.into());
    }
    metadata.insert(
        "labels".into(),
        // Administrators and tools recognize the default objects by this label.
        json!({"kubernetes.io/bootstrapping": "rbac-defaults"}),
    );
    metadata.insert("annotations".into(), json!({AUTOUPDATE: "true"}));
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata})
}

fn aggregation_label(part: &str) -> String {
    format!("{GROUP}/aggregate-to-{part}")
}

fn cluster_role(name: &str, options: &[&str]) -> Value {
    let mut role = rbac_object("ClusterRole", "", name);
    role["rules"] = Value::Array(Vec::new());
    for option in options {
        if let Some(part) = option.strip_prefix("collects=") {
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {aggregation_label(part): "true"}}]});
            // A controller fills the rules of an aggregated role.
            role["rules"] = Value::Null;
        }
        for part in option
            .strip_prefix("into=")
            .into_iter()
            .flat_map(|p| p.split(','))
        {
            role["metadata"]["labels"][aggregation_label(part)] = "true".into();
        }
    }
    role
}

fn add_rule(role: Option<&mut (&'static str, Value)>, words: &[&str]) {
    let split = |text: &str| -> Vec<String> { text.split(',').map(str::to_owned).collect() };
    let rule = match words {
        [verbs, "url", paths] => json!({"verbs": split(verbs), "nonResourceURLs": split(paths)}),
        [verbs, groups, resources, names @ ..] => {
            // The empty name of the core group can not be written as a word.
            let groups = groups.split(',').map(|g| if g == "core" { "" } else { g });
            let groups: Vec<&str> = groups.collect();
            let mut rule =
                json!({"verbs": split(verbs), "apiGroups": groups, "resources": split(resources)});
            if let [names] = names {
                rule["resourceNames"] = json!(split(names.trim_start_matches('=')));
            }
            rule
        }
        _ => return,
    };
    if let Some((_, role)) = role {
        match role.get_mut("rules").and_then(Value::as_array_mut) {
            Some(rules) => rules.push(rule),
            None => role["rules"] = json!([rule]),
        }
    }
}

fn role_binding(namespace: &str, name: &str, kind: &str, role: &str, subjects: &[&str]) -> Value {
    let mut binding = rbac_object(
        if namespace.is_empty() {
            "ClusterRoleBinding"
        } else {
            "RoleBinding"
        },
        namespace,
        name,
    );
    binding["roleRef"] = json!({"apiGroup": GROUP, "kind": kind, "name": role});
    let subjects: Vec<Value> = subjects.iter().filter_map(|s| parse_subject(s)).collect();
    if !subjects.is_empty() {
        binding["subjects"] = Value::Array(subjects);
    }
    binding
}

fn parse_subject(text: &str) -> Option<Value> {
    let (kind, name) = text.split_once(':')?;
    Some(match kind {
        "user" => json!({"apiGroup": GROUP, "kind": "User", "name": name}),
        "group" => json!({"apiGroup": GROUP, "kind": "Group", "name": name}),
        _ => {
            let (namespace, name) = name.split_once('/')?;
            json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_holds_upstreams_number_of_roles_and_bindings() {
        let all = bootstrap_objects(|_| false);
        let count = |resource: &str| all.iter().filter(|(r, _)| *r == resource).count();
        assert_eq!(
            (
                count("clusterroles"),
                count("clusterrolebindings"),
                count("roles"),
                count("rolebindings")
            ),
            (70, 51, 7, 7)
        );
        let admin = all.iter().find(|(_, o)| o["metadata"]["name"] == "admin");
        assert!(admin.is_some_and(
            |(_, o)| o["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"]
                [aggregation_label("admin")]
                == "true"
        ));
        let masters = all
            .iter()
            .find(|(r, o)| *r == "clusterrolebindings" && o["metadata"]["name"] == "cluster-admin");
        assert!(masters.is_some_and(|(_, o)| o["subjects"][0]["name"] == "system:masters"));
    }

    #[test]
    fn gate_adds_its_roles_bindings_and_rules() {
        let names = |gate: &str| {
            let objects = bootstrap_objects(|name| name == gate);
            let name = |(resource, object): &(&str, Value)| {
                format!("{resource} {}", object["metadata"]["name"])
            };
            objects.iter().map(name).collect::<Vec<_>>()
        };
        let without = names("");
        for (gate, expect) in [
            (
                "ClusterTrustBundle",
                &[
                    "clusterroles \"system:cluster-trust-bundle-discovery\"",
                    "clusterroles \"system:controller:kube-apiserver-serving-clustertrustbundle-publisher\"",
                    "clusterrolebindings \"system:controller:kube-apiserver-serving-clustertrustbundle-publisher\"",
                    "clusterrolebindings \"system:cluster-trust-bundle-discovery\"",
                ][..],
            ),
            (
                "GenericWorkload",
                &[
                    "clusterroles \"system:controller:podgroup-protection-controller\"",
                    "clusterrolebindings \"system:controller:podgroup-protection-controller\"",
                ],
            ),
            (
                "PodCertificateRequest",
                &[
                    "clusterroles \"system:controller:podcertificaterequestcleaner\"",
                    "clusterrolebindings \"system:controller:podcertificaterequestcleaner\"",
                ],
            ),
            (
                "StorageVersionMigrator",
                &[
                    "clusterroles \"system:controller:storage-version-migrator-controller\"",
                    "clusterrolebindings \"system:controller:storage-version-migrator-controller\"",
                ],
            ),
        ] {
            let mut added = names(gate);
            added.retain(|name| !without.contains(name));
            assert_eq!(added, expect, "{gate}");
        }
        let count_rules = |is_on: bool| {
            let objects = bootstrap_objects(|_| is_on);
            let node = objects
                .iter()
                .find(|(_, o)| o["metadata"]["name"] == "system:node");
            node.and_then(|(_, node)| node["rules"].as_array().map(Vec::len))
        };
        assert_eq!(count_rules(false).map(|count| count + 2), count_rules(true));
    }
}
