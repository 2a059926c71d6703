//! Aggregated ClusterRoles: their rules are the union of the rules of other roles, selected by
//! label.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, labels, semantically_equal};

/// Returns the actions for one aggregated role.
pub fn aggregate_role(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Vec<Action> {
    let Some(aggregation) = &role.aggregation_rule else {
        return Vec::new();
    };
    let mut sources: Vec<&Arc<ClusterRole>> = Vec::new();
    for selector in aggregation.cluster_role_selectors.iter().flatten() {
        let mut found: Vec<_> = all
            .iter()
            .filter(|r| labels::labels_match(Some(selector), r.meta().labels.as_ref()))
            .collect();
        // Caches have no order: without sorting, the same rules would be written again and again in
        // another one.
        found.sort_by(|a, b| a.name().cmp(b.name()));
        sources.extend(found);
    }
    let mut rules: Vec<PolicyRule> = Vec::new();
    // A role that its own selector matches would keep every rule forever, also those that its
    // sources have lost.
    for source in sources.iter().filter(|s| s.name() != role.name()) {
        for rule in source.rules.iter().flatten() {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    let fresh = ClusterRole {
        rules: Some(rules),
        ..role.clone()
    };
    if semantically_equal(&fresh, role) {
        Vec::new()
    } else {
        vec![Action::update(&fresh)]
    }
}

struct Aggregation {
    roles: Cache<ClusterRole>,
}

/// Sets up ClusterRole aggregation.
pub fn add_role_aggregation(setup: &mut Setup) {
    let queue = Queue::new();
    let kind = setup.informers.for_kind::<ClusterRole>();
    let roles = kind.cache();
    let (waiting, known) = (queue.clone(), roles.clone());
    let _ = kind.on_event(move |event| {
        let changed = event.object();
        if changed.aggregation_rule.is_some() {
            waiting.add(changed.name().to_owned());
        }
        // Selectors are not indexed: aggregated roles are few, and each may select any role.
        let aggregated = known
            .list()
            .into_iter()
            .filter(|r| r.aggregation_rule.is_some());
        aggregated.for_each(|r| waiting.add(r.name().to_owned()));
    });
    setup.add_reconciler(
        "clusterrole-aggregation-controller",
        1,
        queue,
        Aggregation { roles },
    );
}

impl Decide for Aggregation {
    fn reconcile(&self, key: &str, _now: Timestamp) -> Vec<Action> {
        self.roles
            .get(key)
            .map(|role| aggregate_role(&role, &self.roles.list()))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_rules_of_selected_roles_are_aggregated_once() {
        let role = |name: &str, label: bool, verb: &str| -> Arc<ClusterRole> {
            Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "labels": if label { json!({"to-view": "true"}) } else { json!({}) }},
                "rules": [{"verbs": [verb], "resources": ["pods"], "apiGroups": [""]}]})).unwrap())
        };
        let view: ClusterRole =
            serde_json::from_value(json!({"metadata": {"name": "view"}, "aggregationRule": {
            "clusterRoleSelectors": [{"matchLabels": {"to-view": "true"}}]}}))
            .unwrap();
        let all = [
            role("a", true, "get"),
            role("b", true, "get"),
            role("c", false, "delete"),
        ];
        let got = aggregate_role(&view, &all);
        let done: ClusterRole =
            serde_json::from_value(got[0].as_write().unwrap().body.clone()).unwrap();
        assert_eq!(done.rules.as_ref().unwrap().len(), 1);
        assert!(aggregate_role(&done, &all).is_empty());
    }

    fn parse_role(tree: serde_json::Value) -> ClusterRole {
        serde_json::from_value(tree).unwrap()
    }

    #[test]
    fn role_without_an_aggregation_rule_keeps_its_rules() {
        let role = parse_role(json!({"metadata": {"name": "own"}, "rules": [{"verbs": ["get"]}]}));
        assert!(aggregate_role(&role, &[]).is_empty());
    }

    #[test]
    fn role_that_selects_itself_does_not_keep_old_rules() {
        let role = parse_role(
            json!({"metadata": {"name": "view", "labels": {"to-view": "true"}},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to-view": "true"}}]},
            "rules": [{"verbs": ["delete"]}]}),
        );
        let got = aggregate_role(&role, &[Arc::new(role.clone())]);
        let rules = &got[0].as_write().unwrap().body["rules"];
        assert!(rules.as_array().is_none_or(Vec::is_empty), "{rules}");
    }

    #[test]
    fn rules_follow_the_order_of_selectors_and_names() {
        let source = |name: &str, label: &str| {
            Arc::new(parse_role(
                json!({"metadata": {"name": name, "labels": {"part": label}},
                "rules": [{"verbs": [name]}]}),
            ))
        };
        let role = parse_role(json!({"metadata": {"name": "all"}, "aggregationRule": {
            "clusterRoleSelectors": [{"matchLabels": {"part": "second"}},
                {"matchLabels": {"part": "first"}}]}}));
        let all = [
            source("z", "first"),
            source("b", "second"),
            source("a", "second"),
        ];
        let got = aggregate_role(&role, &all);
        let rules = got[0].as_write().unwrap().body["rules"].clone();
        let verbs: Vec<_> = rules
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["verbs"][0].clone())
            .collect();
        assert_eq!(verbs, ["a", "b", "z"]);
    }
}
