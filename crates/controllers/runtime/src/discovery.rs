//! Discovery: the resources that the server offers.

use std::collections::HashSet;

use client::{ApiResource, Client, Error, Request};
use serde::Deserialize;

/// A resource and its verbs.
#[derive(Clone, Debug)]
pub struct Served {
    /// Resource.
    pub resource: ApiResource,
    /// Verbs.
    pub verbs: Vec<String>,
}

impl Served {
    /// Returns whether the resource has a verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
}

/// The result of discovery.
#[derive(Clone, Debug, Default)]
pub struct Discovered {
    /// Resources in the preferred version of their group.
    pub resources: Vec<Served>,
    /// Groups that could not be read, with the error.
    pub failures: Vec<String>,
    /// Group versions that could not be read; their resources may be missing or outdated.
    pub failed_versions: HashSet<(String, String)>,
    /// Resources in versions that are not preferred.
    pub other_versions: Vec<Served>,
    /// Group and plural of each resource.
    known: HashSet<(String, String)>,
}

/// Accepts aggregated discovery, and the older form that servers without it return.
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

#[derive(Deserialize)]
struct Aggregated {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    items: Vec<AggregatedGroup>,
}

#[derive(Deserialize)]
struct AggregatedGroup {
    #[serde(default)]
    metadata: Named,
    /// The preferred version first.
    #[serde(default)]
    versions: Vec<AggregatedVersion>,
}

#[derive(Default, Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct AggregatedVersion {
    version: String,
    #[serde(default)]
    freshness: String,
    #[serde(default)]
    resources: Vec<AggregatedResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    resource: String,
    response_kind: Option<KindName>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Default, Deserialize)]
struct KindName {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct GroupList {
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    preferred_version: Option<Version>,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    group_version: String,
    version: String,
}

#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

/// Reads discovery: two requests to a server with aggregated discovery, one per group version to an
/// older one. A group that fails is listed in the result; a server that fails is an error.
pub async fn discover_resources(client: &Client) -> Result<Discovered, Error> {
    let mut found = Discovered::default();
    for path in ["/api", "/apis"] {
        let document: Aggregated = client
            .request(Request::get(path).with_accept(AGGREGATED))
            .await?;
        // A server without aggregated discovery ignores the parameters of the media type and
        // returns the older document.
        if document.kind != "APIGroupDiscoveryList" {
            return discover_by_version(client).await;
        }
        document
            .items
            .into_iter()
            .for_each(|group| found.add_group(group));
    }
    Ok(found)
}

async fn discover_by_version(client: &Client) -> Result<Discovered, Error> {
    let mut found = Discovered::default();
    let core: ResourceList = client.request(Request::get("/api/v1")).await?;
    list_served("", "v1", core).for_each(|served| found.add_resource(served));
    let groups: GroupList = client.request(Request::get("/apis")).await?;
    for group in groups.groups {
        let mut versions: Vec<_> = group.preferred_version.into_iter().collect();
        versions.extend(group.versions);
        for version in versions {
            let path = format!("/apis/{}", version.group_version);
            match client.request::<ResourceList>(Request::get(path)).await {
                Ok(list) => list_served(&group.name, &version.version, list)
                    .for_each(|served| found.add_resource(served)),
                // One aggregated API server that is down must not stop the deletion of the objects
                // of all other groups.
                Err(error) => {
                    found
                        .failures
                        .push(format!("{}: {error}", version.group_version));
                    found
                        .failed_versions
                        .insert((group.name.clone(), version.version));
                }
            }
        }
    }
    Ok(found)
}

/// Returns whether a resource has a subresource, by the list of its group version.
///
/// # Errors
/// The list can't be read.
pub async fn has_subresource(
    client: &Client,
    resource: &ApiResource,
    subresource: &str,
) -> Result<bool, Error> {
    let list: ResourceList = client.request(Request::get(resource.root_path())).await?;
    let name = format!("{}/{subresource}", resource.plural);
    Ok(list.resources.iter().any(|row| row.name == name))
}

impl Discovered {
    /// Builds the result for a server whose discovery can't be read.
    pub fn from_error(error: &Error) -> Self {
        Self {
            failures: vec![error.to_string()],
            ..Self::default()
        }
    }

    /// Returns whether a version of a group could not be read.
    pub fn has_failed_version(&self, group: &str) -> bool {
        self.failed_versions
            .iter()
            .any(|(failed, _)| failed == group)
    }

