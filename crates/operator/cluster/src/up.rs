//! Starts or repairs a cluster: every step checks the state and does only what is missing.

mod address;
pub(crate) mod choose;
pub(crate) mod local_address;
mod options;
pub(crate) mod plugin;
mod pool;
pub(crate) mod register;
pub(crate) mod start;
pub(crate) mod wait;

use std::time::Instant;

use client::Client;
use operator_pki::Renewal;

use crate::addons::GivenOptions;
use crate::admin_kubeconfig::{read_named_servers, store_named_servers};
use crate::cluster_files::write_files;
use crate::connect::{connect_admin, local_store_url};
use crate::containers;
use crate::control_plane::{MemberIdentity, StoreMember};
use crate::error::{Error, Result};
use crate::image::{busybox_image, pause_image};
use crate::layout::Layout;
use crate::node_state::NodeState;
use crate::plan::{Process, format_member_url, make_plan};
use crate::settings::Settings;
use crate::store_members::{LocalMember, list_members, publish_peer_url};
use crate::token_issuers::check_issuers;
use crate::{addons, checks, files, network, store_data};
pub use options::UpOptions;

/// Starts the cluster and waits until its nodes are Ready. Reports each step to `report_progress`,
/// and at the end the time since the command began.
pub async fn start_cluster(
    options: &UpOptions,
    began: Instant,
    report_progress: &dyn Fn(&str),
) -> Result<Settings> {
    let started = wait::Began::now();
    let (mut settings, remark) = choose::choose_settings(options)?;
    let layout = Layout::for_settings(&settings);
    check_start(&settings, &layout).await?;
    for remark in remark
        .into_iter()
        .chain(checks::remark_on_address(&settings))
    {
        report_progress(&remark);
    }
    prepare_machine(&settings, &layout, report_progress)?;
    report_progress("starting the components");
    let client = connect_admin(&settings, &layout)?;
    let mut processes = start_components(&settings, &layout, &client, report_progress).await?;
    // The API server creates the namespace after it is ready, and the addons are objects in it.
    share_store(&mut settings, &layout).await?;
    wait::wait_for_system(&client, &settings, &layout).await?;
    if let Some(newer) =
        adopt_control_plane(&mut settings, options, &client, report_progress).await?
    {
        processes = newer;
    }
    publish_settings(&mut settings, options, &client, report_progress).await?;
    let nodes = settings.nodes();
    report_progress(&match nodes.len() {
        1 => "waiting for the node".to_owned(),
        count => format!("waiting for {count} nodes"),
    });
    wait::wait_for_replacements(&processes, &layout).await?;
    let mut state = NodeState::Ready;
    for node in &nodes {
        state = wait::wait_for_node(&client, &settings, node, &processes, &layout, started).await?;
    }
    complete_nodes(&settings, &layout, &client, report_progress).await?;
    if settings.control_plane.is_some() {
        name_servers(&settings, &layout, &client, report_progress).await;
    }
    state.report(&settings, report_progress);
    report_progress(&format!(
        "ready after {:.1} s",
        began.elapsed().as_secs_f32()
    ));
    Ok(settings)
}

/// Rejects a start before the first file is written: it leaves nothing behind.
async fn check_start(settings: &Settings, layout: &Layout) -> Result<()> {
    checks::check_host(settings, layout)?;
    check_issuers(settings)?;
    address::check_address(settings, layout).await?;
    store_data::check_store_data(layout)?;
    register::check_added_nodes(settings, layout).await
}

/// Writes the settings, certificates and configurations, and sets up the network.
fn prepare_machine(
    settings: &Settings,
    layout: &Layout,
    report_progress: &dyn Fn(&str),
) -> Result<()> {
    files::create_dir(&settings.data_dir, 0o711)?;
    // First of all files: `down` finds the cluster by it, also if the rest of the start fails.
    settings.save()?;
    report_progress("certificates and configuration");
    write_files(settings, layout, Renewal::Due)?;
    // Before a process starts: the administrator may have brought the file.
    addons::read_ca(layout)?;
    match settings.runs_pods() {
        true => network::prepare_network(settings, layout),
        false => Ok(()),
    }
}

/// Starts the processes, and waits for the API server. Returns the processes.
async fn start_components(
    settings: &Settings,
    layout: &Layout,
    client: &Client,
    report_progress: &dyn Fn(&str),
) -> Result<Vec<Process>> {
    register::register_nodes(settings, layout, client).await?;
    let processes = start::start_processes(settings, layout, make_plan(settings, layout))?;
    if settings.runs_pods() {
        report_progress("importing images");
        // Before the API server is waited for: the kubelet creates sandboxes as soon as it runs,
        // and they need the pause image.
        import_images(settings, &processes, layout).await?;
    }
    report_progress("waiting for the API server");
    wait::wait_for_api_server(client, layout).await?;
    // The client's server may be another machine, or the one that is about to be replaced.
    wait::wait_for_own_server(settings, &processes, layout).await?;
    store_data::record_store_data(layout)?;
    Ok(processes)
}

