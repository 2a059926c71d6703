//! Joins the control plane of a cluster. The machine gets the keys of the cluster's CAs, so it
//! issues its own certificates, and its member of the store is added as a learner, which counts for
//! no quorum.
//!
//! Each step examines the state and is stored when it is done: a repeated command continues.

use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use client::{Client, ListParams};
use k8s_openapi::api::core::v1::{Node, Taint};
use operator_pki::Renewal;
use serde_json::{Map, Value, json};

use super::choose::parse_taint;
use super::options::JoinOptions;
use super::repeated::{check_addresses, check_value};
use super::requests::{describe_foreign_node, wait_for_pods};
use super::unpack::download_keys_and_settings;
use crate::cluster_files::{certificate_names, write_files};
use crate::connect::{connect_admin_at, local_store_url};
use crate::control_plane::{
    CONTROL_PLANE_LABEL, JOIN_ANNOTATION, JoinProgress, JoinedControlPlane, MemberIdentity,
    StartMembers, StoreMember,
};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::plan::{format_member_url, make_plan};
use crate::settings::Settings;
use crate::shared_keys::has_keys;
use crate::store_data::has_store_data;
use crate::store_members::{
    JoinStep, LocalMember, MemberList, decide_step, ensure_member, find_local, find_quorum_warning,
    find_store_urls, format_members, list_members, promote_member,
};
use crate::up::choose::{choose_bin_dir, reject_removed};
use crate::up::start::start_processes;
use crate::up::{UpOptions, start_cluster, wait};
use crate::{addons, checks};

/// Joins the control plane, or continues with it or repairs it.
pub(super) async fn join_control_plane(
    options: &JoinOptions,
    data_dir: &Path,
    began: Instant,
    report_progress: &dyn Fn(&str),
) -> Result<Settings> {
    let mut settings = match find_settings(data_dir, options)? {
        Some(settings) => settings,
        None => download_keys_and_settings(options, data_dir, report_progress).await?,
    };
    if settings.awaits_promotion() {
        let layout = Layout::for_settings(&settings);
        checks::check_host(&settings, &layout)?;
        settings.save()?;
        join_store(&mut settings, &layout, report_progress).await?;
    }
    let up = UpOptions {
        data_dir: data_dir.to_owned(),
        bin_dir: options.bin_dir.clone(),
        verbosity: options.verbosity,
        // An absent option keeps what the join has stored.
        ..UpOptions::default()
    };
    let settings = start_cluster(&up, began, report_progress).await?;
    let layout = Layout::for_settings(&settings);
    if let Some(warning) = find_quorum_warning(&settings, &layout).await {
        report_progress(&format!("warning: {warning}"));
    }
    Ok(settings)
}

/// Returns the settings of a machine that has the keys of the control plane.
fn find_settings(data_dir: &Path, options: &JoinOptions) -> Result<Option<Settings>> {
    let Some(mut settings) = Settings::load(data_dir)? else {
        return Ok(None);
    };
    if settings.membership.is_some() {
        return Err(Error::Refused(format!(
            "this machine is worker {}; run `ironclad reset` first to join it to the control plane",
            settings.node_name
        )));
    }
    let Some(joined) = settings.joined_control_plane() else {
        return Err(Error::Refused(format!(
            "{} holds a cluster that `ironclad init` or `ironclad up` started; run that command to repair it",
            data_dir.display()
        )));
    };
    reject_removed(&settings)?;
    let is_known = has_keys(&Layout::for_settings(&settings));
    if joined.is_voter() || is_known {
        // Certificates and the Node have the stored ones.
        check_value(
            "--node-name",
            options.node_name.as_ref(),
            &settings.node_name,
        )?;
        check_addresses(&options.node_addresses, &settings)?;
        settings.bin_dir = choose_bin_dir(options.bin_dir.as_deref(), Some(&settings), "kvstore")?;
        return Ok(Some(settings));
    }
    Ok(None)
}

