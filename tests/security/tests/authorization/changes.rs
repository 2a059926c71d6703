//! Changes of the configuration file.

use crate::hook::{
    Hook, PATIENCE, REVIEWS, config_map, configuration, start_plane, webhook, write_config,
    write_kubeconfig,
};
use serde_json::json;
use std::time::{Duration, Instant};
use testkit_control_plane::ControlPlane;

/// A changed file is used without a restart. One that can't be used, or that drops an authorizer of
/// the start, changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn changed_configuration_is_used_and_a_broken_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("authorization.json");
    let hook = Hook::with_lists(&["jane list secrets"], &[]).await;
    let kubeconfig = hook.kubeconfig(folder.path());
    write_config(&config, &configuration(&[]));
    let plane = start_plane(&config).await;
    let jane = plane.user("jane", None);
    let secrets = "/api/v1/namespaces/default/secrets";
    jane.get(secrets).await.expect_status(403);

    let with_hook = configuration(&[webhook(&kubeconfig, &json!({"unauthorizedTTL": "1ms"}))]);
    write_config(&config, &with_hook);
    wait_for(&plane, "success\"", 1).await;
    jane.get(secrets).await.expect_success();

    let mut broken = with_hook.clone();
    broken["authorizers"][0]["webhook"]["timeout"] = "31s".into();
    let mut dropped = with_hook.clone();
    dropped["authorizers"].as_array_mut().unwrap().pop();
    let mut allowing = with_hook.clone();
    let all = json!({"type": "AlwaysAllow", "name": "alwaysallow"});
    allowing["authorizers"].as_array_mut().unwrap().push(all);
    for (failures, unusable) in [broken, dropped, allowing].iter().enumerate() {
        write_config(&config, unusable);
        wait_for(&plane, "failure\"", failures + 1).await;
        jane.get(secrets).await.expect_success();
        jane.get("/api/v1/nodes").await.expect_status(403);
    }
    write_config(&config, &configuration(&[]));
    wait_for(&plane, "success\"", 2).await;
    jane.get(secrets).await.expect_status(403);
}

/// Waits until the server has reloaded its configuration so many times with this result.
async fn wait_for(plane: &ControlPlane, status: &str, count: usize) {
    let name = "apiserver_authorization_config_controller_automatic_reloads_total";
    let begun = Instant::now();
    loop {
        let metrics = plane.admin().get("/metrics").await.text();
        let is_due = |line: &str| {
            line.starts_with(name) && line.contains(status) && line.ends_with(&format!(" {count}"))
        };
        if metrics.lines().any(is_due) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "the change was not noticed");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A request that gets no place is rejected after a quarter of the request timeout.
const WITHOUT_A_PLACE: Duration = Duration::from_secs(15);

/// A webhook that is this API server reviews the requests of its own reviews, without end. The requests
/// end, and administrators are served meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_behind_the_server_itself_does_not_block_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("authorization.json");
    write_config(&config, &configuration(&[]));
    let plane = start_plane(&config).await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "hook"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    plane
        .admin()
        .post(accounts, &account)
        .await
        .expect_success();
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
    let issued = plane
        .admin()
        .post(&format!("{accounts}/hook/token"), &request)
        .await;
    let token = issued.expect_success().json()["status"]["token"].clone();
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    plane.grant("jane", "default", rules).await;
    let cluster = json!({"server": format!("https://{}{REVIEWS}/subjectaccessreviews", plane.api_address()),
        "certificate-authority": plane.certificate("ca")});
    let kubeconfig = write_kubeconfig(folder.path(), cluster, json!({"token": token}));
    let more = json!({"failurePolicy": "NoOpinion", "timeout": "2s"});
    write_config(&config, &configuration(&[webhook(&kubeconfig, &more)]));
    wait_for(&plane, "success\"", 1).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let jane = plane.user("jane", None);
    let begun = Instant::now();
    let (reviewed, other) = tokio::join!(jane.get(maps), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let begun = Instant::now();
        plane.admin().get(maps).await.expect_success();
        begun.elapsed()
    });
    reviewed.expect_success();
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    assert!(other < WITHOUT_A_PLACE, "{other:?}");

    // Administrators need no place. Users whom RBAC allows before the webhook are served as well,
    // also for writes, of which reviews are some.
    let create = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]);
    plane.grant("joe", "default", create).await;
    let mut last = configuration(&[]);
    let hook = webhook(&kubeconfig, &more);
    last["authorizers"].as_array_mut().unwrap().push(hook);
    write_config(&config, &last);
    wait_for(&plane, "success\"", 2).await;
    let joe = plane.user("joe", None);
    let nodes = jane.get("/api/v1/nodes");
    let (_, other) = tokio::join!(nodes, async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let begun = Instant::now();
        joe.post(maps, &config_map("m")).await.expect_success();
        begun.elapsed()
    });
    assert!(other < WITHOUT_A_PLACE, "{other:?}");
}
