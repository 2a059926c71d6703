//! Creates that admission sees and the store does not.

use super::custom::build_config_map;
use crate::server::{Cost, Server};

/// Path of a create that is not stored: the store's time would vary more than that of admission.
pub const DRY_RUN: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";

/// Sends creates one after the other. Returns the mean cost.
pub async fn measure_creates(server: &Server, requests: usize) -> anyhow::Result<Cost> {
    let body = build_config_map(0, 0);
    let send = async {
        for _ in 0..requests {
            server.create(DRY_RUN, &body).await?;
        }
        Ok(())
    };
    let ((), cost) = server.measure(send).await?;
    Ok(cost.divide_by(requests as u32))
}
