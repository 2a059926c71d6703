//! Client certificates for webhooks, from the kubeconfig of the admission configuration.

use super::{CONFIGURATIONS, MAPS, config_map, configuration, register, reply};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use testkit_control_plane::{
    Caller, ClientCertificates, ClientIdentity, ControlPlane, WebhookReply, WebhookServer,
};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const DEADLINE: Duration = Duration::from_secs(60);

/// Writes an AdmissionConfiguration in which this server has the certificate; returns the flag.
fn write_config(folder: &Path, identity: &ClientIdentity, server: &str) -> String {
    let (certificate, key) = (folder.join("client.crt"), folder.join("client.key"));
    std::fs::write(&certificate, &identity.certificate).unwrap();
    std::fs::write(&key, &identity.key).unwrap();
    let users = json!({"apiVersion": "v1", "kind": "Config", "users": [{"name": server,
        "user": {"client-certificate": certificate, "client-key": key}}]});
    let kubeconfig = folder.join("webhooks.kubeconfig");
    std::fs::write(&kubeconfig, users.to_string()).unwrap();
    let file = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{"name": "MutatingAdmissionWebhook", "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": kubeconfig}}]});
    let path = folder.join("admission.yaml");
    std::fs::write(&path, file.to_string()).unwrap();
    format!("--admission-control-config-file={}", path.display())
}

async fn start_server(clients: ClientCertificates<'_>) -> WebhookServer {
    WebhookServer::start_with(&[], clients, |_, review| reply(review, None)).await
}

fn authority(server: &WebhookServer) -> String {
    STANDARD.encode(server.authority())
}

fn host(server: &WebhookServer) -> String {
    format!("127.0.0.1:{}", server.port())
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
}

/// Creates a configuration of a webhook without which no Secret is created, and the same webhook
/// for ConfigMaps, whose failure is ignored. Checks that the server rejects the connections.
async fn expect_rejected_connections(admin: &Caller, server: &WebhookServer, url: &str) {
    let mut rejecting = configuration(server, "rejecting", &["secrets"]);
    rejecting["webhooks"][0]["clientConfig"]["url"] = url.into();
    let mut ignored = rejecting["webhooks"][0].clone();
    ignored["name"] = "ignored.example.com".into();
    ignored["failurePolicy"] = "Ignore".into();
    ignored["rules"][0]["resources"] = json!(["configmaps"]);
    let hooks = rejecting["webhooks"].as_array_mut().unwrap();
    hooks.push(ignored);
    let created = admin.post(CONFIGURATIONS, &rejecting).await;
    created.expect_success();
    let begun = Instant::now();
    let refused = loop {
        let path = format!("{SECRETS}?dryRun=All");
        let response = admin.post(&path, &secret("marker")).await;
        if response.status != 201 {
            break response;
        }
        assert!(begun.elapsed() < DEADLINE, "never called");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let text = refused.expect_status(500).text();
    assert!(text.contains("rejecting.example.com"), "{text}");
    let before = server.failed_handshakes();
    let created = admin.post(MAPS, &config_map("ignored")).await;
    created.expect_status(201);
    assert!(server.failed_handshakes() > before, "it was not called");
    assert!(server.received().is_empty());
    let path = format!("{CONFIGURATIONS}/rejecting");
    admin.delete(&path).await.expect_success();
}

/// The server that the kubeconfig names gets the certificate. Others do not, though they request
/// it, and one that requires it fails by its policy.
#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_is_sent_to_the_server_of_its_name_only() {
    let identity = ClientIdentity::issue().unwrap();
    let own = start_server(ClientCertificates::Required(&identity.authority)).await;
    let other = start_server(ClientCertificates::Requested(&identity.authority)).await;
    let strict = start_server(ClientCertificates::Required(&identity.authority)).await;
    let folder = tempfile::tempdir().unwrap();
    let flag = write_config(folder.path(), &identity, &host(&own));
    let plane = ControlPlane::start_with_flags(&[&flag]).await;
    let admin = plane.admin();
    expect_rejected_connections(&admin, &strict, &strict.url("/")).await;
    for (name, server) in [("own", &own), ("other", &other)] {
        let object = configuration(server, name, &["configmaps"]);
        register(&admin, server, &object).await;
    }
    admin.post(MAPS, &config_map("m")).await.expect_success();
    let all_have = |server: &WebhookServer, expected: Option<&Vec<u8>>| {
        let received = server.received();
        let mut found = received.iter().map(|call| call.client_certificate.as_ref());
        found.all(|found| found == expected)
    };
    assert!(all_have(&own, Some(&identity.der)));
    assert!(all_have(&other, None));
}