/// Registers the node, adds the member of the store, starts it, and waits until it votes.
async fn join_store(
    settings: &mut Settings,
    layout: &Layout,
    report_progress: &dyn Fn(&str),
) -> Result<()> {
    report_progress("issuing certificates");
    // Before the other files, which need the range of the pods: the client that waits for the
    // range uses the administrator's certificate.
    operator_pki::write_pki(&layout.pki(), &certificate_names(settings), Renewal::Due)?;
    let server = joined_mut(settings)?.server.clone();
    // Not through the proxy of this machine, which does not run yet.
    let client = connect_admin_at(&server, layout);
    let shared = settings.control_plane.as_ref();
    if shared.is_none_or(|shared| shared.pods.is_none()) {
        reserve_address(&client, settings, layout).await?;
        report_progress("waiting for the addresses of its pods");
        ensure_node(&client, settings).await?;
        let pods = wait_for_pods(&client, settings, layout).await?;
        if let Some(shared) = &mut settings.control_plane {
            shared.pods = Some(pods);
        }
        settings.save()?;
    }
    write_files(settings, layout, Renewal::Due)?;
    let urls = find_store_urls(&client, settings).await?;
    start_member(settings, &urls, layout, report_progress).await?;
    wait_for_store(settings, layout).await?;
    // `ironclad init` on this machine, or after a restore of its backup, would grant them again.
    addons::record_granted_rights(layout)?;
    let joined = joined_mut(settings)?;
    if let Some(members) = joined.start_members().cloned() {
        joined.progress = JoinProgress::Voting(members);
    }
    settings.save()
}

/// Adds the member of the store, starts it, and promotes it.
async fn start_member(
    settings: &mut Settings,
    urls: &[String],
    layout: &Layout,
    report_progress: &dyn Fn(&str),
) -> Result<()> {
    let peer_url = format_member_url(settings.node_address, settings.ports.store_peer);
    let name = settings.node_name.clone();
    let own = || LocalMember {
        name: &name,
        peer_url: &peer_url,
        has_data: has_store_data(layout),
    };
    report_progress("adding a member to the store");
    let cluster = settings.member_identity().map(|known| known.cluster);
    let list = ensure_member(urls, cluster, own(), layout).await?;
    if needs_members(joined_mut(settings)?, own()) {
        record_members(settings, &list, own())?;
    }
    report_progress("starting the store");
    let processes = start_processes(settings, layout, make_plan(settings, layout))?;
    wait::wait_for_replacements(&processes, layout).await?;
    // The store rejects the promotion of a learner whose log is behind; the request is repeated.
    if let JoinStep::StartAndPromote(id) = decide_step(&list.members, own())? {
        report_progress("waiting until the store is in step");
        promote_member(urls, id, layout).await?;
    }
    // It may have been removed since.
    let list = list_members(urls, Some(list.cluster), layout).await?;
    match decide_step(&list.members, own())? {
        JoinStep::Done => Ok(()),
        JoinStep::Add | JoinStep::StartAndPromote(_) => Err(Error::Refused(
            "the member of the store was removed while it started; run the command again"
                .to_owned(),
        )),
    }
}

/// Stores the members with which the store starts, and the IDs of that of this machine.
fn record_members(settings: &mut Settings, list: &MemberList, own: LocalMember<'_>) -> Result<()> {
    let client_urls = list.members.iter().flat_map(|member| &member.client_urls);
    joined_mut(settings)?.progress = JoinProgress::Added(StartMembers {
        initial_cluster: format_members(&list.members, own),
        client_urls: client_urls.cloned().collect(),
    });
    let member = find_local(&list.members, own);
    if let (Some(member), Some(shared)) = (member, &mut settings.control_plane) {
        shared.member = StoreMember::Listed(MemberIdentity {
            cluster: list.cluster,
            member: member.id,
        });
    }
    settings.save()
}

/// Returns whether the list of members for the first start is to be stored. That of an earlier
/// attempt may have members that were removed since; once the store has data, it has no effect.
fn needs_members(joined: &JoinedControlPlane, own: LocalMember<'_>) -> bool {
    match joined.progress {
        JoinProgress::Verified => true,
        JoinProgress::Added(_) => !own.has_data,
        JoinProgress::Voting(_) => false,
    }
}

