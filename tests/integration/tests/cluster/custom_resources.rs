//! Controllers that handle objects of kinds that are added while they run.

use integration_tests::{Components, Test, config_map, find_condition, has_condition, wait_for};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A cluster, and a definition of `widgets` that was added to it.
struct Widgets {
    test: Test,
    group: String,
    scope: &'static str,
}

impl Widgets {
    async fn start(scope: &'static str) -> Self {
        let test = Test::start(Components::All).await;
        let group = format!("{}.example.com", test.namespace);
        Widgets { test, group, scope }
    }

    async fn install(scope: &'static str) -> Self {
        let widgets = Self::start(scope).await;
        widgets.define().await;
        widgets
    }

    async fn define(&self) {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let scale = json!({"specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas"});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition", "metadata": {"name": self.definition_name()},
            "spec": {"group": self.group, "scope": self.scope,
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget",
                    "listKind": "WidgetList"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": schema}, "subresources": {"scale": scale}}]}});
        self.test.create(DEFINITIONS, &definition).await;
        let established = |d: &Value| has_condition(d, "Established");
        self.test
            .wait_until(&self.definition_path(), "established", established)
            .await;
    }

    fn definition_name(&self) -> String {
        format!("widgets.{}", self.group)
    }

    fn definition_path(&self) -> String {
        format!("{DEFINITIONS}/{}", self.definition_name())
    }

    fn path(&self, name: &str) -> String {
        let version = format!("{}/v1", self.group);
        let plural = if name.is_empty() {
            "widgets".to_owned()
        } else {
            format!("widgets/{name}")
        };
        match self.scope {
            "Namespaced" => self.test.group(&version, &plural),
            _ => format!("/apis/{version}/{plural}"),
        }
    }

    fn body(&self, name: &str, metadata: &Value) -> Value {
        let mut widget = json!({"apiVersion": format!("{}/v1", self.group), "kind": "Widget",
            "metadata": metadata, "spec": {"replicas": 1}});
        widget["metadata"]["name"] = json!(name);
        widget
    }

    async fn create(&self, name: &str, metadata: &Value) -> Value {
        let body = self.body(name, metadata);
        self.test.create(&self.path(""), &body).await
    }

    fn reference_to(&self, owner: &Value) -> Value {
        json!([{"apiVersion": format!("{}/v1", self.group), "kind": "Widget", "uid": owner["metadata"]["uid"],
            "name": owner["metadata"]["name"], "blockOwnerDeletion": true}])
    }

    /// Creates a widget, with a widget and a ConfigMap that it owns; returns the paths of these.
    async fn create_family(&self) -> [String; 2] {
        let owner = self.create("owner", &json!({})).await;
        let owners = self.reference_to(&owner);
        self.create("child", &json!({"ownerReferences": owners}))
            .await;
        let mut map = config_map("child");
        map["metadata"]["ownerReferences"] = owners;
        self.test.create(&self.test.core("configmaps"), &map).await;
        [self.path("child"), self.test.core("configmaps/child")]
    }

    async fn delete(&self, path: &str, policy: &str) {
        let options = json!({"propagationPolicy": policy});
        let reply = self.test.admin.delete_with(path, &options).await;
        reply.expect_status(200);
    }

    async fn release(&self, path: &str) {
        let free = json!({"metadata": {"finalizers": null}});
        let reply = self.test.admin.merge_patch(path, &free).await;
        reply.expect_status(200);
    }
}

#[tokio::test]
async fn background_deletion_deletes_custom_dependents() {
    let widgets = Widgets::install("Namespaced").await;
    let dependents = widgets.create_family().await;
    widgets.delete(&widgets.path("owner"), "Background").await;
    for dependent in dependents {
        widgets.test.wait_until_deleted(&dependent).await;
    }
}

#[tokio::test]
async fn foreground_deletion_of_a_custom_owner_ends() {
    let widgets = Widgets::install("Cluster").await;
    let dependents = widgets.create_family().await;
    widgets.delete(&widgets.path("owner"), "Foreground").await;
    widgets
        .test
        .wait_until_deleted(&widgets.path("owner"))
        .await;
    for dependent in dependents {
        let reply = widgets.test.admin.get(&dependent).await;
        reply.expect_status(404);
    }
}

#[tokio::test]
async fn dependents_of_a_custom_owner_are_orphaned() {
    let widgets = Widgets::install("Namespaced").await;
    let dependents = widgets.create_family().await;
    widgets.delete(&widgets.path("owner"), "Orphan").await;
    widgets
        .test
        .wait_until_deleted(&widgets.path("owner"))
        .await;
    for dependent in dependents {
        let orphan = widgets.test.read(&dependent).await;
        assert_eq!(orphan["metadata"]["ownerReferences"], json!(null));
    }
}

#[tokio::test]
async fn removed_definition_does_not_block_the_collector() {
    let widgets = Widgets::install("Namespaced").await;
    let test = &widgets.test;
    let owner = test
        .create(&test.core("configmaps"), &config_map("owner"))
        .await;
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}]);
    let metadata = json!({"ownerReferences": reference, "finalizers": ["example.com/hold"]});
    widgets.create("child", &metadata).await;
    let path = test.core("configmaps/owner");
    widgets.delete(&path, "Foreground").await;
    let deleting = |o: &Value| o["metadata"]["deletionTimestamp"].is_string();
    test.wait_until(&widgets.path("child"), "deleted", deleting)
        .await;
    let definition = widgets.definition_path();
    widgets.delete(&definition, "Background").await;
    let terminating = |d: &Value| find_condition(d, "Terminating")["status"] == "True";
    test.wait_until(&definition, "terminating", terminating)
        .await;
    widgets.release(&widgets.path("child")).await;
    test.wait_until_deleted(&definition).await;
    test.wait_until_deleted(&path).await;
    // The same definition again.
    widgets.define().await;
    assert_eq!(test.names(&widgets.path("")).await, [""; 0]);
    let dependents = widgets.create_family().await;
    widgets.delete(&widgets.path("owner"), "Background").await;
    test.wait_until_deleted(&dependents[0]).await;
}

