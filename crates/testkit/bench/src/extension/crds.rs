//! Install of CustomResourceDefinitions, and start of a server with them.

use super::custom::{SELECTOR, build_definition, collection_path};
use crate::rows::Rows;
use crate::server::{Cost, Server};
use futures::{StreamExt, TryStreamExt, stream};
use std::ops::Range;
use std::time::Duration;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Definitions that are installed one after the other.
const SINGLE: usize = 20;

/// Concurrent creates of the other definitions.
const CALLERS: usize = 8;

/// Time after which a server is idle again. Stock servers publish OpenAPI documents that long after
/// an install.
const SETTLE: Duration = Duration::from_secs(15);

/// Measures installs one by one and in one go, and starts.
pub async fn measure(
    server: &Server,
    count: usize,
    rounds: u32,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let result = install_and_start(server, count, rounds, rows).await;
    server.delete_all(DEFINITIONS, SELECTOR).await?;
    for index in 0..count {
        server.wait_until_gone(&collection_path(index)).await?;
    }
    result
}

async fn install_singly(
    server: &Server,
    indices: Range<usize>,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let count = indices.len() as u32;
    let mut total = Cost::default();
    for index in indices {
        let ((), cost) = server
            .measure(install_definitions(server, index..index + 1))
            .await?;
        total += cost;
    }
    let mean = total.divide_by(count);
    rows.add_time("1 CRD until served, mean", 1, mean.wall);
    rows.add_time("1 CRD until served, mean: server CPU", 1, mean.cpu);
    Ok(())
}

async fn install_together(
    server: &Server,
    indices: Range<usize>,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let added = indices.len();
    let (cpu, memory) = (server.read_cpu()?, server.read_memory()?);
    let ((), cost) = server.measure(install_definitions(server, indices)).await?;
    rows.add_time("CRDs until all served", added, cost.wall);
    rows.add_time(
        "CRDs until all served: server CPU per CRD",
        added,
        cost.cpu / added as u32,
    );
    tokio::time::sleep(SETTLE).await;
    let cpu = server.read_cpu()?.saturating_sub(cpu);
    rows.add_time(
        "CRDs and 15 s after them: server CPU per CRD",
        added,
        cpu / added as u32,
    );
    let grown = (server.read_memory()? - memory) / added as f64;
    rows.add_amount("server RSS per CRD", added, "kB", grown);
    Ok(())
}

async fn install_and_start(
    server: &Server,
    count: usize,
    rounds: u32,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    // The first definitions also pay for code that runs for the first time.
    for index in 0..2.min(count) {
        install_definitions(server, index..index + 1).await?;
    }
    let single = 2.min(count)..(2 + SINGLE).min(count);
    let rest = single.end..count;
    // Too few definitions have no figures: those of an idle server would look like some.
    if !single.is_empty() {
        install_singly(server, single, rows).await?;
    }
    tokio::time::sleep(SETTLE).await;
    if !rest.is_empty() {
        install_together(server, rest, rows).await?;
    }

    let mut ready = Vec::new();
    let mut complete = Vec::new();
    for _ in 0..rounds {
        let (first, last) = server
            .start_second(&collection_path(count.saturating_sub(1)))
            .await?;
        ready.push(first);
        complete.push(last);
    }
    rows.add_time("start to readyz, median", count, find_median(ready));
    rows.add_time(
        "start until the last CRD is served, median",
        count,
        find_median(complete),
    );
    Ok(())
}

fn find_median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Creates definitions and waits until all are served, which follows the condition Established.
async fn install_definitions(
    server: &Server,
    indices: std::ops::Range<usize>,
) -> anyhow::Result<()> {
    let created = stream::iter(indices.clone())
        .map(|index| async move { server.create(DEFINITIONS, &build_definition(index)).await });
    created
        .buffer_unordered(CALLERS)
        .try_collect::<Vec<usize>>()
        .await?;
    for index in indices {
        server.wait_for(&collection_path(index)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_that_of_the_sorted_times() {
        let times = [5, 1, 3].map(Duration::from_millis);
        assert_eq!(find_median(times.to_vec()), Duration::from_millis(3));
        assert_eq!(find_median(Vec::new()), Duration::ZERO);
    }
}