fn joined_mut(settings: &mut Settings) -> Result<&mut JoinedControlPlane> {
    let shared = settings.control_plane.as_mut();
    let joined = shared.and_then(|shared| shared.joined.as_mut());
    joined.ok_or_else(|| Error::Refused("this machine joined no control plane".to_owned()))
}

async fn wait_for_store(settings: &Settings, layout: &Layout) -> Result<()> {
    let urls = [local_store_url(settings)];
    let log = layout.log("kvstore");
    wait::wait_until("the start of the store", 60, &log, async || {
        // The list is linearizable, so it succeeds only if the member is connected to a quorum.
        list_members(&urls, None, layout).await.is_ok()
    })
    .await
}

/// Publishes the names and addresses of this machine's API server before anything leads clients to
/// them.
///
/// # Errors
/// Another node has the address: it may have a certificate for it already, and could pose as this
/// API server.
async fn reserve_address(client: &Client, settings: &Settings, layout: &Layout) -> Result<()> {
    let hosts = addons::read_server_hosts(layout)?;
    // Before anything is published: a name that stays published would keep its owner from a
    // certificate.
    check_hosts_are_free(client, &hosts, settings).await?;
    addons::publish_own_hosts(client, layout).await?;
    // Again: a node may have got the address in between, and from now on none does.
    check_hosts_are_free(client, &hosts, settings).await
}

async fn check_hosts_are_free(
    client: &Client,
    hosts: &[String],
    settings: &Settings,
) -> Result<()> {
    let nodes = client.api::<Node>().list(&ListParams::new()).await;
    let nodes = nodes.map_err(|cause| Error::Api {
        what: "listing the Nodes".to_owned(),
        cause,
    })?;
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    match find_host_owner(&nodes.items, &hosts, settings) {
        None => Ok(()),
        Some((owner, host)) => Err(Error::Refused(format!(
            "worker {owner} has {host}, which is an address or a name of this machine's API server; if that is this machine under a \
             former name, run `kubectl delete node {owner}`, and then this command again; if not, find out why, since it may have a \
             certificate for it"
        ))),
    }
}

/// Returns a worker that has one of these names and addresses among its own, with it.
///
/// The names of the administrator may be those of other API servers. No kubelet can give its Node
/// the label of the control plane.
fn find_host_owner<'n>(
    nodes: &'n [Node],
    hosts: &[&str],
    settings: &Settings,
) -> Option<(&'n str, &'n str)> {
    let parse = |text: &str| text.parse::<IpAddr>().map(|address| address.to_canonical());
    let is_same = |one: &str, other: &str| match (parse(one), parse(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one.eq_ignore_ascii_case(other),
    };
    let own = hosts.iter().filter(|host| !is_common(host, settings));
    let own: Vec<&&str> = own.collect();
    let is_worker = |node: &&Node| {
        let labels = node.metadata.labels.as_ref();
        let has_role = labels.is_some_and(|labels| labels.contains_key(CONTROL_PLANE_LABEL));
        !has_role && node.metadata.name.as_deref() != Some(settings.node_name.as_str())
    };
    nodes.iter().filter(is_worker).find_map(|node| {
        let addresses = node.status.as_ref()?.addresses.as_ref()?;
        let mut texts = addresses.iter().map(|address| address.address.as_str());
        let found = texts.find(|text| own.iter().any(|host| is_same(host, text)))?;
        Some((node.metadata.name.as_deref()?, found))
    })
}

/// Reports a name or address that every API server has: it leads to none of them alone, and a
/// worker that names it must not prevent a join.
fn is_common(host: &str, settings: &Settings) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback() || settings.service_cidr.contains(address),
        Err(_) => host == "localhost" || host == "kubernetes" || host.starts_with("kubernetes."),
    }
}

