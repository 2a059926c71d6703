//! The table of controllers, and the selection by `--controllers`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use anyhow::bail;
use base_task::CancellationToken;
use base_tls::Followed;
use controllers_auth::TokenKey;
use controllers_certificates::{Authorities, Ca, RootCaFile};
use controllers_runtime::{Deletions, Setup};

use crate::options::{Options, POD_CERTIFICATE_REQUEST, STORAGE_VERSION_MIGRATOR};

/// Inputs of the controllers' set-up.
pub struct Inputs<'a> {
    /// The command line.
    pub options: &'a Options,
    /// Contents of files named by flags. They follow the files.
    pub files: &'a Files,
    /// Cancelled at the end of this term of leadership.
    pub stop: &'a CancellationToken,
    /// Deletions that the garbage collector sees.
    pub deletions: &'a Deletions,
}

/// Contents of files named by flags, read at start and after each change.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The CA that is published in namespaces.
    pub root_ca: Option<RootCaFile>,
    /// The key of token Secrets.
    pub token_key: Option<Arc<Followed<TokenKey>>>,
    /// The CAs that sign certificate requests.
    pub authorities: Authorities,
}

impl Files {
    /// Reads the files named by flags.
    pub fn read_files(options: &Options) -> anyhow::Result<Self> {
        let root_ca = options.root_ca_file.as_deref();
        let token_key = options.service_account_private_key_file.as_deref();
        Ok(Self {
            root_ca: root_ca
                .map(controllers_certificates::follow_root_ca)
                .transpose()?,
            token_key: token_key.map(TokenKey::follow_file).transpose()?,
            authorities: follow_authorities(options)?,
        })
    }
}

fn follow_authorities(options: &Options) -> anyhow::Result<Authorities> {
    // Signers with the same files share their value, so that a change is noticed once.
    let mut read: HashMap<_, Arc<Followed<Ca>>> = HashMap::new();
    let mut authorities = Authorities::new();
    for (signer, certificate, key) in options.signers()? {
        let ca = match read.get(&(certificate, key)) {
            Some(ca) => ca.clone(),
            None => {
                let longest = options.cluster_signing_duration;
                let ca = Arc::new(Ca::follow_files(certificate, key, longest)?);
                read.insert((certificate, key), ca.clone());
                ca
            }
        };
        authorities.insert(signer, ca);
    }
    Ok(authorities)
}

type Start = fn(&mut Setup, &Inputs<'_>, usize);

/// One controller: name, older names, feature gate, set-up.
pub struct Row {
    /// The name for `--controllers`.
    pub name: &'static str,
    aliases: &'static [&'static str],
    /// `*` selects it.
    by_default: bool,
    /// The controller runs only if this feature gate is enabled.
    gate: Option<&'static str>,
    start: Start,
}

