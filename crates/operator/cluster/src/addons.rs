//! Objects that a cluster of this tool needs in addition to those of the API server: permissions of
//! its own identities, those of joining machines, and the usual `kube-dns` Service.
//!
//! The DNS server runs as a process on the node, so a static EndpointSlice points to it. The
//! Service has the usual selector too: a stock CoreDNS Deployment with the label `k8s-app=kube-dns`
//! can serve beside it.

mod bootstrap;
mod join;

use api_bootstrap::CLUSTER_INFO_NAMESPACE;
use client::{Client, Object};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use operator_discovery::Endpoint;
use serde_json::{Value, json};

pub use bootstrap::TOKEN_GROUP;

use crate::control_plane::{ControlPlane, SharedOptions};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::published::{self, ClusterParameters};
use crate::settings::Settings;

const NAMESPACE: &str = "kube-system";
const MARKER_TEXT: &str = "The roles and bindings for joining nodes have been created. If this file is removed, \
    `ironclad up` creates them again.\n";
/// Attempts to change an object that other machines change, too.
const ATTEMPTS: u32 = 5;
/// The user of the DNS server's certificate.
const DNS_USER: &str = "system:cluster-dns";
/// The user of kube-proxy's certificate.
const PROXY_USER: &str = "system:kube-proxy";
/// The role of the agents of NetworkPolicies, which run in kube-proxy.
const POLICY_ROLE: &str = "ironclad:network-policy";

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
    ensure_object(client.api::<ClusterRole>(), &cluster_role()).await?;
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

/// Returns the shared control plane with what another machine has published since; None if this
/// machine knows it. `given` are the options of the command, which are newer.
pub(crate) async fn find_newer_control_plane(
    client: &Client,
    known: &ControlPlane,
    given: Option<&SharedOptions>,
) -> Option<ControlPlane> {
    let maps = client.namespaced::<ConfigMap>(published::NAMESPACE);
    // Without the map, or with one that an administrator has changed, the settings of this machine
    // count.
    let map = maps.get(published::CLUSTER_CONFIG).await.ok()?;
    let published = published::read_cluster_config(&map).ok()?;
    merge_control_plane(known, published, given)
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
        let mut tree = published::cluster_config(settings, &all);
        if let Some(version) = before.and_then(|before| before.metadata.resource_version) {
            // Without it, names that another machine adds in the meantime would be lost.
            tree["metadata"]["resourceVersion"] = version.into();
        }
        match ensure_object(maps(), &tree).await {
            Err(Error::Api { cause, .. })
                if cause.is_conflict() && attempts.next() != Some(ATTEMPTS) => {}
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
    match api.create(&decode_object::<K>(desired)?).await {
        Err(error) if error.is_already_exists() => Ok(()),
        done => done
            .map(drop)
            .map_err(|cause| describe_failure(&api, desired, cause)),
    }
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

fn cluster_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": "system:cluster-dns" },
        "rules": [
            { "apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"] },
            { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"] },
        ],
    })
}

/// Returns the rights of the agents of NetworkPolicies, in addition to those that upstream's policy
/// gives kube-proxy.
fn policy_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": POLICY_ROLE },
        "rules": [
            { "apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["list", "watch"] },
            { "apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"] },
        ],
    })
}

/// Lets the API server use the kubelets. Upstream's bootstrap policy has the role and leaves the
/// binding to the issuer of the certificate.
fn kubelet_client_binding() -> Value {
    role_binding(
        "ironclad:apiserver-kubelet-client",
        "system:kubelet-api-admin",
        operator_pki::KUBELET_CLIENT,
    )
}

fn role_binding(name: &str, role: &str, user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    })
}

fn dns_service(settings: &Settings) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kube-dns",
            "namespace": NAMESPACE,
            "labels": {
                // The labels of kubeadm, by which monitoring finds cluster DNS.
                "k8s-app": "kube-dns",
                "kubernetes.io/cluster-service": "true",
                "kubernetes.io/name": "CoreDNS",
            },
        },
        "spec": {
            "clusterIP": settings.dns_service_address(),
            "selector": { "k8s-app": "kube-dns" },
            "ports": [
                // The target port is that of a CoreDNS Deployment; the static slice has the port on
                // the node.
                { "name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53 },
                { "name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53 },
            ],
        },
    })
}

/// Returns the name of the EndpointSlice of the DNS server on this machine.
pub(crate) fn name_dns_slice(settings: &Settings) -> String {
    match settings.joined_control_plane() {
        None => "kube-dns-node".to_owned(),
        Some(_) => format!("kube-dns-node-{}", settings.node_name),
    }
}

