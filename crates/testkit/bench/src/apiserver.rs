//! Cost of the requests of a running API server, with the same bytes for every v1.36 server.

mod authorize;
mod connection;
mod lists;
mod pods;
mod watches;
mod writes;

use self::connection::Connection;
use self::pods::Pods;
use crate::rows::Rows;
use crate::server::Server;
use anyhow::Context;
use serde_json::Value;
use std::path::PathBuf;

/// Parameters of the measurements.
#[derive(clap::Args)]
pub struct Options {
    /// Kubeconfig of a member of system:masters, which flow control exempts
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Process id of the API server
    #[arg(long)]
    pid: u32,
    /// Parts to measure; the pods are created and deleted in any case
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "start,get,authorize,list,select,patch,watch"
    )]
    parts: Vec<Part>,
    /// Number of pods
    #[arg(long, default_value_t = 12_800)]
    objects: usize,
    /// Number of gets, of patches and of lists with a selector, each
    #[arg(long, default_value_t = 5_000)]
    requests: usize,
    /// Number of watchers
    #[arg(long, default_value_t = 1_000)]
    watchers: usize,
    /// Number of starts and of lists of all pods
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Start of a second server, without and with the pods
    Start,
    /// GET of a pod
    Get,
    /// GET of a pod by a user of a RoleBinding, without and with 10,000 other RoleBindings
    Authorize,
    /// Lists of all pods
    List,
    /// Lists by node and by label
    Select,
    /// Merge patches, and server-side apply of the status
    Patch,
    /// Updates to many watchers
    Watch,
}

/// Runs the measurements, and removes the objects.
pub async fn measure(options: &Options) -> anyhow::Result<Value> {
    let server = Server::new(&options.kubeconfig, options.pid)?;
    let mut rows = Rows::default();
    let connections = Connection::open_many(server.config(), 1).await?;
    let connection = connections.into_iter().next().context("no connection")?;
    let pods = Pods::new(options.objects);
    pods.create_namespace(&server).await?;
    add_memory(&server, "RSS, idle", 0, &mut rows)?;
    if options.parts.contains(&Part::Start) {
        measure_start(&server, options, "empty", &mut rows).await?;
    }
    // On standard error: the run takes minutes, and the figures are on standard output.
    eprintln!("creating {} pods", options.objects);
    writes::measure_creates(&server, &connection, &pods, &mut rows).await?;
    add_memory(&server, "RSS with the pods", options.objects, &mut rows)?;
    for part in &options.parts {
        eprintln!("measuring {part:?}");
        let requests = options.requests;
        match part {
            Part::Start => measure_start(&server, options, "with the pods", &mut rows).await?,
            Part::Get => {
                lists::measure_gets(&server, &connection, &pods, requests, &mut rows).await?
            }
            Part::Authorize => {
                authorize::measure(&server, &connection, &pods, requests, &mut rows).await?;
            }
            Part::List => {
                lists::measure_all(&server, &connection, &pods, options.rounds, &mut rows).await?;
            }
            Part::Select => {
                lists::measure_selected(&server, &connection, &pods, requests, &mut rows).await?;
            }
            Part::Patch => {
                writes::measure_patches(&server, &connection, &pods, requests, &mut rows).await?;
            }
            Part::Watch => watches::measure(&server, options.watchers, &mut rows).await?,
        }
        add_memory(
            &server,
            &format!("RSS after {part:?}"),
            options.objects,
            &mut rows,
        )?;
    }
    eprintln!("deleting the pods");
    writes::measure_delete(&server, &connection, &pods, &mut rows).await?;
    Ok(rows.into_json())
}

fn add_memory(server: &Server, what: &str, size: usize, rows: &mut Rows) -> anyhow::Result<()> {
    rows.add_amount(what, size, "MB", server.read_memory()? / 1024.0);
    Ok(())
}

async fn measure_start(
    server: &Server,
    options: &Options,
    what: &str,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let mut times = Vec::new();
    for _ in 0..options.rounds {
        let (ready, _) = server.start_second("/readyz").await?;
        times.push(ready);
    }
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    rows.add_time(
        &format!("start to readyz, {what}, median"),
        options.objects,
        median,
    );
    Ok(())
}
