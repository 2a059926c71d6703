//! Gateways and HTTPRoutes.

use serde_json::{Value, json};

use crate::setting::{ADDRESS, CurlResponse, Setting, condition};
use crate::tls::{grant_certificates, secret};

pub(crate) const GROUP: &str = "gateway.networking.k8s.io/v1";

pub(crate) fn path(namespace: &str, plural: &str, name: &str) -> String {
    format!("/apis/{GROUP}/namespaces/{namespace}/{plural}/{name}")
}

pub(crate) fn gateway(namespace: &str, name: &str, listeners: Value) -> Value {
    json!({"apiVersion": GROUP, "kind": "Gateway", "metadata": {"name": name, "namespace": namespace},
        "spec": {"gatewayClassName": "ironclad", "listeners": listeners}})
}

pub(crate) fn route(
    namespace: &str,
    name: &str,
    parent: Value,
    hosts: &[&str],
    rules: Value,
) -> Value {
    json!({"apiVersion": GROUP, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": [parent], "hostnames": hosts, "rules": rules}})
}

pub(crate) fn backend(name: &str) -> Value {
    json!({"name": name, "port": 80})
}

fn grant(namespace: &str, from: (&str, &str), to: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
        "metadata": {"name": "grant", "namespace": namespace},
        "spec": {"from": [{"group": "gateway.networking.k8s.io", "kind": from.0, "namespace": from.1}],
            "to": [{"group": "", "kind": to}]}})
}

/// Starts a gateway with the kinds of the Gateway API, a class and these namespaces.
async fn start(namespaces: &[&str]) -> Setting {
    start_with(&[], namespaces).await
}

/// Starts the gateway with these flags in addition.
pub(crate) async fn start_with(flags: &[&str], namespaces: &[&str]) -> Setting {
    let setting = Setting::start_with(flags).await;
    setting.add_gateway_api().await;
    setting
        .create(
            json!({"apiVersion": GROUP, "kind": "GatewayClass", "metadata": {"name": "ironclad"},
            "spec": {"controllerName": "ironclad/gateway"}}),
        )
        .await;
    for namespace in namespaces {
        setting.create_namespace(namespace).await;
    }
    setting
}

async fn wait_for_parent(setting: &Setting, route: (&str, &str), kind: &str, want: (&str, &str)) {
    let path = path(route.0, "httproutes", route.1);
    setting
        .wait_for_object(&path, &format!("{kind} {want:?}"), |found| {
            condition(&found["status"]["parents"][0]["conditions"], kind) == want
        })
        .await;
}

