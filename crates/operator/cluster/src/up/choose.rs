//! Chooses the settings from options, stored settings and the machine.

mod ports;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::checks::why_simulated;
use crate::cni_plugin::{CniBackend, CniPlugin};
use crate::control_plane::{ControlPlane, StoreMember};
use crate::error::{Error, Result};
use crate::network::choose_node_network;
use crate::node_dns::{self, NodeDns};
use crate::ranges::Ranges;
use crate::settings::{LAYOUT, Ports, Runtime, SHARED_LAYOUT, Settings};
use crate::token_issuers::choose_issuers;
use crate::up::local_address as address;
use crate::up::options::UpOptions;
use crate::up::plugin::choose_plugin;
use crate::up::pool::{check_pool, choose_pool};
use api_meta::names;
use ports::choose_ports;
pub(crate) use ports::{pick_port, pick_ports};

/// Returns the settings, and a remark for the user if something may be unexpected.
pub fn choose_settings(options: &UpOptions) -> Result<(Settings, Option<String>)> {
    let data_dir = absolute_path(&options.data_dir)?;
    // Stored values win over defaults, because objects in the store depend on them.
    let before = Settings::load(&data_dir)?;
    let before = before.as_ref();
    refuse_joined(before, &data_dir)?;
    let (runtime, remark) = choose_runtime(options, before);
    let (pod_cidr, service_cidr) = choose_ranges(options, before)?;
    let cni = choose_plugin(options.cni, before.map(|b| b.cni), &pod_cidr, &runtime)?;
    address::check_count(&options.node_addresses, &pod_cidr)?;
    let has_own_network = runtime == Runtime::Own && cni != CniPlugin::None;
    let control_plane = choose_control_plane(options, before, has_own_network)?;
    let settings = Settings {
        layout: match control_plane {
            Some(_) => SHARED_LAYOUT,
            None => LAYOUT,
        },
        control_plane,
        bin_dir: choose_bin_dir(options.bin_dir.as_deref(), before, "kube-apiserver")?,
        node_name: keep_or_choose(
            options.node_name.clone(),
            before.map(|b| &b.node_name),
            host_name,
        ),
        node_address: keep_or_choose(
            options.node_addresses.first().copied(),
            before.map(|b| &b.node_address),
            || address::choose_address(pod_cidr.primary().addr().is_ipv4()),
        ),
        second_address: None,
        runtime,
        cni,
        cni_backend: options
            .cni_backend
            .or(before.map(|b| b.cni_backend))
            .unwrap_or_default(),
        network_policies_enforced: are_policies_enforced(options, before),
        pod_cidr,
        service_cidr,
        node_dns: choose_node_dns(options.node_dns, before, &pod_cidr)?,
        load_balancer_pool: choose_pool(options, before),
        token_issuers: choose_issuers(options.authentication_config.as_deref(), before)?,
        replaced_issuers: choose_replaced_issuers(options, before),
        // Not an option: certificates, DNS and the issuer of tokens would have to change together.
        domain: "cluster.local".to_owned(),
        ports: choose_ports(options, before.map(|b| b.ports))?,
        verbosity: keep_or_choose(options.verbosity, before.map(|b| &b.verbosity), || 0),
        node_count: choose_node_count(options.nodes, before.map(|b| b.node_count))?,
        node_network: before.and_then(|b| b.node_network),
        membership: None,
        data_dir,
    };
    let mut settings = add_node_network(settings)?;
    let known = before.and_then(|before| before.second_address);
    settings.second_address = address::choose_second(&settings, &options.node_addresses, known);
    check_network_options(options, &settings, before)?;
    check_name(&settings.node_name)?;
    check_pool(&settings)?;
    check_token_issuers(options, &settings, before)?;
    check_shared(&settings, before)?;
    Ok((settings, remark))
}

/// Rejects a machine that joined another cluster.
fn refuse_joined(before: Option<&Settings>, data_dir: &Path) -> Result<()> {
    let Some(membership) = before.and_then(|before| before.membership.as_ref()) else {
        return Ok(());
    };
    Err(Error::Refused(format!(
        "this machine joined the cluster at {}; `ironclad join` repairs its components, and `ironclad reset` removes \
         them before `ironclad up` starts another cluster in {}",
        membership.server,
        data_dir.display()
    )))
}

