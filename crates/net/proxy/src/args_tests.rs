#![allow(clippy::unwrap_used)]
use super::*;
use crate::detect_local::DetectLocal;
use crate::local::PodMatch;
use crate::upstream::UPSTREAM_FLAGS;
use base_cli::accept_upstream_flags;
use clap::CommandFactory;
use std::ffi::OsString;

#[test]
fn the_command_line_is_consistent() {
    Args::command().debug_assert();
}

pub(crate) fn settings(words: &[&str]) -> anyhow::Result<Settings> {
    let words = std::iter::once("kube-proxy")
        .chain(words.iter().copied())
        .map(OsString::from);
    let accepted = accept_upstream_flags(words, UPSTREAM_FLAGS);
    anyhow::ensure!(accepted.refusals.is_empty(), "{:?}", accepted.refusals);
    Ok(base_cli::parse_arguments::<Args>(&accepted.arguments)?
        .settings()?
        .1)
}

#[test]
fn flags_of_k3s_and_kops_start_the_proxy() {
    let k3s = [
        "--cluster-cidr=10.42.0.0/16",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-close-wait=0s",
        "--conntrack-tcp-timeout-established=0s",
        "--healthz-bind-address=127.0.0.1",
        "--hostname-override=n1",
        "--kubeconfig=/k",
        "--proxy-mode=iptables",
    ];
    let read = settings(&k3s).unwrap();
    assert_eq!(
        read.healthz,
        Some(SocketAddr::from(([127, 0, 0, 1], 10256)))
    );
    let kops = [
        "--bind-address=0.0.0.0",
        "--cluster-cidr=100.96.0.0/11",
        "--conntrack-max-per-core=131072",
        "--hostname-override=n1",
        "--kubeconfig=/k",
        "--master=https://api.internal.example",
        "--metrics-bind-address=0.0.0.0",
        "--oom-score-adj=-998",
        "--v=2",
    ];
    assert_eq!(
        settings(&kops).unwrap().metrics,
        Some(SocketAddr::from(([0, 0, 0, 0], 10249)))
    );
}

