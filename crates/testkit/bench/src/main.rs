//! Figures of a running cluster, pod start against the runtime's own floor, of an API server and of
//! extensions of the API, of decisions at the size of large clusters, and of single components.
//! Prints one JSON value.
#![allow(clippy::print_stdout)]

mod apiserver;
mod controllers;
mod events;
mod extension;
mod floor;
mod node;
mod pods;
mod requests;
mod rows;
mod scheduler;
mod server;
mod stats;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    version,
    about = "Measures pod start, decisions in large clusters, and single components"
)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Time from the POST of a pod until a watch shows it Running
    Pods(pods::Options),
    /// Time of sandbox and container through CRI alone
    Floor(floor::Options),
    /// Controllers' decisions in large clusters, without a cluster
    Controllers(controllers::Options),
    /// The scheduler's hot paths in large clusters, without a cluster
    Scheduler(scheduler::Options),
    /// Requests of a pass over discovery and quotas, to an API server in this process
    Requests(requests::Options),
    /// Events that reach an API server in this process
    Events(events::Options),
    /// Calls of the runtime for each container, and delays by blocking work, with a kubelet in this
    /// process
    Node(node::Options),
    /// Writes, reads, lists, watches and memory of a running API server
    Apiserver(apiserver::Options),
    /// Custom resources, webhooks and admission policies, at a running API server
    Extension(extension::Options),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let figures = match Arguments::parse().what {
        What::Pods(options) => pods::measure(&options).await?,
        What::Floor(options) => floor::measure(&options).await?,
        What::Controllers(options) => controllers::measure(&options)?,
        What::Scheduler(options) => scheduler::measure(&options)?,
        What::Requests(options) => requests::measure(&options).await?,
        What::Events(options) => events::measure(&options).await?,
        What::Node(options) => node::measure(&options).await?,
        What::Apiserver(options) => apiserver::measure(&options).await?,
        What::Extension(options) => extension::measure(&options).await?,
    };
    println!("{figures}");
    Ok(())
}