#[tokio::test]
async fn owner_in_an_unserved_version_is_not_taken_for_absent() {
    let widgets = Widgets::install("Namespaced").await;
    let test = &widgets.test;
    let owner = widgets.create("owner", &json!({})).await;
    let mut owners = widgets.reference_to(&owner);
    owners[0]["apiVersion"] = json!(format!("{}/v1beta1", widgets.group));
    owners[0]["uid"] = json!("7b2c1c52-0d6e-4c39-9d1c-0f6a7d0f6c11");
    let mut unknown = config_map("unknown");
    unknown["metadata"]["ownerReferences"] = owners.clone();
    test.create(&test.core("configmaps"), &unknown).await;
    // The collector handles this one after the other.
    owners[0]["apiVersion"] = json!(format!("{}/v1", widgets.group));
    let mut dangling = config_map("dangling");
    dangling["metadata"]["ownerReferences"] = owners;
    test.create(&test.core("configmaps"), &dangling).await;
    test.wait_until_deleted(&test.core("configmaps/dangling"))
        .await;
    test.read(&test.core("configmaps/unknown")).await;
}

#[tokio::test]
async fn namespace_waits_for_custom_objects_with_finalizers() {
    let widgets = Widgets::install("Namespaced").await;
    let test = &widgets.test;
    widgets
        .create("held", &json!({"finalizers": ["example.com/hold"]}))
        .await;
    widgets.create("free", &json!({})).await;
    let namespace = format!("/api/v1/namespaces/{}", test.namespace);
    widgets.delete(&namespace, "Background").await;
    test.wait_until_deleted(&widgets.path("free")).await;
    let remains = |n: &Value| find_condition(n, "NamespaceContentRemaining")["status"] == "True";
    let object = test.wait_until(&namespace, "held", remains).await;
    assert_eq!(
        find_condition(&object, "NamespaceContentRemaining")["message"],
        format!(
            "Some resources are remaining: {} has 1 resource instances",
            widgets.definition_name()
        )
    );
    widgets.release(&widgets.path("held")).await;
    test.wait_until_deleted(&namespace).await;
}

