//! Removes the member of the store on this machine from the cluster, before anything of it is stopped, and the
//! objects of the machine after that.

use std::collections::BTreeSet;
use std::time::Duration;

use client::{Client, DeleteParams};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use operator_discovery::Endpoint;
use tokio::time::timeout;

use super::requests::find_store_urls;
use crate::addons::{change_hosts, dns_slice_name};
use crate::connect::{connect_admin_at, has_store_certificate, local_store_url};
use crate::control_plane::{JoinProgress, JoinedControlPlane, MemberIdentity, StoreMember};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::plan::member_url;
use crate::published::remove_hosts;
use crate::settings::Settings;
use crate::store_members::{
    LeavingMember, ListSource, Member, MemberList, MemberOrigin, RemovalDecision, decide_removal,
    find_leaving, find_responding, is_name_of_another, list_members, remove_member,
};

const NAMESPACE: &str = "kube-system";
/// Time for the list of API servers.
const API_TIMEOUT: Duration = Duration::from_secs(10);

/// Removes the member, and stores that in the settings: a repeated command does not depend on the other machines.
///
/// # Errors
/// The store does not respond, the other members would have no quorum, or the data of the cluster may be on this
/// machine only.
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
    let found = list_store(settings, &layout).await;
    let (list, source) = found.map_err(|error| describe_no_response(&error, settings))?;
    let servers = remove_listed(settings, &layout, &list, source).await?;
    set_member(settings, StoreMember::Removed { servers })
}

/// Removes the member if it is in the list. Returns the API servers through which the objects of this machine can be
/// deleted; none if they are those of another machine.
async fn remove_listed(
    settings: &mut Settings,
    layout: &Layout,
    list: &MemberList,
    source: ListSource,
) -> Result<Vec<String>> {
    let peer_url = member_url(settings.node_address, settings.ports.store_peer);
    let before = settings.clone();
    let own = leaving_member(&before, &peer_url);
    let members = &list.members;
    let healthy = find_responding(members, layout).await;
    let others = list_client_urls(members, own);
    match decide_removal(members, own, source, &healthy) {
        RemovalDecision::Absent => {}
        RemovalDecision::Remove(member) => {
            // Before the removal: the list of a repeated command, in which the member is missing, is known by these
            // IDs as that of its cluster.
            let cluster = list.cluster;
            set_member(
                settings,
                StoreMember::Listed(MemberIdentity { cluster, member }),
            )?;
            remove_member(&others, member, layout).await?;
        }
        decision => return Err(describe_refusal(&decision)),
    }
    let port = settings.ports.api;
    let hosts = others.iter().filter_map(|url| Endpoint::from_url(url).ok());
    Ok(match is_name_of_another(members, own) {
        true => Vec::new(),
        false => hosts.map(|host| host_url(&host, port)).collect(),
    })
}

fn set_member(settings: &mut Settings, member: StoreMember) -> Result<()> {
    if let Some(shared) = &mut settings.control_plane {
        shared.member = member;
    }
    settings.save()
}

/// Returns whether a join was interrupted before this machine had a certificate with which it could change the
/// store. Missing keys alone are no proof: an administrator may keep them elsewhere.
fn is_unknown_to_cluster(settings: &Settings, layout: &Layout) -> bool {
    let joined = settings.joined_control_plane();
    let is_new = joined.is_some_and(|joined| joined.progress == JoinProgress::Verified);
    is_new && !has_store_certificate(layout)
}

/// Returns the member of this machine.
pub(crate) fn leaving_member<'a>(settings: &'a Settings, peer_url: &'a str) -> LeavingMember<'a> {
    let joined = settings.joined_control_plane();
    LeavingMember {
        name: &settings.node_name,
        peer_url,
        id: settings.member_identity().map(|known| known.member),
        origin: match joined.map(|joined| &joined.progress) {
            None => MemberOrigin::First,
            Some(JoinProgress::Verified) => MemberOrigin::Joining,
            Some(JoinProgress::Added(_) | JoinProgress::Voting(_)) => MemberOrigin::Added,
        },
    }
}

/// Lists the members: from another machine if one responds, since only that knows of a cluster without this
/// machine. Only the cluster that the settings know counts.
pub(crate) async fn list_store(
    settings: &Settings,
    layout: &Layout,
) -> Result<(MemberList, ListSource)> {
    let cluster = settings.member_identity().map(|known| known.cluster);
    let others = find_other_urls(settings, layout);
    if let Ok(list) = list_members(&others, cluster, layout).await {
        return Ok((list, ListSource::OtherMachine));
    }
    // The address of the join may be that of a load balancer, which has no store.
    if let Some(joined) = settings.joined_control_plane() {
        let client = connect_admin_at(&joined.server, layout);
        let urls = timeout(API_TIMEOUT, find_store_urls(&client, settings)).await;
        if let Ok(Ok(urls)) = urls
            && let Ok(list) = list_members(&urls, cluster, layout).await
        {
            return Ok((list, ListSource::OtherMachine));
        }
    }
    let own = list_members(&[local_store_url(settings)], cluster, layout).await;
    own.map(|list| (list, ListSource::ThisMachine))
}

fn describe_no_response(error: &Error, settings: &Settings) -> Error {
    let remedy = match settings.awaits_promotion() {
        true => "run the command again when another machine of the control plane responds",
        false => "start this machine with `ironclad up` first",
    };
    Error::Refused(format!(
        "{error}; {remedy}. If the other machines are lost for good, `ironclad down --purge` removes what is here"
    ))
}

