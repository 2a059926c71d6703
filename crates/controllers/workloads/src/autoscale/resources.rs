//! Resources of the kinds of targets and of objects that metrics describe.

use std::time::Duration;

use client::{ApiResource, Client, Error};
use controllers_runtime::discovery::{self, Discovered};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Time for which the result of discovery counts. A namespace may have many autoscalers with kinds
/// that are not served, each of which would cause a discovery in each period. Upstream reads it
/// every 30 s, too.
const AGE: Duration = Duration::from_secs(30);

/// The usual kinds of targets, which do not depend on discovery: group, kind, plural.
const USUAL: [(&str, &str, &str); 4] = [
    ("apps", "Deployment", "deployments"),
    ("apps", "ReplicaSet", "replicasets"),
    ("apps", "StatefulSet", "statefulsets"),
    ("", "ReplicationController", "replicationcontrollers"),
];

/// A served resource in the preferred version of its group.
pub(super) struct Resource {
    pub(super) group: String,
    version: String,
    pub(super) plural: String,
}

impl Resource {
    fn new(group: &str, version: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
        }
    }

    /// Returns the path of the group version.
    pub(super) fn root(&self) -> String {
        match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }
}

/// The served resources, from discovery.
#[derive(Default)]
pub(super) struct Resources(Mutex<Option<(Instant, Discovered)>>);

impl Resources {
    /// Returns the resource of a kind; `None` if the server has no such kind.
    pub(super) async fn find(
        &self,
        client: &Client,
        group: &str,
        kind: &str,
    ) -> Result<Option<Resource>, Error> {
        let mut usual = USUAL.iter();
        if let Some((group, _, plural)) = usual.find(|(g, k, _)| (*g, *k) == (group, kind)) {
            return Ok(Some(Resource::new(group, "v1", plural)));
        }
        // Locked during the request: those who wait need its result, too.
        let mut known = self.0.lock().await;
        let found = match known.take_if(|(read, _)| read.elapsed() < AGE) {
            Some(found) => found,
            None => (Instant::now(), discovery::discover_resources(client).await?),
        };
        let (_, discovered) = known.insert(found);
        let mut served = discovered.resources.iter().map(|served| &served.resource);
        let resource = served.find(|resource| resource.group == group && resource.kind == kind);
        Ok(resource.map(
            |ApiResource {
                 group,
                 version,
                 plural,
                 ..
             }| { Resource::new(group, version, plural) },
        ))
    }
}
