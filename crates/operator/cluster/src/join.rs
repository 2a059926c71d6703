//! Joins this machine to a cluster that other machines run: every step checks the state and does
//! only what is missing.
//!
//! A worker never has a credential that gives more than the rights of its own node: the token can
//! request the certificate of a kubelet, and kube-proxy works with that certificate. A machine of
//! the control plane (`control_plane`) gets the keys of the cluster's CAs.

mod choose;
mod clock;
mod control_plane;
mod files;
mod leave;
mod options;
mod repeated;
mod requests;
mod reset;
mod unpack;

use std::path::Path;
use std::time::Instant;

use client::{Client, Config};

use crate::cluster_files::{create_directories, make_cni_config, make_proxy_config};
use crate::config_file::{ConfigFile, write_configs};
use crate::connect::USER_AGENT;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::membership::Membership;
use crate::node::ClusterNode;
use crate::plan::{API_PROXY, Process, make_plan};
use crate::ranges::Ranges;
use crate::settings::Settings;
use crate::up::choose::{absolute_path, choose_bin_dir};
use crate::up::start::start_processes;
use crate::up::{self, wait};
use crate::{checks, network, published};
pub use leave::NodeObject;
pub use options::{ControlPlaneKey, DiscoveryOptions, DiscoverySource, JoinOptions};
use requests::{check_name_is_free, connect_with_token, discover, read_map, wait_for_pods};
pub use reset::{RemovedMachine, reset_machine};

/// Time for the approval of the first certificate, in seconds.
const IDENTITY_SECONDS: u64 = 60;

/// Joins the cluster, or repairs a machine that has joined, and waits until its node is Ready.
pub async fn join_cluster(
    options: &JoinOptions,
    report_progress: &dyn Fn(&str),
) -> Result<Settings> {
    let (began, started) = (Instant::now(), wait::Began::now());
    let data_dir = absolute_path(&options.data_dir)?;
    if options.control_plane.is_some() || has_control_plane(&data_dir)? {
        return control_plane::join_control_plane(options, &data_dir, began, report_progress).await;
    }
    let mut settings = match find_joined_settings(&data_dir, options).await? {
        Some(settings) => {
            report_progress(&format!(
                "this machine is node {} of the cluster at {}; repairing it",
                settings.node_name,
                describe_server(&settings)
            ));
            checks::check_host(&settings, &Layout::for_settings(&settings))?;
            settings.save()?;
            settings
        }
        None => verify_and_configure(options, &data_dir, report_progress).await?,
    };
    let layout = Layout::for_settings(&settings);
    let node = settings.first_node();
    files::write_node_files(&settings, &node, &layout)?;
    report_progress("starting the kubelet");
    // Without kube-proxy, for whose credentials the kubelet first requests a certificate.
    let mut processes = start_processes(&settings, &layout, make_plan(&settings, &layout))?;
    if settings.runs_pods() {
        report_progress("importing images");
        up::import_images(&settings, &processes, &layout).await?;
    }
    report_progress("waiting for the certificate of the node");
    let client = wait_for_identity(&node, &layout).await?;
    // The node has a certificate of its own, and the token could add other machines.
    crate::files::remove_file(&layout.bootstrap_kubeconfig())?;
    if let Some(proxy) = processes.iter().find(|p| p.name == API_PROXY) {
        // That of an earlier plan would end during the next requests.
        wait::wait_for_replacement(proxy, &layout).await?;
    }
    adopt_pool(&client, &mut settings, report_progress).await?;
    if settings.runs_pods() {
        report_progress("waiting for the addresses of its pods");
        let pods = wait_for_pods(&client, &settings, &layout).await?;
        report_progress(&format!("setting up the pod network {pods}"));
        processes = join_network(&mut settings, &layout, pods).await?;
    }
    report_progress("waiting for the node");
    wait::wait_for_replacements(&processes, &layout).await?;
    let state =
        wait::wait_for_node(&client, &settings, &node, &processes, &layout, started).await?;
    state.report(&settings, report_progress);
    report_progress(&format!(
        "ready after {:.1} s",
        began.elapsed().as_secs_f32()
    ));
    Ok(settings)
}

