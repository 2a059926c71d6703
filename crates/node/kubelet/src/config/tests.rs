//! Configurations that kubeadm, k3s and kOps write, and configurations that must be rejected.

#![allow(clippy::unwrap_used)]

use super::*;
use base_tls::Offer;
use clap::Parser;

fn start(flags: &[&str], text: &str) -> anyhow::Result<Settings> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("config.yaml");
    std::fs::write(
        &path,
        format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{text}"),
    )?;
    let config = format!("--config={}", path.display());
    let words = ["kubelet", "--fail-swap-on=false", &config]
        .into_iter()
        .chain(flags.iter().copied());
    let accepted = base_cli::accept_upstream_flags(words.map(Into::into), UPSTREAM_FLAGS);
    anyhow::ensure!(accepted.refusals.is_empty(), "{:?}", accepted.refusals);
    read_settings(&Flags::try_parse_from(accepted.arguments)?)
}

/// Configuration file and flags of `kubeadm init`.
const KUBEADM: &str = r#"
authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s, enabled: true},
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}}
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}, verbosity: 0}
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
"#;

#[test]
fn kubeadm_starts() {
    let settings = start(
        &[
            "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
            "--kubeconfig=/etc/kubernetes/kubelet.conf",
            "--container-runtime-endpoint=unix:///var/run/containerd/containerd.sock",
            "--node-ip=10.0.0.1",
            "--pod-infra-container-image=registry.k8s.io/pause:3.10",
            "--hostname-override=n1",
        ],
        KUBEADM,
    )
    .unwrap();
    assert!(
        settings.serving.webhook_tokens
            && settings.serving.webhook_authorization
            && !settings.serving.anonymous
    );
    let bootstrap = std::path::Path::new("/etc/kubernetes/bootstrap-kubelet.conf");
    assert_eq!(
        settings.credentials.bootstrap_kubeconfig.as_deref(),
        Some(bootstrap)
    );
    assert!(settings.credentials.rotate_certificates && !settings.credentials.server_tls_bootstrap);
    assert_eq!(
        settings.credentials.cert_dir,
        std::path::Path::new("/var/lib/kubelet/pki")
    );
    assert_eq!(
        settings.reporting.status_every,
        Duration::from_secs(10),
        "0s stands for the default"
    );
    assert_eq!(
        settings.serving.answer_lifetimes.tokens,
        Duration::from_secs(120)
    );
    let without_flags = start(&[], KUBEADM).unwrap();
    assert_eq!(
        without_flags.runtime_endpoint,
        "unix:///run/containerd/containerd.sock"
    );
}

#[test]
fn k3s_starts() {
    let text = r#"
address: 0.0.0.0
authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 2m0s, enabled: true}, x509: {clientCAFile: /ca}}
authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 5m0s, cacheUnauthorizedTTL: 30s}}
cgroupDriver: cgroupfs
clusterDNS: [10.43.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/k3s/containerd/containerd.sock
evictionHard: {imagefs.available: 5%, nodefs.available: 5%}
evictionMinimumReclaim: {imagefs.available: 10%, nodefs.available: 10%}
failSwapOn: false
featureGates: {CloudDualStackNodeIPs: true}
healthzBindAddress: 127.0.0.1
kubeletCgroups: /k3s
resolvConf: /etc/resolv.conf
serializeImagePulls: false
staticPodPath: /var/lib/rancher/k3s/agent/pod-manifests
tlsCertFile: /c
tlsPrivateKeyFile: /k
"#;
    let dir = tempfile::tempdir().unwrap();
    let header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    std::fs::write(
        dir.path().join("00-defaults.conf"),
        format!("{header}{text}"),
    )
    .unwrap();
    let more = "maxPods: 50\nauthentication: {webhook: {cacheTTL: 1m}}\n";
    std::fs::write(dir.path().join("10-own.conf"), format!("{header}{more}")).unwrap();
    std::fs::write(dir.path().join("README"), "none of these files").unwrap();
    let folder = format!("--config-dir={}", dir.path().display());
    let flags = [
        "--cloud-provider=external",
        "--containerd=/run/k3s/containerd/containerd.sock",
        &folder,
        "--hostname-override=n1",
        "--kubeconfig=/k",
        "--node-labels=a=b",
        "--read-only-port=0",
    ];
    let settings = start(&flags, "").unwrap();
    assert_eq!(settings.max_pods, 50);
    assert_eq!(
        settings.serving.answer_lifetimes.tokens,
        Duration::from_secs(60),
        "a later file wins"
    );
    assert_eq!(
        settings.serving.client_ca.as_deref(),
        Some(std::path::Path::new("/ca")),
        "and leaves the rest"
    );
}

