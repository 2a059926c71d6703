//! Handles one object: finds out whether an owner exists, and how to delete the object if not.

use std::sync::Arc;

use client::{Client, DeleteParams, Error, Patch, Propagation};
use controllers_runtime::Meta;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;

use crate::graph::{FOREGROUND, Node, ORPHAN, Step};
use crate::state::CollectorState;

/// Owner references by the owners' state.
#[derive(Debug, Default)]
struct Owners {
    /// Existing owners: the dependent stays.
    solid: Vec<OwnerReference>,
    /// Deleted owners, or names that belong to another object now.
    dangling: Vec<OwnerReference>,
    /// Owners that wait for the dependent's deletion.
    waiting: Vec<OwnerReference>,
}

/// Deletes the object if no owner exists; else removes references to deleted owners.
pub async fn attempt_to_delete(
    shared: &Arc<CollectorState>,
    client: &Client,
    node: &Node,
) -> Result<(), Error> {
    if node.object.is_deleting() && !node.is_foreground() {
        return Ok(());
    }
    // The graph is fed by watches that lag behind each other. Nothing is deleted on its word alone,
    // as upstream.
    let Some(latest) = read_latest(client, node).await? else {
        // Its watch may have ended without the event, for instance with its definition. Owners must
        // not wait for it.
        shared.forget_node(node.object.uid());
        return Ok(());
    };
    if latest.is_foreground() {
        return process_deleting_dependents(shared, client, &latest).await;
    }
    if latest.owner_references().is_empty() || latest.object.is_deleting() {
        return Ok(());
    }
    let owners = classify_references(shared, client, &latest).await?;
    // One existing owner is enough to keep the object; references to absent owners are removed, so
    // that they are not checked again.
    if !owners.solid.is_empty() {
        if owners.dangling.is_empty() && owners.waiting.is_empty() {
            return Ok(());
        }
        return keep_only(client, &latest, &owners.solid).await;
    }
    let dependents = shared.graph.lock().list_dependents(latest.object.uid());
    let policy = if !owners.waiting.is_empty() && !dependents.is_empty() {
        // A cycle of owners in foreground deletion: each would wait for the other. Upstream
        // unblocks the references in the same way.
        if dependents.iter().any(Node::is_foreground) {
            unblock_references(client, &latest).await?;
        }
        Propagation::Foreground
    // The finalizers tell how the client wanted the dependents to be treated.
    } else if latest.object.has_finalizer(ORPHAN) {
        Propagation::Orphan
    } else if latest.object.has_finalizer(FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    delete_object(client, &latest, policy).await
}

/// Reads the object from the API server; None if it is deleted or another one has the name.
async fn read_latest(client: &Client, node: &Node) -> Result<Option<Node>, Error> {
    let namespace = node.object.meta().namespace.as_deref();
    let api = client.metadata(&node.resource, namespace);
    let found = api.get_opt(node.object.name()).await?;
    let same = found.filter(|o| o.uid() == node.object.uid());
    Ok(same.map(|object| Node {
        resource: node.resource.clone(),
        object: Arc::new(object),
    }))
}

/// Handles an owner in foreground deletion: deletes its blocking dependents, then removes its
/// finalizer.
async fn process_deleting_dependents(
    shared: &Arc<CollectorState>,
    client: &Client,
    owner: &Node,
) -> Result<(), Error> {
    let uid = owner.object.uid();
    let dependents = shared.graph.lock().list_dependents(uid);
    let blocking: Vec<_> = dependents
        .iter()
        .filter(|d| d.blocks_deletion_of(uid))
        .collect();
    if blocking.is_empty() {
        return drop_finalizer(client, owner, FOREGROUND).await;
    }
    // Dependents that are already in deletion need no second request; their removal enqueues the
    // owner again.
    for dependent in blocking.into_iter().filter(|d| !d.object.is_deleting()) {
        shared
            .queue
            .add(Step::Check(dependent.object.uid().to_owned()).key());
    }
    Ok(())
}

/// Removes the owner from every dependent, then removes the owner's finalizer. A failure keeps the
/// finalizer.
pub async fn orphan_dependents(
    shared: &Arc<CollectorState>,
    client: &Client,
    node: &Node,
) -> Result<(), Error> {
    let Some(owner) = read_latest(client, node).await? else {
        return Ok(());
    };
    if !owner.is_orphaning() {
        return Ok(());
    }
    let uid = owner.object.uid();
    let dependents = shared.graph.lock().list_dependents(uid);
    // Each dependent before the owner's finalizer: if the process stops in between, the owner is
    // still there and the step is repeated.
    for dependent in &dependents {
        let Some(dependent) = read_latest(client, dependent).await? else {
            continue;
        };
        let rest: Vec<_> = dependent
            .owner_references()
            .iter()
            .filter(|r| r.uid != uid)
            .cloned()
            .collect();
        if rest.len() < dependent.owner_references().len() {
            keep_only(client, &dependent, &rest).await?;
        }
    }
    drop_finalizer(client, &owner, ORPHAN).await
}

async fn classify_references(
    shared: &Arc<CollectorState>,
    client: &Client,
    node: &Node,
) -> Result<Owners, Error> {
    let mut sorted = Owners::default();
    for reference in node.owner_references() {
        match find_owner_state(shared, client, node, reference).await? {
            OwnerState::Absent => sorted.dangling.push(reference.clone()),
            OwnerState::Waiting => sorted.waiting.push(reference.clone()),
            OwnerState::Alive => sorted.solid.push(reference.clone()),
        }
    }
    Ok(sorted)
}

enum OwnerState {
    Alive,
    Waiting,
    Absent,
}

async fn find_owner_state(
    shared: &Arc<CollectorState>,
    client: &Client,
    node: &Node,
    reference: &OwnerReference,
) -> Result<OwnerState, Error> {
    let namespace = node.object.meta().namespace.as_deref();
    let from = namespace.unwrap_or_default();
    if shared.is_absent(from, reference) {
        return Ok(OwnerState::Absent);
    }
    // The kind is not served in that version, so the owner's state is unknown: keep the dependent.
    // It is checked again when discovery changes.
    let Some(resource) = shared.find_resource(&reference.api_version, &reference.kind) else {
        shared.changed.notify_one();
        return Ok(OwnerState::Alive);
    };
    if resource.namespaced && namespace.is_none() {
        tracing::debug!(object = node.object.name(), owner = %reference.name, "a cluster-scoped object can't have an owner in a namespace");
        return Ok(OwnerState::Alive);
    }
    let api = client.metadata(&resource, namespace.filter(|_| resource.namespaced));
    let found = api.get_opt(&reference.name).await?;
    let Some(owner) = found.filter(|o| o.uid() == reference.uid) else {
        shared.record_absent(from, reference);
        return Ok(OwnerState::Absent);
    };
    let waiting = owner.is_deleting() && owner.has_finalizer(FOREGROUND);
    Ok(if waiting {
        OwnerState::Waiting
    } else {
        OwnerState::Alive
    })
}

/// Replaces the owner references, if the object is still the version that was read.
async fn keep_only(client: &Client, node: &Node, keep: &[OwnerReference]) -> Result<(), Error> {
    patch_metadata(client, node, json!({ "ownerReferences": keep })).await
}

/// Removes blocking references, which breaks cycles.
async fn unblock_references(client: &Client, node: &Node) -> Result<(), Error> {
    let free = |r: &OwnerReference| OwnerReference {
        block_owner_deletion: Some(false),
        ..r.clone()
    };
    let refs: Vec<_> = node.owner_references().iter().map(free).collect();
    keep_only(client, node, &refs).await
}

async fn drop_finalizer(client: &Client, node: &Node, finalizer: &str) -> Result<(), Error> {
    let all = node.object.meta().finalizers.iter().flatten();
    let rest: Vec<_> = all.filter(|f| *f != finalizer).collect();
    patch_metadata(client, node, json!({ "finalizers": rest })).await
}

async fn patch_metadata(
    client: &Client,
    node: &Node,
    mut meta: serde_json::Value,
) -> Result<(), Error> {
    meta["uid"] = json!(node.object.uid());
    meta["resourceVersion"] = json!(node.object.meta().resource_version);
    let api = client.metadata(&node.resource, node.object.meta().namespace.as_deref());
    match api
        .patch(
            node.object.name(),
            &Patch::Merge(json!({ "metadata": meta })),
        )
        .await
    {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

async fn delete_object(client: &Client, node: &Node, policy: Propagation) -> Result<(), Error> {
    let api = client.metadata(&node.resource, node.object.meta().namespace.as_deref());
    // UID and resourceVersion as preconditions: an owner reference that was added meanwhile makes
    // the deletion fail with a conflict.
    let mut params = DeleteParams::new().uid(node.object.uid());
    params.propagation = Some(policy);
    if let Some(version) = &node.object.meta().resource_version {
        params = params.resource_version(version.clone());
    }
    tracing::debug!(kind = %node.resource.kind, object = %node.object.key(), ?policy, "no owner is left; deleting");
    match api.delete(node.object.name(), &params).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
