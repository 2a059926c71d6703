//! Chooses the settings of a joining machine.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use api_meta::names;
use api_semantics::nodes::may_set_label;
use k8s_openapi::api::core::v1::Taint;
use operator_discovery::Endpoint;

use super::options::JoinOptions;
use crate::checks::why_simulated;
use crate::cni_plugin::{CniBackend, CniPlugin};
use crate::error::{Error, Result};
use crate::membership::Membership;
use crate::published::{ClusterParameters, NetworkConfiguration};
use crate::settings::{JOINED_LAYOUT, Ports, Runtime, SHARED_LAYOUT, Settings};
use crate::up::plugin::choose_plugin;
use crate::up::{choose, local_address};

/// Returns the settings of a machine that joins a cluster with these parameters. `before` are those
/// of an earlier join, which count where there is no option; `membership` has the server.
pub(super) async fn choose_settings(
    options: &JoinOptions,
    before: Option<&Settings>,
    data_dir: &Path,
    membership: Membership,
    cluster: ClusterParameters,
) -> Result<Settings> {
    let known = || before.map(|before| before.node_name.clone());
    let node_name = options.node_name.clone().or_else(known);
    let node_name = node_name.unwrap_or_else(choose::host_name);
    choose::check_name(&node_name)?;
    let runtime = choose_runtime(options, before)?;
    let known = before.map(|before| before.node_address);
    let given = options.node_addresses.first().copied().or(known);
    local_address::check_count(&options.node_addresses, &cluster.pods)?;
    let is_v4 = cluster.pods.primary().addr().is_ipv4();
    let node_address = choose_node_address(given, &membership.server, &runtime, is_v4).await?;
    let (cni, cni_backend) = choose_network(options, before, &cluster, &runtime)?;
    let node_dns = choose_node_dns(options, &cluster.network, &runtime);
    let (labels, taints) = choose_lists(options, before)?;
    let known = before.map(|before| before.verbosity);
    let known_second = before.and_then(|before| before.second_address);
    let mut settings = Settings {
        layout: match membership.has_proxy {
            true => SHARED_LAYOUT,
            false => JOINED_LAYOUT,
        },
        data_dir: data_dir.to_owned(),
        bin_dir: choose::choose_bin_dir(options.bin_dir.as_deref(), before, "kubelet")?,
        node_name,
        node_address,
        second_address: None,
        runtime,
        cni,
        cni_backend,
        network_policies_enforced: cluster.network.policies_enforced,
        node_dns,
        pod_cidr: cluster.pods,
        service_cidr: cluster.services,
        load_balancer_pool: cluster.load_balancer_pool,
        // An API server needs them only.
        token_issuers: Vec::new(),
        replaced_issuers: None,
        domain: cluster.domain,
        ports: choose_ports(options, before.map(|before| before.ports))?,
        verbosity: options.verbosity.or(known).unwrap_or(0),
        // Further nodes on one machine are an option of `up` only.
        node_count: 1,
        node_network: None,
        membership: Some(Membership {
            enforces_policies: cluster.enforces_policies,
            labels,
            taints,
            ..membership
        }),
        control_plane: None,
    };
    settings.second_address =
        local_address::choose_second(&settings, &options.node_addresses, known_second);
    choose::check_network(&settings, options.cni_backend)?;
    Ok(settings)
}

/// Returns labels and taints of the node.
fn choose_lists(
    options: &JoinOptions,
    before: Option<&Settings>,
) -> Result<(Vec<String>, Vec<String>)> {
    let (known_labels, known_taints) = before.map(stored_lists).unwrap_or_default();
    let keep = |given: &[String], known: &[String]| match given {
        [] => known.to_vec(),
        given => given.to_vec(),
    };
    let labels = keep(&options.labels, known_labels);
    let taints = keep(&options.taints, known_taints);
    labels.iter().try_for_each(|label| check_label(label))?;
    taints.iter().try_for_each(|taint| check_taint(taint))?;
    Ok((labels, taints))
}