#[test]
fn kops_starts() {
    let flags = [
        "--authentication-token-webhook=true",
        "--authorization-mode=Webhook",
        "--cgroup-driver=systemd",
        "--cgroup-root=/",
        "--client-ca-file=/srv/kubernetes/ca.crt",
        "--cloud-provider=external",
        "--cluster-dns=100.64.0.10",
        "--cluster-domain=cluster.local",
        "--enable-debugging-handlers=true",
        "--eviction-hard=memory.available<100Mi,nodefs.available<10%",
        "--feature-gates=A=true",
        "--hostname-override=n1",
        "--kubeconfig=/var/lib/kubelet/kubeconfig",
        "--pod-manifest-path=/etc/kubernetes/manifests",
        "--register-schedulable=true",
        "--register-with-taints=a=b:NoSchedule",
        "--v=2",
        "--volume-plugin-dir=/usr/libexec",
        "--runtime-cgroups=/system.slice/containerd.service",
        "--kube-reserved=cpu=100m,memory=1Gi",
        "--config-dir=",
    ];
    let text = "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n";
    let flags: Vec<&str> = flags
        .iter()
        .copied()
        .filter(|f| *f != "--config-dir=")
        .collect();
    let settings = start(&flags, text).unwrap();
    assert_eq!(
        settings.reserved.get("memory").map(Quantity::value),
        Some(1 << 30)
    );
    assert_eq!(settings.taints.len(), 1);
}

#[test]
fn labels_that_the_api_server_would_reject_stop_the_kubelet() {
    for (labels, error) in [
        ("disk", "\"disk\" is no pair such as key=value"),
        (
            "kubernetes.io/b=1,a=2,k8s.io/c=3",
            "[k8s.io/c kubernetes.io/b]\n",
        ),
        (
            "node-role.kubernetes.io/worker=",
            "specifically allowed set",
        ),
        ("a b=c", "invalid node labels: 'a b' - name part must"),
        ("a=b c", "invalid node labels: 'b c' - a valid label must"),
    ] {
        let flag = format!("--node-labels={labels}");
        let message = format!("{:#}", start(&[&flag], "").unwrap_err());
        assert!(message.contains(error), "{labels}: {message}");
    }
    let settings = start(&["--node-labels= disk = ssd ,,zone="], "").unwrap();
    let labels: Vec<(&str, &str)> = settings
        .labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(labels, [("disk", "ssd"), ("zone", "")]);
    assert!(start(&["--kube-reserved=cpu"], "").is_err());
}

