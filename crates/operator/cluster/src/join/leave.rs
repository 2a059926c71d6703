//! Removes the member of the store on this machine from the cluster, before anything of it is
//! stopped, and the objects of the machine after that.

use std::time::Duration;

use client::{Client, DeleteParams};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use operator_discovery::Endpoint;
use tokio::time::timeout;

use super::control_plane::is_own_node;
use crate::addons::{change_hosts, name_dns_slice};
use crate::connect::{connect_admin_at, has_store_certificate};
use crate::control_plane::{JoinProgress, MemberIdentity, StoreMember};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::plan::format_member_url;
use crate::published::remove_hosts;
use crate::settings::Settings;
use crate::store_members::{
    LeavingMember, ListSource, Member, MemberList, RemovalDecision, decide_removal,
    describe_leaving_member, find_leaving, find_members, find_responding, format_host_url,
    is_name_of_another, remove_member,
};

const NAMESPACE: &str = "kube-system";
/// Time to delete the objects of the machine through one API server.
const API_TIMEOUT: Duration = Duration::from_secs(10);

/// The Node object of a machine that was removed from its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeObject {
    /// Deleted by this command.
    Deleted,
    /// Still listed by the cluster: a person must delete it.
    Listed,
    /// Absent, or a Node of the same name that is another machine's.
    Absent,
}

/// Removes the member, and stores that in the settings: a repeated command does not depend on the
/// other machines.
///
/// # Errors
/// The store does not respond, the other members would have no quorum, or the data of the cluster
/// may be on this machine only.
pub(super) async fn leave_store(
    settings: &mut Settings,
    report_progress: &dyn Fn(&str),
) -> Result<()> {
    let layout = Layout::for_settings(settings);
    let Some(shared) = &settings.control_plane else {
        return Ok(());
    };
    let is_removed = matches!(shared.member, StoreMember::Removed { .. });
    if is_removed || is_unknown_to_cluster(settings, &layout) {
        return Ok(());
    }
    report_progress("removing the member of the store");
    let found = find_members(settings, &layout).await;
    let (list, source) = found.map_err(|error| describe_no_response(&error, settings))?;
    let servers = remove_listed(settings, &layout, &list, source).await?;
    if let Err(error) = set_member(settings, StoreMember::Removed { servers }) {
        // A full disk, which the rest of the command empties. A repeated one finds that the member
        // is missing.
        tracing::warn!(%error, "the removal of the member can't be stored");
    }
    Ok(())
}

/// Removes the member if it is in the list. Returns the API servers through which the objects of
/// this machine can be deleted; none if they are those of another machine.
async fn remove_listed(
    settings: &mut Settings,
    layout: &Layout,
    list: &MemberList,
    source: ListSource,
) -> Result<Vec<String>> {
    let peer_url = format_member_url(settings.node_address, settings.ports.store_peer);
    // `own` borrows from the copy, because the settings change below.
    let before = settings.clone();
    let own = describe_leaving_member(&before, &peer_url);
    let members = &list.members;
    let healthy = find_responding(members, layout).await;
    let others = list_client_urls(members, own);
    match decide_removal(members, own, source, &healthy) {
        RemovalDecision::Absent => {}
        RemovalDecision::Remove(member) => {
            // Before the removal: the list of a repeated command, in which the member is missing,
            // is known by these IDs as that of its cluster.
            let cluster = list.cluster;
            set_member(
                settings,
                StoreMember::Listed(MemberIdentity { cluster, member }),
            )?;
            remove_member(&others, member, layout).await?;
        }
        decision => return Err(describe_refusal(&decision)),
    }
    // Each member of the store has an API server on its machine, at the same port.
    let port = settings.ports.api;
    let hosts = others.iter().filter_map(|url| Endpoint::from_url(url).ok());
    Ok(match is_name_of_another(members, own) {
        true => Vec::new(),
        false => hosts.map(|host| format_host_url(&host, port)).collect(),
    })
}

fn set_member(settings: &mut Settings, member: StoreMember) -> Result<()> {
    match &mut settings.control_plane {
        Some(shared) if shared.member != member => shared.member = member,
        _ => return Ok(()),
    }
    settings.save()
}

