//! Deletes a namespace's content and counts the remaining objects.

use std::collections::BTreeMap;

use client::{Client, DeleteParams, Error, ListParams, PartialObject};
use controllers_runtime::Meta;
use controllers_runtime::discovery::{Discovered, Served};
use futures::StreamExt;

/// Concurrent requests.
const WIDTH: usize = 8;

/// The remaining content of a namespace.
#[derive(Debug, Default)]
pub struct Content {
    /// Objects by resource (`configmaps.`, `deployments.apps`).
    pub remaining: BTreeMap<String, usize>,
    /// Number of objects by finalizer.
    pub finalizers: BTreeMap<String, usize>,
    /// Resources that could not be deleted or listed.
    pub failures: Vec<String>,
    /// Seconds until the end of the last pod's grace period.
    pub grace: Option<i64>,
}

impl Content {
    /// Returns whether no object is left and every resource could be read.
    pub fn is_deleted(&self) -> bool {
        self.remaining.is_empty() && self.failures.is_empty()
    }
}

/// Deletes all content: pods first, and the rest when no pod is left.
pub async fn delete_content(client: &Client, namespace: &str, found: &Discovered) -> Content {
    let mut content = Content::default();
    let deletable =
        |s: &&Served| s.resource.namespaced && s.has_verb("delete") && s.has_verb("list");
    let is_pods = |s: &&Served| s.resource.group.is_empty() && s.resource.plural == "pods";
    let (pods, rest): (Vec<_>, Vec<_>) = found
        .resources
        .iter()
        .filter(deletable)
        .partition(|s| is_pods(s));
    for resource in pods {
        record_remaining(
            &mut content,
            resource,
            delete_resource(client, namespace, resource).await,
        );
    }
    // Pods first: their kubelet still needs Secrets, ConfigMaps and the service account's token to
    // stop them.
    if !content.is_deleted() {
        return content;
    }
    let mut requests = Vec::new();
    for resource in rest {
        requests
            .push(async move { (resource, delete_resource(client, namespace, resource).await) });
    }
    let mut results = futures::stream::iter(requests).buffer_unordered(WIDTH);
    while let Some((resource, left)) = results.next().await {
        record_remaining(&mut content, resource, left);
    }
    content
}

async fn delete_resource(
    client: &Client,
    namespace: &str,
    served: &Served,
) -> Result<Vec<PartialObject>, Error> {
    let api = client.metadata(&served.resource, Some(namespace));
    let background = DeleteParams::background();
    // Resources of aggregated API servers need not serve deletecollection.
    if served.has_verb("deletecollection") {
        // Most kinds are empty, and a read is cheaper than a write.
        if api.list(&ListParams::default()).await?.items.is_empty() {
            return Ok(Vec::new());
        }
        api.delete_collection(&background, &ListParams::default())
            .await?;
    } else {
        for object in api.list(&ListParams::default()).await?.items {
            match api.delete(object.name(), &background).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
    }
    Ok(api.list(&ListParams::default()).await?.items)
}

fn record_remaining(
    content: &mut Content,
    served: &Served,
    left: Result<Vec<PartialObject>, Error>,
) {
    let name = format!("{}.{}", served.resource.plural, served.resource.group);
    let left = match left {
        Ok(left) => left,
        // A resource that discovery lists but that is not served has no objects.
        Err(error) if error.is_not_found() || error.code() == Some(405) => return,
        Err(error) => {
            content.failures.push(format!("{name}: {error}"));
            return;
        }
    };
    if left.is_empty() {
        return;
    }
    for object in &left {
        for finalizer in object.meta().finalizers.iter().flatten() {
            *content.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        if let Some(grace) = object
            .meta()
            .deletion_grace_period_seconds
            // Only pods are deleted with a grace period, so only they show how long the wait may
            // take.
            .filter(|_| served.resource.plural == "pods")
        {
            content.grace = Some(content.grace.unwrap_or(0).max(grace));
        }
    }
    content.remaining.insert(name, left.len());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    fn served(plural: &str, group: &str) -> Served {
        Served {
            resource: client::ApiResource {
                group: group.to_owned(),
                version: "v1".to_owned(),
                kind: String::new(),
                plural: plural.to_owned(),
                namespaced: true,
            },
            verbs: Vec::new(),
        }
    }

    fn object(finalizers: &[&str], grace: Option<i64>) -> PartialObject {
        serde_json::from_value(json!({"metadata": {"name": "o", "finalizers": finalizers,
            "deletionGracePeriodSeconds": grace}}))
        .unwrap()
    }

    #[test]
    fn remaining_objects_and_their_finalizers_are_counted_by_name() {
        let mut content = Content::default();
        let left = vec![object(&["a", "b"], None), object(&["a"], None)];
        record_remaining(&mut content, &served("deployments", "apps"), Ok(left));
        assert_eq!(content.remaining["deployments.apps"], 2);
        assert_eq!((content.finalizers["a"], content.finalizers["b"]), (2, 1));
        assert!(!content.is_deleted());
    }

    #[test]
    fn longest_grace_period_of_pods_is_kept() {
        let mut content = Content::default();
        let left = vec![object(&[], Some(5)), object(&[], Some(30))];
        record_remaining(&mut content, &served("pods", ""), Ok(left));
        record_remaining(
            &mut content,
            &served("things", "x"),
            Ok(vec![object(&[], Some(90))]),
        );
        assert_eq!(content.grace, Some(30));
    }

    #[test]
    fn empty_resources_leave_the_content_deleted() {
        let mut content = Content::default();
        record_remaining(&mut content, &served("pods", ""), Ok(Vec::new()));
        assert!(content.is_deleted());
    }
}
