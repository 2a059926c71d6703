//! Starts or repairs a cluster: every step checks the state and does only what is missing.

mod choose;
mod options;
mod wait;

use std::time::Instant;

use client::{Client, Config};
use operator_pki::{Names, NodeName};

use crate::containers;
use crate::error::{Error, Result};
use crate::image::{busybox_image, pause_image};
use crate::layout::Layout;
use crate::plan::make_plan;
use crate::settings::{Runtime, Settings};
use crate::{addons, checks, configs, files, network, systemd};
pub use options::UpOptions;

/// Starts the cluster and waits until its node is Ready. Reports progress through `say`.
pub async fn start_cluster(options: &UpOptions, say: &dyn Fn(&str)) -> Result<Settings> {
    let began = Instant::now();
    let (settings, remark) = choose::choose_settings(options)?;
    let layout = Layout::for_settings(&settings);
    // Before the first file is written: a rejected start leaves nothing behind.
    checks::check_host(&settings, &layout)?;
    if let Some(remark) = remark {
        say(&remark);
    }
    files::create_dir(&settings.data_dir, 0o711)?;
    // First of all files: `down` finds the cluster by it, also if the rest of the start fails.
    settings.save()?;
    say("certificates and configuration");
    write_files(&settings, &layout)?;
    if settings.runs_pods() {
        network::prepare_network(&settings)?;
    }
    say("starting the components");
    start_processes(&settings, &layout)?;
    if let Some(socket) = containers::runtime_socket(&settings, &layout) {
        say("importing images");
        wait::wait_for_socket(&socket, &layout).await?;
        // Before the API server is waited for: the kubelet creates sandboxes as soon as it runs,
        // and they need the pause image.
        let images = [pause_image()?, busybox_image()?];
        containers::import_images(&images, &socket, &layout)?;
    }
    let client = connect_client(&layout)?;
    say("waiting for the API server");
    wait::wait_for_api_server(&client, &layout).await?;
    // The API server creates the namespace after it is ready, and the addons are objects in it.
    wait::wait_for_system(&client, &settings, &layout).await?;
    addons::apply_addons(&client, &settings).await?;
    say("waiting for the node");
    wait::wait_for_node(&client, &settings, &layout).await?;
    say("waiting for cluster DNS");
    // Last: a user's first pod looks up names, and a failed lookup may be cached.
    wait::wait_for_dns(&settings, &layout).await?;
    say(&format!(
        "ready after {:.1} s",
        began.elapsed().as_secs_f32()
    ));
    Ok(settings)
}

fn connect_client(layout: &Layout) -> Result<Client> {
    let path = layout.admin_kubeconfig();
    let config = Config::from_kubeconfig(&path).map_err(|cause| Error::Api {
        what: path.display().to_string(),
        cause,
    })?;
    Ok(Client::new(config.user_agent("ironclad")))
}

/// Writes missing or outdated certificates and configurations, certificates in their last 90 days
/// included. Returns the names of the written certificates.
pub(crate) fn write_files(settings: &Settings, layout: &Layout) -> Result<Vec<String>> {
    let node = NodeName {
        name: settings.node_name.clone(),
        addresses: vec![settings.node_address],
    };
    // All addresses of one node: a client on this machine and a pod see the same certificate.
    let names = Names {
        domain: settings.domain.clone(),
        service_address: settings.api_service_address().into(),
        extra_dns: vec![settings.node_name.clone()],
        addresses: vec![settings.node_address],
        nodes: vec![node],
    };
    let (pki, written) = operator_pki::ensure_pki(&layout.pki(), &names)?;
    tracing::debug!(?written, "certificates");
    let server = settings.server_url();
    // The Node authorizer derives the node from the user's name.
    let kubelet = format!("kubelet-{}", settings.node_name);
    let node_user = format!("system:node:{}", settings.node_name);
    for (file, certificate, user) in [
        (
            "controller-manager",
            "controller-manager",
            "system:kube-controller-manager",
        ),
        ("scheduler", "scheduler", "system:kube-scheduler"),
        ("proxy", "proxy", "system:kube-proxy"),
        ("dns", "dns", "system:cluster-dns"),
        ("kubelet", &kubelet, &node_user),
    ] {
        pki.write_kubeconfig(&layout.kubeconfig(file), certificate, user, &server)?;
    }
    pki.write_kubeconfig(
        &layout.admin_kubeconfig(),
        "admin",
        "kubernetes-admin",
        &server,
    )?;
    files::write_if_changed(
        &layout.config("authentication.yaml"),
        configs::authentication_config().as_bytes(),
    )?;
    files::write_if_changed(
        &layout.config("kubelet.yaml"),
        configs::kubelet_config(settings, layout).as_bytes(),
    )?;
    // The kubelet can watch only a directory that exists.
    files::create_dir(&settings.data_dir.join("manifests"), 0o755)?;
    if settings.runs_pods() {
        files::write_if_changed(
            &layout.config("kube-proxy.yaml"),
            configs::proxy_config(settings, layout).as_bytes(),
        )?;
    }
    if settings.runtime == Runtime::Own {
        files::write_if_changed(
            &layout.config("containerd.toml"),
            configs::containerd_config(layout).as_bytes(),
        )?;
        let conf = layout.cni_conf().join("10-ironclad.conflist");
        files::write_if_changed(&conf, configs::cni_config(settings, layout).as_bytes())?;
    }
    Ok(written)
}

/// Writes the plan with the current stamps of programs and files.
pub(crate) fn write_plan(settings: &Settings, layout: &Layout) -> Result<()> {
    let mut plan = make_plan(settings, layout);
    // After all files are written: the stamp decides which processes are restarted.
    plan.set_stamps();
    let text = serde_json::to_string_pretty(&plan).unwrap_or_default();
    files::write_if_changed(&layout.plan(), text.as_bytes()).map(drop)
}

fn start_processes(settings: &Settings, layout: &Layout) -> Result<()> {
    write_plan(settings, layout)?;
    // The supervisor is the same program, so that an upgrade replaces both at once.
    let program = std::env::current_exe().map_err(Error::io("/proc/self/exe"))?;
    systemd::start_supervisor(settings, layout, &program)
}
