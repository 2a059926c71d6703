//! Upstream's flags and KubeletConfiguration fields that are not implemented, each with the effect
//! on the node.
//!
//! A setting is rejected if ignoring it would leave the node less protected than its administrator
//! believes; the others have no effect and are logged. The values that kubeadm, k3s and kOps set
//! must let the kubelet start.

use base_cli::{Unsupported, shared};

const fn none(name: &'static str, reason: &'static str) -> Unsupported {
    Unsupported::no_effect(name, reason)
}

const fn refused(
    name: &'static str,
    except: &'static [&'static str],
    reason: &'static str,
) -> Unsupported {
    Unsupported::refused(name, except, reason)
}

const EVICTION: &str = "memory, disk and processes of the node are not watched, and no pod is evicted for their pressure";
const IMAGES: &str = "images are never removed by the kubelet";
const EVENTS: &str = "events have the client's own limit per object";
const PULLS: &str = "pulls of images are not limited or put in order";
const CPUS: &str =
    "containers run on all processors: exclusive processors and memory nodes are not assigned";
const STATIC_URL: &str = "static pods come from a folder only, and those of the URL would not run";
const CADVISOR: &str = "cAdvisor is not part of this kubelet";
const LOOP: &str = "changes are followed by watches, not by intervals";
const SHUTDOWN: &str = "pods are not ended in order when the machine is shut down";
const SYSTEM_CGROUPS: &str = "the kubelet moves no process of the system into a cgroup";
const ALLOCATABLE: &str = "reservations are kept back from scheduling but not enforced by cgroups";
const ROTATION: &str = "the client certificate of the kubeconfig is not renewed by the kubelet: renew it before it expires";
const SERVING: &str =
    "no serving certificate is requested from the cluster: give one with tlsCertFile";
const VOLUME_PLUGINS: &str = "flexVolume drivers are not supported";
const IMAGE_SERVICE: &str =
    "images are handled by the container runtime's own endpoint, which would lack them";
const QUOTA: &str = "CPU limits are always enforced, with a period of 100 ms";

/// The tables that make up [`UPSTREAM_FLAGS`].
const TABLES: &[&[Unsupported]] = &[
    shared::LOGGING,
    shared::PROFILES,
    shared::CONTENTION_PROFILES,
    shared::FEATURE_GATES,
    shared::API_CLIENT,
    OWN,
];

/// Flags of the stock kubelet that are not implemented.
pub const UPSTREAM_FLAGS: &[Unsupported] =
    &shared::join_tables::<{ shared::count_rows(TABLES) }>(TABLES);

