//! Creates, patches, and deletecollection.

use super::connection::{CLIENTS, Call, Connection};
use super::pods::{JSON, PROTO, Pods};
use crate::rows::Rows;
use crate::server::Server;
use bytes::Bytes;
use http::Method;
use serde_json::json;
use std::time::Duration;

/// Creates all pods: a sixteenth each by one client, and the others by many.
pub async fn measure_creates(
    server: &Server,
    connection: &Connection,
    pods: &Pods,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let few = pods.count / 16;
    let many = (pods.count - 2 * few) / 2;
    let mut first = 0;
    for (what, count, clients, media_type) in [
        ("create pod, 1 client, JSON", few, 1, JSON),
        ("create pod, 1 client, protobuf", few, 1, PROTO),
        ("create pod, 64 clients, JSON", many, CLIENTS, JSON),
        (
            "create pod, 64 clients, protobuf",
            pods.count - 2 * few - many,
            CLIENTS,
            PROTO,
        ),
    ] {
        let send = |number: usize| async move {
            connection
                .read(pods.create(first + number, media_type)?)
                .await?;
            Ok(())
        };
        let load = server.run_load(count, clients, send).await?;
        rows.add_load(what, count, &load);
        first += count;
    }
    Ok(())
}

/// Patches labels, and applies statuses.
pub async fn measure_patches(
    server: &Server,
    connection: &Connection,
    pods: &Pods,
    requests: usize,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let merge = |number: usize| async move {
        let patch = json!({"metadata": {"labels": {"patched": number.to_string()}}});
        let call = Call::get(pods.path(number % pods.count), JSON).with_body(
            Method::PATCH,
            "application/merge-patch+json",
            patch.to_string().into(),
        );
        connection.read(call).await?;
        Ok(())
    };
    let load = server.run_load(requests, CLIENTS, merge).await?;
    rows.add_load("merge patch of a label, 64 clients", pods.count, &load);
    let apply = |number: usize| async move {
        let pod = number % pods.count;
        let status = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{pod}")},
            "status": {"phase": "Running", "message": number.to_string(), "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}});
        let path = format!("{}/status?fieldManager=bench&force=true", pods.path(pod));
        let call = Call::get(path, JSON).with_body(
            Method::PATCH,
            "application/apply-patch+yaml",
            status.to_string().into(),
        );
        connection.read(call).await?;
        Ok(())
    };
    let load = server.run_load(requests, CLIENTS, apply).await?;
    rows.add_load(
        "server-side apply of a status, 64 clients",
        pods.count,
        &load,
    );
    Ok(())
}

/// Deletes all pods with one request.
pub async fn measure_delete(
    server: &Server,
    connection: &Connection,
    pods: &Pods,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let path = format!("{}?gracePeriodSeconds=0", pods.collection());
    let call = Call::get(path, JSON).with_body(Method::DELETE, JSON, Bytes::new());
    let before = server.read_memory()?;
    server.reset_peak()?;
    let (bytes, cost) = server.measure(connection.read(call)).await?;
    rows.add_count("bytes of deletecollection", pods.count, bytes as u64);
    rows.add_time("deletecollection", pods.count, cost.wall);
    rows.add_time("deletecollection: server CPU", pods.count, cost.cpu);
    let peak = (server.read_peak()? - before) / 1024.0;
    rows.add_amount(
        "deletecollection: growth of RSS at the peak",
        pods.count,
        "MB",
        peak,
    );
    // The allocator returns memory some seconds later.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let kept = (server.read_memory()? - before) / 1024.0;
    rows.add_amount(
        "deletecollection: growth of RSS 15 s later",
        pods.count,
        "MB",
        kept,
    );
    Ok(())
}
