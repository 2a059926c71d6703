#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use controllers_runtime::describe_actions;

#[derive(Default)]
struct Objects {
    claims: Vec<Arc<ResourceClaim>>,
    templates: Vec<Arc<ResourceClaimTemplate>>,
}

impl PodView for Objects {
    fn claim(&self, name: &str) -> Option<Arc<ResourceClaim>> {
        self.claims
            .iter()
            .find(|claim| claim.name() == name)
            .cloned()
    }

    fn owned_claims(&self, uid: &str) -> Vec<Arc<ResourceClaim>> {
        let owned = self
            .claims
            .iter()
            .filter(|claim| claim.is_controlled_by(uid));
        owned.cloned().collect()
    }

    fn template(&self, name: &str) -> Option<Arc<ResourceClaimTemplate>> {
        let mut all = self.templates.iter();
        all.find(|template| template.name() == name).cloned()
    }
}

/// Returns a pod with one claim from the template `t` and one named `shared`.
fn pod(status: Value) -> Pod {
    serde_json::from_value(
        json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"containers": [], "resourceClaims": [
            {"name": "gpu", "resourceClaimTemplateName": "t"},
            {"name": "net", "resourceClaimName": "shared"}]},
        "status": status}),
    )
    .unwrap()
}

fn template() -> Arc<ResourceClaimTemplate> {
    let object = json!({"metadata": {"name": "t", "namespace": "n"},
        "spec": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}}});
    Arc::new(serde_json::from_value(object).unwrap())
}

fn generated(name: &str, owner: &str) -> Arc<ResourceClaim> {
    let object = json!({"metadata": {"name": name, "namespace": "n",
        "annotations": {POD_CLAIM_ANNOTATION: "gpu"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true}]},
        "spec": {}});
    Arc::new(serde_json::from_value(object).unwrap())
}

#[test]
fn missing_claim_is_made_from_its_template_and_owned_by_the_pod() {
    let view = Objects {
        templates: vec![template()],
        ..Objects::default()
    };
    let got = reconcile_pod(&pod(json!({})), &view);
    assert_eq!(describe_actions(&got), ["create ResourceClaim p-gpu-"]);
    let claim = &got[0].as_write().unwrap().body;
    assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], "u");
    assert_eq!(claim["metadata"]["labels"]["a"], "b");
    assert_eq!(
        claim["metadata"]["annotations"],
        json!({"c": "d", POD_CLAIM_ANNOTATION: "gpu"})
    );
    let request = &claim["spec"]["devices"]["requests"][0];
    assert_eq!(request["exactly"]["deviceClassName"], "c");
}

#[test]
fn missing_template_is_reported_as_an_event() {
    let got = describe_actions(&reconcile_pod(&pod(json!({})), &Objects::default()));
    let want = "event FailedResourceClaimCreation PodResourceClaim gpu: \
        resource claim template \"t\" not found";
    assert_eq!(got, [want]);
}

#[test]
fn made_claim_is_recorded_in_the_status_of_its_pod_only() {
    for (owner, expect) in [
        ("u", "status Pod p"),
        ("other", "create ResourceClaim p-gpu-"),
    ] {
        let view = Objects {
            claims: vec![generated("p-gpu-x", owner)],
            templates: vec![template()],
        };
        let got = reconcile_pod(&pod(json!({})), &view);
        assert_eq!(describe_actions(&got), [expect]);
        if owner == "u" {
            let patch = &got[0].as_write().unwrap().body;
            let want = json!([{"name": "gpu", "resourceClaimName": "p-gpu-x"}]);
            assert_eq!(patch["status"]["resourceClaimStatuses"], want);
            assert_eq!(patch["metadata"]["uid"], "u");
        }
    }
}

#[test]
fn recorded_claim_is_made_again_after_its_deletion_unless_the_pod_has_ended() {
    let recorded = |phase: &str| {
        pod(json!({"phase": phase,
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}))
    };
    let present = Objects {
        claims: vec![generated("p-gpu-x", "u")],
        templates: vec![template()],
    };
    assert!(reconcile_pod(&recorded("Pending"), &present).is_empty());
    let deleted = Objects {
        templates: vec![template()],
        ..Objects::default()
    };
    let got = reconcile_pod(&recorded("Pending"), &deleted);
    assert_eq!(describe_actions(&got), ["create ResourceClaim p-gpu-"]);
    for phase in ["Succeeded", "Failed"] {
        assert!(reconcile_pod(&recorded(phase), &deleted).is_empty());
    }
}

#[test]
fn entry_without_a_need_gets_no_claim() {
    let view = Objects {
        templates: vec![template()],
        ..Objects::default()
    };
    let status = json!({"resourceClaimStatuses": [{"name": "gpu"}]});
    assert!(reconcile_pod(&pod(status), &view).is_empty());
}

#[test]
fn allocated_claim_is_reserved_for_a_pod_that_was_bound_without_the_scheduler() {
    let shared = |status: Value| {
        let object = json!({"metadata": {"name": "shared", "namespace": "n", "uid": "s",
            "resourceVersion": "7"}, "spec": {}, "status": status});
        Arc::new(serde_json::from_value::<ResourceClaim>(object).unwrap())
    };
    let reserved = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
    let full: Vec<Value> = (0..256)
        .map(|i| json!({"resource": "pods", "name": "q", "uid": i.to_string()}))
        .collect();
    for (node, status, writes) in [
        ("a", json!({"allocation": {}}), true),
        ("", json!({"allocation": {}}), false),
        ("a", json!({}), false),
        (
            "a",
            json!({"allocation": {}, "reservedFor": reserved}),
            false,
        ),
        ("a", json!({"allocation": {}, "reservedFor": full}), false),
    ] {
        let mut pod = pod(json!({"resourceClaimStatuses": [{"name": "gpu"}]}));
        pod.spec.as_mut().unwrap().node_name = Some(node.to_owned());
        let view = Objects {
            claims: vec![shared(status.clone())],
            ..Objects::default()
        };
        let got = reconcile_pod(&pod, &view);
        assert_eq!(!got.is_empty(), writes, "node {node:?}, {status}");
        for action in got {
            let body = &action.as_write().unwrap().body;
            assert_eq!(body["status"]["reservedFor"], reserved);
            assert_eq!(body["metadata"]["resourceVersion"], "7");
        }
    }
}

#[test]
fn long_names_keep_a_part_of_pod_and_entry() {
    assert_eq!(name_prefix("p", "gpu"), "p-gpu-");
    let prefix = name_prefix(&"p".repeat(253), &"e".repeat(63));
    assert!(prefix.len() <= MAX_BASE + 1, "{prefix}");
    assert!(prefix.starts_with("ppp") && prefix.ends_with("eee"));
}