/// Every controller.
const TABLE: &[Row] = &[
    row("namespace-controller", &["namespace"], |s, i, n| {
        controllers_namespaces::add_namespace_controller(s, n, i.deletions)
    }),
    row(
        "serviceaccount-controller",
        &["serviceaccount"],
        |s, _, n| controllers_auth::add_service_account_controller(s, n),
    ),
    row(
        "root-ca-certificate-publisher-controller",
        &["root-ca-cert-publisher"],
        |s, i, n| {
            if let Some(ca) = &i.files.root_ca {
                controllers_certificates::add_root_ca_publisher(s, ca.clone(), n);
            }
        },
    ),
    row(
        "garbage-collector-controller",
        &["garbagecollector"],
        |s, i, n| {
            controllers_garbage::add_garbage_collector(s, n, i.stop, i.deletions);
        },
    ),
    row(
        "serviceaccount-token-controller",
        &["serviceaccount-token"],
        |s, i, n| {
            // Without --service-account-private-key-file nothing could sign the tokens. Upstream
            // disables the controller, too.
            if let Some(key) = &i.files.token_key {
                controllers_auth::add_token_controller(s, key.clone(), i.files.root_ca.clone(), n);
            }
        },
    ),
    row(
        "legacy-serviceaccount-token-cleaner-controller",
        &["legacy-service-account-token-cleaner"],
        |s, i, _| {
            let period = i.options.legacy_service_account_token_clean_up_period;
            controllers_auth::add_legacy_token_cleaner(s, period);
        },
    ),
    row(
        "clusterrole-aggregation-controller",
        &["clusterrole-aggregation"],
        |s, _, _| controllers_auth::add_role_aggregation(s),
    ),
    row(
        "validatingadmissionpolicy-status-controller",
        &[],
        |s, _, n| controllers_auth::add_policy_status_controller(s, n),
    ),
    row("resourcequota-controller", &["resourcequota"], |s, i, n| {
        controllers_namespaces::add_quota_controller(s, n, i.deletions)
    }),
    row(
        "persistentvolume-binder-controller",
        &["persistentvolume-binder"],
        |s, _, _| controllers_volumes::add_volume_binder(s),
    ),
    row(
        "persistentvolumeclaim-protection-controller",
        &["pvc-protection"],
        |s, _, _| {
            controllers_volumes::add_claim_protection(s);
        },
    ),
    row(
        "persistentvolume-protection-controller",
        &["pv-protection"],
        |s, _, _| controllers_volumes::add_volume_protection(s),
    ),
    row(
        "volumeattributesclass-protection-controller",
        &[],
        |s, _, _| controllers_volumes::add_attributes_class_protection(s),
    ),
    row(
        "ephemeral-volume-controller",
        &["ephemeral-volume"],
        |s, _, n| controllers_volumes::add_ephemeral_volume_controller(s, n),
    ),
    row(
        "resourceclaim-controller",
        &["resource-claim-controller"],
        |s, _, n| controllers_devices::add_resource_claim_controller(s, n),
    ),
    row(
        "certificatesigningrequest-approving-controller",
        &["csrapproving"],
        |s, _, _| controllers_certificates::add_csr_approver(s),
    ),
    row(
        "certificatesigningrequest-signing-controller",
        &["csrsigning"],
        |s, i, _| {
            // Other signers, for instance of a cloud provider, may serve the requests of a cluster
            // whose CA key is not here.
            if !i.files.authorities.is_empty() {
                controllers_certificates::add_csr_signer(s, i.files.authorities.clone());
            }
        },
    ),
    row(
        "certificatesigningrequest-cleaner-controller",
        &["csrcleaner"],
        |s, _, _| controllers_certificates::add_csr_cleaner(s),
    ),
    row(
        "podcertificaterequest-cleaner-controller",
        &[],
        |s, _, _| controllers_certificates::add_pod_request_cleaner(s),
    )
    // Without the gate, API servers do not serve the kind.
    .gated(POD_CERTIFICATE_REQUEST),
    row("disruption-controller", &["disruption"], |s, _, n| {
        controllers_workloads::add_disruption_controller(s, n)
    }),
    row(
        "horizontal-pod-autoscaler-controller",
        &["horizontalpodautoscaling"],
        |s, i, n| {
            controllers_workloads::add_horizontal_pod_autoscaler(s, i.options.autoscaler(n));
        },
    ),
    row("deployment-controller", &["deployment"], |s, _, n| {
        controllers_workloads::add_deployment_controller(s, n)
    }),
    row("replicaset-controller", &["replicaset"], |s, _, n| {
        controllers_workloads::add_replica_set_controller(s, n)
    }),
    row(
        "replicationcontroller-controller",
        &["replicationcontroller"],
        |s, _, n| {
            controllers_workloads::add_replication_controller(s, n);
        },
    ),
    row("statefulset-controller", &["statefulset"], |s, _, n| {
        controllers_workloads::add_stateful_set_controller(s, n)
    }),
    row("daemonset-controller", &["daemonset"], |s, _, n| {
        controllers_workloads::add_daemon_set_controller(s, n)
    }),
    row("job-controller", &["job"], |s, _, n| {
        controllers_workloads::add_job_controller(s, n)
    }),
    row("cronjob-controller", &["cronjob"], |s, _, n| {
        controllers_workloads::add_cron_job_controller(s, n)
    }),
    row(
        "ttl-after-finished-controller",
        &["ttl-after-finished"],
        |s, _, n| {
            controllers_workloads::add_ttl_after_finished_controller(s, n);
        },
    ),
    row("endpointslice-controller", &["endpointslice"], |s, _, n| {
        controllers_network::add_endpoint_slice_controller(s, n)
    }),
    row("endpoints-controller", &["endpoint"], |s, _, n| {
        controllers_network::add_endpoints_controller(s, n)
    }),
    row(
        "endpointslice-mirroring-controller",
        &["endpointslicemirroring"],
        |s, _, n| {
            controllers_network::add_endpoint_slice_mirroring(s, n);
        },
    ),
    row("service-cidr-controller", &[], |s, _, _| {
        // As upstream: five workers, without a flag.
        controllers_network::add_service_cidr_controller(s, 5);
    }),
    row("service-lb-controller", &["service"], |s, i, n| {
        // Without a pool, load balancers are left to other programs, as upstream does without a
        // cloud.
        if let Some(pool) = &i.options.load_balancer_pool {
            controllers_network::add_load_balancer_controller(s, pool, n);
        }
    }),
    row(
        "node-lifecycle-controller",
        &["nodelifecycle"],
        |s, i, _| {
            let timeouts = controllers_node::lifecycle::HeartbeatTimeouts {
                grace: i.options.node_monitor_grace_period,
                startup: i.options.node_startup_grace_period,
            };
            controllers_node::add_node_lifecycle(s, timeouts);
        },
    ),
    row("taint-eviction-controller", &[], |s, _, n| {
        controllers_node::add_taint_eviction(s, n)
    }),
    row("node-ipam-controller", &["nodeipam"], |s, i, _| {
        // The ranges were validated at start.
        let ranges = i.options.node_ranges().unwrap_or_default();
        if !ranges.is_empty() {
            controllers_node::add_node_ipam(s, &ranges, &i.options.service_cluster_ip_range);
        }
    }),
    row("pod-garbage-collector-controller", &["podgc"], |s, i, _| {
        controllers_node::add_pod_gc(s, i.options.terminated_pod_gc_threshold);
    }),
    row(
        "storage-version-migrator-controller",
        &["svm"],
        |s, _, n| controllers_migration::add_storage_version_migrator(s, n),
    )
    // Without the gate, API servers do not serve the kind.
    .gated(STORAGE_VERSION_MIGRATOR),
    row(
        "bootstrap-signer-controller",
        &["bootstrapsigner"],
        |s, _, _| controllers_auth::add_bootstrap_signer(s),
    )
    .off_by_default(),
    row("token-cleaner-controller", &["tokencleaner"], |s, _, _| {
        controllers_auth::add_token_cleaner(s)
    })
    .off_by_default(),
    // Not one of upstream's.
    row(
        "kubelet-serving-approver-controller",
        &["kubelet-serving-approver"],
        |s, i, _| {
            let options = i.options;
            let ranges = options
                .cluster_cidr
                .iter()
                .chain(&options.service_cluster_ip_range);
            controllers_certificates::add_serving_approver(s, ranges.copied().collect());
        },
    )
    .off_by_default(),
];

