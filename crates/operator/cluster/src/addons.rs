//! Objects that a cluster of this tool needs in addition to those of the API server: permissions of
//! its own identities, those of joining machines, and the usual `kube-dns` Service.
//!
//! The DNS server runs as a process on the node, so a static EndpointSlice points to it. The
//! Service has the usual selector too: a stock CoreDNS Deployment with the label `k8s-app=kube-dns`
//! can serve beside it.

mod bootstrap;
mod join;
mod objects;

use api_bootstrap::CLUSTER_INFO_NAMESPACE;
use client::{Client, Object};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use operator_discovery::Endpoint;
use serde_json::Value;

pub use bootstrap::TOKEN_GROUP;
pub(crate) use objects::name_dns_slice;
use objects::{
    NAMESPACE, POLICY_ROLE, cluster_role, dns_service, endpoint_slice, kubelet_client_binding,
    policy_role, role_binding,
};

use crate::control_plane::{ControlPlane, SharedOptions};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::published::{self, ClusterParameters};
use crate::settings::Settings;
use crate::token_issuers::choose_published_issuers;

const MARKER_TEXT: &str = "The roles and bindings for joining nodes have been created. If this file is removed, \
    `ironclad up` creates them again.\n";
/// Attempts to change an object that other machines change, too.
const ATTEMPTS: u32 = 5;
/// The user of the DNS server's certificate.
const DNS_USER: &str = "system:cluster-dns";
/// The user of kube-proxy's certificate.
const PROXY_USER: &str = "system:kube-proxy";

/// Creates or updates the objects.
pub async fn apply_addons(client: &Client, settings: &Settings, layout: &Layout) -> Result<()> {
    if settings.joined_control_plane().is_some() {
        return apply_own_addons(client, settings, layout).await;
    }
    publish_cluster(client, settings, layout).await
}

/// Creates or updates all objects of the cluster.
pub async fn publish_cluster(client: &Client, settings: &Settings, layout: &Layout) -> Result<()> {
    apply_bootstrap(client, settings, layout).await?;
    publish_join_configuration(client, settings, layout).await?;
    ensure_object(
        client.api::<ClusterRoleBinding>(),
        // Without it, the kubelets forbid `kubectl logs` and `kubectl exec`.
        &kubelet_client_binding(),
    )
    .await?;
    ensure_object(client.api::<ClusterRole>(), &cluster_role(settings)).await?;
    ensure_object(
        client.api::<ClusterRoleBinding>(),
        &role_binding("system:cluster-dns", "system:cluster-dns", DNS_USER),
    )
    .await?;
    if settings.cluster_enforces_policies() {
        ensure_object(client.api::<ClusterRole>(), &policy_role()).await?;
        let binding = role_binding(POLICY_ROLE, POLICY_ROLE, PROXY_USER);
        ensure_object(client.api::<ClusterRoleBinding>(), &binding).await?;
    }
    ensure_object(
        client.namespaced::<Service>(NAMESPACE),
        &dns_service(settings),
    )
    .await?;
    ensure_object(
        client.namespaced::<EndpointSlice>(NAMESPACE),
        &endpoint_slice(settings),
    )
    .await
}

/// Creates or updates the objects of a further machine of the control plane: the others are those
/// of the cluster, which the machine of `ironclad init` publishes.
async fn apply_own_addons(client: &Client, settings: &Settings, layout: &Layout) -> Result<()> {
    publish_own_hosts(client, layout).await?;
    ensure_object(
        client.namespaced::<EndpointSlice>(NAMESPACE),
        &endpoint_slice(settings),
    )
    .await
}

/// Publishes the names and addresses of this machine's API server. From then on, no other node gets
/// a certificate for them.
pub(crate) async fn publish_own_hosts(client: &Client, layout: &Layout) -> Result<()> {
    let own = read_server_hosts(layout)?;
    change_hosts(client, |known| merge_hosts(own.clone(), known.to_vec())).await
}