/// Returns whether a join was interrupted before this machine had a certificate with which it could
/// change the store. Missing keys alone are no proof: an administrator may keep them elsewhere.
fn is_unknown_to_cluster(settings: &Settings, layout: &Layout) -> bool {
    let joined = settings.joined_control_plane();
    let is_new = joined.is_some_and(|joined| joined.progress == JoinProgress::Verified);
    is_new && !has_store_certificate(layout)
}

fn describe_no_response(error: &Error, settings: &Settings) -> Error {
    let remedy = match settings.awaits_promotion() {
        true => "run the command again when another machine of the control plane responds",
        false => {
            "start this machine with `ironclad up` first, unless the cluster was restored from a backup"
        }
    };
    Error::Refused(format!(
        "{error}; {remedy}. If it was restored, or the other machines are lost for good, `ironclad down --purge` removes \
         what is here"
    ))
}

fn describe_refusal(decision: &RemovalDecision) -> Error {
    Error::Refused(match decision {
        RemovalDecision::NoQuorum(members) => {
            let name = |member: &Member| format!("{} (ID {:x})", member.name, member.id);
            format!(
                "without this machine the store would have no quorum, because of members that do not respond: {}; start them \
                 first. The member of a machine that is lost for good is removed by `etcdctl member remove ID`",
                members.iter().map(name).collect::<Vec<_>>().join(", ")
            )
        }
        RemovalDecision::Unlisted => {
            "the store lists no member with the name or the address of this machine, and the data here may be those \
             of the cluster; compare `etcdctl member list` with `ironclad status`, and remove the member by its ID. \
             `ironclad down --purge` removes what is here"
                .to_owned()
        }
        _ => "this is the last machine of the control plane, and the data of the cluster would be lost; \
              `ironclad backup` saves them, and `ironclad down --purge` removes the cluster"
            .to_owned(),
    })
}

/// Returns the URLs of all members but this machine's, which ends when it is removed.
fn list_client_urls(members: &[Member], own: LeavingMember<'_>) -> Vec<String> {
    let leaving = find_leaving(members, own).map(|member| member.id);
    let others = members.iter().filter(|member| Some(member.id) != leaving);
    others
        .flat_map(|member| member.client_urls.clone())
        .collect()
}

/// Deletes the Node and the endpoint of the DNS server through another API server, when nothing of
/// this machine runs: its kubelet would register the Node again, and the cluster would start the
/// pods of its containers elsewhere. It does no harm if the Node stays.
pub(super) async fn delete_objects(
    settings: &Settings,
    layout: &Layout,
    report_progress: &dyn Fn(&str),
) -> NodeObject {
    let Some(shared) = &settings.control_plane else {
        return NodeObject::Listed;
    };
    let servers = match &shared.member {
        StoreMember::Removed { servers } if !servers.is_empty() => servers,
        _ => return NodeObject::Absent,
    };
    report_progress("deleting the objects of this machine");
    // The objects are in the store, so any of the API servers can delete them.
    for url in servers {
        let client = connect_admin_at(url, layout);
        let deleted = timeout(API_TIMEOUT, delete_through(&client, settings)).await;
        match deleted {
            Ok(Ok(object)) => return object,
            Ok(Err(error)) => {
                tracing::warn!(url, %error, "objects of this machine can't be deleted")
            }
            Err(_) => tracing::warn!(url, "objects of this machine can't be deleted: no response"),
        }
    }
    NodeObject::Listed
}

async fn delete_through(client: &Client, settings: &Settings) -> client::Result<NodeObject> {
    let joined = settings.joined_control_plane();
    if let Some(joined) = joined.filter(|joined| joined.progress == JoinProgress::Verified) {
        // The Node is its only object, and may be that of another machine, because of which the
        // join was refused.
        return match find_node(client, &settings.node_name).await? {
            Some(node) if is_own_node(joined, &node) => delete_node(client, settings).await,
            _ => Ok(NodeObject::Absent),
        };
    }
    // Its names would be reserved, and the machine could be no worker later.
    let changed = change_hosts(client, |known| remove_hosts(known, settings)).await;
    if let Err(error) = changed {
        tracing::warn!(%error, "the names of this machine's API server stay reserved");
    }
    let slices = client.namespaced::<EndpointSlice>(NAMESPACE);
    let params = DeleteParams::new();
    ignore_absent(slices.delete(&name_dns_slice(settings), &params).await)?;
    match find_node(client, &settings.node_name).await? {
        Some(node) if is_node_of_machine(settings, &node) => delete_node(client, settings).await,
        _ => Ok(NodeObject::Absent),
    }
}

