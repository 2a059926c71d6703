//! Figures of a running cluster, pod start against the runtime's own floor, and of decisions at the size of large ones.
//! Prints one JSON value.
#![allow(clippy::print_stdout)]

mod controllers;
mod floor;
mod pods;
mod stats;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about = "Measures pod start through the API and through the container runtime alone")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// POST of a pod until a watch shows it Running
    Pods(pods::Options),
    /// Sandbox and container through CRI, nothing else
    Floor(floor::Options),
    /// Decisions of controllers in large clusters, without a cluster
    Controllers(controllers::Options),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let figures = match Arguments::parse().what {
        What::Pods(options) => pods::measure(&options).await?,
        What::Floor(options) => floor::measure(&options).await?,
        What::Controllers(options) => controllers::measure(&options)?,
    };
    println!("{figures}");
    Ok(())
}