/// Upstream's controllers that are not implemented: name and older names. The names are accepted,
/// so that lists written for upstream work, and a warning says that they do not run.
const ABSENT: &[(&str, &[&str])] = &[
    ("cloud-node-lifecycle-controller", &["cloud-node-lifecycle"]),
    ("device-taint-eviction-controller", &[]),
    (
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        &[],
    ),
    ("node-route-controller", &["route"]),
    (
        "persistentvolume-attach-detach-controller",
        &["attachdetach"],
    ),
    (
        "persistentvolume-expander-controller",
        &["persistentvolume-expander"],
    ),
    ("podgroup-protection-controller", &[]),
    ("resourcepoolstatusrequest-controller", &[]),
    ("selinux-warning-controller", &[]),
    (
        "service-ca-certificate-publisher-controller",
        &["service-ca-cert-publisher"],
    ),
    (
        "storageversion-garbage-collector-controller",
        &["storage-version-gc"],
    ),
    ("ttl-controller", &["ttl"]),
];

const fn row(name: &'static str, aliases: &'static [&'static str], start: Start) -> Row {
    Row {
        name,
        aliases,
        by_default: true,
        gate: None,
        start,
    }
}

impl Row {
    /// Makes the controller run only if it is named, as upstream does for those of kubeadm.
    const fn off_by_default(self) -> Self {
        Self {
            by_default: false,
            ..self
        }
    }

    /// Makes the controller run only if a feature gate is enabled.
    const fn gated(self, gate: &'static str) -> Self {
        Self {
            gate: Some(gate),
            ..self
        }
    }

    /// Sets the controller up.
    pub fn start_controller(&self, setup: &mut Setup, inputs: &Inputs<'_>) {
        (self.start)(setup, inputs, inputs.options.workers(self.name));
    }

    fn is_called(&self, name: &str) -> bool {
        is_called(name, self.name, self.aliases)
    }
}

fn is_called(word: &str, name: &str, aliases: &[&str]) -> bool {
    name == word || aliases.contains(&word)
}

/// Returns upstream's name of a controller that is not implemented.
fn find_absent(word: &str) -> Option<&'static str> {
    ABSENT
        .iter()
        .find(|(name, aliases)| is_called(word, name, aliases))
        .map(|(name, _)| *name)
}

