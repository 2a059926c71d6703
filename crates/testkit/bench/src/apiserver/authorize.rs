//! Gets by a user whose rights come from a RoleBinding, with few and with many RoleBindings.

use super::connection::{CLIENTS, Call, Connection};
use super::pods::{JSON, Pods};
use crate::rows::Rows;
use crate::server::{Load, Server};
use anyhow::Context;
use client::{Client, Request};
use futures::{StreamExt, TryStreamExt, stream};
use http::{HeaderValue, header};
use serde_json::{Value, json};

const GROUP: &str = "/apis/rbac.authorization.k8s.io/v1";
/// Name of the account, the Role and its RoleBinding.
const NAME: &str = "authorize-bench";
/// Label of the RoleBindings of other users.
const LABEL: &str = "authorize-bench";
/// Concurrent creates.
const WRITERS: usize = 32;
/// Other RoleBindings.
const BINDINGS: usize = 10_000;

/// Measures both, and gets by the administrator beside them.
pub async fn measure(
    server: &Server,
    administrator: &Connection,
    pods: &Pods,
    requests: usize,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let token = create_reader(server, pods).await?;
    let mut config = server.config().clone();
    // The certificate would be the user.
    config.identity = None;
    let connections = Connection::open_many(&config, 1).await?;
    let reader = connections.first().context("no connection")?;
    let bearer = HeaderValue::from_str(&format!("Bearer {token}"))?;
    let bindings = format!("{GROUP}/namespaces/{}/rolebindings", pods.namespace());
    for count in [0, BINDINGS] {
        create_others(server, &bindings, count).await?;
        let what = format!("get pod with {count} other RoleBindings");
        let load = run_gets(server, reader, pods, requests, Some(&bearer)).await?;
        rows.add_load(&format!("{what}, user of a RoleBinding"), pods.count, &load);
        let load = run_gets(server, administrator, pods, requests, None).await?;
        rows.add_load(&format!("{what}, administrator"), pods.count, &load);
    }
    server.delete_all(&bindings, LABEL).await
}

/// Creates an account that may get pods; returns its token.
async fn create_reader(server: &Server, pods: &Pods) -> anyhow::Result<String> {
    let namespace = pods.namespace();
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let role = json!({"metadata": {"name": NAME},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    let subject = json!({"kind": "ServiceAccount", "name": NAME, "namespace": namespace});
    for (path, object) in [
        (accounts.clone(), json!({"metadata": {"name": NAME}})),
        (format!("{GROUP}/namespaces/{namespace}/roles"), role),
        (
            format!("{GROUP}/namespaces/{namespace}/rolebindings"),
            build_binding(NAME, &json!({}), &subject),
        ),
    ] {
        create(server.client(), &path, &object).await?;
    }
    let path = format!("{accounts}/{NAME}/token");
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 36_000}});
    let response = server.client().bytes(Request::post(path, &body)?).await?;
    let response: Value = serde_json::from_slice(&response)?;
    let token = response.pointer("/status/token").and_then(Value::as_str);
    token.map(str::to_owned).context("no token")
}

/// Creates RoleBindings of other users in the namespace of the pods.
async fn create_others(server: &Server, path: &str, count: usize) -> anyhow::Result<()> {
    let labels = json!({LABEL: "true"});
    let labels = &labels;
    stream::iter(0..count)
        .map(|number| async move {
            let user = json!({"kind": "User", "name": format!("user-{number}"),
                "apiGroup": "rbac.authorization.k8s.io"});
            let binding = build_binding(&format!("other-{number}"), labels, &user);
            create(server.client(), path, &binding).await
        })
        .buffer_unordered(WRITERS)
        .try_collect::<()>()
        .await
}

fn build_binding(name: &str, labels: &Value, subject: &Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME}})
}

async fn create(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    match client.bytes(Request::post(path, object)?).await {
        // Of an earlier run.
        Err(error) if error.is_already_exists() => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

async fn run_gets(
    server: &Server,
    connection: &Connection,
    pods: &Pods,
    requests: usize,
    bearer: Option<&HeaderValue>,
) -> anyhow::Result<Load> {
    let get = |number: usize| async move {
        // Far apart, so that neighbours in memory do not help.
        let mut call = Call::get(pods.path(number * 7919 % pods.count), JSON);
        if let Some(bearer) = bearer {
            call.headers.insert(header::AUTHORIZATION, bearer.clone());
        }
        connection.read(call).await.map(drop)
    };
    // The first ones fill caches.
    server.run_load(requests.min(CLIENTS), CLIENTS, get).await?;
    server.run_load(requests, CLIENTS, get).await
}