/// Returns the pod network: by default that of the cluster. A machine may have another one that has
/// direct routes, too.
fn choose_network(
    options: &JoinOptions,
    before: Option<&Settings>,
    cluster: &ClusterParameters,
    runtime: &Runtime,
) -> Result<(CniPlugin, CniBackend)> {
    let is_own = *runtime == Runtime::Own;
    let known = before.map(|before| before.cni);
    let usual = known.or_else(|| cluster.network.plugin.filter(|_| is_own));
    let cni = choose_plugin(options.cni.or(usual), known, &cluster.pods, runtime)?;
    let known = before.map(|before| before.cni_backend);
    let backend = options.cni_backend.or(known);
    let backend = backend.unwrap_or(cluster.network.backend);
    if is_own {
        check_mixture(&cluster.network, cni, backend)?;
    }
    Ok((cni, backend))
}

/// Returns the address of the machine's DNS server, if it has one. A worker has none: its only
/// identity is that of its kubelet, which a server that parses packets of pods must not have. Its
/// pods use the Service.
fn choose_node_dns(
    options: &JoinOptions,
    network: &NetworkConfiguration,
    runtime: &Runtime,
) -> Option<IpAddr> {
    let has_server = options.control_plane.is_some() && *runtime != Runtime::Simulated;
    network.node_dns.filter(|_| has_server)
}

/// Rejects a pod network that differs from that of the cluster, unless both have direct routes.
fn check_mixture(
    cluster: &NetworkConfiguration,
    cni: CniPlugin,
    backend: CniBackend,
) -> Result<()> {
    let Some(known) = cluster.plugin else {
        return Ok(());
    };
    let refuse = |flag: &str, known: &dyn Display, given: &dyn Display| {
        Err(Error::Refused(format!(
            "{flag} is {known} in the cluster, and pods of a machine with {given} would not reach the others; leave the \
             flag out"
        )))
    };
    let are_own = known == CniPlugin::Ironclad && cni == CniPlugin::Ironclad;
    let has_none = known == CniPlugin::None || cni == CniPlugin::None;
    let has_tunnels = known == CniPlugin::Ironclad && cluster.backend.has_only_tunnels()
        || cni == CniPlugin::Ironclad && backend.has_only_tunnels();
    if are_own && backend != cluster.backend {
        return refuse("--cni-backend", &cluster.backend, &backend);
    }
    if known != cni && (has_none || has_tunnels) {
        return refuse("--cni", &known, &cni);
    }
    Ok(())
}

async fn choose_node_address(
    given: Option<IpAddr>,
    server: &str,
    runtime: &Runtime,
    is_v4: bool,
) -> Result<IpAddr> {
    let address = match given {
        Some(address) => address,
        None => choose_address(server, is_v4).await,
    };
    // Nothing connects to simulated pods, so a loopback address is enough for them.
    if *runtime != Runtime::Simulated && !is_reachable(address) {
        return Err(Error::Refused(format!(
            "{address} can't be this node's address, because other machines do not reach it; give another address of \
             this machine with --node-ip"
        )));
    }
    Ok(address)
}

/// Reports that pods of this machine are not isolated, unlike those of other nodes.
pub(super) fn warn_about_policies(settings: &Settings, report_progress: &dyn Fn(&str)) {
    if settings.lacks_policies() {
        report_progress(match settings.has_network_of_others() {
            true => {
                "warning: the cluster's NetworkPolicies are not enforced for pods of this machine unless its runtime's \
                 network plugin does it"
            }
            false => {
                "warning: the cluster's NetworkPolicies are not enforced for pods of this machine: the network of the \
                 other machines enforces them, and this one has another network"
            }
        });
    }
}

/// Returns the labels and taints of an earlier join, as a worker or to the control plane.
fn stored_lists(before: &Settings) -> (&[String], &[String]) {
    match (&before.membership, before.joined_control_plane()) {
        (Some(membership), _) => (&membership.labels, &membership.taints),
        (None, Some(joined)) => (&joined.labels, &joined.taints),
        (None, None) => (&[], &[]),
    }
}

