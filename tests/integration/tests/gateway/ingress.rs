//! Ingresses.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::setting::{ADDRESS, Setting};

pub(crate) fn ingress(namespace: &str, name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["ingressClassName"] = json!("ironclad");
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

pub(crate) fn rule(host: &str, path: &str, service: &str) -> Value {
    json!({"host": host, "http": {"paths": [{"path": path, "pathType": "Prefix",
        "backend": {"service": {"name": service, "port": {"name": "web"}}}}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_forwarded_by_host_and_path_with_the_client_s_address() {
    let setting = Setting::start().await;
    setting.create_namespace("a").await;
    for name in ["web", "api", "rest"] {
        setting.add_backend("a", name).await;
    }
    let mut rules = rule("a.example.com", "/", "web");
    let api = rule("a.example.com", "/api", "api")["http"]["paths"][0].clone();
    rules["http"]["paths"].as_array_mut().unwrap().push(api);
    let default = json!({"service": {"name": "rest", "port": {"number": 80}}});
    let spec =
        json!({"rules": [rules, rule("*.b.example.com", "/", "web")], "defaultBackend": default});
    setting.create(ingress("a", "i", spec)).await;
    setting
        .wait_for_server("http://a.example.com/", "web")
        .await;
    for (url, server) in [
        ("http://a.example.com/apix", "web"),
        ("http://a.example.com/api", "api"),
        ("http://A.example.com:80/api/v1?x=1", "api"),
        ("http://x.b.example.com/", "web"),
        ("http://x.y.b.example.com/", "rest"),
        ("http://other.example.com/", "rest"),
    ] {
        setting.wait_for_server(url, server).await;
    }
    check_headers(&setting).await;
    let stored = setting
        .wait_for_object(
            "/apis/networking.k8s.io/v1/namespaces/a/ingresses/i",
            "address",
            |found| !found["status"]["loadBalancer"]["ingress"].is_null(),
        )
        .await;
    assert_eq!(
        stored["status"]["loadBalancer"]["ingress"][0]["ip"],
        ADDRESS
    );
}

/// Checks that the endpoint learns the client's address from the gateway alone.
async fn check_headers(setting: &Setting) {
    let response = setting
        .curl(&[
            "http://a.example.com/api/v1?x=1",
            "--header",
            "X-Forwarded-For: 1.2.3.4",
            "--header",
            "X-Forwarded-Proto: https",
            "--header",
            "Connection: close, x-secret-hop",
            "--header",
            "X-Secret-Hop: 1",
            "--data",
            "hello",
        ])
        .await;
    for line in [
        "POST /api/v1?x=1",
        "host: a.example.com",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-proto: http",
        "x-forwarded-host: a.example.com",
        "body: hello",
    ] {
        assert!(response.has_line(line), "{line}: {}", response.body);
    }
    assert!(!response.body.contains("secret-hop") && !response.body.contains("1.2.3.4"));
    assert!(!response.head.contains("keep-alive"), "{}", response.head);
    assert_eq!(
        setting
            .curl(&["--path-as-is", "http://a.example.com/x/../api"])
            .await
            .status,
        400
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn host_of_an_older_ingress_of_another_namespace_is_not_taken() {
    let setting = Setting::start().await;
    for namespace in ["owner", "tenant"] {
        setting.create_namespace(namespace).await;
        setting.add_backend(namespace, namespace).await;
    }
    let spec = json!({"rules": [rule("shop.example.com", "/", "owner"), rule("*.wild.example.com", "/", "owner")]});
    setting.create(ingress("owner", "i", spec)).await;
    setting
        .wait_for_server("http://shop.example.com/admin", "owner")
        .await;
    let spec = json!({"rules": [
        rule("shop.example.com", "/admin", "tenant"),
        rule("x.wild.example.com", "/", "tenant"),
        rule("own.example.com", "/", "tenant"),
    ]});
    setting.create(ingress("tenant", "i", spec)).await;
    setting
        .wait_for_server("http://own.example.com/", "tenant")
        .await;
    for url in [
        "http://shop.example.com/admin",
        "http://x.wild.example.com/",
    ] {
        setting.wait_for_server(url, "owner").await;
    }
    let events = "/api/v1/namespaces/tenant/events";
    let found = setting
        .wait_for_object(events, "event", |list| {
            list["items"][0]["reason"] == "HostConflict"
        })
        .await;
    let message = found["items"][0]["message"].as_str().unwrap();
    assert!(
        message.contains("shop.example.com") && message.contains("x.wild.example.com"),
        "{message}"
    );
    // The host is free when its owner deletes it.
    let admin = setting.plane.admin();
    admin
        .delete("/apis/networking.k8s.io/v1/namespaces/owner/ingresses/i")
        .await
        .expect_success();
    setting
        .wait_for_server("http://shop.example.com/admin", "tenant")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_tried_in_turn_until_one_is_connected() {
    let setting = Setting::start().await;
    setting.create_namespace("a").await;
    setting.add_service("a", "local").await;
    let good = setting.add_backend("a", "web").await;
    // No server listens there: the socket keeps the port from the servers of other tests.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind(SocketAddr::new(good.ip(), 0)).unwrap();
    let closed = silent.local_addr().unwrap();
    setting.add_endpoint("a", "web", closed, true).await;
    let spec = json!({"rules": [rule("local.example.com", "/", "local"), rule("web.example.com", "/", "web"),
        rule("missing.example.com", "/", "missing")]});
    setting.create(ingress("a", "i", spec)).await;
    setting
        .wait_for_server("http://web.example.com/", "web")
        .await;
    for _ in 0..4 {
        let response = setting
            .curl(&["http://web.example.com/", "--data", "x"])
            .await;
        assert_eq!((response.status, response.server()), (200, "web"));
    }
    for host in ["local", "missing"] {
        assert_eq!(
            setting
                .curl(&[&format!("http://{host}.example.com/")])
                .await
                .status,
            503,
            "{host}"
        );
    }
    assert_eq!(
        setting.curl(&["http://unknown.example.com/"]).await.status,
        404
    );
}
