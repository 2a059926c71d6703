//! TLS: certificates by SNI, changed while the gateway runs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::ingress::{ingress, rule};
use crate::setting::{CurlResponse, Setting};

/// Returns a self-signed certificate for a host, and the data of its Secret.
fn make_pair(host: &str) -> (String, Value) {
    let made = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
    let certificate = made.cert.pem();
    let data = json!({"tls.crt": STANDARD.encode(&certificate),
        "tls.key": STANDARD.encode(made.signing_key.serialize_pem())});
    (certificate, data)
}

pub(crate) fn secret(namespace: &str, name: &str, host: &str) -> (String, Value) {
    let (certificate, data) = make_pair(host);
    let object = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace}, "data": data});
    (certificate, object)
}

/// Allows the gateway to read the certificates of a namespace, as the manual says.
pub(crate) async fn grant_certificates(setting: &Setting, namespace: &str) {
    setting
        .create(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "gateway", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "ironclad-gateway-certificates"},
            "subjects": [{"kind": "ServiceAccount", "name": "ironclad-gateway", "namespace": "ironclad-gateway"}]}))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_is_chosen_by_name_and_renewed_without_a_restart() {
    let setting = Setting::start().await;
    setting.create_namespace("a").await;
    grant_certificates(&setting, "a").await;
    setting.add_backend("a", "web").await;
    let spec = json!({
        "rules": [rule("one.example.com", "/", "web"), rule("two.example.com", "/", "web"), rule("bare.example.com", "/", "web")],
        "tls": [{"hosts": ["one.example.com"], "secretName": "one"}, {"hosts": ["two.example.com"], "secretName": "two"}],
    });
    let mut files = Vec::new();
    for name in ["one", "two"] {
        let (certificate, object) = secret("a", name, &format!("{name}.example.com"));
        setting.create(object).await;
        let file = setting.plane.folder().join(format!("{name}.crt"));
        std::fs::write(&file, certificate).unwrap();
        files.push(file.display().to_string());
    }
    setting.create(ingress("a", "i", spec)).await;
    let verified = |response: &CurlResponse| {
        response.status == 200 && response.has_line("x-forwarded-proto: https")
    };
    for (name, file) in ["one", "two"].iter().zip(&files) {
        let url = format!("https://{name}.example.com/");
        for version in ["--http1.1", "--http2"] {
            setting
                .wait_for(&[version, "--cacert", file, &url], verified)
                .await;
        }
    }
    // Without a certificate of its own, a host has one that no client trusts.
    let bare = "https://bare.example.com/";
    assert_eq!(setting.curl(&["--cacert", &files[0], bare]).await.status, 0);
    assert_eq!(setting.curl(&["--insecure", bare]).await.status, 200);
    let other = [
        "--insecure",
        "https://one.example.com/",
        "--header",
        "Host: two.example.com",
    ];
    assert_eq!(setting.curl(&other).await.status, 421);

    let (certificate, data) = make_pair("one.example.com");
    std::fs::write(&files[0], certificate).unwrap();
    let admin = setting.plane.admin();
    let path = "/api/v1/namespaces/a/secrets/one";
    admin
        .merge_patch(path, &json!({"data": data}))
        .await
        .expect_success();
    setting
        .wait_for(
            &["--cacert", &files[0], "https://one.example.com/"],
            verified,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_is_not_read_without_a_right_of_its_namespace() {
    let setting = Setting::start().await;
    setting.create_namespace("a").await;
    setting.add_backend("a", "web").await;
    let (certificate, object) = secret("a", "one", "one.example.com");
    setting.create(object).await;
    let file = setting.plane.folder().join("one.crt");
    std::fs::write(&file, certificate).unwrap();
    let spec =
        json!({"rules": [rule("one.example.com", "/", "web")], "tls": [{"secretName": "one"}]});
    setting.create(ingress("a", "i", spec)).await;
    setting
        .wait_for_server("http://one.example.com/", "web")
        .await;
    // A certificate that is named later and may be read shows that there was time for this one.
    setting.create_namespace("b").await;
    grant_certificates(&setting, "b").await;
    let (other, object) = secret("b", "two", "two.example.com");
    setting.create(object).await;
    setting.add_backend("b", "web").await;
    let spec =
        json!({"rules": [rule("two.example.com", "/", "web")], "tls": [{"secretName": "two"}]});
    setting.create(ingress("b", "i", spec)).await;
    let trusted = setting.plane.folder().join("two.crt");
    std::fs::write(&trusted, other).unwrap();
    let trusted = trusted.display().to_string();
    let request = ["--cacert", &trusted, "https://two.example.com/"];
    setting
        .wait_for(&request, |response| response.status == 200)
        .await;
    let file = file.display().to_string();
    assert_eq!(
        setting
            .curl(&["--cacert", &file, "https://one.example.com/"])
            .await
            .status,
        0
    );
}