#[test]
fn policies_are_enforced_only_on_request() {
    assert_eq!(settings(&[]).unwrap().policies, None);
    let read = settings(&[
        "--network-policies",
        "--hostname-override=N1",
        "--network-policy-pod-cidrs=10.244.0.0/24,fd00::/64",
        "--network-policy-bridge=cni0",
    ]);
    let policies = read.unwrap().policies.unwrap();
    assert_eq!(policies.node_name, "n1");
    assert_eq!(policies.network.ranges.len(), 2);
    for wrong in [
        &["--network-policy-bridge=cni0"][..],
        &["--network-policies", "--network-policy-bridge=a\" drop"],
        &["--network-policies", "--network-policy-pod-cidrs=10.0.0.0"],
    ] {
        assert!(settings(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn addresses_are_announced_only_on_request() {
    assert_eq!(settings(&[]).unwrap().announcements, None);
    let read = settings(&[
        "--load-balancer-pool=192.0.2.100-192.0.2.110,2001:db8::/120",
        "--load-balancer-interface=eth1",
        "--hostname-override=N1",
    ]);
    let read = read.unwrap().announcements.unwrap();
    assert_eq!(read.node_name, "n1");
    assert_eq!(read.interface.as_deref(), Some("eth1"));
    assert!(read.pool.contains("192.0.2.105".parse().unwrap()));
    for wrong in [
        &["--load-balancer-pool="][..],
        &["--load-balancer-pool=192.0.2.300"],
        &["--load-balancer-interface=eth1"],
        &[
            "--load-balancer-pool=192.0.2.1",
            "--load-balancer-interface=a/b",
        ],
    ] {
        assert!(settings(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn settings_that_would_change_what_is_exposed_are_refused() {
    for flag in [
        "--proxy-mode=ipvs",
        "--detect-local-mode=BridgeInterface",
        "--detect-local-mode=Pods",
        "--bind-address=here",
        "--oom-score-adj=-1001",
        "--nodeport-addresses=primary,10.0.0.0/8",
        "--healthz-port=0",
        "--healthz-bind-address=here",
    ] {
        assert!(settings(&[flag]).is_err(), "{flag}");
    }
    assert!(settings(&["--detect-local-mode=ClusterCIDR"]).is_ok());
}

#[test]
fn flags_set_the_detection_of_pods_and_the_process() {
    let read = settings(&[
        "--detect-local-mode=BridgeInterface",
        "--pod-bridge-interface=cni0",
        "--bind-address=192.0.2.1",
        "--bind-address-hard-fail=true",
        "--oom-score-adj=-5",
    ]);
    let read = read.unwrap();
    let bridge = PodMatch::Interface("cni0".into());
    assert_eq!(read.detect_local, DetectLocal::Interface(bridge));
    assert_eq!(read.bind_address, Some(IpAddr::from([192, 0, 2, 1])));
    assert!(read.bind_hard_fail);
    assert_eq!(read.oom_score_adj, -5);
    assert_eq!(settings(&[]).unwrap().oom_score_adj, -999);
}

/// Go's flags take a value only after `=`.
#[test]
fn flags_of_two_values_need_none() {
    for (flag, expect) in [
        ("--masquerade-all", true),
        ("--masquerade-all=true", true),
        ("--masquerade-all=false", false),
    ] {
        assert_eq!(settings(&[flag]).unwrap().masquerade_all, expect, "{flag}");
    }
    let words = ["kube-proxy", "--cleanup=false", "--init-only"];
    let args = Args::try_parse_from(words).unwrap();
    assert!(!args.cleanup && args.init_only);
}

fn of_file(text: &str) -> anyhow::Result<Settings> {
    with_file(text, &[])
}

fn with_file(text: &str, flags: &[&str]) -> anyhow::Result<Settings> {
    let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), format!("{head}{text}"))?;
    let config = format!("--config={}", file.path().display());
    settings(&[&[config.as_str()], flags].concat())
}

/// In the mode iptables, and without a mode as in upstream, the section iptables counts.
#[test]
fn masquerading_is_read_from_the_section_of_the_mode() {
    let both = "iptables: {masqueradeAll: true, masqueradeBit: 15}\nnftables: {masqueradeBit: 16}";
    for (mode, expect) in [
        ("nftables", (false, 16)),
        ("iptables", (true, 15)),
        ("\"\"", (true, 16)),
    ] {
        let read = of_file(&format!("mode: {mode}\n{both}\n")).unwrap();
        assert_eq!((read.masquerade_all, read.masquerade_bit), expect, "{mode}");
    }
    assert!(of_file("nftables: {masqueradeBit: 32}\n").is_err());
}

#[test]
fn settings_of_iptables_are_read_from_flags_and_the_file() {
    for (flags, file, expect) in [
        (&[][..], "mode: iptables", (true, 30, 1, 14)),
        (
            &["--proxy-mode=iptables"],
            "iptables: {localhostNodePorts: false, syncPeriod: 1m, minSyncPeriod: 2s, masqueradeBit: 0}",
            (false, 60, 2, 0),
        ),
        (
            &[
                "--iptables-localhost-nodeports=false",
                "--iptables-sync-period=9s",
                "--iptables-min-sync-period=3s",
                "--iptables-masquerade-bit=5",
                "--nftables-masquerade-bit=6",
            ],
            "mode: iptables",
            (false, 9, 3, 5),
        ),
    ] {
        let read = with_file(file, flags).unwrap();
        let Mode::Iptables {
            localhost_node_ports,
        } = read.mode
        else {
            panic!("{file}: {:?}", read.mode);
        };
        let seconds = (read.sync_period.as_secs(), read.min_sync_period.as_secs());
        assert_eq!(
            (
                localhost_node_ports,
                seconds.0,
                seconds.1,
                read.masquerade_bit
            ),
            expect,
            "{flags:?} {file}"
        );
        // Upstream's default of this mode: node ports at all addresses.
        assert_eq!(read.node_port_addresses.whole_families().len(), 2);
    }
    assert_eq!(of_file("").unwrap().mode, Mode::Nftables);
    assert!(of_file("mode: iptables\niptables: {syncPeriod: 1s, minSyncPeriod: 2s}\n").is_err());
}

#[test]
fn file_sets_periods_and_addresses() {
    let read = of_file("nftables: {syncPeriod: 1m, minSyncPeriod: 2s}\nbindAddress: fd00::1\n");
    let read = read.unwrap();
    let seconds = (read.sync_period.as_secs(), read.min_sync_period.as_secs());
    assert_eq!(seconds, (60, 2));
    assert_eq!(read.healthz.unwrap().to_string(), "[::]:10256");
    assert_eq!(read.metrics.unwrap().to_string(), "[::1]:10249");
    let read = of_file("nftables: {syncPeriod: 0s}\n").unwrap();
    let seconds = (read.sync_period.as_secs(), read.min_sync_period.as_secs());
    assert_eq!(seconds, (30, 0));
    for wrong in [
        "nftables: {syncPeriod: soon}",
        "nftables: {syncPeriod: 1s, minSyncPeriod: 2s}",
        "oomScoreAdj: 1001",
        "detectLocalMode: BridgeInterface",
        "clusterCIDR: 10.0.0.0/8,11.0.0.0/8",
        "nodePortAddresses: [10.0.0.1]",
    ] {
        assert!(of_file(wrong).is_err(), "{wrong}");
    }
}