/// Returns the configurations of the components of a machine that has joined as a worker.
pub(crate) fn make_worker_configs(settings: &Settings, layout: &Layout) -> Result<Vec<ConfigFile>> {
    let node = settings.first_node();
    let mut made = files::make_node_configs(settings, &node, layout)?;
    if settings.has_pod_network() {
        made.extend(make_proxy_config(settings, layout));
        made.extend(make_cni_config(settings, &node, layout));
    }
    Ok(made)
}

/// Writes the kubeconfig of a worker that this program writes, and creates the directories.
pub(crate) fn write_worker_credentials(settings: &Settings, layout: &Layout) -> Result<()> {
    create_directories(settings, layout)?;
    match settings.has_pod_network() {
        true => files::write_proxy_kubeconfig(settings, layout),
        false => Ok(()),
    }
}

/// Returns the server through which the machine joined.
fn describe_server(settings: &Settings) -> &str {
    let membership = settings.membership.as_ref();
    membership.map_or("", |membership| &membership.server)
}

/// Returns whether the machine has joined a control plane, or begun to.
fn has_control_plane(data_dir: &Path) -> Result<bool> {
    let settings = Settings::load(data_dir)?;
    Ok(settings.is_some_and(|settings| settings.joined_control_plane().is_some()))
}

/// Returns the settings of a machine that has joined already; None for one that has not, or whose
/// join was interrupted before it had a certificate.
async fn find_joined_settings(data_dir: &Path, options: &JoinOptions) -> Result<Option<Settings>> {
    let Some(mut settings) = Settings::load(data_dir)? else {
        return Ok(None);
    };
    let Some(membership) = &settings.membership else {
        return Err(Error::Refused(format!(
            "{} holds a cluster that `ironclad up` started, and its machine can't join another one; give another \
             --data-dir, or remove that cluster with `ironclad down --purge`",
            data_dir.display()
        )));
    };
    let layout = Layout::for_settings(&settings);
    // The kubelet writes it when its certificate is signed.
    if !layout.kubeconfig("kubelet").exists() {
        return Ok(None);
    }
    repeated::check_options(options, &settings, membership).await?;
    if !has_valid_identity(&layout, jiff::Timestamp::now()) {
        // Requested again with the token, if there is one.
        return match options.discovery {
            Some(_) => Ok(None),
            None => Err(Error::Refused(format!(
                "the certificate of node {} has expired or is damaged; run the command of `ironclad token create \
                 --print-join-command` to request another one",
                settings.node_name
            ))),
        };
    }
    settings.bin_dir = choose_bin_dir(options.bin_dir.as_deref(), Some(&settings), "kubelet")?;
    settings.verbosity = options.verbosity.unwrap_or(settings.verbosity);
    Ok(Some(settings))
}

/// Returns whether the kubelet's client certificate can be used at `now`.
fn has_valid_identity(layout: &Layout, now: jiff::Timestamp) -> bool {
    let config = Config::from_kubeconfig(layout.kubeconfig("kubelet")).ok();
    let identity = config.and_then(|config| config.identity);
    let pem = identity.and_then(|identity| identity.certificate.read_bytes().ok());
    let certificate = pem.and_then(|pem| operator_pki::summarize_certificate(&pem));
    certificate.is_some_and(|certificate| certificate.expiration > now.as_second())
}