/// Flags that no table of [`shared`] has.
const OWN: &[Unsupported] = &[
    none("application-metrics-count-limit", CADVISOR),
    none("boot-id-file", CADVISOR),
    none(
        "bootstrap-kubeconfig",
        "no client certificate is requested from the cluster: --kubeconfig must have one",
    ),
    none("cadvisor-port", CADVISOR),
    none(
        "cert-dir",
        "own certificates are kept in the folder pki of --root-dir",
    ),
    none(
        "cloud-config",
        "there are no cloud providers in the kubelet",
    ),
    none(
        "cloud-provider",
        "the node is not kept free of pods until a cloud controller has initialised it",
    ),
    none("cni-bin-dir", "networks are the container runtime's matter"),
    none(
        "cni-conf-dir",
        "networks are the container runtime's matter",
    ),
    none("container-hints", CADVISOR),
    none("container-runtime", "every runtime is reached by CRI"),
    none("containerd", CADVISOR),
    none("containerd-namespace", CADVISOR),
    none("cpu-cfs-quota", QUOTA),
    none("cpu-cfs-quota-period", QUOTA),
    none("cpu-manager-policy", CPUS),
    none("cpu-manager-policy-options", CPUS),
    none("cpu-manager-reconcile-period", CPUS),
    none(
        "enable-controller-attach-detach",
        "volumes that must be attached are not supported",
    ),
    none("enable-load-reader", CADVISOR),
    refused(
        "enable-server",
        &["true"],
        "the server is always there, guarded by authentication and authorisation",
    ),
    none("enforce-node-allocatable", ALLOCATABLE),
    none("event-burst", EVENTS),
    none("event-qps", EVENTS),
    none("event-storage-age-limit", CADVISOR),
    none("event-storage-event-limit", CADVISOR),
    none("eviction-hard", EVICTION),
    none("eviction-max-pod-grace-period", EVICTION),
    none("eviction-minimum-reclaim", EVICTION),
    none("eviction-pressure-transition-period", EVICTION),
    none("eviction-soft", EVICTION),
    none("eviction-soft-grace-period", EVICTION),
    none("exit-on-lock-contention", "there is no lock file"),
    none("experimental-allocatable-ignore-eviction", EVICTION),
    none(
        "experimental-mounter-path",
        "volumes are mounted by system calls",
    ),
    none("fail-cgroupv1", "cgroup v1 is supported"),
    none("file-check-frequency", LOOP),
    none("global-housekeeping-interval", CADVISOR),
    none(
        "hairpin-mode",
        "networks are the container runtime's matter",
    ),
    none("housekeeping-interval", CADVISOR),
    none("http-check-frequency", LOOP),
    none(
        "image-credential-provider-bin-dir",
        "credentials for pulls come from imagePullSecrets only",
    ),
    none(
        "image-credential-provider-config",
        "credentials for pulls come from imagePullSecrets only",
    ),
    none("image-gc-high-threshold", IMAGES),
    none("image-gc-low-threshold", IMAGES),
    refused("image-service-endpoint", &[""], IMAGE_SERVICE),
    none("kernel-memcg-notification", EVICTION),
    none("kube-reserved-cgroup", ALLOCATABLE),
    none("kubelet-cgroups", SYSTEM_CGROUPS),
    none(
        "local-storage-capacity-isolation",
        "limits of local storage are always enforced",
    ),
    none("lock-file", "there is no lock file"),
    none("log-cadvisor-usage", CADVISOR),
    none("machine-id-file", CADVISOR),
    none(
        "make-iptables-util-chains",
        "packet rules are kube-proxy's matter",
    ),
    refused("manifest-url", &[""], STATIC_URL),
    none("manifest-url-header", STATIC_URL),
    none("max-housekeeping-interval", CADVISOR),
    none(
        "max-open-files",
        "the limit of open files is the one that the kubelet was started with",
    ),
    none(
        "maximum-dead-containers",
        "the last exited container of each name is kept",
    ),
    none(
        "maximum-dead-containers-per-container",
        "the last exited container of each name is kept",
    ),
    none("memory-manager-policy", CPUS),
    none(
        "minimum-container-ttl-duration",
        "the last exited container of each name is kept",
    ),
    none("minimum-image-ttl-duration", IMAGES),
    none(
        "network-plugin",
        "networks are the container runtime's matter",
    ),
    none(
        "node-status-max-images",
        "the node's status names at most 50 images",
    ),
    none(
        "oom-score-adj",
        "the kubelet keeps the OOM score that it was started with",
    ),
    none("pod-cidr", "the pod network has its own configuration"),
    none(
        "pod-infra-container-image",
        "the sandbox's image is the container runtime's matter",
    ),
    none(
        "pods-per-core",
        "the number of pods is limited by --max-pods only",
    ),
    none(
        "provider-id",
        "the node's spec.providerID is the cloud controller's to set",
    ),
    none("qos-reserved", "memory is not reserved for classes of pods"),
    none("read-only-port", "no port without authentication is served"),
    none(
        "register-schedulable",
        "a new node is schedulable unless --register-with-taints says otherwise",
    ),
    none("registry-burst", PULLS),
    none("registry-qps", PULLS),
    none("reserved-cpus", CPUS),
    none("reserved-memory", CPUS),
    none("rotate-certificates", ROTATION),
    refused("rotate-server-certificates", &["false"], SERVING),
    refused(
        "runonce",
        &["false"],
        "the kubelet runs until it is stopped",
    ),
    none("runtime-cgroups", SYSTEM_CGROUPS),
    none(
        "runtime-request-timeout",
        "requests to the runtime have limits of their own, 2 to 4 minutes",
    ),
    none("serialize-image-pulls", PULLS),
    none("storage-driver-buffer-duration", CADVISOR),
    none("storage-driver-db", CADVISOR),
    none("storage-driver-host", CADVISOR),
    none("storage-driver-password", CADVISOR),
    none("storage-driver-secure", CADVISOR),
    none("storage-driver-table", CADVISOR),
    none("storage-driver-user", CADVISOR),
    none(
        "streaming-connection-idle-timeout",
        "idle streams are kept until one side closes them",
    ),
    none("sync-frequency", LOOP),
    none("system-cgroups", SYSTEM_CGROUPS),
    none("system-reserved-cgroup", ALLOCATABLE),
    none("topology-manager-policy", CPUS),
    none("topology-manager-policy-options", CPUS),
    none("topology-manager-scope", CPUS),
    none("volume-plugin-dir", VOLUME_PLUGINS),
    none(
        "volume-stats-agg-period",
        "the use of volumes is not reported",
    ),
];