/// Without the file, and for a URL that leads to the same server by another name, the server gets
/// no certificate.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_requires_a_certificate_fails_by_its_policy_without_one() {
    let identity = ClientIdentity::issue().unwrap();
    let own = start_server(ClientCertificates::Required(&identity.authority)).await;
    let without = ControlPlane::start().await;
    expect_rejected_connections(&without.admin(), &own, &own.url("/")).await;
    let folder = tempfile::tempdir().unwrap();
    let flag = write_config(folder.path(), &identity, &host(&own));
    let plane = ControlPlane::start_with_flags(&[&flag]).await;
    let renamed = format!("https://localhost:{}/", own.port());
    expect_rejected_connections(&plane.admin(), &own, &renamed).await;
}

/// The target of a redirect gets neither the certificate nor a connection.
#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_does_not_follow_a_redirect() {
    let identity = ClientIdentity::issue().unwrap();
    let target = start_server(ClientCertificates::Requested(&identity.authority)).await;
    let location = target.url("/");
    let clients = ClientCertificates::Required(&identity.authority);
    let own = WebhookServer::start_with(&[], clients, move |_, _| WebhookReply {
        status: 307,
        headers: vec![("location", location.clone())],
        body: Default::default(),
        delay: Duration::ZERO,
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let flag = write_config(folder.path(), &identity, &host(&own));
    let plane = ControlPlane::start_with_flags(&[&flag]).await;
    let admin = plane.admin();
    register(
        &admin,
        &own,
        &configuration(&own, "redirect", &["configmaps"]),
    )
    .await;
    admin.post(MAPS, &config_map("m")).await.expect_status(500);
    let first = own.received().remove(0);
    assert_eq!(first.client_certificate, Some(identity.der));
    assert!(target.received().is_empty());
    assert_eq!(target.failed_handshakes(), 0);
}

/// A server with a certificate of another CA than the `caBundle` sees the failed handshake only: its
/// operator must not learn for which clients the API server holds certificates.
#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_is_not_sent_to_a_server_that_is_not_verified() {
    let identity = ClientIdentity::issue().unwrap();
    let own = start_server(ClientCertificates::Requested(&identity.authority)).await;
    let folder = tempfile::tempdir().unwrap();
    let flag = write_config(folder.path(), &identity, &host(&own));
    let plane = ControlPlane::start_with_flags(&[&flag]).await;
    let other = start_server(ClientCertificates::Ignored).await;
    let mut untrusted = configuration(&own, "untrusted", &["secrets"]);
    untrusted["webhooks"][0]["clientConfig"]["caBundle"] = authority(&other).into();
    let admin = plane.admin();
    admin
        .post(CONFIGURATIONS, &untrusted)
        .await
        .expect_success();
    register(&admin, &own, &configuration(&own, "own", &["configmaps"])).await;
    let before = own.received().len();
    admin.post(SECRETS, &secret("s")).await.expect_status(500);
    assert_eq!(own.received().len(), before);
}

/// The owner of a CustomResourceDefinition chooses the URL of its conversion webhook. The
/// credentials are those of admission, as upstream.
#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_is_not_sent_to_a_conversion_webhook() {
    let identity = ClientIdentity::issue().unwrap();
    let own = start_server(ClientCertificates::Required(&identity.authority)).await;
    let folder = tempfile::tempdir().unwrap();
    let flag = write_config(folder.path(), &identity, &host(&own));
    let plane = ControlPlane::start_with_flags(&[&flag]).await;
    let admin = plane.admin();
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema},
                {"name": "v2", "served": true, "storage": false, "schema": schema}],
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
                "clientConfig": {"url": own.url("/"), "caBundle": authority(&own)}}}}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    admin.post(definitions, &definition).await.expect_success();
    let [v1, v2] =
        ["v1", "v2"].map(|version| format!("/apis/example.com/{version}/namespaces/default/foos"));
    let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "f"}});
    let begun = Instant::now();
    while admin.post(&v1, &foo).await.status != 201 {
        assert!(begun.elapsed() < DEADLINE, "not established");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    admin.get(&format!("{v2}/f")).await.expect_status(500);
    assert!(own.failed_handshakes() > 0, "it was not called");
    assert!(own.received().is_empty());
}
