//! Removes the member of the store on this machine from the cluster, before anything of it is stopped.

use std::collections::BTreeSet;

use client::{Client, DeleteParams};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use operator_discovery::Endpoint;

use crate::addons::dns_slice_name;
use crate::connect::{connect_admin_at, local_store_url};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::plan::member_url;
use crate::settings::Settings;
use crate::shared_keys::has_keys;
use crate::store_members::{
    LocalMember, Member, RemovalDecision, decide_removal, find_responding, list_members,
    remove_member,
};

const NAMESPACE: &str = "kube-system";

/// Removes the member, and the objects of this machine. Returns whether its Node was deleted.
///
/// # Errors
/// The store does not respond, or the other members would have no quorum.
pub(super) async fn leave_control_plane(
    settings: &Settings,
    report_progress: &dyn Fn(&str),
) -> Result<bool> {
    let layout = Layout::for_settings(settings);
    // Interrupted before it had keys: the cluster knows nothing of it.
    if !has_keys(&layout) || !layout.pki().join("apiserver-etcd-client.crt").is_file() {
        return Ok(false);
    }
    report_progress("removing the member of the store");
    let others = find_other_urls(settings, &layout);
    let urls = [others.clone(), vec![local_store_url(settings)]].concat();
    let members = list_members(&urls, &layout)
        .await
        .map_err(describe_silence)?;
    let peer_url = member_url(settings.node_address, settings.ports.store_peer);
    let own = LocalMember {
        name: &settings.node_name,
        peer_url: &peer_url,
        has_data: true,
    };
    let healthy = find_responding(&members, &layout).await;
    match decide_removal(&members, own, &healthy) {
        RemovalDecision::Absent => {}
        RemovalDecision::Remove(id) => {
            let urls = list_client_urls(&members, own);
            remove_member(&urls, id, &layout).await?;
        }
        decision => return Err(refuse(&decision)),
    }
    report_progress("deleting the objects of this machine");
    Ok(delete_objects(settings, &layout, &members, own).await)
}

fn describe_silence(error: Error) -> Error {
    Error::Refused(format!(
        "{error}; start this machine with `ironclad up` first. If the other machines are lost for good, \
         `ironclad down --purge` removes what is here"
    ))
}

fn refuse(decision: &RemovalDecision) -> Error {
    Error::Refused(match decision {
        RemovalDecision::NoQuorum(names) => format!(
            "without this machine the store would have no quorum, because of members that do not respond: {}; \
             start them first, or remove them with `ironclad reset` on their machines",
            names.join(", ")
        ),
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
    let hosts = stored
        .iter()
        .filter_map(|server| server.parse::<Endpoint>().ok());
    let hosts = hosts.filter_map(|endpoint| endpoint.host().parse().ok());
    let learned = hosts.map(|address| member_url(address, settings.ports.store));
    let joined = settings.joined_control_plane();
    let joined = joined
        .map(|joined| joined.client_urls.clone())
        .unwrap_or_default();
    let own = member_url(settings.node_address, settings.ports.store);
    let all: BTreeSet<_> = learned.chain(joined).filter(|url| *url != own).collect();
    all.into_iter().collect()
}

/// Returns the URLs of all members but this machine's, which ends when it is removed.
fn list_client_urls(members: &[Member], own: LocalMember<'_>) -> Vec<String> {
    let is_other = |member: &&Member| !member.peer_urls.iter().any(|url| url == own.peer_url);
    let others = members.iter().filter(is_other);
    others
        .flat_map(|member| member.client_urls.clone())
        .collect()
}

/// Deletes the Node and the endpoint of the DNS server through another API server. Returns whether the Node was
/// deleted; it does no harm if it stays.
async fn delete_objects(
    settings: &Settings,
    layout: &Layout,
    members: &[Member],
    own: LocalMember<'_>,
) -> bool {
    for url in list_client_urls(members, own) {
        let Ok(endpoint) = Endpoint::from_url(&url) else {
            continue;
        };
        let mut host = endpoint.host().to_owned();
        if host.contains(':') {
            host = format!("[{host}]");
        }
        let client = connect_admin_at(&format!("https://{host}:{}", settings.ports.api), layout);
        match delete_through(&client, settings).await {
            Ok(()) => return true,
            Err(error) => tracing::warn!(url, %error, "objects of this machine can't be deleted"),
        }
    }
    false
}

async fn delete_through(client: &Client, settings: &Settings) -> client::Result<()> {
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

    #[test]
    fn members_of_other_machines_are_known_without_the_store_of_this_one() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let mut settings = Settings::example_shared();
        let joined = settings
            .control_plane
            .as_mut()
            .unwrap()
            .joined
            .as_mut()
            .unwrap();
        joined.client_urls = vec![
            "https://192.0.2.2:2379".into(),
            "https://192.0.2.3:2379".into(),
        ];
        crate::files::write_file(
            &layout.api_servers(),
            b"[\"192.0.2.4:6443\", \"192.0.2.2:6443\"]",
        )
        .unwrap();
        let found = find_other_urls(&settings, &layout);
        assert_eq!(found, ["https://192.0.2.2:2379", "https://192.0.2.4:2379"]);
    }

    #[test]
    fn refusal_names_the_remedy() {
        let silent = RemovalDecision::NoQuorum(vec!["cp3".into()]);
        assert!(refuse(&silent).to_string().contains("do not respond: cp3"));
        assert!(
            refuse(&RemovalDecision::Last)
                .to_string()
                .contains("down --purge")
        );
    }
}
