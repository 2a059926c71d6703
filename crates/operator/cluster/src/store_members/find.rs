//! Finds the members of the store on other machines.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use client::Client;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use operator_discovery::Endpoint;
use tokio::time::timeout;

use super::decide::{LeavingMember, ListSource, MemberOrigin};
use super::requests::{MemberList, list_members};
use crate::api_endpoints::{self, load_servers, read_servers, select_slice};
use crate::connect::{connect_admin_at, local_store_url};
use crate::control_plane::{JoinProgress, JoinedControlPlane};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::plan::format_member_url;
use crate::settings::Settings;

/// Time for the list of API servers.
const API_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the member of this machine.
pub(crate) fn describe_leaving_member<'a>(
    settings: &'a Settings,
    peer_url: &'a str,
) -> LeavingMember<'a> {
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

/// Lists the members: from another machine if one responds, since only that knows of a cluster
/// without this machine. Only the cluster that the settings know counts.
pub(crate) async fn find_members(
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

/// Returns the URLs of the store's members on the other machines, which are those of the API
/// servers.
pub(crate) async fn find_store_urls(client: &Client, settings: &Settings) -> Result<Vec<String>> {
    let slices = client.namespaced::<EndpointSlice>(api_endpoints::NAMESPACE);
    let slices = slices.list(&select_slice()).await;
    let slices = slices.map_err(|cause| Error::Api {
        what: "reading the endpoints of the API servers".to_owned(),
        cause,
    })?;
    let mut others = read_servers(&slices.items);
    others.retain(|server| server.ip() != settings.node_address);
    let to_url = |server: &SocketAddr| format_member_url(server.ip(), settings.ports.store);
    match others.is_empty() {
        false => Ok(others.iter().map(to_url).collect()),
        true => Err(Error::Refused(
            "the Service kubernetes has no endpoint on another machine; run `ironclad status` there".to_owned(),
        )),
    }
}

/// Returns the URLs of members on other machines: those of the join, and those of the API servers
/// that the proxy has learned since.
pub(crate) fn find_other_urls(settings: &Settings, layout: &Layout) -> Vec<String> {
    let stored = load_servers(layout);
    let mut hosts: Vec<Endpoint> = stored
        .iter()
        .filter_map(|server| server.parse().ok())
        .collect();
    let joined = settings.joined_control_plane();
    hosts.extend(joined.and_then(|joined| Endpoint::from_url(&joined.server).ok()));
    let known = hosts
        .iter()
        .map(|endpoint| format_host_url(endpoint, settings.ports.store));
    let members = joined.and_then(JoinedControlPlane::start_members);
    let joined = members.map_or_else(Vec::new, |members| members.client_urls.clone());
    let own = format_member_url(settings.node_address, settings.ports.store);
    let all: BTreeSet<_> = known.chain(joined).filter(|url| *url != own).collect();
    all.into_iter().collect()
}

/// Returns the URL of another port of an endpoint's host.
pub(crate) fn format_host_url(endpoint: &Endpoint, port: u16) -> String {
    match endpoint.host() {
        // URLs have IPv6 addresses in brackets (RFC 3986, section 3.2.2).
        host if host.contains(':') => format!("https://[{host}]:{port}"),
        host => format!("https://{host}:{port}"),
    }
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
}