#[test]
fn fields_that_protect_the_node_are_honoured_or_refused() {
    for text in [
        "tlsCipherSuites: [TLS_NULL]",
        "tlsMinVersion: VersionTLS14",
        "tlsMinVersion: VersionTLS10",
        "memorySwap: {swapBehavior: LimitedSwap}",
        "imagePullCredentialsVerificationPolicy: AlwaysVerify",
        "staticPodURL: http://example.com",
        "enableServer: false",
        "authorization: {mode: Nobody}",
        "cgroupDriver: none",
        "kubeReserved: {cpu: lots}",
        "kubeReserved: {gpu: '1'}",
        "authentication: {anonymuos: {enabled: true}}",
        "seccompDefualt: true",
        "logging: 3",
    ] {
        assert!(start(&[], text).is_err(), "{text}");
    }
    let settings = start(
        &[],
        "tlsMinVersion: VersionTLS13\nseccompDefault: true\npodPidsLimit: 4096\nenableDebuggingHandlers: false\n\
         serverTLSBootstrap: true\nmemorySwap: {swapBehavior: NoSwap}",
    )
    .unwrap();
    assert_eq!(
        settings.serving.offer,
        Offer::from_names("VersionTLS13", &[]).unwrap()
    );
    assert!(settings.seccomp_default && !settings.serving.debugging);
    assert!(settings.credentials.server_tls_bootstrap && !settings.credentials.rotate_certificates);
    let suites = "tlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]";
    let listed = vec!["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned()];
    assert_eq!(
        start(&[], suites).unwrap().serving.offer,
        Offer::from_names("", &listed).unwrap()
    );
    assert_eq!(
        start(&["--tls-cipher-suites="], suites)
            .unwrap()
            .serving
            .offer,
        Offer::default(),
        "the flag wins"
    );
    assert_eq!(settings.pod_pids, Some(4096));
    assert_eq!(start(&[], "podPidsLimit: -1").unwrap().pod_pids, None);
}

#[test]
fn every_setting_is_honoured_or_listed_once() {
    let honoured = honoured_fields();
    for path in [
        "authentication.x509.clientCAFile",
        "authorization.webhook.cacheAuthorizedTTL",
        "clusterDNS",
        "cgroupsPerQOS",
        "podPidsLimit",
        "registerWithTaints",
    ] {
        assert!(honoured.iter().any(|name| name == path), "{path}");
    }
    let command = <Flags as clap::CommandFactory>::command();
    for row in UPSTREAM_FLAGS {
        assert!(
            !command
                .get_arguments()
                .any(|a| a.get_long() == Some(row.name)),
            "--{} is honoured",
            row.name
        );
    }
    for rows in [UPSTREAM_FLAGS, UPSTREAM_FIELDS] {
        let mut names: Vec<&str> = rows.iter().map(|row| row.name).collect();
        names.sort_unstable();
        assert!(
            names.windows(2).all(|pair| pair[0] != pair[1]),
            "a name is listed twice"
        );
        assert!(
            rows.iter()
                .all(|row| !row.reason.is_empty() && !row.reason.contains("not implemented"))
        );
        assert!(!names.iter().any(|name| honoured.iter().any(|h| h == name)));
    }
}

#[test]
fn reservations_for_system_and_kubernetes_are_added() {
    let text = "systemReserved: {cpu: 100m, memory: 1Gi}\nkubeReserved: {cpu: 200m, pid: '100'}";
    let settings = start(&["--system-reserved=cpu=300m"], text).unwrap();
    let milli = |name: &str| settings.reserved.get(name).map(Quantity::milli_value);
    assert_eq!(milli("cpu"), Some(500), "the flag replaces the field");
    assert_eq!(milli("memory"), None);
    assert_eq!(milli("pid"), Some(100_000));
    assert!(start(&[], "systemReserved: {cpu: -1}").is_err());
}

#[test]
fn simulated_node_mounts_nothing_and_has_no_cgroups() {
    let settings = start(&["--simulated", "--hostname-override= Node-A "], "").unwrap();
    assert!(settings.simulated() && settings.mounter == Mounter::Plain);
    assert_eq!(settings.cgroup_root, None);
    assert_eq!(
        settings.node_name, "node-a",
        "names of nodes are in lower case"
    );
    let real = start(&["--cgroup-root=/pods"], "").unwrap();
    assert_eq!(real.cgroup_root.as_deref(), Some("/pods"));
}

#[test]
fn container_keeps_at_least_two_log_files() {
    for (given, files) in [(0, 2), (1, 2), (2, 2), (7, 7)] {
        let settings = start(&[], &format!("containerLogMaxFiles: {given}")).unwrap();
        assert_eq!(settings.log_files, files, "{given}");
    }
}
