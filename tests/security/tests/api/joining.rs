//! Clients that join the cluster, and have no credential yet.

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::{Caller, ControlPlane, Options};

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

async fn wait_for_success(caller: &Caller, path: &str) {
    let begun = Instant::now();
    while caller.get(path).await.status != 200 {
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(60), "not readable: {path}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A joining machine has no credential yet. It may read one object, in one way.
#[tokio::test(flavor = "multi_thread")]
async fn anonymous_client_reads_cluster_info_and_nothing_else() {
    const INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("authentication.json");
    // The configuration of `ironclad up`.
    let paths = ["/livez", "/readyz", "/healthz", INFO].map(|path| json!({"path": path}));
    let config = json!({"apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration", "anonymous": {"enabled": true, "conditions": paths}});
    std::fs::write(&file, config.to_string()).unwrap();
    let options = Options {
        api_server: vec![format!("--authentication-config={}", file.display())],
        ..Options::default()
    };
    let plane = ControlPlane::start_with(options).await;
    let admin = plane.admin();
    wait_for_success(&admin, "/api/v1/namespaces/kube-public").await;
    for name in ["cluster-info", "other"] {
        let maps = "/api/v1/namespaces/kube-public/configmaps";
        admin.post(maps, &config_map(name)).await.expect_success();
    }
    let maps = "/api/v1/namespaces/default/configmaps";
    admin
        .post(maps, &config_map("cluster-info"))
        .await
        .expect_success();
    let group = "rbac.authorization.k8s.io";
    let roles = format!("/apis/{group}/v1/namespaces/kube-public");
    let role = json!({"metadata": {"name": "info"}, "rules": [{"apiGroups": [""],
        "resources": ["configmaps"], "resourceNames": ["cluster-info"], "verbs": ["get"]}]});
    let binding = json!({"metadata": {"name": "info"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "info"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "system:anonymous"}]});
    admin
        .post(&format!("{roles}/roles"), &role)
        .await
        .expect_success();
    admin
        .post(&format!("{roles}/rolebindings"), &binding)
        .await
        .expect_success();

    let anonymous = plane.anonymous();
    wait_for_success(&anonymous, INFO).await;
    // As upstream, a watch of one object by its path is a get.
    let watched = anonymous.get(&format!("{INFO}?watch=1")).await;
    assert_eq!(watched.json()["kind"], "ConfigMap");
    let maps = "/api/v1/namespaces/kube-public/configmaps";
    for path in [
        maps.to_owned(),
        format!("{maps}/other"),
        format!("{maps}?fieldSelector=metadata.name=cluster-info"),
        format!("{maps}?watch=1&fieldSelector=metadata.name=cluster-info"),
        "/api/v1/watch/namespaces/kube-public/configmaps/cluster-info".to_owned(),
        format!("{INFO}/status"),
        format!("{INFO}%2F..%2Fother"),
        format!("{maps}/cluster-info%2f"),
        format!("{maps}/Cluster-Info"),
        "/api/v1/namespaces/default/configmaps/cluster-info".to_owned(),
        "/api/v1/namespaces/kube-public/secrets/cluster-info".to_owned(),
        "/api/v1/namespaces/kube-public".to_owned(),
        "/api/v1/configmaps".to_owned(),
        "/api/v1".to_owned(),
        "/api".to_owned(),
        "/version".to_owned(),
        "/openapi/v2".to_owned(),
        "/metrics".to_owned(),
        "/".to_owned(),
        "/livez/ping".to_owned(),
    ] {
        let reply = anonymous.get(&path).await;
        // Most paths need a credential; on the path of the object, the role decides. An unclean path is
        // redirected to the clean one.
        assert!(
            matches!(reply.status, 301 | 401 | 403),
            "{path}: {}",
            reply.status
        );
        assert!(
            !reply.text().contains("\"k\":\"v\""),
            "{path}: {}",
            reply.text()
        );
    }
    let change = json!({"data": {"k": "mine"}});
    for query in ["", "?dryRun=All"] {
        let path = format!("{INFO}{query}");
        for (verb, reply) in [
            (
                "update",
                anonymous.put(&path, &config_map("cluster-info")).await,
            ),
            ("patch", anonymous.merge_patch(&path, &change).await),
            ("delete", anonymous.delete(&path).await),
            (
                "create",
                anonymous.post(&path, &config_map("cluster-info")).await,
            ),
        ] {
            let status = reply.status;
            assert!(matches!(status, 401 | 403 | 405), "{verb}{query}: {status}");
        }
    }
    // A credential that fails is none, and other users are not anonymous.
    plane
        .bearer("absent.0123456789abcdef")
        .get(INFO)
        .await
        .expect_status(401);
    let posing = anonymous.with_header("impersonate-user", "kubernetes-admin");
    posing.get(INFO).await.expect_status(403);
    let left = admin.get(INFO).await.expect_success().json();
    assert_eq!(left["data"], json!({"k": "v"}));
}