/// Changes the published names and addresses of API servers, again if another machine does so at
/// the same time.
pub(crate) async fn change_hosts(
    client: &Client,
    change: impl Fn(&[String]) -> Vec<String>,
) -> Result<()> {
    let maps = client.namespaced::<ConfigMap>(published::NAMESPACE);
    let failed = |cause| Error::Api {
        what: format!("changing the ConfigMap {}", published::CLUSTER_CONFIG),
        cause,
    };
    let mut attempts = 1..=ATTEMPTS;
    loop {
        let map = maps.get(published::CLUSTER_CONFIG).await.map_err(failed)?;
        let known = published::read_hosts(&map);
        let all = change(&known);
        if all == known {
            return Ok(());
        }
        // A text that an administrator has broken is left alone.
        let Some(tree) = published::replace_hosts(&map, &all) else {
            return Ok(());
        };
        let patch = client::Patch::Merge(tree);
        match maps.patch(published::CLUSTER_CONFIG, &patch).await {
            // The patch has the resourceVersion that was read, so a concurrent change is a
            // conflict.
            Err(error) if error.is_conflict() && attempts.next() != Some(ATTEMPTS) => {}
            done => return done.map(drop).map_err(failed),
        }
    }
}

/// Options of a command, which are newer than what the cluster has published.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GivenOptions<'a> {
    /// The command has `--authentication-config`.
    pub(crate) changes_issuers: bool,
    /// Those of `init`.
    pub(crate) shared: Option<&'a SharedOptions>,
    /// Value of `--network-policies-enforced`.
    pub(crate) network_policies_enforced: Option<bool>,
}

/// Returns the settings of a shared control plane with what another machine has published since;
/// None if this machine knows it.
///
/// # Errors
/// The map can't be read. The settings of this machine may be older, so they are not published.
pub(crate) async fn find_newer_settings(
    client: &Client,
    known: &Settings,
    given: GivenOptions<'_>,
) -> Result<Option<Settings>> {
    // Without the map, or with one that an administrator has broken, the settings of this machine
    // count.
    let Some(map) = find_cluster_config(client).await? else {
        return Ok(None);
    };
    let mut newer = known.clone();
    if given.changes_issuers
        && let Some(replaced) = published::read_issuers(&map)
    {
        newer.replaced_issuers = Some(replaced);
    }
    if let Ok(published) = published::read_cluster_config(&map)
        && let Some(merged) = merge_settings(&newer, published, given)
    {
        newer = merged;
    }
    Ok((newer != *known).then_some(newer))
}

fn merge_settings(
    known: &Settings,
    published: ClusterParameters,
    given: GivenOptions<'_>,
) -> Option<Settings> {
    let mut all = known.clone();
    if published.is_shared && given.network_policies_enforced.is_none() {
        all.network_policies_enforced = published.network.policies_enforced;
    }
    // Not after a command that ended before it had published its own: removed issuers would be
    // back.
    if published.is_shared && known.replaced_issuers.is_none() {
        all.token_issuers.clone_from(&published.token_issuers);
    }
    let shared = all.control_plane.as_ref()?;
    if let Some(newer) = merge_control_plane(shared, published, given.shared) {
        all.control_plane = Some(newer);
    }
    (all != *known).then_some(all)
}

/// Returns the names of the settings in which a shared control plane has others.
pub(crate) fn list_changes(known: &Settings, newer: &Settings) -> Vec<&'static str> {
    let endpoint = |settings: &Settings| {
        let shared = settings.control_plane.as_ref();
        shared.and_then(|shared| shared.endpoint.clone())
    };
    let names = |settings: &Settings| {
        let shared = settings.control_plane.as_ref();
        shared.map(|shared| shared.extra_sans.clone())
    };
    let enforced = |settings: &Settings| settings.network_policies_enforced;
    [
        ("endpoint", endpoint(known) != endpoint(newer)),
        ("names of API servers", names(known) != names(newer)),
        (
            "issuers of tokens",
            known.token_issuers != newer.token_issuers,
        ),
        (
            "enforcement of NetworkPolicies",
            enforced(known) != enforced(newer),
        ),
    ]
    .into_iter()
    .filter_map(|(name, is_changed)| is_changed.then_some(name))
    .collect()
}

fn merge_control_plane(
    known: &ControlPlane,
    published: ClusterParameters,
    given: Option<&SharedOptions>,
) -> Option<ControlPlane> {
    if !published.is_shared {
        return None;
    }
    let mut all = known.clone();
    let is_valid = |text: &String| text.parse::<Endpoint>().is_ok();
    if given.is_none_or(|given| given.endpoint.is_none()) {
        // The map can be edited by hand, and the endpoint gets into certificates and kubeconfigs.
        all.endpoint = published.endpoint.filter(is_valid);
    }
    if given.is_none_or(|given| given.extra_sans.is_empty()) {
        all.extra_sans = published.extra_sans;
    }
    (all != *known).then_some(all)
}

