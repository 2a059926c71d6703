//! Paths that servers read differently: a request gets past no route in this way.

use serde_json::json;

use crate::ingress::{ingress, rule};
use crate::setting::Setting;

/// A server of the catch-all route could take each of these paths for one below `/admin`.
const AMBIGUOUS: [&str; 13] = [
    "//admin",
    "/./admin",
    "/x/../admin",
    "/x/%2e%2e/admin",
    "/x/..;/admin",
    "/%2e/admin",
    "/admin;x=1",
    "/;x/admin",
    "/%2fadmin",
    "/x%2f..%2fadmin",
    "/%5cadmin",
    "/admin%3bx",
    "/admin%00",
];

#[tokio::test(flavor = "multi_thread")]
async fn route_of_a_path_is_not_bypassed_by_another_spelling() {
    let setting = Setting::start().await;
    setting.create_namespace("a").await;
    for name in ["web", "guard"] {
        setting.add_backend("a", name).await;
    }
    let mut rules = rule("a.example.com", "/", "web");
    for (path, service) in [("/admin", "guard"), ("/static", "web")] {
        let path = rule("a.example.com", path, service)["http"]["paths"][0].clone();
        rules["http"]["paths"].as_array_mut().unwrap().push(path);
    }
    let spec = json!({"rules": [rules]});
    setting.create(ingress("a", "i", spec)).await;
    setting
        .wait_for_server("http://a.example.com/admin", "guard")
        .await;
    for path in AMBIGUOUS {
        let url = format!("http://a.example.com{path}");
        let response = setting.curl(&["--path-as-is", &url]).await;
        assert_eq!(response.status, 400, "{path}: {response:?}");
    }
    // The endpoint gets what was compared with the routes, and nothing else is changed.
    for (path, server, seen) in [
        ("/%61dmin", "guard", "/admin"),
        ("/admin//x;y", "guard", "/admin//x;y"),
        ("/admin/%2f", "guard", "/admin/%2f"),
        ("//static/x", "web", "//static/x"),
        (
            "/proxy/https://b.com/;v=1",
            "web",
            "/proxy/https://b.com/;v=1",
        ),
        (
            "/files/a%2fb?path=//admin",
            "web",
            "/files/a%2fb?path=//admin",
        ),
        ("/x%252e%252e/admin", "web", "/x%252e%252e/admin"),
    ] {
        let url = format!("http://a.example.com{path}");
        let response = setting.curl(&["--path-as-is", &url]).await;
        assert_eq!(
            (response.status, response.server()),
            (200, server),
            "{path}"
        );
        assert!(
            response.has_line(&format!("GET {seen}")),
            "{path}: {response:?}"
        );
    }
}