#[tokio::test]
async fn quota_of_a_later_definition_bounds_its_objects() {
    let widgets = Widgets::start("Namespaced").await;
    let test = &widgets.test;
    let counted = format!("count/{}", widgets.definition_name());
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {counted.as_str(): "1"}}});
    test.create(&test.core("resourcequotas"), &quota).await;
    let path = test.core("resourcequotas/q");
    let used = |n: &'static str| {
        let counted = counted.clone();
        move |q: &Value| q["status"]["used"][&counted] == n
    };
    test.wait_until(&path, "counted", used("0")).await;
    widgets.define().await;
    widgets.create("a", &json!({})).await;
    let reply = test
        .admin
        .post(&widgets.path(""), &widgets.body("b", &json!({})))
        .await;
    assert!(
        reply.text().contains("exceeded quota: q"),
        "{}",
        reply.text()
    );
    reply.expect_status(403);
    widgets.delete(&widgets.path("a"), "Background").await;
    test.wait_until(&path, "released", used("0")).await;
    widgets.create("c", &json!({})).await;
    let quota = json!({"metadata": {"name": "late"}, "spec": {"hard": {counted.as_str(): "9"}}});
    test.create(&test.core("resourcequotas"), &quota).await;
    let late = test.core("resourcequotas/late");
    test.wait_until(&late, "counted", used("1")).await;
}

#[tokio::test]
async fn autoscaler_scales_a_custom_resource() {
    let widgets = Widgets::install("Namespaced").await;
    let test = &widgets.test;
    widgets.create("w", &json!({})).await;
    let scaler = json!({"metadata": {"name": "h"}, "spec": {"minReplicas": 3, "maxReplicas": 5,
        "scaleTargetRef": {"apiVersion": format!("{}/v1", widgets.group), "kind": "Widget",
            "name": "w"}}});
    let path = test.group("autoscaling/v2", "horizontalpodautoscalers");
    test.create(&path, &scaler).await;
    wait_for("the widget has the minimum", async || {
        test.read(&widgets.path("w")).await["spec"]["replicas"] == 3
    })
    .await;
}

/// Creates a pod of an owner, with a budget for it; returns the path of the budget.
async fn create_budget(test: &Test, name: &str, owner: &Value) -> String {
    let mut pod = integration_tests::pod(name);
    pod["metadata"]["labels"] = json!({"guarded": name});
    pod["metadata"]["ownerReferences"] = json!([owner]);
    test.create(&test.core("pods"), &pod).await;
    let budget = json!({"metadata": {"name": name}, "spec": {"maxUnavailable": 1,
        "selector": {"matchLabels": {"guarded": name}}}});
    let path = test.group("policy/v1", "poddisruptionbudgets");
    test.create(&path, &budget).await;
    format!("{path}/{name}")
}

#[tokio::test]
async fn budget_counts_the_scale_of_a_custom_controller() {
    let widgets = Widgets::install("Namespaced").await;
    let test = &widgets.test;
    let mut widget = widgets.body("w", &json!({}));
    widget["spec"]["replicas"] = json!(4);
    let widget = test.create(&widgets.path(""), &widget).await;
    let mut owner = widgets.reference_to(&widget)[0].clone();
    owner["controller"] = json!(true);
    let budget = create_budget(test, "w", &owner).await;
    let counted = |b: &Value| b["status"]["expectedPods"] == 4;
    let counted = test.wait_until(&budget, "counted", counted).await;
    assert_eq!(counted["status"]["desiredHealthy"], 3);
}

#[tokio::test]
async fn budget_of_a_controller_without_a_scale_allows_no_disruption() {
    let test = Test::start(Components::All).await;
    let map = test
        .create(&test.core("configmaps"), &config_map("owner"))
        .await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
        "uid": map["metadata"]["uid"], "controller": true});
    let budget = create_budget(&test, "w", &owner).await;
    let failed = |b: &Value| find_condition(b, "DisruptionAllowed")["reason"] == "SyncFailed";
    let budget = test.wait_until(&budget, "failed", failed).await;
    let condition = find_condition(&budget, "DisruptionAllowed");
    let why = "configmaps does not implement the scale subresource";
    assert_eq!(condition["message"], why);
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
}