fn endpoint_slice(settings: &Settings) -> Value {
    let address = settings.dns_listen_address();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name_dns_slice(settings),
            "namespace": NAMESPACE,
            "labels": {
                "kubernetes.io/service-name": "kube-dns",
                // The EndpointSlice controller leaves slices of other managers alone.
                "endpointslice.kubernetes.io/managed-by": "ironclad",
            },
        },
        "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{
            "addresses": [address],
            // Static, except that other machines of a shared control plane change it for a lost one
            // (`api_proxy/dns_endpoints.rs`).
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "nodeName": settings.node_name,
        }],
        "ports": [
            { "name": "dns", "port": settings.ports.dns, "protocol": "UDP" },
            { "name": "dns-tcp", "port": settings.ports.dns, "protocol": "TCP" },
        ],
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn dns_service_leads_to_the_server_on_the_node() {
        let settings = Settings::example();
        let service = dns_service(&settings);
        assert_eq!(service["spec"]["clusterIP"], "10.96.0.10");
        let slice = endpoint_slice(&settings);
        assert_eq!(
            slice["metadata"]["labels"]["kubernetes.io/service-name"],
            "kube-dns"
        );
        assert_eq!(slice["endpoints"][0]["addresses"], json!(["10.244.0.1"]));
        let ports = slice["ports"].as_array().unwrap();
        assert!(ports.iter().all(|port| port["port"] == 10053), "{ports:?}");
        // kube-proxy matches ports of a slice by name and protocol.
        let key = |port: &Value| (port["name"].clone(), port["protocol"].clone());
        let of_service: Vec<_> = service["spec"]["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(key)
            .collect();
        assert_eq!(ports.iter().map(key).collect::<Vec<_>>(), of_service);
    }

    #[test]
    fn what_init_published_on_another_machine_is_adopted() {
        let published = |is_shared, endpoint: Option<&str>, sans: &[&str]| {
            let settings = Settings::example();
            ClusterParameters {
                pods: settings.pod_cidr,
                services: settings.service_cidr,
                domain: settings.domain,
                enforces_policies: true,
                load_balancer_pool: None,
                is_shared,
                endpoint: endpoint.map(str::to_owned),
                extra_sans: sans.iter().map(|&name| name.to_owned()).collect(),
            }
        };
        let known = Settings::example_shared().control_plane.unwrap();
        let merge = |published, given: Option<SharedOptions>| {
            merge_control_plane(&known, published, given.as_ref())
                .map(|all| (all.endpoint.unwrap_or_default(), all.extra_sans.join(",")))
        };
        let pair = |endpoint: &str, names: &str| Some((endpoint.to_owned(), names.to_owned()));
        assert_eq!(merge(published(true, None, &[]), None), None);
        // `init` on a cluster that `up` made.
        assert_eq!(merge(published(false, Some("a:1"), &["b"]), None), None);
        let new = || published(true, Some("a:1"), &["b"]);
        assert_eq!(merge(new(), None), pair("a:1", "b"));
        assert_eq!(
            merge(new(), Some(SharedOptions::default())),
            pair("a:1", "b")
        );
        let given = SharedOptions {
            endpoint: Some("c:1".into()),
            extra_sans: Vec::new(),
        };
        // The command has stored its options already.
        assert_eq!(merge(new(), Some(given)), pair("", "b"));
        let invalid = published(true, Some("a"), &[]);
        assert_eq!(merge(invalid, None), None);
    }

    #[test]
    fn rights_are_not_granted_again_by_a_machine_that_joined() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        record_granted_rights(&layout).unwrap();
        assert!(layout.bootstrap_marker().exists() && layout.join_marker().exists());
    }

    /// Serves these responses, one a connection; returns the methods of the requests.
    async fn serve(listener: tokio::net::TcpListener, responses: &[(&str, Value)]) -> Vec<String> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut methods = Vec::new();
        for (status, body) in responses {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 65536];
            let read = stream.read(&mut request).await.unwrap();
            let head = String::from_utf8_lossy(&request[..read]).into_owned();
            methods.extend(head.split(' ').next().map(str::to_owned));
            let body = body.to_string();
            let reply = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(reply.as_bytes()).await.unwrap();
            let _ = stream.shutdown().await;
        }
        methods
    }

    async fn connect_listener() -> (tokio::net::TcpListener, Client) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        (listener, Client::new(client::Config::builder(&server)))
    }

    fn failure(code: u16, reason: &str) -> Value {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code})
    }

    /// The list of this machine alone would replace the names of the other API servers.
    #[tokio::test]
    async fn published_hosts_are_not_replaced_if_they_cannot_be_read() {
        let settings = Settings::example_shared();
        let (listener, client) = connect_listener().await;
        let responses = [("403 Forbidden", failure(403, "Forbidden"))];
        let hosts = ["cp2".to_owned()];
        let published = publish_cluster_config(&client, &settings, &hosts);
        let (published, methods) = tokio::join!(published, serve(listener, &responses));
        let error = published.unwrap_err().to_string();
        assert!(error.contains("kubeadm-config"), "{error}");
        assert_eq!(methods, ["GET"]);
    }

    /// Two machines print a certificate key each, and the Secret has the keys of the last one that
    /// was printed.
    #[tokio::test]
    async fn object_that_another_machine_creates_meanwhile_is_changed() {
        let (listener, client) = connect_listener().await;
        let desired = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "kube-system"},
        });
        let responses = [
            ("404 Not Found", failure(404, "NotFound")),
            ("409 Conflict", failure(409, "AlreadyExists")),
            ("200 OK", desired.clone()),
        ];
        let ensured = ensure_object(client.namespaced::<ConfigMap>("kube-system"), &desired);
        let (ensured, methods) = tokio::join!(ensured, serve(listener, &responses));
        ensured.unwrap();
        assert_eq!(methods, ["PATCH", "POST", "PATCH"]);
    }

    #[test]
    fn dns_server_and_policy_agents_may_only_read() {
        let roles = [cluster_role(), policy_role()];
        for rule in roles
            .iter()
            .flat_map(|role| role["rules"].as_array().unwrap())
        {
            assert_eq!(rule["verbs"], json!(["list", "watch"]), "{rule}");
            let resources = rule["resources"].as_array().unwrap();
            assert!(!resources.contains(&json!("secrets")), "{rule}");
        }
    }
}
