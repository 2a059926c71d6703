//! The configuration that a cluster publishes for joining machines: its ranges and the
//! configuration of its kubelets, in the ConfigMaps and formats of kubeadm, so that `kubeadm join`
//! reads them, too.

use std::net::IpAddr;

use api_address_pool::AddressPool;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::cni_plugin::{CniBackend, CniPlugin};
use crate::error::{Error, Result};
use crate::ranges::Ranges;
use crate::settings::{Runtime, Settings};

/// The namespace of the ConfigMaps.
pub const NAMESPACE: &str = "kube-system";
/// The ConfigMap of the cluster's ranges and names.
pub const CLUSTER_CONFIG: &str = "kubeadm-config";
const CLUSTER_KEY: &str = "ClusterConfiguration";
/// The entry that kubeadm does not read.
const SHARED_KEY: &str = "IroncladControlPlane";
/// A further entry that kubeadm does not read.
const NETWORK_KEY: &str = "IroncladPodNetwork";
/// The ConfigMap of the kubelets' configuration.
pub const KUBELET_CONFIG: &str = "kubelet-config";
const KUBELET_KEY: &str = "kubelet";
/// The version of Kubernetes that this release implements.
const KUBERNETES_VERSION: &str = "v1.36.2";
/// The flag of the API server by which it knows that the nodes enforce NetworkPolicies.
const ENFORCED_ARGUMENT: &str = "network-policies-enforced";
/// The flag of the controller manager with the addresses of load balancers, which the nodes must
/// know, too.
const POOL_ARGUMENT: &str = "load-balancer-pool";

/// The parameters of a cluster that a joining machine must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterParameters {
    /// Addresses of pods.
    pub pods: Ranges,
    /// Addresses of Services.
    pub services: Ranges,
    /// DNS domain.
    pub domain: String,
    /// True if the cluster's nodes enforce NetworkPolicies.
    pub enforces_policies: bool,
    /// Addresses for Services of type LoadBalancer, as in `--load-balancer-pool`.
    pub load_balancer_pool: Option<String>,
    /// True if several machines may have the control plane.
    pub is_shared: bool,
    /// Address of a load balancer before the API servers.
    pub endpoint: Option<String>,
    /// Additional names and addresses in the certificates of API servers.
    pub extra_sans: Vec<String>,
    /// Issuers of tokens, as in the field `jwt` of `--authentication-config`.
    pub token_issuers: Vec<Value>,
    /// The pod network of the cluster.
    pub network: NetworkConfiguration,
}

/// The pod network of a cluster, for which the configuration of kubeadm has no field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkConfiguration {
    /// Plugin of the machine that started the cluster; others may have another one.
    pub plugin: Option<CniPlugin>,
    /// Backend of `ironclad-cni`.
    pub backend: CniBackend,
    /// Address of each node's DNS server.
    pub node_dns: Option<IpAddr>,
    /// The pod network of another owner enforces NetworkPolicies.
    pub policies_enforced: bool,
}

