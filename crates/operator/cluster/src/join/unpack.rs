//! Verifies the cluster whose control plane a machine joins, and decrypts its keys.

use std::collections::BTreeMap;
use std::path::Path;

use client::Client;
use operator_discovery::Cluster;
use operator_pki::CertificateKey;

use super::choose::{choose_runtime, choose_settings, warn_about_policies};
use super::clock::check_clock;
use super::options::{ControlPlaneKey, DiscoveryOptions, JoinOptions};
use super::requests::{check_node_is_absent, connect_with_token, discover, read_map};
use crate::checks;
use crate::control_plane::{ControlPlane, JoinProgress, JoinedControlPlane, StoreMember};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::membership::Membership;
use crate::published::{self, ClusterParameters};
use crate::random_token::generate_bytes;
use crate::settings::{Ports, SHARED_LAYOUT, Settings};
use crate::shared_keys::{check_keys, download_keys, write_keys};
use crate::token_issuers::check_issuers;

/// The keys and the configuration of a control plane, which were verified.
struct SharedConfiguration {
    parameters: ClusterParameters,
    /// By the names of their entries.
    keys: BTreeMap<String, Vec<u8>>,
}

/// Verifies the cluster, decrypts the keys, and writes the settings and then the keys.
pub(super) async fn download_keys_and_settings(
    options: &JoinOptions,
    data_dir: &Path,
    report_progress: &dyn Fn(&str),
) -> Result<Settings> {
    let (discovery, key) = require_options(options)?;
    let before = Settings::load(data_dir)?;
    choose_runtime(options, before.as_ref())?;
    let cluster = discover(discovery, report_progress).await?;
    report_progress("reading the keys and the configuration of the control plane");
    let client = connect_with_token(&cluster, discovery);
    // This machine issues certificates with its own clock.
    check_clock(&client).await?;
    let configuration = download_configuration(&client, key, &cluster).await?;
    let membership = Membership {
        server: cluster.server.url(),
        ..Membership::default()
    };
    let parameters = configuration.parameters.clone();
    let chosen =
        choose_settings(options, before.as_ref(), data_dir, membership, parameters).await?;
    warn_about_policies(&chosen, report_progress);
    let settings = to_control_plane_settings(chosen, configuration.parameters)?;
    let layout = Layout::for_settings(&settings);
    // Before the first file is written: a rejected join leaves nothing behind.
    checks::check_host(&settings, &layout)?;
    check_issuers(&settings)?;
    check_node_is_absent(&client, &settings.node_name).await?;
    crate::files::create_dir(&settings.data_dir, 0o711)?;
    // First of all files: `reset` finds the machine by it.
    settings.save()?;
    write_keys(&layout, &configuration.keys)?;
    Ok(settings)
}

fn require_options(options: &JoinOptions) -> Result<(&DiscoveryOptions, &CertificateKey)> {
    match (&options.discovery, &options.control_plane) {
        (Some(discovery), Some(ControlPlaneKey::Key(key))) => Ok((discovery, key)),
        _ => Err(Error::Refused(
            "this machine has no keys of the control plane; run the command that `ironclad token create --control-plane \
             --print-join-command` prints"
                .to_owned(),
        )),
    }
}

async fn download_configuration(
    client: &Client,
    key: &CertificateKey,
    cluster: &Cluster,
) -> Result<SharedConfiguration> {
    let map = read_map(client, published::CLUSTER_CONFIG).await?;
    let parameters = published::read_cluster_config(&map)?;
    if !parameters.is_shared {
        return Err(Error::Refused(
            "the store of this cluster listens on its own machine only; run `ironclad init` there first".to_owned(),
        ));
    }
    let keys = download_keys(client, key).await?;
    check_keys(&keys, &cluster.ca)?;
    Ok(SharedConfiguration { parameters, keys })
}

/// Returns the settings of a machine of the control plane from those of a worker.
fn to_control_plane_settings(
    mut worker: Settings,
    parameters: ClusterParameters,
) -> Result<Settings> {
    if worker.node_address.is_loopback() {
        return Err(Error::Refused(format!(
            "{} can't be this machine's address, because the other machines do not reach it; give one with --node-ip",
            worker.node_address
        )));
    }
    let membership = worker.membership.take().unwrap_or_default();
    Ok(Settings {
        layout: SHARED_LAYOUT,
        token_issuers: parameters.token_issuers,
        replaced_issuers: None,
        // Machines reach each other's control plane at the default ports.
        ports: Ports {
            kubelet: worker.ports.kubelet,
            ..Ports::default()
        },
        control_plane: Some(ControlPlane {
            endpoint: parameters.endpoint,
            extra_sans: parameters.extra_sans,
            pods: None,
            enforces_policies: parameters.enforces_policies,
            member: StoreMember::Unknown,
            joined: Some(JoinedControlPlane {
                server: membership.server,
                progress: JoinProgress::Verified,
                id: crate::files::to_hex(&generate_bytes::<16>()?),
                labels: membership.labels,
                taints: membership.taints,
            }),
        }),
        ..worker
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::settings::Runtime;

    fn parameters(enforces_policies: bool) -> ClusterParameters {
        ClusterParameters {
            pods: "10.244.0.0/16".parse().unwrap(),
            services: "10.96.0.0/16".parse().unwrap(),
            domain: "cluster.local".into(),
            enforces_policies,
            load_balancer_pool: None,
            is_shared: true,
            endpoint: Some("api.example.com:6443".into()),
            extra_sans: vec!["192.0.2.77".into()],
            token_issuers: Vec::new(),
            network: crate::published::NetworkConfiguration::default(),
        }
    }

    #[test]
    fn machine_takes_over_the_clusters_values_and_keeps_its_own() {
        for enforces_policies in [true, false] {
            let worker = Settings {
                runtime: Runtime::Endpoint("unix:///c.sock".into()),
                ..Settings::example_joined()
            };
            let shared = to_control_plane_settings(worker, parameters(enforces_policies)).unwrap();
            assert_eq!(shared.membership, None);
            assert_eq!(shared.cluster_enforces_policies(), enforces_policies);
            assert!(!shared.enforces_policies() && shared.awaits_promotion());
            let control_plane = shared.control_plane.unwrap();
            assert_eq!(
                control_plane.endpoint.as_deref(),
                Some("api.example.com:6443")
            );
            let joined = control_plane.joined.unwrap();
            assert_eq!(joined.server, "https://192.0.2.2:6443");
            assert_eq!((joined.labels.len(), joined.taints.len()), (1, 1));
            assert_eq!(joined.id.len(), 32);
        }
        let loopback = Settings {
            node_address: "127.0.0.1".parse().unwrap(),
            ..Settings::example_joined()
        };
        let error = to_control_plane_settings(loopback, parameters(true))
            .unwrap_err()
            .to_string();
        assert!(error.contains("--node-ip"), "{error}");
    }
}