/// Creates the Node, so that the cluster allocates the addresses of its pods before anything
/// starts.
///
/// # Errors
/// Another machine created a Node of that name.
async fn ensure_node(client: &Client, settings: &Settings) -> Result<()> {
    let name = &settings.node_name;
    let failed = |what: &str| {
        let what = format!("{what} Node {name}");
        move |cause| Error::Api { what, cause }
    };
    let Some(joined) = settings.joined_control_plane() else {
        return Ok(());
    };
    let node: Node = serde_json::from_value(format_node(name, joined))
        .map_err(|error| Error::Refused(format!("{name} can't be built: {error}")))?;
    let nodes = client.api::<Node>();
    match nodes.create(&node).await {
        // The Node may be that of an earlier attempt of this join.
        Err(error) if error.is_already_exists() => {
            let found = nodes.get(name).await.map_err(failed("reading"))?;
            match is_own_node(joined, &found) {
                true => Ok(()),
                false => Err(describe_foreign_node(name)),
            }
        }
        created => created.map(drop).map_err(failed("creating")),
    }
}

/// Returns whether this machine created a Node of its name.
pub(super) fn is_own_node(joined: &JoinedControlPlane, found: &Node) -> bool {
    let annotations = found.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(JOIN_ANNOTATION)) == Some(&joined.id)
}