/// The parsed `--controllers`: names, names after a dash, and `*`.
struct ControllerList<'a>(BTreeSet<&'a str>);

impl<'a> ControllerList<'a> {
    fn parse(list: &'a [String]) -> Self {
        let words = list.iter().map(|word| word.trim());
        Self(words.filter(|word| !word.is_empty()).collect())
    }

    fn names(&self, row: &Row) -> bool {
        self.0.iter().any(|word| row.is_called(word))
    }

    fn excludes(&self, row: &Row) -> bool {
        let mut names = self.0.iter().filter_map(|word| word.strip_prefix('-'));
        names.any(|name| row.is_called(name))
    }

    /// Returns whether a controller is selected. An exclusion wins over `*` and over the name
    /// itself, wherever it stands in the list.
    fn selects(&self, row: &Row) -> bool {
        let by_default = row.by_default && self.0.contains("*");
        !self.excludes(row) && (by_default || self.names(row))
    }

    /// Returns the controllers that are selected by name, and their gates that are not enabled.
    fn find_disabled(
        &self,
        is_enabled: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = (&'static str, &'static str)> {
        TABLE
            .iter()
            .filter(|row| self.names(row) && !self.excludes(row))
            .filter_map(|row| Some((row.name, row.gate?)))
            .filter(move |(_, gate)| !is_enabled(gate))
    }
}

/// Returns the controllers that `--controllers` selects and whose feature gate, if any, is enabled.
///
/// # Errors
/// A name that is not known.
pub fn select_controllers(
    list: &[String],
    is_enabled: impl Fn(&str) -> bool,
) -> anyhow::Result<Vec<&'static Row>> {
    let words = ControllerList::parse(list);
    check_names(&words)?;
    for (controller, gate) in words.find_disabled(&is_enabled) {
        tracing::warn!(
            controller,
            gate,
            "--controllers names a controller whose feature gate is not enabled; it does not run"
        );
    }
    let rows = TABLE.iter().filter(|row| words.selects(row));
    Ok(rows
        .filter(|row| row.gate.is_none_or(&is_enabled))
        .collect())
}