/// Chooses the runtime. Unlike `up`, a machine that can't run containers is refused instead of
/// simulated: the scheduler of a real cluster would send it pods.
pub(super) fn choose_runtime(options: &JoinOptions, before: Option<&Settings>) -> Result<Runtime> {
    let known = before.map(|before| before.runtime.clone());
    let given = match (options.simulated, options.runtime_endpoint.clone()) {
        (true, _) => Some(Runtime::Simulated),
        (false, endpoint) => endpoint.map(Runtime::Endpoint),
    };
    let runtime = given.or(known).unwrap_or(Runtime::Own);
    if runtime == Runtime::Simulated {
        return Ok(runtime);
    }
    match why_simulated() {
        None => Ok(runtime),
        Some(why) => Err(Error::Refused(format!(
            "containers can't run here: {why}; run the command as root, or join a node without containers with --simulated"
        ))),
    }
}

/// Returns the address from which this machine reaches the API server.
async fn choose_address(server: &str, is_v4: bool) -> IpAddr {
    let Ok(server) = Endpoint::from_url(server) else {
        return local_address::choose_address(is_v4);
    };
    let targets = tokio::net::lookup_host((server.host(), server.port())).await;
    targets
        .into_iter()
        .flatten()
        // The name may have addresses of both families.
        .filter(|target| target.is_ipv4() == is_v4)
        .find_map(local_address::local_address_for)
        .unwrap_or_else(|| local_address::choose_address(is_v4))
}

fn is_reachable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !(address.is_loopback()
                || address.is_unspecified()
                || address.is_multicast()
                || address == Ipv4Addr::BROADCAST)
        }
        IpAddr::V6(address) => {
            !(address.is_loopback()
                || address.is_unspecified()
                || address.is_multicast()
                || address.is_unicast_link_local())
        }
    }
}

fn choose_ports(options: &JoinOptions, before: Option<Ports>) -> Result<Ports> {
    let mut ports = match (before, options.pick_ports) {
        (Some(before), _) => before,
        (None, true) => choose::pick_ports()?,
        (None, false) => Ports::default(),
    };
    match options.kubelet_port {
        Some(0) => ports.kubelet = choose::pick_port()?,
        Some(given) => ports.kubelet = given,
        None => {}
    }
    Ok(ports)
}

/// Rejects a label with which the kubelet would not start.
fn check_label(label: &str) -> Result<()> {
    let defect = match label.split_once('=') {
        None => Some("is not of the form KEY=VALUE".to_owned()),
        // The kubelet ends with an error for such a label, and the admission plugin NodeRestriction
        // would reject it.
        Some((key, _)) if !may_set_label(key) => Some(
            "is in a domain of Kubernetes that nodes may not set; an administrator sets it with `kubectl label node`"
                .to_owned(),
        ),
        Some((key, value)) => {
            let mut defects = names::qualified_name(key);
            defects.extend(names::label_value(value));
            (!defects.is_empty()).then(|| format!("is no label: {}", defects.join("; ")))
        }
    };
    defect.map_or(Ok(()), |defect| {
        Err(Error::Refused(format!("--node-labels: {label:?} {defect}")))
    })
}

/// Rejects a taint that can't be parsed, or with which the API server would reject the Node.
fn check_taint(taint: &str) -> Result<()> {
    match parse_taint(taint) {
        Some(_) => Ok(()),
        None => Err(Error::Refused(format!(
            "--register-with-taints: {taint:?} is no taint such as key=value:NoSchedule"
        ))),
    }
}

