//! Plurals of the kinds of targets and of objects that metrics describe.

use client::{Client, Error};
use controllers_runtime::discovery;

/// Returns the plural of a kind; `None` if the server has no such kind.
pub(super) async fn find_plural(
    client: &Client,
    group: &str,
    kind: &str,
) -> Result<Option<String>, Error> {
    // Discovery at every period would be expensive, and nearly all targets are of these kinds.
    let usual = match (group, kind) {
        ("apps", "Deployment") => "deployments",
        ("apps", "ReplicaSet") => "replicasets",
        ("apps", "StatefulSet") => "statefulsets",
        ("", "ReplicationController") => "replicationcontrollers",
        _ => {
            let found = discovery::discover_resources(client).await?;
            let served = found
                .resources
                .into_iter()
                .find(|s| s.resource.group == group && s.resource.kind == kind);
            return Ok(served.map(|s| s.resource.plural));
        }
    };
    Ok(Some(usual.to_owned()))
}
