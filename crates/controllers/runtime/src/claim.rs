//! Adoption and release: objects belong to a controller by selector and owner reference.
//!
//! An orphan that matches is adopted, an owned object that no longer matches is released, and
//! objects of other controllers are not touched. A controller whose deletion was requested changes
//! nothing; before the first adoption it is read from the API server, because the cache may not
//! show the deletion yet.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::json;

use crate::action::Action;
use crate::labels;
use api_semantics::owners::controller_reference;

use crate::object::{Meta, Object, Target};

/// The owned objects, and the patches that adopt and release.
pub struct Claim<K> {
    /// Objects that the owner owns once the actions are performed.
    pub owned: Vec<Arc<K>>,
    /// Adoptions and releases.
    pub actions: Vec<Action>,
}

/// Sorts `candidates` into owned and foreign objects. `adoptable` can exclude an orphan (a
/// StatefulSet adopts only pods with its own names).
pub fn claim<O: Object, K: Object>(
    owner: &O,
    selector: &LabelSelector,
    candidates: &[Arc<K>],
    adoptable: impl Fn(&K) -> bool,
    finalizers: &[&str],
) -> Claim<K> {
    let mut out = Claim {
        owned: Vec::new(),
        actions: Vec::new(),
    };
    let mut confirmed = false;
    for item in candidates {
        let matched =
            labels::labels_match(Some(selector), item.meta().labels.as_ref()) && adoptable(item);
        match item.controller() {
            Some(r) if r.uid != owner.uid() => {}
            Some(_) if matched => out.owned.push(item.clone()),
            Some(_) => {
                if !owner.deleting() {
                    out.actions.push(release(owner, item.as_ref()));
                }
            }
            None => {
                if matched && !owner.deleting() && !item.deleting() && !labels::is_empty(selector) {
                    if !confirmed {
                        out.actions.push(Action::Confirm(Target::of(owner)));
                        confirmed = true;
                    }
                    out.actions.push(adopt(owner, item.as_ref(), finalizers));
                    out.owned.push(item.clone());
                }
            }
        }
    }
    out
}

fn adopt<O: Object, K: Object>(owner: &O, item: &K, finalizers: &[&str]) -> Action {
    let mut meta = json!({ "uid": item.uid(), "ownerReferences": [controller_reference(owner)] });
    if !finalizers.is_empty() {
        meta["finalizers"] = json!(finalizers);
    }
    Action::strategic(Target::of(item), json!({ "metadata": meta })).ignore_absent()
}

fn release<O: Object, K: Object>(owner: &O, item: &K) -> Action {
    let drop = json!({ "$patch": "delete", "uid": owner.uid() });
    Action::strategic(
        Target::of(item),
        json!({ "metadata": { "uid": item.uid(), "ownerReferences": [drop] } }),
    )
    .ignore_absent()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::Pod;

    fn pod(name: &str, app: &str, owner: Option<&str>) -> Arc<Pod> {
        let refs = owner.map(
            |uid| json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": uid, "controller": true}]),
        );
        Arc::new(
            serde_json::from_value(
                json!({"metadata": {"name": name, "namespace": "n", "uid": name,
            "labels": {"app": app}, "ownerReferences": refs}}),
            )
            .unwrap(),
        )
    }

    #[test]
    fn takes_orphans_and_lets_go_of_strays() {
        let rs: ReplicaSet = serde_json::from_value(json!({"metadata": {"name": "r", "namespace": "n", "uid": "r"}, "spec": {"selector": {"matchLabels": {"app": "a"}}}})).unwrap();
        let selector = rs.spec.clone().unwrap().selector;
        let pods = [
            pod("mine", "a", Some("r")),
            pod("orphan", "a", None),
            pod("stray", "b", Some("r")),
            pod("foreign", "a", Some("q")),
            pod("other", "b", None),
        ];
        let got = claim(&rs, &selector, &pods, |_| true, &[]);
        let names: Vec<_> = got.owned.iter().map(|p| p.name()).collect();
        assert_eq!(names, ["mine", "orphan"]);
        let actions = crate::action::describe(&got.actions);
        assert_eq!(
            actions,
            [
                "confirm ReplicaSet r",
                "patch Pod orphan",
                "patch Pod stray"
            ]
        );
    }
}
