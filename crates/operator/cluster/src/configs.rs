//! The configuration files of the components, as text. Pure.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde_json::{Map, Value};

use crate::cni_plugin::CniPlugin;
use crate::image::PAUSE;
use crate::layout::Layout;
use crate::node::ClusterNode;
use crate::settings::Settings;

/// Directories where distributions install the CNI plugins.
// Distributions install the plugins in different places.
const CNI_FOLDERS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// Directories in which the pods of other pod networks install their plugins and configurations.
const FOREIGN_CNI: [&str; 2] = ["/opt/cni/bin", "/etc/cni/net.d"];

/// Returns the directory of the CNI plugins, if they are installed.
#[must_use]
pub fn cni_plugins() -> Option<PathBuf> {
    CNI_FOLDERS
        .iter()
        .map(PathBuf::from)
        .find(|folder| folder.join("bridge").is_file())
}

/// Returns the directories of the plugins and of their configurations.
fn find_cni_folders(settings: &Settings, layout: &Layout) -> (PathBuf, PathBuf) {
    match settings.cni {
        CniPlugin::Bridge => (
            cni_plugins().unwrap_or_else(|| PathBuf::from(CNI_FOLDERS[0])),
            layout.cni_conf(),
        ),
        CniPlugin::Ironclad => (layout.cni_bin(), layout.cni_conf()),
        CniPlugin::None => FOREIGN_CNI.map(PathBuf::from).into(),
    }
}

/// Returns containerd's configuration: all paths are the cluster's own, so that another containerd
/// on the machine is not affected.
#[must_use]
pub fn containerd_config(settings: &Settings, layout: &Layout) -> String {
    let root = layout.data().join("containerd");
    let (plugins, conf) = find_cni_folders(settings, layout);
    let preferred = preferred_family(settings);
    // Stream port 0 picks a free port, because another containerd may use a fixed one.
    // `SystemdCgroup = false` matches the kubelet, which manages cgroups as plain directories.
    // `restrict_oom_score_adj` lets it start where the machine forbids lower scores, as in a
    // container. The mounts of network namespaces move below its own state, since `/run/netns` is
    // shared by all runtimes.
    format!(
        r#"version = 2
root = "{root}"
state = "{state}"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "{socket}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{opt}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{plugins}"
  conf_dir = "{conf}"
  ip_pref = "{preferred}"
"#,
        root = root.display(),
        state = layout.run().join("containerd").display(),
        socket = layout.containerd_socket().display(),
        opt = root.join("opt").display(),
        plugins = plugins.display(),
        conf = conf.display(),
    )
}

/// Returns containerd's name of the family of a pod's first address.
fn preferred_family(settings: &Settings) -> &'static str {
    match settings.pod_cidr.primary() {
        IpNet::V4(_) => "ipv4",
        IpNet::V6(_) => "ipv6",
    }
}

/// Returns the configuration of the plugins of the CNI project. The plugin's masquerading is off,
/// because it would hide the addresses of pods from one another; the cluster's own table does it.
#[must_use]
pub fn bridge_config(settings: &Settings, node: &ClusterNode, layout: &Layout) -> String {
    let tree = bridge_network(settings, node, layout);
    serde_json::to_string_pretty(&tree).unwrap_or_default()
}

fn bridge_network(settings: &Settings, node: &ClusterNode, layout: &Layout) -> Value {
    serde_json::json!({
        "cniVersion": "0.4.0",
        "name": "ironclad",
        "plugins": [
            {
                "type": "bridge",
                "bridge": settings.bridge(),
                "isGateway": true,
                "isDefaultGateway": true,
                // The table of the pod network masquerades, and only for destinations outside the
                // cluster.
                "ipMasq": false,
                // A pod may reach itself through its Service, and the bridge would drop that
                // packet.
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": layout.cni_state(),
                    "ranges": [[{ "subnet": node.pods.primary().to_string() }]],
                }
            },
            { "type": "portmap", "capabilities": { "portMappings": true }, "snat": true }
        ]
    })
}

/// Path of the object that a joining machine reads before it can trust the server.
const CLUSTER_INFO_PATH: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

/// Returns the API server's authentication configuration with these issuers of tokens: anonymous
/// requests reach only the health checks and the public cluster-info.
#[must_use]
pub fn authentication_config(issuers: &[serde_json::Value]) -> String {
    let mut tree = serde_json::json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "anonymous": make_anonymous_access(),
    });
    if !issuers.is_empty() {
        tree["jwt"] = issuers.into();
    }
    serde_json::to_string_pretty(&tree).unwrap_or_default()
}

