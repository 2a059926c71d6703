//! Custom resources: what the author of a definition or of an object must not achieve.

#![allow(clippy::unwrap_used, missing_docs)]

use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::{Caller, ControlPlane};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition(group: &str, plural: &str, kind: &str, scope: &str, schema: &Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")}, "spec": {"group": group, "scope": scope,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind,
                "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}]}})
}

fn free_schema() -> Value {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"type": "object", "properties": {"spec": free, "status": free}})
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn wait_for_status(caller: &Caller, path: &str, status: u16) {
    let begun = Instant::now();
    loop {
        let found = caller.get(path).await.status;
        if found == status {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{path}: {found}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn define_widgets(admin: &Caller, schema: &Value) {
    let widgets = definition("example.com", "widgets", "Widget", "Namespaced", schema);
    admin.post(DEFINITIONS, &widgets).await.expect_success();
    wait_for_status(admin, WIDGETS, 200).await;
}

/// The path of each field in conflict has the keys above it: an apply of some hundred kilobytes had
/// a response of hundreds of megabytes.
#[tokio::test(flavor = "multi_thread")]
async fn conflicts_of_an_apply_do_not_multiply_its_size() {
    let plane = ControlPlane::start().await;
    define_widgets(&plane.admin(), &free_schema()).await;
    let rules = json!([{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["create", "get", "patch"]}]);
    plane.grant("mallory", "default", rules).await;
    let mallory = plane.user("mallory", None);
    wait_for_status(&mallory, &format!("{WIDGETS}/w"), 404).await;
    let intent = |value: u32| {
        let fields = (0..2_000).map(|n| (format!("f{n}"), json!(value)));
        let fields: serde_json::Map<_, _> = fields.collect();
        widget("w", json!({"k".repeat(100_000): fields}))
    };
    let size = intent(1).to_string().len();
    let path = |manager: &str| format!("{WIDGETS}/w?fieldManager={manager}");
    let first = mallory.apply(&path("first"), &intent(1)).await;
    assert_eq!(first.status, 201, "{:.1000}", first.text());
    let reply = mallory.apply(&path("second"), &intent(2)).await;
    assert_eq!(reply.status, 409);
    let found = reply.body.len();
    assert!(found < 10 * size, "{found} bytes for {size}");
}

/// The paths of managed fields, a list, and a watch nest an object deeper than its body was. Clients that
/// could not decode it did not see the others of its kind, which outlived their owners.
#[tokio::test(flavor = "multi_thread")]
async fn deeply_nested_object_does_not_stop_garbage_collection() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    define_widgets(&admin, &free_schema()).await;
    let rules = json!([{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["create", "get", "patch"]}]);
    plane.grant("mallory", "default", rules).await;
    let mallory = plane.user("mallory", None);
    wait_for_status(&mallory, &format!("{WIDGETS}/w"), 404).await;
    for depth in 100..=127 {
        let nested = (1..depth).fold(json!({}), |inner, _| json!({"a": inner}));
        let reply = mallory
            .post(WIDGETS, &widget(&format!("w{depth}"), nested))
            .await;
        assert!(
            matches!(reply.status, 201 | 400),
            "{depth}: {}",
            reply.text()
        );
    }
    // Other doors to the store.
    let nested = (1..126).fold(json!({}), |inner, _| json!({"a": inner}));
    for dry_run in ["", "?dryRun=All"] {
        let patch = json!({"spec": nested});
        let reply = mallory
            .merge_patch(&format!("{WIDGETS}/w100{dry_run}"), &patch)
            .await;
        assert_eq!(reply.status, 400, "{}", reply.text());
    }
    admin.get(WIDGETS).await.expect_success();
    let maps = "/api/v1/namespaces/default/configmaps";
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
    let owner = admin.post(maps, &owner).await.expect_success().json();
    let mut owned = widget("owned", json!({}));
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    admin.post(WIDGETS, &owned).await.expect_success();

    plane.start_controllers("garbage-collector-controller");
    admin
        .delete(&format!("{maps}/owner"))
        .await
        .expect_success();
    wait_for_status(&admin, &format!("{WIDGETS}/owned"), 404).await;
}

/// Objects without a type have only these bounds.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_custom_resources_are_bounded() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    define_widgets(&admin, &free_schema()).await;
    let head = r#""apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}"#;
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let aliases: String = (1..30)
        .map(|n| format!("x{n}: &x{n} [*x{p}, *x{p}, *x{p}]\n", p = n - 1))
        .collect();
    let yaml = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n";
    for (case, media_type, body) in [
        (
            "depth",
            "json",
            format!("{{{head},\"spec\":{{\"a\":{deep}}}}}").into_bytes(),
        ),
        (
            "yaml depth",
            "yaml",
            format!("{yaml}spec: {{a: {deep}}}\n").into_bytes(),
        ),
        (
            "aliases",
            "yaml",
            format!(
                "{yaml}spec:\n  x0: &x0 [a]\n{}",
                aliases.replace("\nx", "\n  x").replacen("x1:", "  x1:", 1)
            )
            .into_bytes(),
        ),
        (
            "infinite number",
            "json",
            format!("{{{head},\"spec\":{{\"a\":1e999}}}}").into_bytes(),
        ),
        (
            "no number",
            "yaml",
            format!("{yaml}spec: {{a: .nan}}\n").into_bytes(),
        ),
        (
            "protobuf",
            "vnd.kubernetes.protobuf",
            b"k8s\0\n\x04\n\x02v1".to_vec(),
        ),
        ("size", "json", vec![b' '; 4 << 20]),
    ] {
        let media_type = format!("application/{media_type}");
        let begun = Instant::now();
        let headers = [("content-type", media_type.as_str())];
        let reply = admin
            .send(Method::POST, WIDGETS, &headers, body)
            .await
            .unwrap();
        assert!(
            (400..500).contains(&reply.status),
            "{case}: {}",
            reply.status
        );
        assert!(begun.elapsed() < Duration::from_secs(10), "{case}");
    }
    admin.get(&format!("{WIDGETS}/w")).await.expect_status(404);
    // As Go reads it, so that every later reader gets text.
    let body = [
        format!("{{{head},\"spec\":{{\"a\":\"").as_bytes(),
        b"\xff\"}}",
    ]
    .concat();
    let headers = [("content-type", "application/json")];
    let dry = format!("{WIDGETS}?dryRun=All");
    let reply = admin.send(Method::POST, &dry, &headers, body).await;
    assert_eq!(reply.unwrap().json()["spec"]["a"], "\u{fffd}");
    let strict = format!("{WIDGETS}?fieldValidation=Strict");
    let twice = format!("{{{head},\"spec\":{{\"a\":1,\"a\":2}}}}");
    let reply = admin.send(Method::POST, &strict, &headers, twice).await;
    reply.unwrap().expect_status(400);
}

/// The server would need gigabytes, also after each start, because defaults apply to stored objects.
#[tokio::test(flavor = "multi_thread")]
async fn defaults_and_patterns_do_not_fill_the_memory() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let list = |items: Value| {
        let list = json!({"type": "array", "items": items});
        let spec = json!({"type": "object", "properties": {"l": list}});
        json!({"type": "object", "properties": {"spec": spec}})
    };
    let empty = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    define_widgets(&admin, &list(empty)).await;
    let many = widget("w", json!({"l": vec![json!({}); 200_000]}));
    admin.post(WIDGETS, &many).await.expect_success();
    let large = "x".repeat(200_000);
    let item = json!({"type": "object", "properties": {"a": {"type": "string", "default": large}}});
    let changed = json!([{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": list(item)}}]);
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let change = json!({"spec": {"versions": changed}});
    admin.merge_patch(&path, &change).await.expect_success();
    // Forty gigabytes without a limit.
    let one = widget("x", json!({"l": [{}]}));
    let begun = Instant::now();
    loop {
        let dry = admin.post(&format!("{WIDGETS}?dryRun=All"), &one).await;
        if dry.text().len() > 200_000 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "never defaulted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let read = admin.get(&format!("{WIDGETS}/w")).await.expect_success();
    assert!(read.text().len() < 10_000_000, "{}", read.text().len());
    let patterns = (0..1000).map(|i| {
        let pattern = format!("^\\pL{{{}}}$", 100 + i);
        (
            format!("p{i}"),
            json!({"type": "string", "pattern": pattern}),
        )
    });
    let schema =
        json!({"type": "object", "properties": patterns.collect::<serde_json::Map<_, _>>()});
    let bomb = definition("example.com", "bombs", "Bomb", "Namespaced", &schema);
    let begun = Instant::now();
    admin.post(DEFINITIONS, &bomb).await.expect_status(422);
    assert!(
        begun.elapsed() < Duration::from_secs(50),
        "{:?}",
        begun.elapsed()
    );
}

/// The path of an unknown field repeats the keys above it, each of which may fill the request.
#[tokio::test(flavor = "multi_thread")]
async fn paths_of_unknown_fields_do_not_multiply_the_size_of_a_request() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let entries = json!({"type": "object", "additionalProperties": {"type": "object"}});
    let schema = json!({"type": "object", "properties": {"spec": entries}});
    define_widgets(&admin, &schema).await;
    let unknown: Value = (0..500).map(|n| (format!("f{n}"), json!(1))).collect();
    let object = widget("w", json!({"k".repeat(50_000): unknown}));
    let path = format!("{WIDGETS}?dryRun=All&fieldValidation=Strict");
    let reply = admin.post(&path, &object).await;
    assert_eq!(reply.status, 400);
    let found = reply.text().len();
    assert!(found < 1_000_000, "{found} bytes");
}

/// Neither a path of the namespace nor a name leads to other objects.
#[tokio::test(flavor = "multi_thread")]
async fn role_in_a_namespace_stays_there_with_custom_resources() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    define_widgets(&admin, &free_schema()).await;
    let gadgets = definition(
        "example.com",
        "gadgets",
        "Gadget",
        "Cluster",
        &free_schema(),
    );
    admin.post(DEFINITIONS, &gadgets).await.expect_success();
    wait_for_status(&admin, "/apis/example.com/v1/gadgets", 200).await;
    let other = "/apis/example.com/v1/namespaces/kube-system/widgets";
    admin
        .post(other, &widget("secret", json!({"a": 1})))
        .await
        .expect_success();
    let rules = json!([{"apiGroups": ["*"], "resources": ["widgets", "gadgets"], "verbs": ["*"]}]);
    plane.grant("tenant", "default", rules).await;
    let tenant = plane.user("tenant", None);
    wait_for_status(&tenant, WIDGETS, 200).await;
    for path in [
        other.to_owned(),
        format!("{other}/secret"),
        "/apis/example.com/v1/widgets".to_owned(),
        "/apis/example.com/v1/watch/widgets".to_owned(),
        "/apis/example.com/v1/gadgets".to_owned(),
        DEFINITIONS.to_owned(),
    ] {
        tenant.get(&path).await.expect_status(403);
    }
    // Authorized for the namespace, but not of it.
    tenant
        .get("/apis/example.com/v1/namespaces/default/gadgets")
        .await
        .expect_status(404);
    for name in ["..%2Fkube-system%2Fsecret", "a%2Fb", "..", "%2e%2e"] {
        let found = tenant.get(&format!("{WIDGETS}/{name}")).await.status;
        assert!(found >= 300, "{name}: {found}");
        tenant
            .post(WIDGETS, &widget(name, json!({})))
            .await
            .expect_status(422);
    }
    let mut moved = widget("m", json!({}));
    moved["metadata"]["namespace"] = "kube-system".into();
    tenant.post(WIDGETS, &moved).await.expect_status(400);
    // A kubelet has no rights to custom resources.
    plane.kubelet("n1").get(WIDGETS).await.expect_status(403);
    plane.anonymous().get(WIDGETS).await.expect_status(403);
}

/// The status needs a right of its own, that of an object and that of a definition.
#[tokio::test(flavor = "multi_thread")]
async fn status_needs_the_right_to_the_subresource() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    define_widgets(&admin, &free_schema()).await;
    let rules = json!([{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["*"]}]);
    plane.grant("tenant", "default", rules).await;
    let tenant = plane.user("tenant", None);
    wait_for_status(&tenant, WIDGETS, 200).await;
    let mut object = widget("w", json!({"a": 1}));
    object["status"] = json!({"approved": true});
    tenant.post(WIDGETS, &object).await.expect_success();
    let path = format!("{WIDGETS}/w");
    let change = json!({"status": {"approved": true}, "spec": {"a": 2}});
    tenant.merge_patch(&path, &change).await.expect_success();
    let applied = tenant
        .apply(&format!("{path}?fieldManager=t&force=true"), &object)
        .await;
    assert!(applied.status < 300, "{}", applied.text());
    let found = admin.get(&path).await.json();
    assert!(found["status"].is_null(), "{found}");
    let status = format!("{path}/status");
    tenant
        .merge_patch(&status, &change)
        .await
        .expect_status(403);
    // The administrator of objects does not change the spec by the status.
    let change = json!({"status": {"approved": true}, "spec": {"a": 9}});
    admin.merge_patch(&status, &change).await.expect_success();
    let found = admin.get(&path).await.json();
    assert_eq!(
        (&found["spec"]["a"], &found["status"]["approved"]),
        (&json!(1), &json!(true))
    );
    // Names that the server has not accepted are not served.
    let definition = format!("{DEFINITIONS}/widgets.example.com");
    let change = json!({"status": {"acceptedNames": {"plural": "secrets", "kind": "Secret"},
        "storedVersions": []}});
    admin
        .merge_patch(&definition, &change)
        .await
        .expect_success();
    let found = admin.get(&definition).await.json();
    assert_eq!(found["status"]["acceptedNames"]["plural"], "widgets");
    assert_eq!(found["status"]["storedVersions"], json!(["v1"]));
}

/// A definition takes no place of a built-in resource, and no name of another definition.
#[tokio::test(flavor = "multi_thread")]
async fn definition_shadows_nothing() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    define_widgets(&admin, &free_schema()).await;
    for (group, plural, kind) in [
        ("apps", "deployments", "Deployment"),
        ("", "secrets", "Secret"),
        // Kubernetes' own groups need an approval.
        ("evil.k8s.io", "things", "Thing"),
        ("rbac.authorization.k8s.io", "things", "Thing"),
        ("example.com", "a/b", "Thing"),
        ("example.com", "..", "Thing"),
    ] {
        let object = definition(group, plural, kind, "Namespaced", &free_schema());
        let status = admin.post(DEFINITIONS, &object).await.status;
        assert_eq!(status, 422, "{group} {plural}");
    }
    // Approved, it is still not served.
    let (group, plural) = ("rbac.authorization.k8s.io", "clusterroles");
    let mut object = definition(group, plural, "ClusterRole", "Cluster", &free_schema());
    let url = "https://github.com/kubernetes/kubernetes/pull/78458";
    object["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": url});
    admin.post(DEFINITIONS, &object).await;
    let mut other = definition(
        "example.com",
        "others",
        "Widget",
        "Namespaced",
        &free_schema(),
    );
    other["spec"]["names"]["shortNames"] = json!(["widgets", "widget"]);
    admin.post(DEFINITIONS, &other).await.expect_success();
    let begun = Instant::now();
    loop {
        let found = admin
            .get(&format!("{DEFINITIONS}/others.example.com"))
            .await;
        if found.text().contains("ShortNamesConflict") || found.text().contains("KindConflict") {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{}",
            found.text()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    admin
        .get("/apis/example.com/v1/namespaces/default/others")
        .await
        .expect_status(404);
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin";
    let found = admin.get(role).await.expect_success().json();
    assert_eq!(found["rules"][0]["verbs"], json!(["*"]));
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    plane.grant("tenant", "default", rules).await;
    let tenant = plane.user("tenant", None);
    let object = definition(
        "tenant.example.com",
        "things",
        "Thing",
        "Namespaced",
        &free_schema(),
    );
    tenant.post(DEFINITIONS, &object).await.expect_status(403);
}

/// Instances count like other objects, and a dry run does not.
#[tokio::test(flavor = "multi_thread")]
async fn quota_counts_custom_resources() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    define_widgets(&admin, &free_schema()).await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = json!({"count/widgets.example.com": "1"});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": hard}});
    admin.post(quotas, &quota).await.expect_success();
    // As its controller would.
    let used = json!({"count/widgets.example.com": "0"});
    let status = json!({"status": {"hard": hard, "used": used}});
    let path = format!("{quotas}/q/status");
    admin.merge_patch(&path, &status).await.expect_success();
    let begun = Instant::now();
    let two = loop {
        let dry = format!("{WIDGETS}?dryRun=All");
        admin.post(&dry, &widget("dry", json!({}))).await;
        let name = format!("w{}", begun.elapsed().as_micros());
        let reply = admin.post(WIDGETS, &widget(&name, json!({}))).await;
        if reply.status == 403 {
            break admin.get(WIDGETS).await.json();
        }
        // The quota may not be in the cache yet.
        assert!(begun.elapsed() < Duration::from_secs(60), "never refused");
    };
    let found = admin.get(&format!("{quotas}/q")).await.json();
    assert_eq!(
        found["status"]["used"]["count/widgets.example.com"], "1",
        "{found}"
    );
    assert!(!two.to_string().contains("\"dry\""), "{two}");
}
