//! Sizes of controllers of any kind, read from their `/scale`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use client::{ApiResource, Client, Error};
use controllers_runtime::discovery::{Served, discover_resources, has_subresource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::Mutex;

/// Discovery is read at most this often because of an unknown kind.
const REFRESH: Duration = Duration::from_secs(30);

/// The size of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSize {
    /// UID of the controller.
    pub uid: String,
    /// The pods that it asks for.
    pub replicas: i32,
}

impl ControllerSize {
    /// Creates the size of the controller with a UID.
    pub fn new(uid: &str, replicas: i32) -> Self {
        ControllerSize {
            uid: uid.to_owned(),
            replicas,
        }
    }
}

/// A size that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum SizeError {
    /// The kind is not served.
    #[error("no matches for kind {kind:?} in version {version:?}")]
    UnknownKind {
        /// Kind.
        kind: String,
        /// `apiVersion`
        version: String,
    },
    /// The resource has no `/scale`.
    #[error("{0} does not implement the scale subresource")]
    NoScale(String),
    /// A request failed.
    #[error(transparent)]
    Client(#[from] Error),
}

/// Reads sizes, and keeps the names of the resources.
#[derive(Default)]
pub struct ScaleReader {
    known: Mutex<Option<KnownKinds>>,
}

struct KnownKinds {
    /// By `apiVersion` and kind.
    resources: HashMap<(String, String), ApiResource>,
    read_at: Instant,
}

impl ScaleReader {
    /// Reads the size of a controller; None if it does not exist, or if another object has its
    /// name.
    ///
    /// # Errors
    /// The kind is unknown or has no scale, or a request fails.
    pub async fn read_size(
        &self,
        client: &Client,
        owner: &OwnerReference,
        namespace: &str,
    ) -> Result<Option<ControllerSize>, SizeError> {
        let resource = self.find_resource(client, owner).await?;
        let namespace = resource.namespaced.then_some(namespace);
        let api = client.dynamic(&resource, namespace);
        match api.read_scale(&owner.name).await {
            Ok(scale) => {
                let uid = scale.metadata.uid.unwrap_or_default();
                let replicas = scale.spec.and_then(|spec| spec.replicas);
                let replicas = replicas.unwrap_or_default();
                Ok((uid == owner.uid).then(|| ControllerSize::new(&uid, replicas)))
            }
            // Either there is no such object, or the resource has no scale.
            Err(error) if error.is_not_found() => {
                if has_subresource(client, &resource, "scale").await? {
                    return Ok(None);
                }
                let name = match resource.group.as_str() {
                    "" => resource.plural,
                    group => format!("{}.{group}", resource.plural),
                };
                Err(SizeError::NoScale(name))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn find_resource(
        &self,
        client: &Client,
        owner: &OwnerReference,
    ) -> Result<ApiResource, SizeError> {
        let id = (owner.api_version.clone(), owner.kind.clone());
        let unknown = || SizeError::UnknownKind {
            kind: owner.kind.clone(),
            version: owner.api_version.clone(),
        };
        if let Some(known) = &*self.known.lock() {
            if let Some(found) = known.resources.get(&id) {
                return Ok(found.clone());
            }
            if known.read_at.elapsed() < REFRESH {
                return Err(unknown());
            }
        }
        let discovered = discover_resources(client).await?;
        let all = discovered.resources.into_iter();
        let all = all.chain(discovered.other_versions);
        let resources: HashMap<_, _> = all.map(name_kind).collect();
        let found = resources.get(&id).cloned();
        let read_at = Instant::now();
        *self.known.lock() = Some(KnownKinds { resources, read_at });
        found.ok_or_else(unknown)
    }
}

fn name_kind(served: Served) -> ((String, String), ApiResource) {
    let resource = served.resource;
    let version = match resource.group.as_str() {
        "" => resource.version.clone(),
        group => format!("{group}/{}", resource.version),
    };
    ((version, resource.kind.clone()), resource)
}

/// Splits an `apiVersion` into group and version.
pub fn split_version(api_version: &str) -> (&str, &str) {
    api_version.rsplit_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use controllers_runtime::testing::serve;

    fn owner(version: &str, kind: &str, uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: version.to_owned(),
            kind: kind.to_owned(),
            name: "a/b".to_owned(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        }
    }

    #[tokio::test]
    async fn size_is_read_from_the_scale_of_the_version_of_the_owner() {
        let (client, requests) = serve(|request| {
            let document = match request {
                "GET /api" => r#"{"kind":"APIGroupDiscoveryList","items":[]}"#,
                "GET /apis" => {
                    r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"x.io"},"versions":[
                    {"version":"v2","freshness":"Current","resources":[{"resource":"foos","scope":"Namespaced",
                    "responseKind":{"kind":"Foo"},"verbs":["get"]}]},
                    {"version":"v1","freshness":"Current","resources":[{"resource":"foos","scope":"Namespaced",
                    "responseKind":{"kind":"Foo"},"verbs":["get"]}]}]}]}"#
                }
                "GET /apis/x.io/v1/namespaces/n/foos/a%2Fb/scale" => {
                    r#"{"metadata":{"name":"a","uid":"u"},"spec":{"replicas":7}}"#
                }
                _ => return None,
            };
            Some(document.to_owned())
        })
        .await
        .unwrap();
        let reader = ScaleReader::default();
        let read = async |version: &str, uid: &str| {
            let owner = owner(version, "Foo", uid);
            reader.read_size(&client, &owner, "n").await
        };
        let size = read("x.io/v1", "u").await.unwrap();
        assert_eq!(size, Some(ControllerSize::new("u", 7)));
        assert_eq!(read("x.io/v1", "other").await.unwrap(), None);
        for version in ["x.io/v3", "y.io/v1"] {
            let error = read(version, "u").await.unwrap_err().to_string();
            let expect = format!("no matches for kind \"Foo\" in version {version:?}");
            assert_eq!(error, expect);
        }
        assert_eq!(requests.lock().len(), 4, "discovery is read once");
    }
}