/// Returns rules with each kind of match and filter.
fn changing_rules() -> Value {
    let headers =
        |edit: Value| json!({"type": "RequestHeaderModifier", "requestHeaderModifier": edit});
    let rewrite = json!({"type": "URLRewrite", "urlRewrite": {"hostname": "inner.example.com",
        "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}}});
    let redirect = json!({"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}});
    let response = json!({"type": "ResponseHeaderModifier", "responseHeaderModifier": {"remove": ["x-backend"], "set": [{"name": "x-frame", "value": "deny"}]}});
    let prefix = |value: &str| json!({"path": {"type": "PathPrefix", "value": value}});
    json!([
        {"matches": [prefix("/")], "backendRefs": [backend("root")]},
        {"matches": [{"path": {"type": "Exact", "value": "/x"}}], "backendRefs": [backend("exact")]},
        {"matches": [{"headers": [{"name": "version", "value": "two"}]}], "backendRefs": [backend("header")]},
        {"matches": [{"method": "PUT"}], "backendRefs": [backend("method")]},
        {"matches": [prefix("/old")], "filters": [rewrite, headers(json!({"add": [{"name": "x-a", "value": "1"}], "remove": ["x-b"]})), response],
            "backendRefs": [backend("root")]},
        {"matches": [prefix("/secure")], "filters": [redirect]},
        {"matches": [prefix("/none")]},
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_match_and_change_requests_as_specified() {
    let setting = start(&["a"]).await;
    for name in ["root", "exact", "header", "method"] {
        setting.add_backend("a", name).await;
    }
    let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
    setting.create(gateway("a", "g", listeners)).await;
    let rules = changing_rules();
    setting
        .create(route(
            "a",
            "r",
            json!({"name": "g"}),
            &["r.example.com"],
            rules,
        ))
        .await;
    setting
        .wait_for_server("http://r.example.com/", "root")
        .await;
    for (arguments, server) in [
        (&["http://r.example.com/x"][..], "exact"),
        (&["http://r.example.com/x/"], "root"),
        (
            &["http://r.example.com/", "--header", "Version: two"],
            "header",
        ),
        (
            &["http://r.example.com/x", "--header", "Version: two"],
            "exact",
        ),
        (&["http://r.example.com/", "--request", "PUT"], "method"),
        (
            &[
                "http://r.example.com/",
                "--request",
                "PUT",
                "--header",
                "Version: two",
            ],
            "method",
        ),
    ] {
        assert_eq!(
            setting.curl(arguments).await.server(),
            server,
            "{arguments:?}"
        );
    }
    check_filters(&setting).await;
    check_statuses(&setting).await;
}

/// Checks the changes that filters make.
async fn check_filters(setting: &Setting) {
    let changed = setting
        .curl(&["http://r.example.com/old/page?q", "--header", "X-B: 1"])
        .await;
    for line in ["GET /new/page?q", "host: inner.example.com", "x-a: 1"] {
        assert!(changed.has_line(line), "{line}: {}", changed.body);
    }
    assert!(
        !changed.body.contains("x-b:") && changed.head.contains("x-frame: deny"),
        "{changed:?}"
    );
    assert!(!changed.head.contains("x-backend"), "{}", changed.head);
    let moved = setting.curl(&["http://r.example.com/secure/page"]).await;
    assert_eq!(moved.status, 301);
    assert!(
        moved
            .head
            .contains("location: https://r.example.com/secure/page"),
        "{}",
        moved.head
    );
    assert_eq!(
        setting.curl(&["http://r.example.com/none"]).await.status,
        500
    );
    assert_eq!(
        setting.curl(&["http://other.example.com/"]).await.status,
        404
    );
}

/// Checks the statuses of the Gateway, its route and its class.
async fn check_statuses(setting: &Setting) {
    let stored = setting
        .wait_for_object(&path("a", "gateways", "g"), "programmed", |found| {
            condition(&found["status"]["conditions"], "Programmed") == ("True", "Programmed")
                && found["status"]["listeners"][0]["attachedRoutes"] == 1
        })
        .await;
    assert_eq!(stored["status"]["addresses"][0]["value"], ADDRESS);
    wait_for_parent(setting, ("a", "r"), "Accepted", ("True", "Accepted")).await;
    wait_for_parent(
        setting,
        ("a", "r"),
        "ResolvedRefs",
        ("True", "ResolvedRefs"),
    )
    .await;
    let class = format!("/apis/{GROUP}/gatewayclasses/ironclad");
    setting
        .wait_for_object(&class, "accepted", |found| {
            condition(&found["status"]["conditions"], "Accepted") == ("True", "Accepted")
        })
        .await;
}

/// Starts a gateway whose listener `team` allows the namespace `app` only.
async fn start_shared() -> Setting {
    let setting = start(&["infra", "app", "data"]).await;
    setting.add_backend("app", "web").await;
    setting.add_backend("data", "db").await;
    let labels = json!({"matchLabels": {"team": "app"}});
    let listeners = json!([
        {"name": "same", "port": 80, "protocol": "HTTP", "hostname": "same.example.com"},
        {"name": "team", "port": 80, "protocol": "HTTP", "hostname": "*.team.example.com",
            "allowedRoutes": {"namespaces": {"from": "Selector", "selector": labels}}},
    ]);
    setting.create(gateway("infra", "g", listeners)).await;
    setting
}

fn shared(section: &str) -> Value {
    json!({"name": "g", "namespace": "infra", "sectionName": section})
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_attach_to_listeners_that_allow_them() {
    let setting = start_shared().await;
    let rules = json!([{"backendRefs": [backend("web")]}]);
    for (namespace, name, section, host, reason) in [
        (
            "app",
            "same",
            "same",
            "same.example.com",
            "NotAllowedByListeners",
        ),
        (
            "data",
            "label",
            "team",
            "l.team.example.com",
            "NotAllowedByListeners",
        ),
        (
            "app",
            "host",
            "team",
            "other.example.com",
            "NoMatchingListenerHostname",
        ),
        (
            "app",
            "missing",
            "x",
            "m.team.example.com",
            "NoMatchingParent",
        ),
    ] {
        let object = route(namespace, name, shared(section), &[host], rules.clone());
        setting.create(object).await;
        wait_for_parent(&setting, (namespace, name), "Accepted", ("False", reason)).await;
        let url = format!("http://{host}/");
        assert_eq!(setting.curl(&[&url]).await.status, 404, "{host}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn service_of_another_namespace_needs_a_grant() {
    let setting = start_shared().await;
    let rules = json!([{"backendRefs": [{"name": "db", "namespace": "data", "port": 80}]}]);
    let object = route("app", "db", shared("team"), &["db.team.example.com"], rules);
    setting.create(object).await;
    let (name, kind, url) = (("app", "db"), "ResolvedRefs", "http://db.team.example.com/");
    wait_for_parent(&setting, name, kind, ("False", "RefNotPermitted")).await;
    let is_refused = |response: &CurlResponse| response.status == 500;
    setting.wait_for(&[url], is_refused).await;
    setting
        .create(grant("data", ("HTTPRoute", "app"), "Service"))
        .await;
    setting.wait_for_server(url, "db").await;
    wait_for_parent(&setting, name, kind, ("True", "ResolvedRefs")).await;
    let grants = "/apis/gateway.networking.k8s.io/v1beta1/namespaces/data/referencegrants/grant";
    setting.plane.admin().delete(grants).await.expect_success();
    setting.wait_for(&[url], is_refused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listener_with_tls_needs_a_certificate_that_it_may_use() {
    let setting = start(&["infra", "certs"]).await;
    setting.add_backend("infra", "web").await;
    grant_certificates(&setting, "certs").await;
    let (certificate, object) = secret("certs", "tls", "secure.example.com");
    setting.create(object).await;
    let file = setting.plane.folder().join("tls.crt");
    std::fs::write(&file, certificate).unwrap();
    let listeners = json!([
        {"name": "https", "port": 443, "protocol": "HTTPS", "hostname": "secure.example.com",
            "tls": {"certificateRefs": [{"name": "tls", "namespace": "certs"}]}},
        {"name": "odd", "port": 8081, "protocol": "HTTP"},
        {"name": "tcp", "port": 9000, "protocol": "TCP"},
    ]);
    setting.create(gateway("infra", "g", listeners)).await;
    let rules = json!([{"backendRefs": [backend("web")]}]);
    setting
        .create(route("infra", "r", json!({"name": "g"}), &[], rules))
        .await;
    let gateway = path("infra", "gateways", "g");
    let listener = |found: &Value, index: usize, kind: &str| {
        let conditions = &found["status"]["listeners"][index]["conditions"];
        let (status, reason) = condition(conditions, kind);
        format!("{status} {reason}")
    };
    setting
        .wait_for_object(&gateway, "refused", |found| {
            listener(found, 0, "ResolvedRefs") == "False RefNotPermitted"
                && listener(found, 0, "Programmed") == "False Invalid"
                && listener(found, 1, "Accepted") == "False PortUnavailable"
                && listener(found, 2, "Accepted") == "False UnsupportedProtocol"
        })
        .await;
    let file = file.display().to_string();
    let request = ["--cacert", &file, "https://secure.example.com/"];
    assert_eq!(setting.curl(&request).await.status, 0);
    setting
        .create(grant("certs", ("Gateway", "infra"), "Secret"))
        .await;
    let response = setting
        .wait_for(&request, |response| response.status == 200)
        .await;
    assert!(response.has_line("web"), "{response:?}");
    setting
        .wait_for_object(&gateway, "programmed", |found| {
            listener(found, 0, "Programmed") == "True Programmed"
        })
        .await;
    // The listener is not one of HTTP.
    assert_eq!(
        setting.curl(&["http://secure.example.com/"]).await.status,
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_shared_by_weight_and_unusable_routes_are_refused() {
    let setting = start(&["a"]).await;
    for name in ["one", "two", "never"] {
        setting.add_backend("a", name).await;
    }
    let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
    setting.create(gateway("a", "g", listeners)).await;
    let weighted = |name: &str, weight: u32| json!({"name": name, "port": 80, "weight": weight});
    let rules =
        json!([{"backendRefs": [weighted("one", 1), weighted("two", 1), weighted("never", 0)]}]);
    setting
        .create(route(
            "a",
            "w",
            json!({"name": "g"}),
            &["w.example.com"],
            rules,
        ))
        .await;
    let url = "http://w.example.com/";
    // Both are reached at some time; the third one never is.
    for name in ["one", "two"] {
        setting
            .wait_for(&[url], |response| {
                assert_ne!(response.server(), "never");
                response.server() == name
            })
            .await;
    }
    let refused = |filter: Value| json!([{"filters": [filter], "backendRefs": [backend("one")]}]);
    let mirror = json!({"type": "RequestMirror"});
    let injected = json!({"type": "RequestHeaderModifier", "requestHeaderModifier":
        {"set": [{"name": "x-a", "value": "1\r\nx-admin: 1"}]}});
    for (name, filter) in [("mirror", mirror), ("inject", injected)] {
        let host = format!("{name}.example.com");
        setting
            .create(route(
                "a",
                name,
                json!({"name": "g"}),
                &[&host],
                refused(filter),
            ))
            .await;
        wait_for_parent(
            &setting,
            ("a", name),
            "Accepted",
            ("False", "UnsupportedValue"),
        )
        .await;
        assert_eq!(
            setting.curl(&[&format!("http://{host}/")]).await.status,
            404,
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn listener_for_all_hosts_shows_its_certificate_for_hosts_without_an_owner() {
    let setting = start(&["a"]).await;
    grant_certificates(&setting, "a").await;
    setting.add_backend("a", "web").await;
    let (certificate, object) = secret("a", "any", "unknown.example.com");
    setting.create(object).await;
    let file = setting.plane.folder().join("any.crt");
    std::fs::write(&file, certificate).unwrap();
    let listener = json!([{"name": "https", "port": 443, "protocol": "HTTPS",
        "tls": {"certificateRefs": [{"name": "any"}]}}]);
    setting.create(gateway("a", "g", listener)).await;
    let rules = json!([{"backendRefs": [backend("web")]}]);
    let hosts = ["known.example.com"];
    setting
        .create(route("a", "r", json!({"name": "g"}), &hosts, rules))
        .await;
    let file = file.display().to_string();
    let unknown = ["--cacert", &file, "https://unknown.example.com/"];
    let response = setting
        .wait_for(&unknown, |response| response.status != 0)
        .await;
    assert_eq!(response.status, 404, "{response:?}");
    let known = setting
        .curl(&["--insecure", "https://known.example.com/"])
        .await;
    assert_eq!((known.status, known.server()), (200, "web"));
}