/// Returns the Node as the kubelet would register it. It has no taint but those of the command:
/// pods run on the machines of the control plane as they do on the first one.
fn format_node(name: &str, joined: &JoinedControlPlane) -> Value {
    let mut all = Map::new();
    all.insert("kubernetes.io/hostname".to_owned(), name.into());
    all.insert(CONTROL_PLANE_LABEL.to_owned(), "".into());
    let given = joined
        .labels
        .iter()
        .filter_map(|label| label.split_once('='));
    all.extend(given.map(|(key, value)| (key.to_owned(), value.into())));
    let taints: Vec<Taint> = joined
        .taints
        .iter()
        .filter_map(|taint| parse_taint(taint))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": all,
            "annotations": {
                // Upstream's kubelet sets it when it registers. Without it the attach/detach
                // controller skips the node.
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                JOIN_ANNOTATION: joined.id,
            },
        },
        "spec": { "taints": taints },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn example_join() -> JoinedControlPlane {
        let shared = Settings::example_shared().control_plane.unwrap();
        shared.joined.unwrap()
    }

    #[test]
    fn node_has_the_role_and_the_labels_and_taints_of_the_command() {
        let joined = JoinedControlPlane {
            labels: vec!["disk=ssd".into()],
            taints: vec![
                "node-role.kubernetes.io/control-plane:NoSchedule".into(),
                "a=b:NoExecute".into(),
            ],
            ..example_join()
        };
        let node: Node = serde_json::from_value(format_node("cp2", &joined)).unwrap();
        let labels = node.metadata.labels.unwrap();
        assert_eq!(
            (
                labels[CONTROL_PLANE_LABEL].as_str(),
                labels["disk"].as_str()
            ),
            ("", "ssd")
        );
        let taints = node.spec.unwrap().taints.unwrap();
        assert_eq!(
            (taints[0].key.as_str(), taints[0].effect.as_str()),
            (CONTROL_PLANE_LABEL, "NoSchedule")
        );
        assert_eq!(taints[1].value.as_deref(), Some("b"));
    }

    /// Two machines of one image would share a Node and the range of its pods.
    #[test]
    fn node_of_another_machine_is_not_taken_over() {
        let joined = example_join();
        let mut node = Node::default();
        assert!(!is_own_node(&joined, &node));
        for (id, expected) in [("j2", false), ("j1", true)] {
            let annotation = (JOIN_ANNOTATION.to_owned(), id.to_owned());
            node.metadata.annotations = Some([annotation].into());
            assert_eq!(is_own_node(&joined, &node), expected, "{id}");
        }
        let created = serde_json::from_value(format_node("cp2", &joined)).unwrap();
        assert!(is_own_node(&joined, &created));
    }

    /// It could get a certificate for the address before the API server of this machine runs.
    #[test]
    fn address_of_another_node_is_not_taken() {
        let settings = Settings {
            node_name: "cp2".into(),
            ..Settings::example_shared()
        };
        let service = settings.api_service_address();
        let hosts = [
            "192.0.2.3",
            "198.51.100.3",
            "cp2",
            "kubernetes",
            "localhost",
            "127.0.0.1",
            &service.to_string(),
        ];
        let node = |name: &str, addresses: &[&str]| -> Node {
            let addresses: Vec<_> = addresses
                .iter()
                .map(|address| json!({"type": "InternalIP", "address": address}))
                .collect();
            let tree = json!({"metadata": {"name": name}, "status": {"addresses": addresses}});
            serde_json::from_value(tree).unwrap()
        };
        let mut server = node("cp1", &["192.0.2.2", "198.51.100.3"]);
        server.metadata.labels = Some([(CONTROL_PLANE_LABEL.to_owned(), String::new())].into());
        for (nodes, expected) in [
            (vec![node("w1", &["192.0.2.77"]), node("w2", &[])], None),
            (
                vec![node("w1", &["192.0.2.77", "192.0.2.3"])],
                Some("192.0.2.3"),
            ),
            (vec![node("w1", &["CP2"])], Some("CP2")),
            (
                vec![node("w1", &["::ffff:192.0.2.3"])],
                Some("::ffff:192.0.2.3"),
            ),
            // A name that the administrator has given, of a worker and of another API server.
            (vec![node("w1", &["198.51.100.3"])], Some("198.51.100.3")),
            (vec![server], None),
            // Those of all API servers.
            (
                vec![node("w1", &["kubernetes", "localhost", "127.0.0.1"])],
                None,
            ),
            (vec![node("w1", &[&service.to_string()])], None),
            // Of an earlier attempt.
            (vec![node("cp2", &["192.0.2.3", "cp2"])], None),
            (
                vec![node("cp2", &["192.0.2.3"]), node("w1", &["192.0.2.3"])],
                Some("192.0.2.3"),
            ),
        ] {
            let found = find_host_owner(&nodes, &hosts, &settings);
            assert_eq!(found.map(|(_, host)| host), expected, "{nodes:?}");
        }
    }

    #[test]
    fn members_of_an_earlier_attempt_are_replaced_until_the_store_has_data() {
        let mut joined = example_join();
        let own = |has_data| LocalMember {
            name: "cp2",
            peer_url: "https://192.0.2.3:2380",
            has_data,
        };
        assert!(needs_members(&joined, own(false)));
        joined.progress = JoinProgress::Added(StartMembers {
            initial_cluster: "cp1=https://192.0.2.2:2380".into(),
            client_urls: Vec::new(),
        });
        assert!(
            needs_members(&joined, own(false)),
            "the learner was removed"
        );
        assert!(!needs_members(&joined, own(true)), "no restart");
    }

    #[test]
    fn interrupted_join_continues_with_its_name_and_address_only() {
        let dir = tempfile::tempdir().unwrap();
        let members = StartMembers {
            initial_cluster: String::new(),
            client_urls: Vec::new(),
        };
        let settings = Settings {
            data_dir: dir.path().into(),
            bin_dir: dir.path().into(),
            ..Settings::example_shared()
        }
        .with_progress(JoinProgress::Voting(members));
        settings.save().unwrap();
        let find = |name: &str, address: &str| {
            let options = JoinOptions {
                bin_dir: Some(dir.path().into()),
                node_name: Some(name.into()),
                node_addresses: address.parse().into_iter().collect(),
                ..JoinOptions::default()
            };
            find_settings(dir.path(), &options)
        };
        assert_eq!(find("cp2", "192.0.2.3").unwrap(), Some(settings.clone()));
        let error = find("cp4", "192.0.2.3").unwrap_err().to_string();
        assert!(error.contains("--node-name"), "{error}");
        let error = find("cp2", "192.0.2.9").unwrap_err().to_string();
        assert!(error.contains("--node-ip"), "{error}");
    }

    #[test]
    fn machine_of_another_kind_does_not_join() {
        let dir = tempfile::tempdir().unwrap();
        let find = |settings: Settings| {
            let settings = Settings {
                data_dir: dir.path().into(),
                ..settings
            };
            settings.save().unwrap();
            find_settings(dir.path(), &JoinOptions::default())
        };
        let error = find(Settings::example_joined()).unwrap_err().to_string();
        assert!(error.contains("is worker w1"), "{error}");
        let error = find(Settings::example()).unwrap_err().to_string();
        assert!(error.contains("ironclad up"), "{error}");
        // Interrupted before the keys were written.
        assert_eq!(find(Settings::example_shared()).unwrap(), None);
    }
}