/// Returns the field `anonymous` of the API server's authentication configuration.
pub(crate) fn make_anonymous_access() -> serde_json::Value {
    // Load balancers and this tool check the health without credentials; everything else needs
    // some.
    let paths = ["/livez", "/readyz", "/healthz", CLUSTER_INFO_PATH]
        .map(|path| serde_json::json!({ "path": path }));
    serde_json::json!({ "enabled": true, "conditions": paths })
}

/// Returns the API server's audit policy: the metadata of writes, of access to Secrets, and of what
/// users and other programs read.
#[must_use]
pub fn audit_policy() -> String {
    const READS: [&str; 3] = ["get", "list", "watch"];
    let resources =
        |group: &str, names: &[&str]| serde_json::json!({"group": group, "resources": names});
    // Commands in containers begin with GET, too, if the client uses a WebSocket.
    let sensitive = [
        "secrets",
        "serviceaccounts/token",
        "pods/exec",
        "pods/attach",
        "pods/portforward",
        "*/proxy",
    ];
    // Rarely of use, and most of all requests.
    let frequent = [
        resources("", &["events"]),
        resources("events.k8s.io", &["events"]),
        resources("coordination.k8s.io", &["leases"]),
    ];
    let health = [
        "/livez*",
        "/readyz*",
        "/healthz*",
        "/version",
        "/openapi*",
        "/api*",
    ];
    let components = [
        "system:kube-controller-manager",
        "system:kube-scheduler",
        "system:cluster-dns",
        "system:kube-proxy",
        "system:apiserver",
    ];
    let groups = ["system:nodes", "system:serviceaccounts:kube-system"];
    let tree = serde_json::json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Metadata", "resources": [resources("", &sensitive)]},
            {"level": "None", "resources": frequent},
            {"level": "None", "verbs": READS, "nonResourceURLs": health},
            {"level": "None", "verbs": READS, "users": components},
            {"level": "None", "verbs": READS, "userGroups": groups},
            {"level": "Metadata"},
        ],
    });
    serde_json::to_string_pretty(&tree).unwrap_or_default()
}

/// Returns the kubelet's configuration.
#[must_use]
pub fn kubelet_config(settings: &Settings, node: &ClusterNode, layout: &Layout) -> String {
    let name = &node.name;
    let pki = layout.pki();
    let mut tree = serde_json::json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": if settings.runs_pods() { settings.any_address() } else { node.loopback.into() },
        "port": settings.ports.kubelet,
        "healthzBindAddress": node.loopback,
        "healthzPort": settings.ports.kubelet_health,
        "tlsCertFile": pki.join(format!("kubelet-serving-{name}.crt")),
        "tlsPrivateKeyFile": pki.join(format!("kubelet-serving-{name}.key")),
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": pki.join("ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        // Containers that name no profile get the runtime's default one instead of none.
        "seccompDefault": true,
        // The cluster also runs where systemd does not, and containerd is configured alike.
        "cgroupDriver": "cgroupfs",
        "clusterDomain": settings.domain,
        "clusterDNS": name_servers(settings, settings.dns_service_address()),
        // Machines of users often have swap, and the cluster must start on them.
        "failSwapOn": false,
        "resolvConf": resolv_conf(),
        "staticPodPath": layout.data().join("manifests"),
        "podLogsDir": layout.logs().join("pods"),
    });
    if let Some(root) = &node.cgroup_root {
        // Two kubelets in one cgroup would remove each other's pods as orphans.
        tree["cgroupRoot"] = format!("/{root}").into();
    }
    serde_json::to_string_pretty(&tree).unwrap_or_default()
}

/// Returns the DNS servers of pods. The cluster's own is the second one: resolvers ask it at once
/// while that of the node is being replaced.
fn name_servers(settings: &Settings, service: IpAddr) -> Vec<IpAddr> {
    settings.node_dns.into_iter().chain([service]).collect()
}

/// Fields of the kubelet's configuration that a joining machine takes from its cluster. It decides
/// all others itself, those of later releases included: addresses, paths, ports, and the protection
/// of its server.
const PUBLISHED_KUBELET_FIELDS: [&str; 24] = [
    "allowedUnsafeSysctls",
    "clusterDNS",
    "clusterDomain",
    "containerLogMaxFiles",
    "containerLogMaxSize",
    "cpuCFSQuota",
    "cpuManagerPolicy",
    "evictionHard",
    "evictionMinimumReclaim",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "failSwapOn",
    "featureGates",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "kubeReserved",
    "maxPods",
    "nodeLeaseDurationSeconds",
    "nodeStatusReportFrequency",
    "nodeStatusUpdateFrequency",
    "podPidsLimit",
    "protectKernelDefaults",
    "seccompDefault",
    "systemReserved",
];