fn check_names(words: &ControllerList<'_>) -> anyhow::Result<()> {
    for word in &words.0 {
        // Unknown names stop the start: a misspelt exclusion would silently run a controller that
        // the operator has disabled.
        let name = word.strip_prefix('-').unwrap_or(word);
        if let Some(controller) = find_absent(name) {
            // Disabling a controller that does not exist needs no warning.
            if *word == name {
                tracing::warn!(
                    controller,
                    "--controllers names a controller that is not implemented; it does not run"
                );
            }
        } else if name != "*" && !TABLE.iter().any(|row| row.is_called(name)) {
            let near =
                base_cli::nearest_word(name, TABLE.iter().map(|row| row.name)).unwrap_or_default();
            bail!(
                "--controllers names {name:?}, which is not known; the nearest known one is {near:?}"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use clap::Parser;

    fn own(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn lists() {
        let names = |list: &[&str]| -> Vec<_> {
            select_controllers(&own(list), |_| true)
                .unwrap()
                .iter()
                .map(|r| r.name)
                .collect()
        };
        let default = TABLE.len() - 3;
        assert_eq!(names(&["*"]).len(), default);
        assert_eq!(names(&["*", "-namespace"]).len(), default - 1);
        let kubeadm = names(&["*", "bootstrapsigner", "tokencleaner"]);
        assert_eq!(kubeadm.len(), TABLE.len() - 1);
        let one = names(&["*", "tokencleaner", "bootstrapsigner", "-bootstrapsigner"]);
        assert!(one.contains(&"token-cleaner-controller"));
        assert!(!one.contains(&"bootstrap-signer-controller"));
        assert_eq!(names(&["namespace-controller"]), ["namespace-controller"]);
        assert!(select_controllers(&own(&["nonsense"]), |_| true).is_err());
    }

    #[test]
    fn controller_with_a_gate_runs_if_it_is_enabled() {
        let name = "storage-version-migrator-controller";
        for (list, selected, is_named) in [
            (&["*"][..], true, false),
            (&["*", "-svm", "namespace"], false, false),
            (&["*", " svm", "-svm"], false, false),
            (&["*", " svm"], true, true),
            (&["storage-version-migrator-controller"], true, true),
        ] {
            let list = own(list);
            for enabled in [false, true] {
                let is_enabled = |gate: &str| gate == STORAGE_VERSION_MIGRATOR && enabled;
                let rows = select_controllers(&list, is_enabled).unwrap();
                let runs = rows.iter().any(|row| row.name == name);
                assert_eq!(runs, selected && enabled, "{list:?} {enabled}");
                let disabled: Vec<_> = ControllerList::parse(&list)
                    .find_disabled(is_enabled)
                    .collect();
                let expect = (is_named && !enabled).then_some((name, STORAGE_VERSION_MIGRATOR));
                assert_eq!(disabled, Vec::from_iter(expect), "{list:?} {enabled}");
            }
        }
    }

    #[test]
    fn gate_of_each_controller_has_a_switch() {
        for gate in TABLE.iter().filter_map(|row| row.gate) {
            let flag = format!("--feature-gates={gate}=true");
            let options = Options::try_parse_from(["x", &flag]).unwrap();
            assert!(options.gates().unwrap().is_enabled(gate), "{gate}");
        }
    }

    #[test]
    fn lists_written_for_upstream_are_accepted() {
        let kubeadm = ["*", "bootstrapsigner", "tokencleaner"];
        let others = [
            "resourceclaim-controller",
            "resource-claim-controller",
            "attachdetach",
            "persistentvolume-expander",
            "-ttl",
            "-route",
            "-service",
            "-cloud-node-lifecycle",
            "legacy-service-account-token-cleaner",
            "storage-version-gc",
            "svm",
            "podgroup-protection-controller",
            "resourcepoolstatusrequest-controller",
            "service-ca-cert-publisher",
        ];
        for words in [&kubeadm[..], &others[..]] {
            assert!(
                select_controllers(&own(words), |_| true).is_ok(),
                "{words:?}"
            );
        }
    }

    #[test]
    fn every_name_is_listed_once() {
        let rows = TABLE
            .iter()
            .flat_map(|row| std::iter::once(row.name).chain(row.aliases.iter().copied()));
        let absent = ABSENT
            .iter()
            .flat_map(|(name, aliases)| std::iter::once(*name).chain(aliases.iter().copied()));
        let mut seen = BTreeSet::new();
        for name in rows.chain(absent) {
            assert!(seen.insert(name), "{name}");
        }
    }
}
