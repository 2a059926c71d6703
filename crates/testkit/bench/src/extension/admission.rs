//! Creates with a validating webhook, and with ValidatingAdmissionPolicies.

use super::creates::{DRY_RUN, measure_creates};
use super::custom::{SELECTOR, build_config_map, build_labels};
use crate::rows::Rows;
use crate::server::{Cost, Server};
use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::{WebhookReply, WebhookServer};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// Creates that are sent before the measurement.
const WARM_UP: usize = 200;

/// Timeout for new configuration to take effect.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures creates with and without a webhook on loopback, over TLS.
pub async fn measure_webhook(
    server: &Server,
    requests: usize,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let webhook = WebhookServer::start(&[], |_, review| {
        let uid = review.pointer("/request/uid").cloned().unwrap_or_default();
        WebhookReply::json(
            &json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": uid, "allowed": true}}),
        )
    })
    .await;
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "extension-bench", "labels": build_labels()},
        "webhooks": [{"name": "allow.extension-bench.example.com", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "rules": [build_rule()],
            "clientConfig": {"url": webhook.url("/allow"),
                "caBundle": STANDARD.encode(webhook.authority())}}],
    });
    measure_creates(server, WARM_UP).await?;
    let without = measure_creates(server, requests).await?;
    let path = format!("{GROUP}/validatingwebhookconfigurations");
    server.create(&path, &configuration).await?;
    let measured = async {
        let begun = Instant::now();
        while webhook.received().is_empty() {
            ensure!(begun.elapsed() < PATIENCE, "the webhook was never called");
            measure_creates(server, 1).await?;
        }
        measure_creates(server, WARM_UP).await?;
        measure_creates(server, requests).await
    };
    let with = measured.await;
    server.delete_all(&path, SELECTOR).await?;
    add_rows(rows, "a webhook", 1, without, with?);
    Ok(())
}

/// Measures creates with and without policies.
pub async fn measure_policies(
    server: &Server,
    policies: usize,
    requests: usize,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    measure_creates(server, WARM_UP).await?;
    let without = measure_creates(server, requests).await?;
    let measured = create_policies(server, policies, requests).await;
    for resource in [
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicies",
    ] {
        server
            .delete_all(&format!("{GROUP}/{resource}"), SELECTOR)
            .await?;
    }
    add_rows(rows, "policies", policies, without, measured?);
    Ok(())
}

async fn create_policies(
    server: &Server,
    policies: usize,
    requests: usize,
) -> anyhow::Result<Cost> {
    for number in 0..policies {
        let name = format!("extension-bench-{number}");
        let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name, "labels": build_labels()},
        "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [build_rule()]},
            "validations": [
                {"expression": format!("object.metadata.name != 'deny-{number}'")},
                {"expression": "!has(object.data) || object.data.all(k, size(k) < 64)"},
            ]}});
        let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name, "labels": build_labels()},
            "spec": {"policyName": name, "validationActions": ["Deny"]}});
        server
            .create(&format!("{GROUP}/validatingadmissionpolicies"), &policy)
            .await?;
        server
            .create(
                &format!("{GROUP}/validatingadmissionpolicybindings"),
                &binding,
            )
            .await?;
    }
    for number in 0..policies {
        wait_until_denied(server, number).await?;
    }
    measure_creates(server, WARM_UP).await?;
    measure_creates(server, requests).await
}

/// Waits until a policy denies the object that only it denies.
async fn wait_until_denied(server: &Server, number: usize) -> anyhow::Result<()> {
    let mut denied = build_config_map(0, 0);
    if let Some(name) = denied.pointer_mut("/metadata/name") {
        *name = json!(format!("deny-{number}"));
    }
    let begun = Instant::now();
    while server.create(DRY_RUN, &denied).await.is_ok() {
        ensure!(begun.elapsed() < PATIENCE, "policy {number} has no effect");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn build_rule() -> Value {
    json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["configmaps"]})
}

fn add_rows(rows: &mut Rows, what: &str, size: usize, without: Cost, with: Cost) {
    rows.add_time("create, dry run", 0, without.wall);
    rows.add_time("create, dry run: server CPU", 0, without.cpu);
    rows.add_time(&format!("create, dry run, with {what}"), size, with.wall);
    rows.add_time(
        &format!("create, dry run, with {what}: server CPU"),
        size,
        with.cpu,
    );
    let added = with.cpu.saturating_sub(without.cpu);
    rows.add_time(&format!("server CPU for {what}, per request"), size, added);
}