/// Records that the rights of joining nodes were granted, on a machine of a control plane that has
/// granted them: what an administrator has removed since stays removed.
pub fn record_granted_rights(layout: &Layout) -> Result<()> {
    for marker in [layout.bootstrap_marker(), layout.join_marker()] {
        crate::files::write_file(&marker, MARKER_TEXT.as_bytes())?;
    }
    Ok(())
}

/// Returns the names and addresses of all API servers: no node gets a serving certificate for one
/// of them.
fn merge_hosts(own: Vec<String>, known: Vec<String>) -> Vec<String> {
    let mut all: Vec<_> = own.into_iter().chain(known).collect();
    all.sort();
    all.dedup();
    all
}

/// Publishes cluster-info. In a new cluster, also grants the rights of anonymous clients and of
/// bootstrap tokens: as with kubeadm, rights that an administrator has removed stay removed.
async fn apply_bootstrap(client: &Client, settings: &Settings, layout: &Layout) -> Result<()> {
    let ca = read_ca(layout)?;
    ensure_object(
        client.namespaced::<ConfigMap>(CLUSTER_INFO_NAMESPACE),
        &bootstrap::cluster_info(settings, &ca),
    )
    .await?;
    let marker = layout.bootstrap_marker();
    if marker.exists() {
        return Ok(());
    }
    grant_bootstrap_rights(client).await?;
    // After the last object: an interrupted start is completed by the next one.
    crate::files::write_file(&marker, MARKER_TEXT.as_bytes())
}

/// Publishes the configuration of joining machines, and grants their rights once: at the first `up`
/// of a release with `ironclad join`.
async fn publish_join_configuration(
    client: &Client,
    settings: &Settings,
    layout: &Layout,
) -> Result<()> {
    let maps = || client.namespaced::<ConfigMap>(published::NAMESPACE);
    publish_cluster_config(client, settings, &read_server_hosts(layout)?).await?;
    // Created once: an administrator may change it for the machines that join later.
    create_unless_present(maps(), &published::kubelet_config(settings)).await?;
    let marker = layout.join_marker();
    if marker.exists() {
        return Ok(());
    }
    let namespace = published::NAMESPACE;
    ensure_object(
        client.namespaced::<Role>(namespace),
        &join::configuration_role(),
    )
    .await?;
    ensure_object(
        client.namespaced::<RoleBinding>(namespace),
        &join::configuration_binding(),
    )
    .await?;
    for role in join::cluster_roles() {
        ensure_object(client.api::<ClusterRole>(), &role).await?;
    }
    let for_policies = settings
        .cluster_enforces_policies()
        .then(|| join::bind_to_nodes(POLICY_ROLE));
    for binding in join::cluster_bindings().into_iter().chain(for_policies) {
        ensure_object(client.api::<ClusterRoleBinding>(), &binding).await?;
    }
    crate::files::write_file(&marker, MARKER_TEXT.as_bytes())
}

/// Publishes the cluster's parameters, again if another machine changes them at the same time.
async fn publish_cluster_config(
    client: &Client,
    settings: &Settings,
    hosts: &[String],
) -> Result<()> {
    let maps = || client.namespaced::<ConfigMap>(published::NAMESPACE);
    let mut attempts = 1..=ATTEMPTS;
    loop {
        let before = match settings.control_plane {
            // Other machines add their names to the map. Without a shared control plane it has one
            // writer.
            Some(_) => find_cluster_config(client).await?,
            None => None,
        };
        let known = before.as_ref().map(published::read_hosts);
        let all = match known {
            Some(known) => merge_hosts(hosts.to_vec(), known),
            None => hosts.to_vec(),
        };
        let issuers = before.as_ref().and_then(published::read_issuers);
        let issuers = choose_published_issuers(settings, issuers)?;
        let mut tree = published::cluster_config(settings, &all, &issuers);
        let is_absent = before.is_none();
        if let Some(version) = before.and_then(|before| before.metadata.resource_version) {
            // Without it, what another machine writes in the meantime would be lost.
            tree["metadata"]["resourceVersion"] = version.into();
        }
        let written = match is_absent && settings.control_plane.is_some() {
            // For the same reason, no change of a map that another machine creates.
            true => create_object(&maps(), &tree).await,
            false => ensure_object(maps(), &tree).await,
        };
        match written {
            Err(Error::Api { cause, .. })
                if (cause.is_conflict() || cause.is_already_exists())
                    && attempts.next() != Some(ATTEMPTS) => {}
            done => return done,
        }
    }
}

