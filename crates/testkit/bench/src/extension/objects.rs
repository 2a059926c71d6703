//! Lists and watches of custom objects, compared with ConfigMaps of the same size.

use super::custom::{
    GROUP, SELECTOR, build_config_map, build_definition, build_object, collection_path,
};
use crate::rows::Rows;
use crate::server::{Cost, Server};
use anyhow::bail;
use client::Request;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Concurrent creates.
const CALLERS: usize = 16;

/// Creates the objects and measures.
pub async fn measure(
    server: &Server,
    count: usize,
    rounds: u32,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let result = create_and_read(server, count, rounds, rows).await;
    for path in [CONFIG_MAPS, &collection_path(0), DEFINITIONS] {
        server.delete_all(path, SELECTOR).await?;
    }
    result
}

async fn create_and_read(
    server: &Server,
    count: usize,
    rounds: u32,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    server.create(DEFINITIONS, &build_definition(0)).await?;
    server.wait_for(&collection_path(0)).await?;
    let kinds = [
        ("custom objects", collection_path(0)),
        ("ConfigMaps", CONFIG_MAPS.to_owned()),
    ];
    let extra = compare_lengths(server).await?;
    let builders: [&dyn Fn(usize) -> Value; 2] =
        [&build_object, &|number| build_config_map(number, extra)];
    for ((what, path), build) in kinds.iter().zip(builders) {
        let ((), cost) = server
            .measure(create_objects(server, path, count, build))
            .await?;
        let each = cost.cpu / count.max(1) as u32;
        rows.add_time(&format!("create of {what}: server CPU each"), count, each);
    }
    let mut totals = [(Cost::default(), Cost::default()); 2];
    // The first round is not counted: caches and connections are filled then.
    for round in 0..=rounds {
        for ((_, path), (lists, watches)) in kinds.iter().zip(&mut totals) {
            let (bytes, list) = server.measure(list_objects(server, path)).await?;
            let ((), watch) = server.measure(watch_objects(server, path, count)).await?;
            if round > 0 {
                *lists += list;
                *watches += watch;
            } else {
                rows.add_count(&format!("bytes of a list of {path}"), count, bytes as u64);
            }
        }
    }
    for ((what, _), (lists, watches)) in kinds.iter().zip(totals) {
        for (verb, total) in [("list", lists), ("watch", watches)] {
            let mean = total.divide_by(rounds);
            rows.add_time(&format!("{verb} of {what}"), count, mean.wall);
            rows.add_time(&format!("{verb} of {what}: server CPU"), count, mean.cpu);
        }
    }
    let [(custom_list, custom_watch), (map_list, map_watch)] = totals;
    rows.add_ratio(
        "list of custom objects to ConfigMaps",
        count,
        custom_list.wall,
        map_list.wall,
    );
    rows.add_ratio("the same, server CPU", count, custom_list.cpu, map_list.cpu);
    rows.add_ratio(
        "watch of custom objects to ConfigMaps",
        count,
        custom_watch.wall,
        map_watch.wall,
    );
    rows.add_ratio(
        "the same, server CPU",
        count,
        custom_watch.cpu,
        map_watch.cpu,
    );
    Ok(())
}

/// Returns the bytes by which a stored custom object is longer than a ConfigMap: its managedFields
/// have more fields.
async fn compare_lengths(server: &Server) -> anyhow::Result<usize> {
    let dry_run = |path: &str| format!("{path}?dryRun=All");
    let custom = server
        .create(&dry_run(&collection_path(0)), &build_object(0))
        .await?;
    let map = server
        .create(&dry_run(CONFIG_MAPS), &build_config_map(0, 0))
        .await?;
    Ok(custom.saturating_sub(map))
}

async fn create_objects(
    server: &Server,
    path: &str,
    count: usize,
    build: &dyn Fn(usize) -> Value,
) -> anyhow::Result<()> {
    let created = stream::iter(0..count)
        .map(|number| async move { server.create(path, &build(number)).await });
    created
        .buffer_unordered(CALLERS)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    Ok(())
}

/// Lists in one page, as informers do. Returns the length of the response.
async fn list_objects(server: &Server, path: &str) -> anyhow::Result<usize> {
    Ok(server.client().bytes(Request::get(path)).await?.len())
}

/// Watches until the events of all existing objects have arrived, one line each.
async fn watch_objects(server: &Server, path: &str, count: usize) -> anyhow::Result<()> {
    let path = format!("{path}?watch=true&resourceVersion=0&timeoutSeconds=120");
    let mut body = server.client().stream(Request::get(path)).await?;
    let mut lines = 0;
    while let Some(part) = body.next().await {
        lines += part?.iter().filter(|byte| **byte == b'\n').count();
        if lines >= count {
            return Ok(());
        }
    }
    bail!("the watch of {GROUP} or ConfigMaps ended after {lines} of {count} objects")
}
