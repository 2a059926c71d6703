//! Cost of what extends the API: custom resources, webhooks and admission policies. The API server
//! runs as a process of its own, so that any v1.36 API server can be measured.

mod admission;
mod crds;
mod creates;
mod custom;
mod objects;

use crate::rows::Rows;
use crate::server::Server;
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
    /// Parts to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "crds,objects,webhook,policies"
    )]
    parts: Vec<Part>,
    /// Number of CustomResourceDefinitions
    #[arg(long, default_value_t = 500)]
    crds: usize,
    /// Number of custom objects and of ConfigMaps
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// Number of creates with and without admission
    #[arg(long, default_value_t = 5_000)]
    requests: usize,
    /// Number of ValidatingAdmissionPolicies
    #[arg(long, default_value_t = 100)]
    policies: usize,
    /// Number of starts, lists and watches
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Part {
    /// Install of CustomResourceDefinitions, and start of a server with them
    Crds,
    /// Lists and watches of custom objects and of ConfigMaps
    Objects,
    /// Creates with a validating webhook
    Webhook,
    /// Creates with ValidatingAdmissionPolicies
    Policies,
}

/// Runs the measurements. Each removes its objects.
pub async fn measure(options: &Options) -> anyhow::Result<Value> {
    let server = Server::new(&options.kubeconfig, options.pid)?;
    let mut rows = Rows::default();
    for part in &options.parts {
        // On standard error: the run takes minutes, and the figures are on standard output.
        eprintln!("measuring {part:?}");
        match part {
            Part::Crds => crds::measure(&server, options.crds, options.rounds, &mut rows).await?,
            Part::Objects => {
                objects::measure(&server, options.objects, options.rounds, &mut rows).await?;
            }
            Part::Webhook => {
                admission::measure_webhook(&server, options.requests, &mut rows).await?;
            }
            Part::Policies => {
                let (policies, requests) = (options.policies, options.requests);
                admission::measure_policies(&server, policies, requests, &mut rows).await?;
            }
        }
    }
    Ok(rows.into_json())
}