/// Returns the published parameters; None if the cluster has published none.
async fn find_cluster_config(client: &Client) -> Result<Option<ConfigMap>> {
    let maps = client.namespaced::<ConfigMap>(published::NAMESPACE);
    match maps.get(published::CLUSTER_CONFIG).await {
        Err(error) if error.is_not_found() => Ok(None),
        // Not as if there were none: the names of the other API servers would be dropped.
        found => found.map(Some).map_err(|cause| Error::Api {
            what: format!("reading the ConfigMap {}", published::CLUSTER_CONFIG),
            cause,
        }),
    }
}

/// Returns the names and addresses in the API server's certificate, which an administrator may have
/// brought.
pub(crate) fn read_server_hosts(layout: &Layout) -> Result<Vec<String>> {
    let path = layout.pki().join("apiserver.crt");
    let certificate = std::fs::read(&path).map_err(Error::io(&path))?;
    Ok(operator_pki::list_certificate_hosts(&certificate))
}

async fn grant_bootstrap_rights(client: &Client) -> Result<()> {
    ensure_object(
        client.namespaced::<Role>(CLUSTER_INFO_NAMESPACE),
        &bootstrap::reader_role(),
    )
    .await?;
    ensure_object(
        client.namespaced::<RoleBinding>(CLUSTER_INFO_NAMESPACE),
        &bootstrap::reader_binding(),
    )
    .await?;
    for binding in bootstrap::bindings() {
        ensure_object(client.api::<ClusterRoleBinding>(), &binding).await?;
    }
    Ok(())
}

/// Returns the CA's certificates, which are published.
///
/// # Errors
/// The file can't be read, or holds something that is not a certificate.
pub fn read_ca(layout: &Layout) -> Result<String> {
    let path = layout.pki().join("ca.crt");
    let text = std::fs::read(&path).map_err(Error::io(&path))?;
    bootstrap::extract_certificates(&text).map_err(|defect| {
        Error::Refused(format!(
            "{} {defect}; it is published to clients without a credential, so it may hold certificates only. \
             Remove everything else from it, and renew the CA if a key was in it",
            path.display()
        ))
    })
}

/// Patches the object if it differs, or creates it. (Not the other way round: creating a Service
/// with an allocated address fails for that reason, even if the Service itself has it.)
pub(crate) async fn ensure_object<K: Object>(api: client::Api<K>, desired: &Value) -> Result<()> {
    // A merge keeps fields that the API server or a user has set.
    let patch = client::Patch::Merge(desired.clone());
    let object: K = decode_object(desired)?;
    let mut attempts = 1..=ATTEMPTS;
    loop {
        match api.patch(object_name(desired), &patch).await {
            Err(error) if error.is_not_found() => {}
            done => {
                return done
                    .map(drop)
                    .map_err(|cause| describe_failure(&api, desired, cause));
            }
        }
        match api.create(&object).await {
            // Another machine has created it since, with other values.
            Err(error) if error.is_already_exists() && attempts.next() != Some(ATTEMPTS) => {}
            done => {
                return done
                    .map(drop)
                    .map_err(|cause| describe_failure(&api, desired, cause));
            }
        }
    }
}

/// Creates the object unless there is one of its name.
async fn create_unless_present<K: Object>(api: client::Api<K>, desired: &Value) -> Result<()> {
    match create_object(&api, desired).await {
        Err(Error::Api { cause, .. }) if cause.is_already_exists() => Ok(()),
        done => done,
    }
}

async fn create_object<K: Object>(api: &client::Api<K>, desired: &Value) -> Result<()> {
    let created = api.create(&decode_object::<K>(desired)?).await;
    created
        .map(drop)
        .map_err(|cause| describe_failure(api, desired, cause))
}

fn decode_object<K: Object>(desired: &Value) -> Result<K> {
    K::decode_tree(desired).map_err(|error| {
        let name = object_name(desired);
        Error::Refused(format!("{name} can't be built: {error}"))
    })
}

fn object_name(object: &Value) -> &str {
    let name = object.pointer("/metadata/name");
    name.and_then(Value::as_str).unwrap_or_default()
}

fn describe_failure<K: Object>(
    api: &client::Api<K>,
    object: &Value,
    cause: client::Error,
) -> Error {
    Error::Api {
        what: format!("{} {}", api.resource().kind, object_name(object)),
        cause,
    }
}

#[cfg(test)]
mod tests;