    /// Adds a resource, under `other_versions` if a preferred version of its group has it. A
    /// resource that only an older version has is added, too.
    fn add_resource(&mut self, served: Served) {
        let id = (
            served.resource.group.clone(),
            served.resource.plural.clone(),
        );
        // The versions of a group arrive with the preferred one first.
        if self.known.insert(id) {
            self.resources.push(served);
        } else {
            self.other_versions.push(served);
        }
    }

    fn add_group(&mut self, group: AggregatedGroup) {
        for version in group.versions {
            // Its list of resources is the last known one. No consumer may conclude that the group
            // has no objects.
            if version.freshness == "Stale" {
                self.failures.push(format!(
                    "{}/{}: its server does not answer",
                    group.metadata.name, version.version
                ));
                self.failed_versions
                    .insert((group.metadata.name.clone(), version.version.clone()));
            }
            for row in version.resources {
                let kind = row.response_kind.unwrap_or_default();
                self.add_resource(Served {
                    resource: ApiResource {
                        group: group.metadata.name.clone(),
                        version: version.version.clone(),
                        kind: kind.kind,
                        plural: row.resource,
                        namespaced: row.scope == "Namespaced",
                    },
                    verbs: row.verbs,
                });
            }
        }
    }
}

fn list_served(group: &str, version: &str, list: ResourceList) -> impl Iterator<Item = Served> {
    let plain = list
        .resources
        .into_iter()
        // The older form lists subresources such as `pods/status`, too, which have no collection.
        .filter(|row| !row.name.contains('/'));
    plain.map(move |row| Served {
        resource: ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: row.kind,
            plural: row.name,
            namespaced: row.namespaced,
        },
        verbs: row.verbs,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::testing::serve;

    fn names(found: &Discovered) -> Vec<String> {
        let name = |s: &Served| {
            format!(
                "{}/{} {}",
                s.resource.group, s.resource.version, s.resource.plural
            )
        };
        found.resources.iter().map(name).collect()
    }

    #[tokio::test]
    async fn aggregated_discovery_takes_two_requests() {
        let (client, requests) = serve(|request| {
            let document = match request {
                "GET /api" => {
                    r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"creationTimestamp":null},"versions":
                    [{"version":"v1","freshness":"Current","resources":[{"resource":"pods","scope":"Namespaced",
                    "responseKind":{"group":"","version":"v1","kind":"Pod"},"verbs":["get","list"]}]}]}]}"#
                }
                _ => {
                    r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"x.io"},"versions":[
                    {"version":"v2","freshness":"Current","resources":[{"resource":"as","scope":"Cluster",
                    "responseKind":{"kind":"A"},"verbs":["get"]}]},
                    {"version":"v1","freshness":"Current","resources":[{"resource":"as","scope":"Cluster",
                    "responseKind":{"kind":"A"},"verbs":["get"]},{"resource":"bs","scope":"Namespaced",
                    "responseKind":{"kind":"B"},"verbs":["get"]}]}]},
                    {"metadata":{"name":"y.io"},"versions":[{"version":"v1","freshness":"Stale"}]}]}"#
                }
            };
            Some(document.to_owned())
        })
        .await
        .unwrap();
        let found = discover_resources(&client).await.unwrap();
        assert_eq!(names(&found), ["/v1 pods", "x.io/v2 as", "x.io/v1 bs"]);
        assert!(found.resources[0].resource.namespaced && !found.resources[1].resource.namespaced);
        assert_eq!(found.failures.len(), 1, "{:?}", found.failures);
        assert_eq!(requests.lock().len(), 2);
    }

    #[tokio::test]
    async fn server_without_aggregated_discovery_is_read_version_by_version() {
        let (client, _) = serve(|request| {
            let document = match request {
                "GET /api" => r#"{"kind":"APIVersions","versions":["v1"]}"#,
                "GET /api/v1" => {
                    r#"{"resources":[{"name":"pods","kind":"Pod","namespaced":true,"verbs":["get"]},
                    {"name":"pods/log","kind":"Pod","namespaced":true,"verbs":["get"]}]}"#
                }
                "GET /apis" => {
                    r#"{"kind":"APIGroupList","groups":[{"name":"x.io","versions":[
                    {"groupVersion":"x.io/v1","version":"v1"}]}]}"#
                }
                _ => {
                    r#"{"resources":[{"name":"as","kind":"A","namespaced":false,"verbs":["get"]}]}"#
                }
            };
            Some(document.to_owned())
        })
        .await
        .unwrap();
        assert_eq!(
            names(&discover_resources(&client).await.unwrap()),
            ["/v1 pods", "x.io/v1 as"]
        );
    }
}
