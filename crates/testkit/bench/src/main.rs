//! Benchmarks of a running cluster: pod start compared with the runtime's minimum, and controllers'
//! decisions at large sizes. Prints one JSON value.
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
    /// Time from the POST of a pod until a watch shows it Running
    Pods(pods::Options),
    /// Time of sandbox and container through CRI alone
    Floor(floor::Options),
    /// Controllers' decisions in large clusters, without a cluster
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