fn describe_refusal(decision: &RemovalDecision) -> Error {
    Error::Refused(match decision {
        RemovalDecision::NoQuorum(names) => format!(
            "without this machine the store would have no quorum, because of members that do not respond: {}; \
             start them first, or remove them with `ironclad reset` on their machines",
            names.join(", ")
        ),
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

/// Returns the URLs of members on other machines: those of the join, and those of the API servers that the
/// proxy has learned since.
fn find_other_urls(settings: &Settings, layout: &Layout) -> Vec<String> {
    let stored = std::fs::read(layout.api_servers()).unwrap_or_default();
    let stored: Vec<String> = serde_json::from_slice(&stored).unwrap_or_default();
    let mut hosts: Vec<Endpoint> = stored
        .iter()
        .filter_map(|server| server.parse().ok())
        .collect();
    let joined = settings.joined_control_plane();
    hosts.extend(joined.and_then(|joined| Endpoint::from_url(&joined.server).ok()));
    let known = hosts
        .iter()
        .map(|endpoint| host_url(endpoint, settings.ports.store));
    let members = joined.and_then(JoinedControlPlane::start_members);
    let joined = members.map_or_else(Vec::new, |members| members.client_urls.clone());
    let own = member_url(settings.node_address, settings.ports.store);
    let all: BTreeSet<_> = known.chain(joined).filter(|url| *url != own).collect();
    all.into_iter().collect()
}

/// Returns the URL of another port of an endpoint's host.
fn host_url(endpoint: &Endpoint, port: u16) -> String {
    match endpoint.host() {
        host if host.contains(':') => format!("https://[{host}]:{port}"),
        host => format!("https://{host}:{port}"),
    }
}

/// Returns the URLs of all members but this machine's, which ends when it is removed.
fn list_client_urls(members: &[Member], own: LeavingMember<'_>) -> Vec<String> {
    let leaving = find_leaving(members, own).map(|member| member.id);
    let others = members.iter().filter(|member| Some(member.id) != leaving);
    others
        .flat_map(|member| member.client_urls.clone())
        .collect()
}

/// Deletes the Node and the endpoint of the DNS server through another API server, when nothing of this machine runs:
/// its kubelet would register the Node again, and the cluster would start the pods of its containers elsewhere. Returns
/// whether the Node was deleted; it does no harm if it stays.
pub(super) async fn delete_objects(
    settings: &Settings,
    layout: &Layout,
    report_progress: &dyn Fn(&str),
) -> bool {
    let member = settings.control_plane.as_ref().map(|shared| &shared.member);
    let Some(StoreMember::Removed { servers }) = member else {
        return false;
    };
    if !servers.is_empty() {
        report_progress("deleting the objects of this machine");
    }
    for url in servers {
        let client = connect_admin_at(url, layout);
        let deleted = timeout(API_TIMEOUT, delete_through(&client, settings)).await;
        match deleted {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => {
                tracing::warn!(url, %error, "objects of this machine can't be deleted")
            }
            Err(_) => tracing::warn!(url, "objects of this machine can't be deleted: no response"),
        }
    }
    false
}

async fn delete_through(client: &Client, settings: &Settings) -> client::Result<()> {
    // Its names would be reserved, and the machine could be no worker later.
    let changed = change_hosts(client, |known| remove_hosts(known, settings)).await;
    if let Err(error) = changed {
        tracing::warn!(%error, "the names of this machine's API server stay reserved");
    }
    let ignore_absent = |result: client::Result<()>| match result {
        Err(error) if error.is_not_found() => Ok(()),
        result => result,
    };
    let slices = client.namespaced::<EndpointSlice>(NAMESPACE);
    let params = DeleteParams::new();
    ignore_absent(slices.delete(&dns_slice_name(settings), &params).await)?;
    ignore_absent(
        client
            .api::<Node>()
            .delete(&settings.node_name, &params)
            .await,
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::control_plane::StartMembers;

    fn added(client_urls: &[&str]) -> JoinProgress {
        JoinProgress::Added(StartMembers {
            initial_cluster: "cp1=https://192.0.2.2:2380".into(),
            client_urls: client_urls.iter().map(|&url| url.to_owned()).collect(),
        })
    }

    #[test]
    fn members_of_other_machines_are_known_without_the_store_of_this_one() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let urls = ["https://192.0.2.2:2379", "https://192.0.2.3:2379"];
        let settings = Settings::example_shared().with_progress(added(&urls));
        crate::files::write_file(
            &layout.api_servers(),
            b"[\"192.0.2.4:6443\", \"192.0.2.2:6443\"]",
        )
        .unwrap();
        let found = find_other_urls(&settings, &layout);
        assert_eq!(found, ["https://192.0.2.2:2379", "https://192.0.2.4:2379"]);
        // Interrupted before the members were stored.
        let mut settings = Settings::example_shared();
        let layout = Layout::new(&dir.path().join("new"), false);
        assert_eq!(
            find_other_urls(&settings, &layout),
            ["https://192.0.2.2:2379"]
        );
        let shared = settings.control_plane.as_mut().unwrap();
        shared.joined.as_mut().unwrap().server = "https://[2001:db8::1]:6443".into();
        assert_eq!(
            find_other_urls(&settings, &layout),
            ["https://[2001:db8::1]:2379"]
        );
    }

    #[test]
    fn refusal_names_the_remedy() {
        for (decision, expected) in [
            (
                RemovalDecision::NoQuorum(vec!["cp3".into()]),
                "do not respond: cp3",
            ),
            (RemovalDecision::Last, "down --purge"),
            (RemovalDecision::Unlisted, "member list"),
        ] {
            let error = describe_refusal(&decision).to_string();
            assert!(error.contains(expected), "{error}");
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
            new.clone().with_progress(added(&[])),
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