/// Fields of upstream's KubeletConfiguration that are not implemented, by their paths.
pub const UPSTREAM_FIELDS: &[Unsupported] = &[
    refused(
        "enableServer",
        &["true"],
        "the server is always there, guarded by authentication and authorisation",
    ),
    none("syncFrequency", LOOP),
    none("fileCheckFrequency", LOOP),
    none("httpCheckFrequency", LOOP),
    refused("staticPodURL", &[], STATIC_URL),
    none("staticPodURLHeader", STATIC_URL),
    none("readOnlyPort", "no port without authentication is served"),
    refused(
        "tlsCurvePreferences",
        &[],
        "the curves are rustls's secure ones and can't be chosen",
    ),
    none("rotateCertificates", ROTATION),
    refused("serverTLSBootstrap", &["false"], SERVING),
    none("registryPullQPS", PULLS),
    none("registryBurst", PULLS),
    refused(
        "imagePullCredentialsVerificationPolicy",
        &["NeverVerify"],
        "an image that is on the node may be used by every pod of the node",
    ),
    none(
        "preloadedImagesVerificationAllowlist",
        "an image that is on the node may be used by every pod of the node",
    ),
    none("eventRecordQPS", EVENTS),
    none("eventBurst", EVENTS),
    none("enableContentionProfiling", shared::NO_PROFILES),
    none(
        "oomScoreAdj",
        "the kubelet keeps the OOM score that it was started with",
    ),
    none(
        "streamingConnectionIdleTimeout",
        "idle streams are kept until one side closes them",
    ),
    none("imageMinimumGCAge", IMAGES),
    none("imageMaximumGCAge", IMAGES),
    none("imageGCHighThresholdPercent", IMAGES),
    none("imageGCLowThresholdPercent", IMAGES),
    none("volumeStatsAggPeriod", "the use of volumes is not reported"),
    none("kubeletCgroups", SYSTEM_CGROUPS),
    none("systemCgroups", SYSTEM_CGROUPS),
    none("cpuManagerPolicy", CPUS),
    none(
        "singleProcessOOMKill",
        "the kernel ends one process of a container that is out of memory, not all of them",
    ),
    none("cpuManagerPolicyOptions", CPUS),
    none("cpuManagerReconcilePeriod", CPUS),
    none("memoryManagerPolicy", CPUS),
    none("topologyManagerPolicy", CPUS),
    none("topologyManagerScope", CPUS),
    none("topologyManagerPolicyOptions", CPUS),
    none("qosReserved", "memory is not reserved for classes of pods"),
    none(
        "runtimeRequestTimeout",
        "requests to the runtime have limits of their own, 2 to 4 minutes",
    ),
    none("hairpinMode", "networks are the container runtime's matter"),
    none("podCIDR", "the pod network has its own configuration"),
    refused(
        "runOnce",
        &["false"],
        "the kubelet runs until it is stopped",
    ),
    none("cpuCFSQuota", QUOTA),
    none("cpuCFSQuotaPeriod", QUOTA),
    none(
        "nodeStatusMaxImages",
        "the node's status names at most 50 images",
    ),
    none(
        "maxOpenFiles",
        "the limit of open files is the one that the kubelet was started with",
    ),
    none("contentType", shared::JSON),
    none("kubeAPIQPS", shared::NO_RATE),
    none("kubeAPIBurst", shared::NO_RATE),
    none("serializeImagePulls", PULLS),
    none("maxParallelImagePulls", PULLS),
    none("evictionHard", EVICTION),
    none("evictionSoft", EVICTION),
    none("evictionSoftGracePeriod", EVICTION),
    none("evictionPressureTransitionPeriod", EVICTION),
    none("evictionMaxPodGracePeriod", EVICTION),
    none("evictionMinimumReclaim", EVICTION),
    none("mergeDefaultEvictionSettings", EVICTION),
    none(
        "podsPerCore",
        "the number of pods is limited by maxPods only",
    ),
    none(
        "enableControllerAttachDetach",
        "volumes that must be attached are not supported",
    ),
    none(
        "makeIPTablesUtilChains",
        "packet rules are kube-proxy's matter",
    ),
    none(
        "iptablesMasqueradeBit",
        "packet rules are kube-proxy's matter",
    ),
    none("iptablesDropBit", "packet rules are kube-proxy's matter"),
    none("featureGates", shared::NO_GATES),
    refused(
        "memorySwap.swapBehavior",
        &["NoSwap"],
        "the use of swap by pods is not limited",
    ),
    none(
        "containerLogMaxWorkers",
        "logs are rotated one after the other",
    ),
    none(
        "containerLogMonitorInterval",
        "logs are looked at every 10 s",
    ),
    none(
        "configMapAndSecretChangeDetectionStrategy",
        "ConfigMaps and Secrets are always watched",
    ),
    none("reservedSystemCPUs", CPUS),
    none("showHiddenMetricsForVersion", shared::FIXED_METRICS),
    none("systemReservedCgroup", ALLOCATABLE),
    none("kubeReservedCgroup", ALLOCATABLE),
    none("enforceNodeAllocatable", ALLOCATABLE),
    none("volumePluginDir", VOLUME_PLUGINS),
    none(
        "providerID",
        "the node's spec.providerID is the cloud controller's to set",
    ),
    none("kernelMemcgNotification", EVICTION),
    none(
        "logging.format",
        "the format is set by the flag --logging-format",
    ),
    none("logging.flushFrequency", shared::ONE_STREAM),
    none("logging.verbosity", "the level is set by the flag -v"),
    none(
        "logging.vmodule",
        "the level of logging is the same for all modules",
    ),
    none("logging.options", shared::ONE_STREAM),
    none(
        "enableSystemLogHandler",
        "logs of the system are not served",
    ),
    none("enableSystemLogQuery", "logs of the system are not served"),
    none("shutdownGracePeriod", SHUTDOWN),
    none("shutdownGracePeriodCriticalPods", SHUTDOWN),
    none("shutdownGracePeriodByPodPriority", SHUTDOWN),
    none(
        "crashLoopBackOff.maxContainerRestartPeriod",
        "restarts wait 10 s at first and 5 minutes at most",
    ),
    none("reservedMemory", CPUS),
    none("enableProfilingHandler", shared::NO_PROFILES),
    none(
        "enableDebugFlagsHandler",
        "the level of logging can't be changed while the kubelet runs",
    ),
    none("memoryThrottlingFactor", "memory.high is not set"),
    none(
        "memoryReservationPolicy",
        "memory.min and memory.low are not set",
    ),
    none("tracing", "there are no traces"),
    none(
        "localStorageCapacityIsolation",
        "limits of local storage are always enforced",
    ),
    refused("imageServiceEndpoint", &[], IMAGE_SERVICE),
    none("failCgroupV1", "cgroup v1 is supported"),
    none("userNamespaces", "pods with hostUsers: false are refused"),
];