/// Settings of a shared control plane for which the configuration of kubeadm has no field.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SharedConfiguration {
    shared: bool,
    endpoint: Option<String>,
    extra_sans: Vec<String>,
    token_issuers: Vec<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterConfiguration {
    #[serde(default)]
    api_server: ApiServer,
    #[serde(default)]
    controller_manager: ControllerManager,
    networking: Networking,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiServer {
    #[serde(default)]
    extra_args: Vec<Argument>,
    // kubeadm's spelling, which `camelCase` does not give.
    #[serde(default, rename = "certSANs")]
    cert_sans: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ControllerManager {
    #[serde(default)]
    extra_args: Vec<Argument>,
}

#[derive(Debug, Deserialize)]
struct Argument {
    name: String,
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Networking {
    dns_domain: String,
    pod_subnet: String,
    service_subnet: String,
}

fn config_map(name: &str, key: &str, tree: &Value) -> Value {
    let text = serde_yaml::to_string(tree).unwrap_or_default();
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "data": { key: text },
    })
}

/// Returns the ConfigMap of the cluster's parameters. `hosts` are the names and addresses in the
/// API server's certificate: no node's serving certificate is approved for one of them. `issuers`
/// are those of tokens, of a shared control plane.
pub fn cluster_config(settings: &Settings, hosts: &[String], issuers: &[Value]) -> Value {
    let endpoint = settings.join_url();
    let endpoint = endpoint.strip_prefix("https://").unwrap_or(&endpoint);
    let enforced = settings.cluster_enforces_policies().to_string();
    let api_server = json!({
        "certSANs": hosts,
        // kubeadm's format has no field for it, but arguments of any name.
        "extraArgs": [{ "name": ENFORCED_ARGUMENT, "value": enforced }],
    });
    let pool = settings.load_balancer_pool.iter();
    let pool: Vec<_> = pool
        .map(|pool| json!({ "name": POOL_ARGUMENT, "value": pool }))
        .collect();
    let tree = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "clusterName": "ironclad",
        "kubernetesVersion": KUBERNETES_VERSION,
        "controlPlaneEndpoint": endpoint,
        "apiServer": api_server,
        "controllerManager": { "extraArgs": pool },
        "networking": {
            "dnsDomain": settings.domain,
            "podSubnet": settings.pod_cidr,
            "serviceSubnet": settings.service_cidr,
        },
    });
    let mut map = config_map(CLUSTER_CONFIG, CLUSTER_KEY, &tree);
    let network = NetworkConfiguration {
        plugin: (settings.runtime == Runtime::Own).then_some(settings.cni),
        backend: settings.cni_backend,
        node_dns: settings.node_dns,
        policies_enforced: settings.network_policies_enforced,
    };
    map["data"][NETWORK_KEY] = serde_yaml::to_string(&network).unwrap_or_default().into();
    if let (Some(shared), Some(data)) = (&settings.control_plane, map["data"].as_object_mut()) {
        let tree = json!({
            "shared": true,
            "endpoint": shared.endpoint,
            "extraSans": shared.extra_sans,
            "tokenIssuers": issuers,
        });
        let text = serde_yaml::to_string(&tree).unwrap_or_default();
        data.insert(SHARED_KEY.to_owned(), text.into());
    }
    map
}

/// Returns the names and addresses in the certificates of API servers that the map has.
pub fn read_hosts(map: &ConfigMap) -> Vec<String> {
    let text = map.data.as_ref().and_then(|data| data.get(CLUSTER_KEY));
    let parsed = text.and_then(|text| serde_yaml::from_str::<ClusterConfiguration>(text).ok());
    parsed
        .map(|parsed| parsed.api_server.cert_sans)
        .unwrap_or_default()
}

/// Returns the issuers of tokens that the map has; None if it is not that of a shared control
/// plane, or an administrator has broken it.
pub fn read_issuers(map: &ConfigMap) -> Option<Vec<Value>> {
    let text = map.data.as_ref()?.get(SHARED_KEY)?;
    let parsed: SharedConfiguration = serde_yaml::from_str(text).ok()?;
    parsed.shared.then_some(parsed.token_issuers)
}

/// Returns the names and addresses of the other API servers, without those of a machine that
/// leaves: a node may have them later.
pub fn remove_hosts(known: &[String], settings: &Settings) -> Vec<String> {
    let own = [
        settings.node_name.clone(),
        settings.node_address.to_string(),
    ];
    let shared = settings.control_plane.as_ref();
    // In the certificates of the others, too.
    let stays = |host: &String| shared.is_some_and(|shared| shared.extra_sans.contains(host));
    let others = known.iter();
    others
        .filter(|host| !own.contains(host) || stays(host))
        .cloned()
        .collect()
}