/// Returns the configuration of a kubelet whose machine joined a cluster: `base` is the one that
/// the cluster publishes.
#[must_use]
pub fn joined_kubelet_config(
    base: &Map<String, Value>,
    settings: &Settings,
    node: &ClusterNode,
    layout: &Layout,
) -> String {
    let is_published = |field: &String| PUBLISHED_KUBELET_FIELDS.contains(&field.as_str());
    let mut merged: Map<String, Value> =
        serde_json::from_str(&kubelet_config(settings, node, layout)).unwrap_or_default();
    // A field that the cluster omits gets the kubelet's default instead of this machine's value.
    merged.retain(|field, _| !is_published(field));
    // The certificates of a joined machine are requested from the cluster.
    for field in ["tlsCertFile", "tlsPrivateKeyFile"] {
        merged.remove(field);
    }
    for field in ["rotateCertificates", "serverTLSBootstrap"] {
        merged.insert(field.to_owned(), true.into());
    }
    let published = base.iter().filter(|(field, _)| is_published(field));
    merged.extend(published.map(|(field, value)| (field.clone(), value.clone())));
    if let (Some(own), Some(servers)) = (settings.node_dns, merged.get_mut("clusterDNS")) {
        let listed = servers
            .as_array_mut()
            .filter(|list| !list.contains(&own.to_string().into()));
        listed
            .into_iter()
            .for_each(|list| list.insert(0, own.to_string().into()));
    }
    serde_json::to_string_pretty(&merged).unwrap_or_default()
}

/// Returns the resolv.conf for pods. systemd-resolved's stub is on loopback, which pods can't
/// reach; it writes the real list to another file.
pub(crate) fn resolv_conf() -> &'static str {
    const RESOLVED: &str = "/run/systemd/resolve/resolv.conf";
    if Path::new(RESOLVED).is_file() {
        RESOLVED
    } else {
        "/etc/resolv.conf"
    }
}