/// Parses a taint: `KEY=VALUE:EFFECT` or `KEY:EFFECT`, with the limits of upstream's `parseTaint`.
pub(super) fn parse_taint(taint: &str) -> Option<Taint> {
    let (pair, effect) = taint.rsplit_once(':')?;
    let (key, value) = match pair.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (pair, None),
    };
    let is_valid = matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute")
        && names::qualified_name(key).is_empty()
        && value.is_none_or(|value| names::label_value(value).is_empty());
    is_valid.then(|| Taint {
        key: key.to_owned(),
        value: value.map(str::to_owned),
        effect: effect.to_owned(),
        time_added: None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::Value;

    #[tokio::test]
    async fn join_after_an_interrupted_one_keeps_its_options() {
        let before = Settings {
            runtime: Runtime::Simulated,
            load_balancer_pool: Some("192.0.2.100".into()),
            verbosity: 3,
            ports: Ports {
                kubelet: 7000,
                ..Ports::default()
            },
            ..Settings::example_joined()
        };
        let parameters = || ClusterParameters {
            pods: before.pod_cidr,
            services: before.service_cidr,
            domain: before.domain.clone(),
            enforces_policies: true,
            load_balancer_pool: Some("192.0.2.100".into()),
            is_shared: false,
            endpoint: None,
            extra_sans: Vec::new(),
            token_issuers: Vec::new(),
            network: crate::published::NetworkConfiguration::default(),
        };
        let membership = Membership {
            server: "https://192.0.2.9:6443".into(),
            ..Membership::default()
        };
        let choose = async |options: &JoinOptions| {
            let data_dir = before.data_dir.clone();
            choose_settings(
                options,
                Some(&before),
                &data_dir,
                membership.clone(),
                parameters(),
            )
            .await
            .unwrap()
        };
        let bin_dir = Some(before.bin_dir.clone());
        let kept = choose(&JoinOptions {
            bin_dir: bin_dir.clone(),
            ..JoinOptions::default()
        })
        .await;
        let mut expected = before.clone();
        let known = before.membership.as_ref().unwrap();
        expected.membership = Some(Membership {
            labels: known.labels.clone(),
            taints: known.taints.clone(),
            enforces_policies: true,
            ..membership.clone()
        });
        assert_eq!(kept, expected);
        let changed = choose(&JoinOptions {
            bin_dir,
            node_addresses: vec!["192.0.2.77".parse().unwrap()],
            labels: vec!["disk=hdd".into()],
            kubelet_port: Some(8000),
            ..JoinOptions::default()
        })
        .await;
        assert_eq!(changed.node_address.to_string(), "192.0.2.77");
        assert_eq!(changed.ports.kubelet, 8000);
        let membership = changed.membership.unwrap();
        assert_eq!(
            (membership.labels[0].as_str(), membership.taints.len()),
            ("disk=hdd", 1)
        );
    }

    #[test]
    fn mixture_of_pod_networks_is_accepted_with_direct_routes_only() {
        use CniBackend::{Auto, Direct, Vxlan, Wireguard};
        use CniPlugin::{Bridge, Ironclad};
        for (cluster, own, fits) in [
            ((Some(Bridge), Auto), (Bridge, Auto), true),
            ((Some(Bridge), Auto), (Ironclad, Auto), true),
            ((Some(Bridge), Auto), (Ironclad, Vxlan), false),
            ((Some(Bridge), Auto), (CniPlugin::None, Auto), false),
            ((Some(Ironclad), Vxlan), (Ironclad, Vxlan), true),
            ((Some(Ironclad), Vxlan), (Ironclad, Direct), false),
            ((Some(Ironclad), Vxlan), (Bridge, Auto), false),
            ((Some(Ironclad), Auto), (Ironclad, Vxlan), false),
            ((Some(Ironclad), Auto), (Ironclad, Wireguard), false),
            ((Some(Ironclad), Wireguard), (Ironclad, Wireguard), true),
            ((Some(Ironclad), Wireguard), (Ironclad, Vxlan), false),
            ((Some(Ironclad), Wireguard), (Bridge, Auto), false),
            ((Some(Bridge), Auto), (Ironclad, Wireguard), false),
            ((Some(Ironclad), Direct), (Bridge, Auto), true),
            ((Some(CniPlugin::None), Auto), (Bridge, Auto), false),
            ((Some(CniPlugin::None), Auto), (CniPlugin::None, Auto), true),
            // The first machine has a runtime of another owner.
            ((None, Auto), (Ironclad, Vxlan), true),
        ] {
            let network = NetworkConfiguration {
                plugin: cluster.0,
                backend: cluster.1,
                ..NetworkConfiguration::default()
            };
            let checked = check_mixture(&network, own.0, own.1);
            assert_eq!(checked.is_ok(), fits, "{cluster:?} {own:?}: {checked:?}");
        }
    }

    #[test]
    fn worker_has_no_dns_server_of_its_own() {
        let address = "169.254.20.10".parse().ok();
        let network = NetworkConfiguration {
            node_dns: address,
            ..NetworkConfiguration::default()
        };
        let worker = JoinOptions::default();
        let control_plane = JoinOptions {
            control_plane: Some(super::super::options::ControlPlaneKey::Present),
            ..JoinOptions::default()
        };
        for (options, runtime, expected) in [
            (&worker, Runtime::Own, None),
            (&control_plane, Runtime::Own, address),
            (&control_plane, Runtime::Simulated, None),
        ] {
            let found = choose_node_dns(options, &network, &runtime);
            assert_eq!(found, expected, "{runtime:?}");
        }
    }

    #[test]
    fn labels_and_taints_of_an_interrupted_join_are_kept() {
        let (labels, taints) = (vec!["disk=ssd".to_owned()], vec!["a:NoExecute".to_owned()]);
        let mut shared = Settings::example_shared();
        let joined = shared.control_plane.as_mut().unwrap().joined.as_mut();
        let joined = joined.unwrap();
        (joined.labels, joined.taints) = (labels.clone(), taints.clone());
        let text = serde_json::to_string(&shared).unwrap();
        let loaded: Settings = serde_json::from_str(&text).unwrap();
        assert_eq!(stored_lists(&loaded), (&labels[..], &taints[..]));
        assert_eq!(stored_lists(&Settings::example_joined()).0, labels);
        assert_eq!(stored_lists(&Settings::example()).0.len(), 0);
    }

    #[test]
    fn labels_that_a_node_may_not_set_are_rejected() {
        for (label, valid) in [
            ("disk=ssd", true),
            ("disk=", true),
            ("disk", false),
            ("=ssd", false),
            ("a=b,c=d", false),
            ("a b=c", false),
            ("a=b=c", false),
        ] {
            assert_eq!(check_label(label).is_ok(), valid, "{label}");
        }
        let cases: Vec<Value> = serde_json::from_str(api_semantics::cases::NODE_LABELS).unwrap();
        for case in cases {
            let label = case["label"].as_str().unwrap();
            let valid = check_label(&format!("{label}=a")).is_ok();
            assert_eq!(valid, case["allowed"], "{label}");
        }
    }

    #[test]
    fn taint_has_a_key_and_a_known_effect() {
        for (taint, valid) in [
            ("dedicated=db:NoSchedule", true),
            ("dedicated:NoExecute", true),
            ("dedicated=db", false),
            ("example.com/dedicated=:PreferNoSchedule", true),
            (":NoSchedule", false),
            ("=db:NoSchedule", false),
            ("a:b:NoSchedule", false),
            ("a=b=c:NoSchedule", false),
            ("a b:NoSchedule", false),
            ("a/b/c:NoSchedule", false),
            ("a=b c:NoSchedule", false),
            ("dedicated=db:Never", false),
            ("a:NoSchedule,b:NoSchedule", false),
        ] {
            assert_eq!(check_taint(taint).is_ok(), valid, "{taint}");
        }
    }

    #[test]
    fn address_of_a_node_is_one_that_others_reach() {
        for (address, reachable) in [
            (IpAddr::from([192, 0, 2, 1]), true),
            (IpAddr::from([127, 0, 0, 1]), false),
            (IpAddr::from([0, 0, 0, 0]), false),
            (IpAddr::from([224, 0, 0, 1]), false),
            (IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]), false),
            (IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 1]), false),
            (IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]), true),
        ] {
            assert_eq!(is_reachable(address), reachable, "{address}");
        }
    }
}