/// Returns whether a Node with the name of this machine is that of this machine: another one may
/// have joined under the name after this one was removed.
fn is_node_of_machine(settings: &Settings, node: &Node) -> bool {
    let joined = settings.joined_control_plane();
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_ref());
    let own = settings.node_address.to_string();
    joined.is_some_and(|joined| is_own_node(joined, node))
        || addresses.is_some_and(|all| all.iter().any(|address| address.address == own))
}

async fn find_node(client: &Client, name: &str) -> client::Result<Option<Node>> {
    match client.api::<Node>().get(name).await {
        Err(error) if error.is_not_found() => Ok(None),
        found => found.map(Some),
    }
}

async fn delete_node(client: &Client, settings: &Settings) -> client::Result<NodeObject> {
    let nodes = client.api::<Node>();
    let params = DeleteParams::new();
    let deleted = nodes.delete(&settings.node_name, &params).await;
    ignore_absent(deleted).map(|()| NodeObject::Deleted)
}

fn ignore_absent(deleted: client::Result<()>) -> client::Result<()> {
    match deleted {
        Err(error) if error.is_not_found() => Ok(()),
        deleted => deleted,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::control_plane::{JOIN_ANNOTATION, JoinProgress, StartMembers};

    #[test]
    fn refusal_names_the_remedy() {
        let lost = Member {
            id: 0xa3,
            name: "cp3".into(),
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
            is_learner: false,
        };
        for (decision, expected) in [
            (
                RemovalDecision::NoQuorum(vec![lost]),
                "do not respond: cp3 (ID a3); start them",
            ),
            (RemovalDecision::Last, "down --purge"),
            (RemovalDecision::Unlisted, "member list"),
        ] {
            let error = describe_refusal(&decision).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn node_of_another_machine_with_the_name_is_kept() {
        let settings = Settings::example_shared();
        let joined = settings.joined_control_plane().unwrap();
        let node = |address: &str, join: &str| -> Node {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": settings.node_name, "annotations": {JOIN_ANNOTATION: join}},
                "status": {"addresses": [{"type": "InternalIP", "address": address}]},
            }))
            .unwrap()
        };
        let own = settings.node_address.to_string();
        for (address, join, expected) in [
            (own.as_str(), "", true),
            ("203.0.113.9", joined.id.as_str(), true),
            ("203.0.113.9", "", false),
        ] {
            let found = is_node_of_machine(&settings, &node(address, join));
            assert_eq!(found, expected, "{address} {join}");
        }
    }

    #[test]
    fn machine_is_unknown_only_while_its_join_has_no_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let with = |change: &dyn Fn(&mut crate::ControlPlane)| {
            let mut settings = Settings::example_shared();
            change(settings.control_plane.as_mut().unwrap());
            settings
        };
        let new = with(&|_| {});
        assert!(is_unknown_to_cluster(&new, &layout));
        // Its keys are elsewhere, and its data here.
        for known in [
            with(&|shared| shared.joined = None),
            new.clone().with_progress(JoinProgress::Added(StartMembers {
                initial_cluster: "cp1=https://a:1".into(),
                client_urls: Vec::new(),
            })),
        ] {
            assert!(!is_unknown_to_cluster(&known, &layout), "{known:?}");
        }
        for name in [
            "etcd/ca.crt",
            "apiserver-etcd-client.crt",
            "apiserver-etcd-client.key",
        ] {
            assert!(is_unknown_to_cluster(&new, &layout));
            crate::files::write_file(&layout.pki().join(name), b"").unwrap();
        }
        assert!(!is_unknown_to_cluster(&new, &layout));
    }
}