/// Returns kube-proxy's configuration.
#[must_use]
pub fn proxy_config(settings: &Settings, layout: &Layout) -> String {
    let tree = serde_json::json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": settings.pod_cidr.to_string(),
        "clientConnection": { "kubeconfig": layout.kubeconfig("proxy") },
        // Load balancers outside check the health of a node at this port (KEP-3836).
        "healthzBindAddress": SocketAddr::new(settings.any_address(), settings.ports.proxy_health),
        "metricsBindAddress": format!("127.0.0.1:{}", settings.ports.proxy_metrics),
    });
    serde_json::to_string_pretty(&tree).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn anonymous_requests_reach_health_checks_and_cluster_info_only() {
        let tree: serde_json::Value = serde_json::from_str(&authentication_config(&[])).unwrap();
        let conditions = tree
            .pointer("/anonymous/conditions")
            .and_then(serde_json::Value::as_array)
            .unwrap();
        let paths: Vec<_> = conditions
            .iter()
            .filter_map(|condition| condition["path"].as_str())
            .collect();
        let info = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
        assert_eq!(paths, ["/livez", "/readyz", "/healthz", info]);
    }

    fn parse(text: &str) -> serde_json::Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn kubelet_authenticates_and_authorizes_its_clients() {
        let layout = Layout::new(Path::new("/data"), false);
        let example = Settings::example();
        let config = parse(&kubelet_config(&example, &example.first_node(), &layout));
        assert_eq!(config["authentication"]["anonymous"]["enabled"], false);
        assert_eq!(
            config["authentication"]["x509"]["clientCAFile"],
            "/data/pki/ca.crt"
        );
        assert_eq!(config["authorization"]["mode"], "Webhook");
        assert_eq!(config["address"], "0.0.0.0");
        assert_eq!(config["clusterDNS"], serde_json::json!(["10.96.0.10"]));
        let simulated = Settings {
            runtime: crate::settings::Runtime::Simulated,
            ..Settings::example()
        };
        assert_eq!(
            parse(&kubelet_config(
                &simulated,
                &simulated.first_node(),
                &layout
            ))["address"],
            "127.0.0.1"
        );
    }

    #[test]
    fn kubelets_have_certificates_and_cgroups_of_their_own() {
        let (cluster, settings) = (
            Layout::new(Path::new("/data"), false),
            Settings::with_nodes(2),
        );
        let config = |number| {
            let node = ClusterNode::new(&settings, number);
            parse(&kubelet_config(
                &settings,
                &node,
                &cluster.for_node(node.number),
            ))
        };
        let (first, second) = (config(1), config(2));
        assert_eq!(first["cgroupRoot"], serde_json::Value::Null);
        assert!(second["cgroupRoot"].as_str().unwrap().ends_with("-n2"));
        assert_eq!(second["tlsCertFile"], "/data/pki/kubelet-serving-n1-2.crt");
        assert_ne!(first["podLogsDir"], second["podLogsDir"]);
        assert_ne!(first["staticPodPath"], second["staticPodPath"]);
    }

    /// A cluster's configuration must not open the server of a kubelet, nor point it at foreign
    /// files.
    #[test]
    fn joined_machine_takes_the_clusters_configuration_but_for_its_own_machine() {
        let (settings, layout) = (
            Settings::example_joined(),
            Layout::new(Path::new("/data"), false),
        );
        let base = parse(
            r#"{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "maxPods": 7,
                "clusterDNS": ["10.9.0.10"], "authentication": {"anonymous": {"enabled": true}},
                "authorization": {"mode": "AlwaysAllow"}, "staticPodPath": "/etc/kubernetes/manifests",
                "tlsCertFile": "/x", "containerRuntimeEndpoint": "unix:///x", "rotateCertificates": false,
                "staticPodURL": "https://x", "fieldOfALaterRelease": "x", "enableServer": false}"#,
        );
        let base = base.as_object().unwrap();
        let node = settings.first_node();
        let config = parse(&joined_kubelet_config(base, &settings, &node, &layout));
        assert_eq!(config["maxPods"], 7);
        assert_eq!(config["clusterDNS"][0], "10.9.0.10");
        assert_eq!(config["authentication"]["anonymous"]["enabled"], false);
        assert_eq!(
            config["authentication"]["x509"]["clientCAFile"],
            "/data/pki/ca.crt"
        );
        assert_eq!(config["authorization"]["mode"], "Webhook");
        assert_eq!(config["staticPodPath"], "/data/manifests");
        assert_eq!(config["rotateCertificates"], true);
        assert_eq!(config["serverTLSBootstrap"], true);
        for absent in [
            "tlsCertFile",
            "tlsPrivateKeyFile",
            "containerRuntimeEndpoint",
            "staticPodURL",
            "fieldOfALaterRelease",
            "enableServer",
            // The cluster decides it, and has not.
            "seccompDefault",
        ] {
            assert_eq!(config[absent], Value::Null, "{absent}");
        }
    }

    /// The plugin's own masquerading would hide the addresses of pods from one another.
    #[test]
    fn pod_network_keeps_the_addresses_of_pods() {
        let layout = Layout::new(Path::new("/data"), false);
        let example = Settings::example();
        let config = parse(&bridge_config(&example, &example.first_node(), &layout));
        let bridge = &config["plugins"][0];
        assert_eq!(bridge["ipMasq"], false);
        assert_eq!(bridge["bridge"], Settings::example().bridge());
        assert_eq!(bridge["ipam"]["ranges"][0][0]["subnet"], "10.244.0.0/24");
        assert_eq!(config["plugins"][1]["type"], "portmap");
    }

    #[test]
    fn runtime_has_the_directories_of_the_network() {
        let layout = Layout::new(Path::new("/data"), false);
        for (cni, plugins, conf) in [
            (CniPlugin::Ironclad, "/data/cni/bin", "/data/cni/net.d"),
            (CniPlugin::None, "/opt/cni/bin", "/etc/cni/net.d"),
        ] {
            let settings = Settings {
                cni,
                ..Settings::example()
            };
            let runtime = containerd_config(&settings, &layout);
            for line in [
                format!("bin_dir = \"{plugins}\""),
                format!("conf_dir = \"{conf}\""),
            ] {
                assert!(runtime.contains(&line), "{runtime}");
            }
        }
    }

    #[test]
    fn pods_ask_the_dns_server_of_the_node_first() {
        let layout = Layout::new(Path::new("/data"), false);
        let settings = Settings {
            node_dns: "169.254.20.10".parse().ok(),
            ..Settings::example()
        };
        let expected = serde_json::json!(["169.254.20.10", "10.96.0.10"]);
        let node = settings.first_node();
        let config = parse(&kubelet_config(&settings, &node, &layout));
        assert_eq!(config["clusterDNS"], expected);
        for published in [&["10.96.0.10"][..], &["169.254.20.10", "10.96.0.10"]] {
            let base = serde_json::json!({ "clusterDNS": published });
            let base = base.as_object().unwrap();
            let config = parse(&joined_kubelet_config(base, &settings, &node, &layout));
            assert_eq!(config["clusterDNS"], expected, "{published:?}");
        }
    }

    #[test]
    fn containerd_shares_nothing_with_another_one() {
        let config = containerd_config(
            &Settings::example(),
            &Layout::new(Path::new("/data"), false),
        );
        for line in [
            "root = \"/data/containerd\"",
            "state = \"/data/run/containerd\"",
            "  address = \"/data/run/containerd.sock\"",
            "  stream_server_port = \"0\"",
            "  SystemdCgroup = false",
        ] {
            assert!(
                config.lines().any(|found| found == line),
                "{line} is not in {config}"
            );
        }
    }
}
