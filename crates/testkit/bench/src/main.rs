//! Figures of a running cluster: pod start against the runtime's own floor. Prints one JSON object.
#![allow(clippy::print_stdout)]

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
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let figures = match Arguments::parse().what {
        What::Pods(options) => pods::measure(&options).await?,
        What::Floor(options) => floor::measure(&options).await?,
    };
    println!("{figures}");
    Ok(())
}
