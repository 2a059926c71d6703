//! Health checks, version and metrics paths.

use super::{request, start_server};
use crate::bootstrap_steps::Step;
use serde_json::json;
use tonic::Status;

#[tokio::test]
async fn liveness_does_not_depend_on_the_bootstrap() {
    let server = start_server(&[]).await;
    assert!(!server.server.bootstrapped.is_done(Step::Rbac));
    let live = server.get("/livez").await;
    assert_eq!((live.code, live.text()), (200, "ok"));
    let ready = server.get("/readyz").await;
    assert_eq!(ready.code, 500);
    assert!(
        ready
            .text()
            .contains("[-]poststarthook/rbac/bootstrap-roles failed: reason withheld"),
        "{}",
        ready.text()
    );
    assert!(ready.text().ends_with("readyz check failed\n"));
}

#[tokio::test]
async fn single_check_is_a_path() {
    let server = start_server(&[]).await;
    assert_eq!(server.get("/livez/ping").await.text(), "ok");
    assert_eq!(server.get("/readyz/informer-sync").await.text(), "ok");
    assert_eq!(
        server.get("/livez/informer-sync").await.code,
        404,
        "only readiness has it"
    );
    assert_eq!(server.get("/livez/nonsense").await.code, 404);
}

#[tokio::test]
async fn failed_store_fails_its_check_unless_it_is_excluded() {
    let server = start_server(&[]).await;
    server.etcd.fail_next(Status::unavailable("no leader"));
    let failed = server.get("/livez").await;
    assert_eq!(failed.code, 500);
    assert!(
        failed.text().contains("[-]etcd failed: reason withheld"),
        "{}",
        failed.text()
    );
    assert!(
        !failed.text().contains("no leader"),
        "the reason is not public"
    );
    server.etcd.fail_next(Status::unavailable("no leader"));
    assert_eq!(server.get("/livez?exclude=etcd").await.code, 200);
}

#[tokio::test]
async fn verbose_report_lists_every_check() {
    let server = start_server(&[]).await;
    let report = server.get("/livez?verbose").await;
    assert_eq!(report.code, 200);
    for line in ["[+]ping ok\n", "[+]etcd ok\n", "livez check passed\n"] {
        assert!(report.text().contains(line), "{line} in {}", report.text());
    }
}

#[tokio::test]
async fn stopping_server_is_live_but_not_ready() {
    let server = start_server(&[]).await;
    server.server.stopping.cancel();
    let check = server.get("/readyz/shutdown").await;
    assert_eq!(check.code, 500);
    assert_eq!(server.get("/livez").await.code, 200);
}

#[tokio::test]
async fn stopping_server_sends_http1_clients_to_other_connections() {
    let server = start_server(&[]).await;
    let open = server.get("/livez").await;
    assert!(!open.headers.contains_key("connection"));
    server.server.stopping.cancel();
    for path in ["/livez", "/api/v1/namespaces/absent", "/nonsense"] {
        assert_eq!(
            server.get(path).await.header("connection"),
            "close",
            "{path}"
        );
    }
}

#[tokio::test]
async fn version_names_the_minor_release() {
    let server = start_server(&[]).await;
    let version = server.get("/version").await.json();
    assert_eq!(
        (&version["major"], &version["minor"]),
        (&json!("1"), &json!("36"))
    );
    assert!(
        version["gitVersion"]
            .as_str()
            .unwrap()
            .starts_with("v1.36.")
    );
}

#[tokio::test]
async fn root_lists_the_paths() {
    let server = start_server(&[]).await;
    let paths = server.get("/").await.json()["paths"].clone();
    for path in [
        "/api/v1",
        "/apis/apps/v1",
        "/healthz",
        "/metrics",
        "/openapi/v3",
    ] {
        assert!(paths.as_array().unwrap().contains(&json!(path)), "{path}");
    }
}

#[tokio::test]
async fn flow_control_dump_is_for_reading() {
    let server = start_server(&[]).await;
    let path = "/debug/api_priority_and_fairness/dump_priority_levels";
    let dump = server.get(path).await;
    assert!(
        dump.text().starts_with("PriorityLevelName, ActiveQueues"),
        "{}",
        dump.text()
    );
    assert_eq!(server.send(request("POST", path), "").await.code, 405);
    assert_eq!(
        server
            .get("/debug/api_priority_and_fairness/nonsense")
            .await
            .code,
        404
    );
}

#[tokio::test]
async fn zpages_show_process_and_flags() {
    let server = start_server(&[]).await;
    let statusz = server.get("/statusz").await;
    assert_eq!(statusz.code, 200);
    let text = statusz.text();
    assert!(text.starts_with("\napiserver statusz\nWarning: "), "{text}");
    let paths = "\nPaths: /flagz /healthz /livez /metrics /readyz /version\n";
    assert!(text.ends_with(paths), "{text}");
    let flagz = server.get("/flagz").await;
    assert_eq!(flagz.code, 200);
    assert!(flagz.text().starts_with("\napiserver flagz\nWarning: "));
    let accept = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz";
    let object = server
        .send(request("GET", "/statusz").header("accept", accept), "")
        .await;
    assert_eq!(object.json()["kind"], "Statusz", "{}", object.text());
    let xml = request("GET", "/flagz").header("accept", "application/xml");
    assert_eq!(server.send(xml, "").await.code, 406);
    for path in ["/statusz", "/flagz"] {
        assert_eq!(server.send(request("POST", path), "").await.code, 405);
    }
}

#[tokio::test]
async fn zpages_need_the_permission_for_their_paths() {
    let server = start_server(&[]).await;
    for path in ["/statusz", "/flagz"] {
        for token in [None, Some("Bearer alice-token")] {
            let mut request = http::Request::builder().uri(path);
            if let Some(token) = token {
                request = request.header("authorization", token);
            }
            let answer = server.send(request, "").await;
            assert_eq!(answer.code, 403, "{path} {token:?}");
            assert!(!answer.text().contains("Warning"), "{path} {token:?}");
        }
    }
}