/// Returns the map with these names and addresses, and otherwise unchanged; None if its text can't
/// be read. It has the version of the map: what another machine has written since is not
/// overwritten.
pub fn replace_hosts(map: &ConfigMap, hosts: &[String]) -> Option<Value> {
    let text = map.data.as_ref()?.get(CLUSTER_KEY)?;
    let mut tree: Value = serde_yaml::from_str(text).ok()?;
    let server = tree
        .as_object_mut()?
        .entry("apiServer")
        .or_insert_with(|| json!({}));
    server
        .as_object_mut()?
        .insert("certSANs".to_owned(), json!(hosts));
    let mut changed = config_map(CLUSTER_CONFIG, CLUSTER_KEY, &tree);
    changed["metadata"]["resourceVersion"] = json!(map.metadata.resource_version);
    Some(changed)
}

/// Returns the ConfigMap of the kubelets' configuration. The paths are those of kubeadm, which does
/// not change them; `ironclad join` uses its own.
pub fn kubelet_config(settings: &Settings) -> Value {
    let tree = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": "/etc/kubernetes/pki/ca.crt" },
        },
        "authorization": { "mode": "Webhook" },
        "clusterDNS": [settings.dns_service_address()],
        "clusterDomain": settings.domain,
        "failSwapOn": false,
        "rotateCertificates": true,
        "seccompDefault": true,
        // The controller manager approves these serving certificates (`kubelet-serving-approver`).
        "serverTLSBootstrap": true,
        "staticPodPath": "/etc/kubernetes/manifests",
    });
    config_map(KUBELET_CONFIG, KUBELET_KEY, &tree)
}

fn read_value<'a>(map: &'a ConfigMap, name: &str, key: &str) -> Result<&'a str> {
    let value = map.data.as_ref().and_then(|data| data.get(key));
    value
        .map(String::as_str)
        .ok_or_else(|| describe_defect(name, &format!("has no {key}")))
}

/// The command that writes the published ConfigMaps again.
pub(crate) const PUBLISH_REMEDY: &str = "run `ironclad up` on the machine that started the cluster, or `ironclad init` on a machine \
    of its control plane, which writes it";

fn describe_defect(name: &str, defect: &str) -> Error {
    Error::Refused(format!(
        "the ConfigMap {name} in {NAMESPACE} {defect}; {PUBLISH_REMEDY}"
    ))
}

/// Reads the cluster's parameters.
///
/// # Errors
/// A range is absent, or can't be used.
pub fn read_cluster_config(map: &ConfigMap) -> Result<ClusterParameters> {
    let text = read_value(map, CLUSTER_CONFIG, CLUSTER_KEY)?;
    let defect = |defect: &str| describe_defect(CLUSTER_CONFIG, defect);
    let parsed: ClusterConfiguration = serde_yaml::from_str(text)
        .map_err(|_| defect("lacks networking with dnsDomain, podSubnet and serviceSubnet"))?;
    let range = |field: &str, text: &str| {
        text.parse::<Ranges>()
            .map_err(|_| defect(&format!("has no range of IPv4 or IPv6 as {field}")))
    };
    // An absent value must not disable an enforcement on which the rest of the cluster relies.
    let mut arguments = parsed.api_server.extra_args.iter();
    let enforced = arguments.find(|argument| argument.name == ENFORCED_ARGUMENT);
    let enforced = enforced.and_then(|argument| argument.value.parse().ok());
    let mut arguments = parsed.controller_manager.extra_args.into_iter();
    let pool = arguments.find(|argument| argument.name == POOL_ARGUMENT);
    let pool = pool.map(|argument| argument.value);
    if let Some(Err(error)) = pool.as_deref().map(str::parse::<AddressPool>) {
        return Err(defect(&format!(
            "has a {POOL_ARGUMENT} that can't be used ({error})"
        )));
    }
    let networking = parsed.networking;
    let shared = map.data.as_ref().and_then(|data| data.get(SHARED_KEY));
    let shared: SharedConfiguration = match shared {
        None => SharedConfiguration::default(),
        Some(text) => serde_yaml::from_str(text)
            .map_err(|_| defect(&format!("has an {SHARED_KEY} that can't be read")))?,
    };
    let network = map.data.as_ref().and_then(|data| data.get(NETWORK_KEY));
    let network: NetworkConfiguration = match network {
        // Of a release that published none.
        None => NetworkConfiguration::default(),
        Some(text) => serde_yaml::from_str(text)
            .map_err(|_| defect(&format!("has an {NETWORK_KEY} that can't be read")))?,
    };
    Ok(ClusterParameters {
        network,
        // An administrator may have written an address of the range in place of the first one.
        pods: range("podSubnet", &networking.pod_subnet)?.trunc(),
        services: range("serviceSubnet", &networking.service_subnet)?.trunc(),
        domain: networking.dns_domain,
        enforces_policies: enforced
            .ok_or_else(|| defect(&format!("lacks {ENFORCED_ARGUMENT} in apiServer.extraArgs")))?,
        load_balancer_pool: pool,
        is_shared: shared.shared,
        endpoint: shared.endpoint,
        extra_sans: shared.extra_sans,
        token_issuers: shared.token_issuers,
    })
}

