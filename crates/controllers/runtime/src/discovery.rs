//! Which resources the server has, as its discovery documents say.

use client::{ApiResource, Client, Error, Request};
use serde::Deserialize;

/// A resource and what may be done with it.
#[derive(Clone, Debug)]
pub struct Served {
    /// The resource.
    pub resource: ApiResource,
    /// Verbs.
    pub verbs: Vec<String>,
}

impl Served {
    /// Whether a verb is offered.
    pub fn has(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
}

/// What discovery found.
#[derive(Clone, Debug, Default)]
pub struct Discovered {
    /// Resources in the preferred version of their group.
    pub resources: Vec<Served>,
    /// Groups that could not be read, as text.
    pub failures: Vec<String>,
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

/// Reads discovery. A group that fails is named in the result; a server that fails is an error.
pub async fn discover(client: &Client) -> Result<Discovered, Error> {
    let mut found = Discovered::default();
    let core: ResourceList = client.request(Request::get("/api/v1")).await?;
    found.resources.extend(rows("", "v1", core));
    let groups: GroupList = client.request(Request::get("/apis")).await?;
    for group in groups.groups {
        // A resource that only an older version has is still content.
        let mut versions: Vec<_> = group.preferred_version.into_iter().collect();
        versions.extend(group.versions);
        for version in versions {
            let path = format!("/apis/{}", version.group_version);
            match client.request::<ResourceList>(Request::get(path)).await {
                Ok(list) => {
                    for served in rows(&group.name, &version.version, list) {
                        let known =
                            |s: &Served| s.resource.group == group.name && s.resource.plural == served.resource.plural;
                        if !found.resources.iter().any(known) {
                            found.resources.push(served);
                        }
                    }
                }
                Err(error) => found.failures.push(format!("{}: {error}", version.group_version)),
            }
        }
    }
    Ok(found)
}

fn rows(group: &str, version: &str, list: ResourceList) -> Vec<Served> {
    let plain = list.resources.into_iter().filter(|r| !r.name.contains('/'));
    plain
        .map(|row| Served {
            resource: ApiResource {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: row.kind,
                plural: row.name,
                namespaced: row.namespaced,
            },
            verbs: row.verbs,
        })
        .collect()
}