/// Verifies the cluster, reads its configuration, and writes what the node starts with.
async fn verify_and_configure(
    options: &JoinOptions,
    data_dir: &Path,
    report_progress: &dyn Fn(&str),
) -> Result<Settings> {
    let discovery = options.discovery.as_ref().ok_or_else(|| {
        Error::Refused(
            "this machine has not joined a cluster; `ironclad token create --print-join-command` on the machine of the \
             cluster prints the command that joins it"
                .into(),
        )
    })?;
    let before = Settings::load(data_dir)?;
    // Before any request: without root nothing would work.
    choose::choose_runtime(options, before.as_ref())?;
    let cluster = discover(discovery, report_progress).await?;
    report_progress("reading the cluster's configuration");
    let client = connect_with_token(&cluster, discovery);
    let parameters =
        published::read_cluster_config(&read_map(&client, published::CLUSTER_CONFIG).await?)?;
    let kubelet =
        published::read_kubelet_config(&read_map(&client, published::KUBELET_CONFIG).await?)?;
    let endpoint = match &discovery.source {
        DiscoverySource::Token { endpoint, .. } => Some(endpoint.to_string()),
        DiscoverySource::File { .. } => None,
    };
    let membership = Membership {
        server: cluster.server.url(),
        endpoint,
        has_proxy: parameters.is_shared,
        ..Membership::default()
    };
    let settings =
        choose::choose_settings(options, before.as_ref(), data_dir, membership, parameters).await?;
    choose::warn_about_policies(&settings, report_progress);
    let layout = Layout::for_settings(&settings);
    // Before the first file is written: a rejected join leaves nothing behind.
    checks::check_host(&settings, &layout)?;
    check_name_is_free(&client, &settings.node_name).await?;
    crate::files::create_dir(&settings.data_dir, 0o711)?;
    // First of all files: `reset` finds the machine's membership by it.
    settings.save()?;
    // That of an earlier join: `wait_for_identity` takes the existence of this file for the new
    // certificate.
    crate::files::remove_file(&layout.kubeconfig("kubelet"))?;
    // Without it the runtime starts no pods until kube-proxy enforces policies again.
    crate::files::remove_file(&layout.cni_config())?;
    let server = match settings.has_api_proxy() {
        true => settings.server_url(),
        false => cluster.server.url(),
    };
    files::write_credentials(&layout, (&server, &cluster.ca), &discovery.token, &kubelet)?;
    Ok(settings)
}

/// Takes over the pool of addresses for load balancers, which may have changed since this machine
/// joined. Without it the machine works, so a map that can't be read is no error.
async fn adopt_pool(
    client: &Client,
    settings: &mut Settings,
    report_progress: &dyn Fn(&str),
) -> Result<()> {
    let map = read_map(client, published::CLUSTER_CONFIG).await;
    match map.and_then(|map| published::read_cluster_config(&map)) {
        Ok(published) if published.load_balancer_pool == settings.load_balancer_pool => Ok(()),
        Ok(published) => {
            settings.load_balancer_pool = published.load_balancer_pool;
            settings.save()
        }
        Err(error) => {
            report_progress(&format!(
                "warning: the pool of addresses for load balancers stays as it was: {error}"
            ));
            Ok(())
        }
    }
}

/// Waits for the kubelet's certificate; returns a client with it.
async fn wait_for_identity(node: &ClusterNode, layout: &Layout) -> Result<Client> {
    let (path, log) = (layout.kubeconfig("kubelet"), layout.log("kubelet"));
    let what = format!("the signing of the certificate of node {}", node.name);
    let granted = wait::wait_until(&what, IDENTITY_SECONDS, &log, async || path.exists()).await;
    granted.map_err(|late| add_last_line(late, &log))?;
    let config = Config::from_kubeconfig(&path).map_err(|cause| Error::Api {
        what: path.display().to_string(),
        cause,
    })?;
    Ok(Client::new(config.user_agent(USER_AGENT)))
}

/// Adds the last line of a log to an error: a kubelet that was refused ends with the reason.
fn add_last_line(error: Error, log: &Path) -> Error {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    match text.lines().rev().find(|line| !line.trim().is_empty()) {
        Some(line) => Error::Refused(format!("{error}, which ends with: {line}")),
        None => error,
    }
}

