//! Starts or repairs a cluster: every step checks the state and does only what is missing.

pub(crate) mod choose;
mod options;
mod register;
pub(crate) mod start;
pub(crate) mod wait;

use std::path::PathBuf;
use std::time::Instant;

use operator_pki::{Names, NodeName, Pki};

use crate::connect::connect_admin;
use crate::containers;
use crate::error::Result;
use crate::image::{busybox_image, pause_image};
use crate::layout::Layout;
use crate::node::ClusterNode;
use crate::plan::make_plan;
use crate::settings::{Runtime, Settings};
use crate::{addons, checks, configs, files, network};
pub use options::UpOptions;

/// Starts the cluster and waits until its nodes are Ready. Reports each step to `report_progress`.
pub async fn start_cluster(
    options: &UpOptions,
    report_progress: &dyn Fn(&str),
) -> Result<Settings> {
    let began = Instant::now();
    let (settings, remark) = choose::choose_settings(options)?;
    let layout = Layout::for_settings(&settings);
    // Before the first file is written: a rejected start leaves nothing behind.
    checks::check_host(&settings, &layout)?;
    register::check_added_nodes(&settings, &layout).await?;
    if let Some(remark) = remark {
        report_progress(&remark);
    }
    files::create_dir(&settings.data_dir, 0o711)?;
    // First of all files: `down` finds the cluster by it, also if the rest of the start fails.
    settings.save()?;
    report_progress("certificates and configuration");
    write_files(&settings, &layout)?;
    // Before a process starts: the administrator may have brought the file.
    addons::read_ca(&layout)?;
    if settings.runs_pods() {
        network::prepare_network(&settings, &layout)?;
    }
    report_progress("starting the components");
    let client = connect_admin(&layout)?;
    register::register_nodes(&settings, &layout, &client).await?;
    start::start_processes(&settings, &layout, make_plan(&settings, &layout))?;
    if settings.runs_pods() {
        report_progress("importing images");
        // Before the API server is waited for: the kubelet creates sandboxes as soon as it runs,
        // and they need the pause image.
        import_images(&settings, &layout).await?;
    }
    report_progress("waiting for the API server");
    wait::wait_for_api_server(&client, &layout).await?;
    // The API server creates the namespace after it is ready, and the addons are objects in it.
    wait::wait_for_system(&client, &settings, &layout).await?;
    addons::apply_addons(&client, &settings, &layout).await?;
    let nodes = settings.nodes();
    report_progress(&match nodes.len() {
        1 => "waiting for the node".to_owned(),
        count => format!("waiting for {count} nodes"),
    });
    for node in &nodes {
        wait::wait_for_node(&client, node, &layout).await?;
    }
    register::publish_gateways(&settings, &client).await?;
    report_progress("waiting for cluster DNS");
    // Last: a user's first pod looks up names, and a failed lookup may be cached.
    wait::wait_for_dns(&settings, &layout).await?;
    report_progress(&format!(
        "ready after {:.1} s",
        began.elapsed().as_secs_f32()
    ));
    Ok(settings)
}

/// Imports the cluster's own images on every node.
pub(crate) async fn import_images(settings: &Settings, layout: &Layout) -> Result<()> {
    let images = [pause_image()?, busybox_image()?];
    for node in settings.nodes() {
        let layout_of_node = layout.for_node(node.number);
        if let Some(socket) = containers::runtime_socket(settings, &layout_of_node) {
            let log = layout.log(&node.process_name("containerd"));
            wait::wait_for_socket(&socket, &log).await?;
            containers::import_images(&images, &socket, &layout_of_node)?;
        }
    }
    Ok(())
}

/// Writes missing or outdated certificates and configurations, certificates in their last 90 days
/// included. Returns the names of the written certificates.
pub(crate) fn write_files(settings: &Settings, layout: &Layout) -> Result<Vec<String>> {
    let nodes = settings.nodes();
    let node_names = nodes.iter().map(|node| NodeName {
        name: node.name.clone(),
        addresses: vec![node.address],
    });
    // All addresses of the machine: a client on it and a pod see the same certificate.
    let names = Names {
        domain: settings.domain.clone(),
        service_address: settings.api_service_address().into(),
        extra_dns: vec![settings.node_name.clone()],
        addresses: vec![settings.node_address],
        nodes: node_names.collect(),
    };
    let (pki, written) = operator_pki::ensure_pki(&layout.pki(), &names)?;
    tracing::debug!(?written, "certificates");
    let server = settings.server_url();
    for (file, certificate, user) in [
        (
            "controller-manager",
            "controller-manager",
            "system:kube-controller-manager",
        ),
        ("scheduler", "scheduler", "system:kube-scheduler"),
        ("dns", "dns", "system:cluster-dns"),
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
    for node in &nodes {
        write_node_files(settings, node, &layout.for_node(node.number), &pki)?;
    }
    Ok(written)
}

/// Writes the configurations of one node. Its kubelet has the identity of this node only.
fn write_node_files(
    settings: &Settings,
    node: &ClusterNode,
    layout: &Layout,
    pki: &Pki,
) -> Result<()> {
    // The Node authorizer derives the node from the user's name.
    let kubelet = format!("kubelet-{}", node.name);
    let user = format!("system:node:{}", node.name);
    let server = &node.server;
    pki.write_kubeconfig(&layout.kubeconfig("kubelet"), &kubelet, &user, server)?;
    pki.write_kubeconfig(
        &layout.kubeconfig("proxy"),
        "proxy",
        "system:kube-proxy",
        server,
    )?;
    let write = |path: PathBuf, text: String| files::write_if_changed(&path, text.as_bytes());
    write(
        layout.config("kubelet.yaml"),
        configs::kubelet_config(settings, node, layout),
    )?;
    write_runtime_files(settings, layout)?;
    write_proxy_config(settings, layout)?;
    write_cni_config(settings, node, layout)
}

/// Writes what a node needs before its pod network is known.
pub(crate) fn write_runtime_files(settings: &Settings, layout: &Layout) -> Result<()> {
    // The kubelet would create it for all to read.
    files::create_private_dir(&layout.logs())?;
    // The kubelet can watch only a directory that exists.
    files::create_dir(&layout.data().join("manifests"), 0o755)?;
    if settings.runtime == Runtime::Own {
        let text = configs::containerd_config(layout);
        files::write_if_changed(&layout.config("containerd.toml"), text.as_bytes())?;
        // The runtime creates its socket, but not the directory of the socket.
        files::create_dir(layout.run(), 0o711)?;
        files::create_dir(&layout.cni_conf(), 0o755)?;
    }
    Ok(())
}

/// Writes the configuration of kube-proxy.
pub(crate) fn write_proxy_config(settings: &Settings, layout: &Layout) -> Result<()> {
    if settings.runs_pods() {
        let text = configs::proxy_config(settings, layout);
        files::write_if_changed(&layout.config("kube-proxy.yaml"), text.as_bytes())?;
    }
    Ok(())
}

/// Writes the configuration of a node's pod network. A node without it starts no pods but those in the
/// node's own network.
pub(crate) fn write_cni_config(
    settings: &Settings,
    node: &ClusterNode,
    layout: &Layout,
) -> Result<()> {
    if settings.runtime == Runtime::Own {
        let text = configs::cni_config(settings, node, layout);
        files::write_if_changed(&layout.cni_config(), text.as_bytes())?;
    }
    Ok(())
}

/// Writes the plan with the current stamps of programs and files.
pub(crate) fn write_plan(settings: &Settings, layout: &Layout) -> Result<()> {
    start::save_plan(layout, make_plan(settings, layout))
}