/// Labels the nodes, and waits for cluster DNS.
async fn complete_nodes(
    settings: &Settings,
    layout: &Layout,
    client: &Client,
    report_progress: &dyn Fn(&str),
) -> Result<()> {
    if settings.control_plane.is_some() {
        register::label_control_plane(settings, client).await?;
    }
    register::publish_gateways(settings, client).await?;
    wait::wait_for_service_account(client, layout).await?;
    report_progress("waiting for cluster DNS");
    // Last: a user's first pod looks up names, and a failed lookup may be cached.
    wait::wait_for_dns(settings, layout).await
}

/// Writes the administrator's kubeconfig with the API servers of all machines. The proxy of the
/// machine does that, too, so a failure is no error.
async fn name_servers(
    settings: &Settings,
    layout: &Layout,
    client: &Client,
    report_progress: &dyn Fn(&str),
) {
    let found = read_named_servers(client, settings).await;
    let stored = found.and_then(|found| store_named_servers(&found, settings, layout));
    if let Err(error) = stored {
        report_progress(&format!(
            "warning: admin.kubeconfig may lack API servers of other machines: {error}"
        ));
    }
}

/// Stores the settings of API servers that another machine has published since, such as the load
/// balancer, and issues the certificate with them. Returns the processes of the plan with them, if
/// there are any.
async fn adopt_control_plane(
    settings: &mut Settings,
    options: &UpOptions,
    client: &Client,
    report_progress: &dyn Fn(&str),
) -> Result<Option<Vec<Process>>> {
    if settings.control_plane.is_none() {
        return Ok(None);
    }
    let given = GivenOptions {
        changes_issuers: options.authentication_config.is_some(),
        shared: options.shared.as_ref(),
        network_policies_enforced: options.network_policies_enforced,
    };
    let Some(newer) = addons::find_newer_settings(client, settings, given).await? else {
        return Ok(None);
    };
    let changes = addons::list_changes(settings, &newer);
    if changes.is_empty() {
        // Only the issuers that this command replaces.
        *settings = newer;
        settings.save()?;
        return Ok(None);
    }
    // The map can be edited by hand, and the API server would not start with a wrong issuer.
    check_issuers(&newer).map_err(|error| {
        Error::Refused(format!(
            "the ConfigMap {} of the cluster has issuers of tokens that can't be used, and nothing was changed here ({error}); \
             give a correct file to `ironclad init`",
            crate::published::CLUSTER_CONFIG
        ))
    })?;
    report_progress(&format!(
        "changing settings to those of the cluster: {}",
        changes.join(", ")
    ));
    *settings = newer;
    settings.save()?;
    let layout = Layout::for_settings(settings);
    write_files(settings, &layout, Renewal::Due)?;
    let processes = start::start_processes(settings, &layout, make_plan(settings, &layout))?;
    wait::wait_for_own_server(settings, &processes, &layout).await?;
    Ok(Some(processes))
}

/// Creates or updates the objects of the cluster, or those of this machine.
async fn publish_settings(
    settings: &mut Settings,
    options: &UpOptions,
    client: &Client,
    report_progress: &dyn Fn(&str),
) -> Result<()> {
    let layout = Layout::for_settings(settings);
    if settings.replaced_issuers.is_none() {
        return match &options.shared {
            // `init` on a further machine: cluster-info gets its address.
            Some(_) => addons::publish_cluster(client, settings, &layout).await,
            None => addons::apply_addons(client, settings, &layout).await,
        };
    }
    if options.authentication_config.is_none() {
        report_progress("publishing the issuers of tokens that an earlier command stored here");
    }
    // Also on a further machine: only `init` changes the issuers there.
    addons::publish_cluster(client, settings, &layout).await?;
    settings.replaced_issuers = None;
    settings.save()
}

/// Publishes the address at which the store's member of this machine listens: that of a cluster
/// which `up` started was a loopback address. Stores the IDs of the member.
async fn share_store(settings: &mut Settings, layout: &Layout) -> Result<()> {
    let peer_url = format_member_url(settings.node_address, settings.ports.store_peer);
    let urls = [local_store_url(settings)];
    let Some(shared) = &mut settings.control_plane else {
        return Ok(());
    };
    let list = list_members(&urls, None, layout).await?;
    let member = StoreMember::Listed(MemberIdentity {
        cluster: list.cluster,
        // The URL is that of this machine, so its member is the responder.
        member: list.responder,
    });
    if shared.member != member {
        shared.member = member;
        settings.save()?;
    }
    let own = LocalMember {
        name: &settings.node_name,
        peer_url: &peer_url,
        has_data: true,
    };
    publish_peer_url(&urls, &list.members, own, layout).await
}

/// Imports the cluster's own images on every node. `processes` are those of the plan.
pub(crate) async fn import_images(
    settings: &Settings,
    processes: &[Process],
    layout: &Layout,
) -> Result<()> {
    let images = [pause_image()?, busybox_image()?];
    for node in settings.nodes() {
        let layout_of_node = layout.for_node(node.number);
        if let Some(socket) = containers::runtime_socket(settings, &layout_of_node) {
            let name = node.process_name("containerd");
            wait::wait_for_runtime(&name, processes, layout).await?;
            wait::wait_for_socket(&socket, &layout.log(&name)).await?;
            containers::import_images(&images, &socket, &layout_of_node)?;
        }
    }
    Ok(())
}