/// Starts kube-proxy, and sets up the pod network. In this order: no pod starts before kube-proxy
/// has isolated those that NetworkPolicies select. Returns the processes of the plan.
async fn join_network(
    settings: &mut Settings,
    layout: &Layout,
    pods: Ranges,
) -> Result<Vec<Process>> {
    if let Some(membership) = &mut settings.membership {
        membership.pods = Some(pods);
    }
    settings.save()?;
    // Computed again: the range of the pods is known now.
    let node = settings.first_node();
    files::write_proxy_files(settings, layout)?;
    network::prepare_network(settings, layout)?;
    let processes = start_processes(settings, layout, make_plan(settings, layout))?;
    if let Some(proxy) = processes.iter().find(|p| p.name == "kube-proxy") {
        // That of an earlier plan may still listen.
        wait::wait_for_replacement(proxy, layout).await?;
        wait::wait_for_process(proxy, layout).await?;
    }
    write_configs(&make_cni_config(settings, &node, layout))?;
    Ok(processes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Creates a joined machine in `dir` with a kubeconfig for this certificate.
    fn create_joined(dir: &Path, certificate: &str) -> Settings {
        let settings = Settings {
            data_dir: dir.into(),
            bin_dir: dir.into(),
            ..Settings::example_joined()
        };
        settings.save().unwrap();
        let layout = Layout::for_settings(&settings);
        let pair = dir.join("pair.pem");
        std::fs::write(&pair, certificate).unwrap();
        let tree = serde_json::json!({
            "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.2:6443"}}],
            "users": [{"name": "u", "user": {"client-certificate": pair, "client-key": pair}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        });
        crate::files::write_file(&layout.kubeconfig("kubelet"), tree.to_string().as_bytes())
            .unwrap();
        settings
    }

    fn options(dir: &Path, with_token: bool, name: Option<&str>) -> JoinOptions {
        let discovery = with_token.then(|| DiscoveryOptions {
            source: DiscoverySource::Token {
                endpoint: "192.0.2.2:6443".parse().unwrap(),
                trust: operator_discovery::Trust::TokenOnly,
            },
            token: "abcdef.0123456789abcdef".parse().unwrap(),
        });
        JoinOptions {
            data_dir: dir.into(),
            bin_dir: Some(dir.into()),
            discovery,
            node_name: name.map(str::to_owned),
            ..JoinOptions::default()
        }
    }

    #[tokio::test]
    async fn machine_that_joined_is_repaired_and_one_without_a_certificate_joins_again() {
        let dir = tempfile::tempdir().unwrap();
        let ca = operator_pki::Authority::ensure(&dir.path().join("pki"), "ca", "ca").unwrap();
        let find = async |with_token, name| {
            let options = options(dir.path(), with_token, name);
            find_joined_settings(dir.path(), &options).await
        };
        assert_eq!(find(true, None).await.unwrap(), None, "an empty directory");
        let settings = create_joined(dir.path(), ca.certificate());
        assert_eq!(find(true, None).await.unwrap(), Some(settings.clone()));
        let layout = Layout::for_settings(&settings);
        let now = jiff::Timestamp::now();
        let later = now + jiff::Span::new().hours(20 * 366 * 24);
        let is_valid = [now, later].map(|time| has_valid_identity(&layout, time));
        assert_eq!(is_valid, [true, false], "it ends");
        assert_eq!(find(false, Some("w1")).await.unwrap(), Some(settings));
        let error = find(true, Some("w2")).await.unwrap_err().to_string();
        assert!(
            error.contains("--node-name \"w1\", which can't change"),
            "{error}"
        );
        create_joined(dir.path(), "damaged");
        assert_eq!(find(true, None).await.unwrap(), None);
        let error = find(false, None).await.unwrap_err().to_string();
        assert!(error.contains("has expired or is damaged"), "{error}");
    }

    #[tokio::test]
    async fn machine_of_a_cluster_does_not_join_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Settings {
            data_dir: dir.path().into(),
            ..Settings::example()
        };
        cluster.save().unwrap();
        let error = find_joined_settings(dir.path(), &options(dir.path(), true, None))
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("can't join another one"),
            "{error}"
        );
    }

    #[test]
    fn reason_of_the_kubelet_is_a_part_of_the_error() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("kubelet.log");
        let error = || Error::Refused("late".into());
        assert_eq!(add_last_line(error(), &log).to_string(), "late");
        std::fs::write(&log, "first\nthe token is not valid\n\n").unwrap();
        let text = add_last_line(error(), &log).to_string();
        assert_eq!(text, "late, which ends with: the token is not valid");
    }
}
