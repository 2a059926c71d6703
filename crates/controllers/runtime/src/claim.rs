//! Adoption and release: objects belong to a controller by selector and owner reference.
//!
//! An orphan that matches is adopted, an owned object that no longer matches is released, and
//! objects of other controllers are not touched. A controller whose deletion was requested changes
//! nothing; before the first adoption it is read from the API server, because the cache may not
//! show the deletion yet.

use std::sync::Arc;

use api_semantics::owners::controller_reference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::json;

use crate::action::Action;
use crate::labels;
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
pub fn claim_objects<O: Object, K: Object>(
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
            // An object has at most one controller. Labels never outweigh its owner reference.
            Some(r) if r.uid != owner.uid() => {}
            Some(_) if matched => out.owned.push(item.clone()),
            Some(_) => {
                // The garbage collector finds the dependents of a deleted owner by these
                // references, so they stay.
                if !owner.is_deleting() {
                    out.actions.push(release_patch(owner, item.as_ref()));
                }
            }
            None => {
                if matched
                    && !owner.is_deleting()
                    && !item.is_deleting()
                    && !labels::is_empty(selector)
                {
                    // Once for all adoptions of this reconcile: one read from the API server.
                    if !confirmed {
                        out.actions.push(Action::Confirm(Target::of(owner)));
                        confirmed = true;
                    }
                    out.actions
                        .push(adoption_patch(owner, item.as_ref(), finalizers));
                    out.owned.push(item.clone());
                }
            }
        }
    }
    out
}

fn adoption_patch<O: Object, K: Object>(owner: &O, item: &K, finalizers: &[&str]) -> Action {
    // With its UID the patch fails with a conflict if another object has the name by now.
    let mut meta = json!({ "uid": item.uid(), "ownerReferences": [controller_reference(owner)] });
    if !finalizers.is_empty() {
        // Finalizers are merged by a strategic patch, so those of other controllers stay.
        meta["finalizers"] = json!(finalizers);
    }
    Action::strategic(Target::of(item), json!({ "metadata": meta })).ignore_absent()
}

fn release_patch<O: Object, K: Object>(owner: &O, item: &K) -> Action {
    // A strategic merge patch by UID removes this reference only. A list would undo changes of
    // other controllers.
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
        let got = claim_objects(&rs, &selector, &pods, |_| true, &[]);
        let names: Vec<_> = got.owned.iter().map(|p| p.name()).collect();
        assert_eq!(names, ["mine", "orphan"]);
        let actions = crate::action::describe_actions(&got.actions);
        assert_eq!(
            actions,
            [
                "confirm ReplicaSet r",
                "patch Pod orphan",
                "patch Pod stray"
            ]
        );
    }

    fn owner(deleting: bool) -> ReplicaSet {
        serde_json::from_value(
            json!({"metadata": {"name": "r", "namespace": "n", "uid": "r",
            "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z")},
            "spec": {"selector": {"matchLabels": {"app": "a"}}}}),
        )
        .unwrap()
    }

    #[test]
    fn owner_in_deletion_adopts_and_releases_nothing() {
        let owner = owner(true);
        let selector = owner.spec.clone().unwrap().selector;
        let pods = [pod("orphan", "a", None), pod("stray", "b", Some("r"))];
        let got = claim_objects(&owner, &selector, &pods, |_| true, &[]);
        assert!(got.owned.is_empty() && got.actions.is_empty());
    }

    #[test]
    fn orphan_in_deletion_is_not_adopted() {
        let owner = owner(false);
        let selector = owner.spec.clone().unwrap().selector;
        let mut orphan = pod("orphan", "a", None);
        Arc::make_mut(&mut orphan).metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).ok();
        let got = claim_objects(&owner, &selector, &[orphan], |_| true, &[]);
        assert!(got.owned.is_empty() && got.actions.is_empty());
    }

    #[test]
    fn empty_selector_adopts_nothing() {
        let pods = [pod("orphan", "a", None)];
        let got = claim_objects(
            &owner(false),
            &LabelSelector::default(),
            &pods,
            |_| true,
            &[],
        );
        assert!(got.owned.is_empty() && got.actions.is_empty());
    }

    #[test]
    fn adoption_adds_the_finalizers_of_the_owner() {
        let owner = owner(false);
        let selector = owner.spec.clone().unwrap().selector;
        let pods = [pod("orphan", "a", None)];
        let got = claim_objects(&owner, &selector, &pods, |_| true, &["example.com/count"]);
        let patch = &got.actions[1].as_write().unwrap().body;
        assert_eq!(
            patch["metadata"]["finalizers"],
            json!(["example.com/count"])
        );
        assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "r");
    }
}
