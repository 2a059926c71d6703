//! Gets and lists.

use super::connection::{CLIENTS, Call, Connection};
use super::pods::{JSON, PROTO, Pods};
use crate::rows::Rows;
use crate::server::Server;

/// Concurrent lists of all pods when memory is measured.
const LISTS: usize = 32;
/// Concurrent lists with a selector.
const SELECTORS: usize = 4;

const FORMATS: [(&str, &str); 2] = [("JSON", JSON), ("protobuf", PROTO)];

/// Reads pods one by one.
pub async fn measure_gets(
    server: &Server,
    connection: &Connection,
    pods: &Pods,
    requests: usize,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    for (name, media_type) in FORMATS {
        let get = |number: usize| async move {
            // Far apart, so that neighbours in memory do not help.
            let number = number * 7919 % pods.count;
            connection
                .read(Call::get(pods.path(number), media_type))
                .await?;
            Ok(())
        };
        let load = server.run_load(requests, CLIENTS, get).await?;
        rows.add_load(&format!("get pod, 64 clients, {name}"), pods.count, &load);
    }
    Ok(())
}

/// Lists all pods.
pub async fn measure_all(
    server: &Server,
    connection: &Connection,
    pods: &Pods,
    rounds: u32,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    for (name, media_type) in FORMATS {
        for (encoding, gzip) in [("plain", false), ("gzip", true)] {
            let what = format!("list all pods, {name}, {encoding}");
            let call = || {
                let call = Call::get(pods.collection(), media_type);
                if gzip { call.with_gzip() } else { call }
            };
            let list = |_| async {
                connection.read(call()).await?;
                Ok(())
            };
            // The first one fills caches.
            let (bytes, cost) = server.measure(connection.read(call())).await?;
            rows.add_count(&format!("{what}: bytes"), pods.count, bytes as u64);
            rows.add_time(
                &format!("{what}: server CPU of the first"),
                pods.count,
                cost.cpu,
            );
            let load = server.run_load(rounds as usize, 1, list).await?;
            rows.add_load(&what, pods.count, &load);
            let before = server.read_memory()?;
            server.reset_peak()?;
            let load = server.run_load(LISTS, LISTS, list).await?;
            rows.add_load(&format!("{what}, 32 at once"), pods.count, &load);
            let grown = (server.read_peak()? - before) / 1024.0;
            let what = format!("{what}, 32 at once: growth of RSS at the peak");
            rows.add_amount(&what, pods.count, "MB", grown);
        }
    }
    Ok(())
}

/// Lists by node name and by label.
pub async fn measure_selected(
    server: &Server,
    connection: &Connection,
    pods: &Pods,
    requests: usize,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    for (name, media_type) in FORMATS {
        for by in ["spec.nodeName", "label"] {
            let list = |number: usize| async move {
                let number = number * 7919;
                let path = match by {
                    "label" => pods.path_of_app(number),
                    _ => pods.path_of_node(number),
                };
                connection
                    .read(Call::get(path, media_type).with_gzip())
                    .await?;
                Ok(())
            };
            let load = server.run_load(requests, SELECTORS, list).await?;
            rows.add_load(&format!("list by {by}, {name}, gzip"), pods.count, &load);
        }
    }
    Ok(())
}