/// Rejects a machine that its cluster does not list any more.
pub(crate) fn reject_removed(settings: &Settings) -> Result<()> {
    let member = settings.control_plane.as_ref().map(|shared| &shared.member);
    match member {
        Some(StoreMember::Removed { .. }) => Err(Error::Refused(
            "`ironclad reset` was interrupted here after it had removed this machine from the control plane; run it again"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Returns the shared control plane: that of the options, and what is stored for those that are
/// absent.
fn choose_control_plane(
    options: &UpOptions,
    before: Option<&Settings>,
    has_own_network: bool,
) -> Result<Option<ControlPlane>> {
    before.map_or(Ok(()), reject_removed)?;
    let known = before.and_then(|before| before.control_plane.clone());
    if before.is_some_and(Settings::awaits_promotion) {
        return Err(Error::Refused(
            "this machine has not joined the control plane yet; run `ironclad join` again, or `ironclad reset`".to_owned(),
        ));
    }
    let Some(shared) = &options.shared else {
        return Ok(known);
    };
    let mut all = known.unwrap_or_else(|| ControlPlane {
        // Another network enforces policies itself, or not.
        enforces_policies: has_own_network,
        ..ControlPlane::default()
    });
    if shared.endpoint.is_some() {
        all.endpoint.clone_from(&shared.endpoint);
    }
    if !shared.extra_sans.is_empty() {
        all.extra_sans.clone_from(&shared.extra_sans);
    }
    Ok(Some(all))
}

/// Rejects a shared control plane that other machines can't reach.
fn check_shared(settings: &Settings, before: Option<&Settings>) -> Result<()> {
    if settings.control_plane.is_none() {
        return Ok(());
    }
    let fixed = Ports {
        // These two may differ: the status of the Node and the EndpointSlice publish them.
        kubelet: settings.ports.kubelet,
        dns: settings.ports.dns,
        ..Ports::default()
    };
    if settings.ports != fixed {
        return Err(Error::Refused(
            "the machines of a shared control plane have the default ports, and this cluster has others; \
             start a cluster without --pick-ports, and move the objects with `ironclad backup` and `restore`"
                .to_owned(),
        ));
    }
    if settings.node_count > 1 {
        return Err(Error::Refused(
            "a cluster with --nodes has its nodes on one machine, and can't share its control plane".to_owned(),
        ));
    }
    if settings.node_address.is_loopback() || settings.node_address.is_unspecified() {
        return Err(Error::Refused(format!(
            "other machines do not reach {}; give this machine's address with --node-ip",
            settings.node_address
        )));
    }
    let renamed = before.is_some_and(|before| before.node_name != settings.node_name);
    if renamed {
        return Err(Error::Refused(
            "the store knows this machine by its name, which can't change; leave --node-name out"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Rejects a name that can't be that of a Node object.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if valid_name(name) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "{name:?} can't be a node's name (lower-case letters, digits, - and .); give one with --node-name"
    )))
}

pub(crate) fn absolute_path(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(Error::io(path))
}

fn keep_or_choose<T: Clone>(
    given: Option<T>,
    before: Option<&T>,
    otherwise: impl FnOnce() -> T,
) -> T {
    given.or_else(|| before.cloned()).unwrap_or_else(otherwise)
}

/// Chooses a range that objects in the store depend on: it can't change once they exist.
fn check_fixed(
    flag: &str,
    given: Option<Ranges>,
    before: Option<Ranges>,
    usual: &str,
) -> Result<Ranges> {
    match (given, before) {
        (Some(given), Some(before)) if given.trunc() != before => Err(Error::Refused(format!(
            "{flag} is {before} in this cluster and can't change; leave the flag out, or start over with `down --purge`"
        ))),
        // 10.244.3.0/16 is the same range as 10.244.0.0/16.
        (Some(given), _) => Ok(given.trunc()),
        (None, Some(before)) => Ok(before),
        (None, None) => usual
            .parse()
            .map_err(|error| Error::Refused(format!("{usual} {error}"))),
    }
}

/// Chooses the ranges of pods and Services. Of an omitted one, the usual ranges have the families
/// of the other one.
fn choose_ranges(options: &UpOptions, before: Option<&Settings>) -> Result<(Ranges, Ranges)> {
    let given = options.pod_cidr.or(options.service_cidr);
    let usual = |v4: &str, v6: &str| {
        let families = given.map_or_else(|| vec![true], |given| given.families());
        let ranges = families.iter().map(|is_v4| if *is_v4 { v4 } else { v6 });
        ranges.collect::<Vec<_>>().join(",")
    };
    // As large as upstream permits: 2^16 nodes, and 2^16 Services.
    let pods = check_fixed(
        "--pod-cidr",
        options.pod_cidr,
        before.map(|before| before.pod_cidr),
        &usual("10.244.0.0/16", "fd00:10:244::/48"),
    )?;
    let services = check_fixed(
        "--service-cidr",
        options.service_cidr,
        before.map(|before| before.service_cidr),
        &usual("10.96.0.0/16", "fd00:10:96::/112"),
    )?;
    Ok((pods, services))
}

/// Chooses the address of each node's DNS server.
fn choose_node_dns(
    given: Option<NodeDns>,
    before: Option<&Settings>,
    pods: &Ranges,
) -> Result<Option<IpAddr>> {
    let known = before.and_then(|before| before.node_dns);
    match given {
        None => Ok(known),
        Some(given) => {
            let address = given.address(pods.primary().addr().is_ipv4());
            match known.filter(|known| *known != address) {
                // Running pods have the former one in their resolv.conf.
                Some(known) => Err(Error::Refused(format!(
                    "the DNS server of each node has the address {known}, which can't change; leave --node-local-dns out"
                ))),
                None => Ok(Some(address)),
            }
        }
    }
}

/// Rejects options of the pod network that would have no effect.
pub(crate) fn check_network(settings: &Settings, backend: Option<CniBackend>) -> Result<()> {
    if backend.is_some() && !settings.has_network_agent() {
        return Err(Error::Refused(
            "--cni-backend is an option of --cni ironclad; give both, or leave it out".to_owned(),
        ));
    }
    let is_direct = settings.has_network_agent() && settings.cni_backend == CniBackend::Direct;
    if is_direct && settings.node_count > 1 && settings.node_address.is_ipv6() {
        // The kernel does not respond for it on the link (`network/link.rs`).
        return Err(Error::Refused(
            "--cni-backend direct needs an IPv4 address of the machine as its first one with --nodes, because an IPv6 \
             address is on no link of the other nodes; use auto"
                .to_owned(),
        ));
    }
    if let Some(address) = settings.node_dns {
        node_dns::check_address(settings, address)?;
    }
    Ok(())
}

/// Returns whether the network of another owner enforces NetworkPolicies: as the option says, or as
/// is stored.
fn are_policies_enforced(options: &UpOptions, before: Option<&Settings>) -> bool {
    let stored = before.is_some_and(|before| before.network_policies_enforced);
    options.network_policies_enforced.unwrap_or(stored)
}

/// Rejects options of the pod network that would have no effect, and a statement about the
/// enforcement of NetworkPolicies that is wrong or that the cluster would not take over from this
/// machine.
fn check_network_options(
    options: &UpOptions,
    settings: &Settings,
    before: Option<&Settings>,
) -> Result<()> {
    check_network(settings, options.cni_backend)?;
    let Some(given) = options.network_policies_enforced else {
        return Ok(());
    };
    if given && !settings.has_network_of_others() {
        return Err(Error::Refused(
            "--network-policies-enforced is for a pod network that you install (--cni none) or that of --runtime-endpoint, \
             and this machine has neither; leave it out"
                .to_owned(),
        ));
    }
    let is_changed = before.is_some_and(|before| before.network_policies_enforced != given);
    if is_changed && settings.joined_control_plane().is_some() && options.shared.is_none() {
        return Err(Error::Refused(
            "this machine joined a control plane, and takes --network-policies-enforced over from it; change it for the \
             cluster with `ironclad init`"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Rejects other issuers of tokens than those of the cluster on a machine that takes them over.
fn check_token_issuers(
    options: &UpOptions,
    settings: &Settings,
    before: Option<&Settings>,
) -> Result<()> {
    let is_changed = before.is_some_and(|before| before.token_issuers != settings.token_issuers);
    if is_changed && settings.joined_control_plane().is_some() && options.shared.is_none() {
        return Err(Error::Refused(
            "this machine joined a control plane, and takes the issuers of tokens over from it; change them for the cluster \
             with `ironclad init --authentication-config`"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Returns the issuers that those of this command replace, or those of one that ended before it had
/// published them; None if neither has changed them.
fn choose_replaced_issuers(
    options: &UpOptions,
    before: Option<&Settings>,
) -> Option<Vec<serde_json::Value>> {
    let interrupted = before.and_then(|before| before.replaced_issuers.clone());
    if interrupted.is_some() || options.authentication_config.is_none() {
        return interrupted;
    }
    // As far as this machine knows. The command reads those of the cluster when a server responds.
    Some(before.map_or_else(Vec::new, |before| before.token_issuers.clone()))
}

fn choose_node_count(given: Option<u8>, before: Option<u8>) -> Result<u8> {
    match (given, before) {
        // The pods, volumes and containers of a removed node would stay behind.
        (Some(given), Some(before)) if given < before => Err(Error::Refused(format!(
            "this cluster has {before} nodes, and nodes can't be removed yet; leave --nodes out, or start over with `down --purge`"
        ))),
        (given, before) => Ok(given.or(before).unwrap_or(1)),
    }
}

/// Adds the range of the link between the nodes. It stays: certificates and objects name addresses
/// of it.
fn add_node_network(mut settings: Settings) -> Result<Settings> {
    if settings.node_count > 1 && settings.node_network.is_none() {
        let others = [settings.pod_cidr, settings.service_cidr];
        settings.node_network = Some(choose_node_network(&settings.data_dir, &others)?);
    }
    Ok(settings)
}

fn choose_runtime(options: &UpOptions, before: Option<&Settings>) -> (Runtime, Option<String>) {
    let why = why_simulated();
    // A simulated cluster does not become a real one by a later `up` without options: its objects
    // would start to run.
    if options.simulated
        || (before.is_some_and(|b| !b.runs_pods()) && options.runtime_endpoint.is_none())
    {
        return (Runtime::Simulated, Some(simulated_reason(None)));
    }
    if let Some(why) = why {
        return (Runtime::Simulated, Some(simulated_reason(Some(&why))));
    }
    let kept = before.map(|b| b.runtime.clone());
    let runtime = options
        .runtime_endpoint
        .clone()
        .map(Runtime::Endpoint)
        .or(kept)
        .unwrap_or(Runtime::Own);
    (runtime, None)
}

fn simulated_reason(why: Option<&str>) -> String {
    let reason = why
        .map(|why| format!(" because of this: {why}"))
        .unwrap_or_default();
    format!(
        "simulated{reason}. The control plane is real; the kubelet pretends to run containers: pods become Running and \
         Ready, but there are no processes, addresses, logs, exec or Services to connect to."
    )
}

/// Chooses the directory of the components: that of this program if `component` is there.
pub(crate) fn choose_bin_dir(
    given: Option<&Path>,
    before: Option<&Settings>,
    component: &str,
) -> Result<PathBuf> {
    if let Some(given) = given {
        return absolute_path(given);
    }
    // The components of the same build are beside this program; those of the stored directory may
    // be of an older one.
    let own = std::env::current_exe().map_err(Error::io("/proc/self/exe"))?;
    let beside = own.parent().map(Path::to_owned).unwrap_or_default();
    if beside.join(component).is_file() {
        return Ok(beside);
    }
    Ok(before.map_or(beside, |before| before.bin_dir.clone()))
}

/// Returns the name of this machine, or `node` if that can't be a node's name.
pub(crate) fn host_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        // Upstream's kubelet converts the name of its host, too: names of Nodes have no capitals.
        .to_lowercase();
    if valid_name(&name) {
        name
    } else {
        "node".to_owned()
    }
}

fn valid_name(name: &str) -> bool {
    // The API server requires it of the name of a Node.
    names::dns1123_subdomain(name).is_empty()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::control_plane::SharedOptions;
    use std::net::Ipv4Addr;

    #[test]
    fn node_names_are_dns_subdomains() {
        for (name, good) in [
            ("vm", true),
            ("a.b-1", true),
            ("-a", false),
            ("A", false),
            ("a_b", false),
            ("a..b", false),
            ("a.-b", false),
            ("a-.b", false),
            (".a", false),
            ("", false),
        ] {
            assert_eq!(valid_name(name), good, "{name}");
        }
    }

    #[test]
    fn address_range_cannot_change() {
        let ranges = |text: &str| text.parse::<Ranges>().unwrap();
        let (one, other) = (ranges("10.1.0.0/16"), ranges("10.2.0.0/16"));
        let check = |given| check_fixed("--x", given, Some(one), "10.0.0.0/8");
        assert_eq!(check(None).unwrap(), one);
        assert_eq!(check(Some(one)).unwrap(), one);
        assert!(check(Some(other)).is_err());
        assert!(check(Some(ranges("10.1.0.0/16,fd00::/48"))).is_err());
    }

    #[test]
    fn omitted_range_has_the_families_of_the_other_one() {
        for (pods, services, expect) in [
            (None, None, "10.244.0.0/16 10.96.0.0/16"),
            (Some("fd00::/56"), None, "fd00::/56 fd00:10:96::/112"),
            (
                None,
                Some("fd01::/112,10.5.0.0/16"),
                "fd00:10:244::/48,10.244.0.0/16 fd01::/112,10.5.0.0/16",
            ),
        ] {
            let options = UpOptions {
                pod_cidr: pods.map(|text| text.parse().unwrap()),
                service_cidr: services.map(|text| text.parse().unwrap()),
                ..UpOptions::default()
            };
            let (pods, services) = choose_ranges(&options, None).unwrap();
            assert_eq!(format!("{pods} {services}"), expect);
        }
    }

    /// Pods that run have the former address in their files.
    #[test]
    fn dns_servers_of_nodes_keep_their_address() {
        let pods = Settings::example().pod_cidr;
        let stored = Settings {
            node_dns: "169.254.20.10".parse().ok(),
            ..Settings::example()
        };
        let choose = |given: Option<&str>, before| {
            let given = given.map(|text| text.parse().unwrap());
            choose_node_dns(given, before, &pods).map(|found| found.map(|ip| ip.to_string()))
        };
        let usual = || Some("169.254.20.10".to_owned());
        assert_eq!(choose(None, None).unwrap(), None);
        assert_eq!(choose(Some("auto"), None).unwrap(), usual());
        assert_eq!(choose(None, Some(&stored)).unwrap(), usual());
        assert_eq!(choose(Some("auto"), Some(&stored)).unwrap(), usual());
        assert!(choose(Some("169.254.20.11"), Some(&stored)).is_err());
        assert_eq!(
            choose(Some("auto"), Some(&Settings::example())).unwrap(),
            usual()
        );
    }

    /// It would end the warning about policies that nothing enforces.
    #[test]
    fn policies_are_said_to_be_enforced_by_a_network_of_another_owner_only() {
        let without = Settings {
            cni: CniPlugin::None,
            ..Settings::example()
        };
        let endpoint = Settings {
            runtime: Runtime::Endpoint("unix:///c.sock".into()),
            ..Settings::example_shared()
        };
        let simulated = Settings {
            runtime: Runtime::Simulated,
            ..Settings::example()
        };
        let check = |settings: &Settings, given, shared| {
            let options = UpOptions {
                network_policies_enforced: given,
                shared,
                ..UpOptions::default()
            };
            check_network_options(&options, settings, Some(settings))
                .map_err(|error| error.to_string())
        };
        let init = || Some(SharedOptions::default());
        for (settings, given, shared, expected) in [
            (&without, Some(true), None, ""),
            (&without, Some(false), None, ""),
            (&Settings::example(), Some(true), None, "has neither"),
            (&simulated, Some(true), None, "has neither"),
            (&Settings::example(), Some(false), None, ""),
            (&Settings::example(), None, None, ""),
            (&endpoint, Some(true), None, "ironclad init"),
            (&endpoint, Some(true), init(), ""),
            // Nothing changes.
            (&endpoint, Some(false), None, ""),
        ] {
            let found = check(settings, given, shared);
            let found = found.err().unwrap_or_default();
            assert!(
                found.contains(expected) && found.is_empty() == expected.is_empty(),
                "{found}"
            );
        }
    }

    /// The machine would replace them with those of the cluster at its next start.
    #[test]
    fn token_issuers_of_a_joined_machine_are_those_of_the_cluster() {
        let joined = Settings::example_shared();
        let changed = |settings: &Settings| Settings {
            token_issuers: vec![serde_json::json!({})],
            ..settings.clone()
        };
        let first = Settings::example();
        let init = || Some(SharedOptions::default());
        for (before, after, shared, expected) in [
            (&joined, changed(&joined), None, "ironclad init"),
            (&joined, changed(&joined), init(), ""),
            (&joined, joined.clone(), None, ""),
            (&first, changed(&first), None, ""),
        ] {
            let options = UpOptions {
                shared,
                ..UpOptions::default()
            };
            let checked = check_token_issuers(&options, &after, Some(before));
            let found = checked.map_or_else(|error| error.to_string(), |()| String::new());
            assert!(found.contains(expected), "{found}");
            assert_eq!(found.is_empty(), expected.is_empty(), "{found}");
        }
    }

    /// Otherwise the issuers of the cluster would replace them.
    #[test]
    fn token_issuers_of_an_interrupted_command_are_unpublished() {
        let list = |name: &str| vec![serde_json::json!({ "name": name })];
        let published = Settings {
            token_issuers: list("published"),
            ..Settings::example_shared()
        };
        let interrupted = Settings {
            token_issuers: list("given"),
            replaced_issuers: Some(list("published")),
            ..published.clone()
        };
        for (given, before, expected) in [
            (None, None, None),
            (None, Some(&published), None),
            (None, Some(&interrupted), Some(list("published"))),
            (
                Some("issuers.yaml"),
                Some(&published),
                Some(list("published")),
            ),
            (
                Some("issuers.yaml"),
                Some(&interrupted),
                Some(list("published")),
            ),
            // They are removed.
            (Some(""), None, Some(Vec::new())),
        ] {
            let options = UpOptions {
                authentication_config: given.map(PathBuf::from),
                ..UpOptions::default()
            };
            let found = choose_replaced_issuers(&options, before);
            assert_eq!(found, expected, "{given:?} {}", before.is_some());
        }
    }

    #[test]
    fn number_of_nodes_may_grow_only() {
        for (given, before, chosen) in [
            (None, None, Some(1)),
            (Some(2), None, Some(2)),
            (None, Some(3), Some(3)),
            (Some(3), Some(2), Some(3)),
            (Some(1), Some(2), None),
        ] {
            let found = choose_node_count(given, before).ok();
            assert_eq!(found, chosen, "{given:?} {before:?}");
        }
    }

    #[test]
    fn control_plane_is_shared_from_init_on() {
        let choose = |shared, before: Option<&Settings>| {
            let options = UpOptions {
                shared,
                ..UpOptions::default()
            };
            choose_control_plane(&options, before, true)
        };
        let plain = Settings::example();
        assert_eq!(choose(None, None).unwrap(), None);
        assert_eq!(choose(None, Some(&plain)).unwrap(), None);
        let new = choose(Some(SharedOptions::default()), Some(&plain));
        assert!(new.unwrap().unwrap().enforces_policies);
        let given = SharedOptions {
            endpoint: Some("api.example.com:6443".into()),
            extra_sans: vec!["192.0.2.77".into()],
        };
        let chosen = choose(Some(given), Some(&plain)).unwrap();
        let shared = Settings {
            control_plane: chosen.clone(),
            ..plain
        };
        // A later `up`, and a later `init` without options.
        for options in [None, Some(SharedOptions::default())] {
            assert_eq!(choose(options, Some(&shared)).unwrap(), chosen);
        }
        let mut removed = Settings::example_shared();
        let shared = removed.control_plane.as_mut().unwrap();
        shared.member = StoreMember::Removed {
            servers: Vec::new(),
        };
        let error = choose(None, Some(&removed)).unwrap_err().to_string();
        assert!(
            error.contains("`ironclad reset` was interrupted"),
            "{error}"
        );
        let joining = Settings::example_shared();
        let error = choose(None, Some(&joining)).unwrap_err().to_string();
        assert!(error.contains("ironclad join"), "{error}");
    }

    #[test]
    fn shared_control_plane_is_one_that_other_machines_reach() {
        let base = Settings::example_shared();
        let with_nodes = Settings::with_nodes(2);
        for (settings, expected) in [
            (base.clone(), ""),
            (Settings::with_nodes(2), ""),
            (
                Settings {
                    node_count: 2,
                    node_network: with_nodes.node_network,
                    ..base.clone()
                },
                "--nodes",
            ),
            (
                Settings {
                    ports: Ports {
                        store_peer: 7000,
                        ..Ports::default()
                    },
                    ..base.clone()
                },
                "--pick-ports",
            ),
            (
                Settings {
                    node_address: Ipv4Addr::LOCALHOST.into(),
                    ..base.clone()
                },
                "--node-ip",
            ),
            (
                Settings {
                    node_name: "other".into(),
                    ..base.clone()
                },
                "--node-name",
            ),
        ] {
            match check_shared(&settings, Some(&base)) {
                Ok(()) => assert_eq!(expected, "", "{settings:?}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!expected.is_empty() && error.contains(expected), "{error}");
                }
            }
        }
    }

    /// Objects of the simulated node would be wrong for real pods, and the reverse.
    #[test]
    fn simulated_cluster_stays_simulated() {
        let stored = Settings {
            runtime: Runtime::Simulated,
            ..Settings::example()
        };
        let (runtime, remark) = choose_runtime(&UpOptions::default(), Some(&stored));
        assert_eq!(runtime, Runtime::Simulated);
        assert!(remark.unwrap().starts_with("simulated. "));
    }
}