/// Reads the configuration of the cluster's kubelets.
///
/// # Errors
/// It is absent, or no KubeletConfiguration.
pub fn read_kubelet_config(map: &ConfigMap) -> Result<Map<String, Value>> {
    let text = read_value(map, KUBELET_CONFIG, KUBELET_KEY)?;
    let tree: Map<String, Value> = serde_yaml::from_str(text)
        .map_err(|_| describe_defect(KUBELET_CONFIG, "holds no YAML object"))?;
    match tree.get("kind").and_then(Value::as_str) {
        Some("KubeletConfiguration") => Ok(tree),
        _ => Err(describe_defect(
            KUBELET_CONFIG,
            "holds no KubeletConfiguration",
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn to_map(tree: Value) -> ConfigMap {
        serde_json::from_value(tree).unwrap()
    }

    #[test]
    fn configuration_is_read_as_it_was_written() {
        let own = Settings {
            runtime: Runtime::Own,
            load_balancer_pool: Some("192.0.2.100-192.0.2.110".into()),
            ..Settings::example()
        };
        let foreign = Settings {
            runtime: Runtime::Endpoint("unix:///c.sock".into()),
            load_balancer_pool: None,
            ..own.clone()
        };
        let claimed = Settings {
            network_policies_enforced: true,
            ..foreign.clone()
        };
        for (settings, enforces_policies) in [(&own, true), (&foreign, false), (&claimed, false)] {
            let read = read_cluster_config(&to_map(cluster_config(settings, &[], &[]))).unwrap();
            let expected = ClusterParameters {
                pods: settings.pod_cidr,
                services: settings.service_cidr,
                domain: settings.domain.clone(),
                enforces_policies,
                load_balancer_pool: settings.load_balancer_pool.clone(),
                is_shared: false,
                endpoint: None,
                extra_sans: Vec::new(),
                token_issuers: Vec::new(),
                network: NetworkConfiguration {
                    plugin: enforces_policies.then_some(CniPlugin::Bridge),
                    policies_enforced: settings.network_policies_enforced,
                    ..NetworkConfiguration::default()
                },
            };
            assert_eq!(read, expected);
        }
        let shared = Settings {
            control_plane: Some(crate::control_plane::ControlPlane {
                endpoint: Some("api.example.com:443".into()),
                extra_sans: vec!["192.0.2.77".into()],
                ..Default::default()
            }),
            ..own.clone()
        };
        let issuers = [json!({"issuer": {"url": "https://login.example.com"}})];
        let map = to_map(cluster_config(&shared, &["cp1".to_owned()], &issuers));
        let read = read_cluster_config(&map).unwrap();
        assert!(read.is_shared);
        assert_eq!(read.endpoint.as_deref(), Some("api.example.com:443"));
        assert_eq!(read.extra_sans, ["192.0.2.77"]);
        assert_eq!(read_hosts(&map), ["cp1"]);
        assert_eq!(read.token_issuers, issuers);
        assert_eq!(read_issuers(&map).as_deref(), Some(&issuers[..]));
        assert_eq!(
            read_issuers(&to_map(cluster_config(&own, &[], &issuers))),
            None
        );
        let hosts = ["cp1".to_owned(), "cp2".to_owned()];
        let mut map = map;
        map.metadata.resource_version = Some("7".into());
        let changed = to_map(replace_hosts(&map, &hosts).unwrap());
        assert_eq!(read_hosts(&changed), hosts);
        assert_eq!(changed.metadata.resource_version.as_deref(), Some("7"));
        // `init` on a further machine with another runtime: the cluster enforces them as before.
        for is_enforced in [true, false] {
            let mut other = Settings {
                runtime: match is_enforced {
                    true => Runtime::Endpoint("unix:///c.sock".into()),
                    false => Runtime::Own,
                },
                ..Settings::example_shared()
            };
            let shared = other.control_plane.as_mut().unwrap();
            shared.enforces_policies = is_enforced;
            let read = read_cluster_config(&to_map(cluster_config(&other, &[], &[]))).unwrap();
            assert_eq!(read.enforces_policies, is_enforced);
        }
        let settings = own;
        let kubelet = read_kubelet_config(&to_map(kubelet_config(&settings))).unwrap();
        assert_eq!(kubelet["clusterDNS"], json!(["10.96.0.10"]));
        assert_eq!(kubelet["authentication"]["anonymous"]["enabled"], false);
    }

    /// The machine may become a worker, whose serving certificate has them.
    #[test]
    fn names_of_a_machine_that_leaves_are_removed() {
        let mut settings = Settings::example_shared();
        let known = ["192.0.2.2", "192.0.2.3", "cp1", "cp2", "kubernetes"].map(str::to_owned);
        let others = ["192.0.2.2", "cp1", "kubernetes"];
        assert_eq!(remove_hosts(&known, &settings), others);
        let shared = settings.control_plane.as_mut().unwrap();
        shared.extra_sans = vec!["192.0.2.3".into()];
        assert_eq!(remove_hosts(&known, &settings).len(), 4);
    }

    #[test]
    fn defect_of_a_configuration_is_named() {
        let cluster = |text: &str| {
            let map = to_map(json!({ "data": { CLUSTER_KEY: text } }));
            read_cluster_config(&map).unwrap_err().to_string()
        };
        let networking = |pods: &str| {
            format!(
                "networking: {{dnsDomain: d, podSubnet: '{pods}', serviceSubnet: 10.96.0.0/16}}"
            )
        };
        for (text, expected) in [
            ("{}".to_owned(), "lacks networking"),
            ("[".to_owned(), "lacks networking"),
            (networking(""), "podSubnet"),
            (networking("10.0.0.0/8,11.0.0.0/8"), "podSubnet"),
            (networking("10.244.0.0/16"), "network-policies-enforced"),
        ] {
            let error = cluster(&text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        let kubelet = |text: &str| {
            let map = to_map(json!({ "data": { KUBELET_KEY: text } }));
            read_kubelet_config(&map).unwrap_err().to_string()
        };
        for (text, expected) in [
            ("kind: Other", "no KubeletConfiguration"),
            ("{}", "no KubeletConfiguration"),
            ("- a", "no YAML object"),
        ] {
            let error = kubelet(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        let absent = read_kubelet_config(&ConfigMap::default()).unwrap_err();
        assert!(absent.to_string().contains("has no kubelet"), "{absent}");
    }
}
