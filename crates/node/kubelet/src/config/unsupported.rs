//! Upstream's flags and KubeletConfiguration fields that are not implemented, each with the effect
//! on the node.
//!
//! A setting is rejected if ignoring it would leave the node less protected than its administrator
//! believes; the others have no effect and are logged. The values that kubeadm, k3s and kOps set
//! must let the kubelet start.

use base_cli::{Unsupported, shared};

const fn no_effect(name: &'static str, reason: &'static str) -> Unsupported {
    Unsupported::no_effect(name, reason)
}

const fn reject_unless(
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
    no_effect("application-metrics-count-limit", CADVISOR),
    no_effect("boot-id-file", CADVISOR),
    no_effect("cadvisor-port", CADVISOR),
    no_effect(
        "cloud-config",
        "there are no cloud providers in the kubelet",
    ),
    no_effect(
        "cloud-provider",
        "the node is not kept free of pods until a cloud controller has initialised it",
    ),
    no_effect("cni-bin-dir", "networks are the container runtime's matter"),
    no_effect(
        "cni-conf-dir",
        "networks are the container runtime's matter",
    ),
    no_effect("container-hints", CADVISOR),
    no_effect("container-runtime", "every runtime is reached by CRI"),
    no_effect("containerd", CADVISOR),
    no_effect("containerd-namespace", CADVISOR),
    no_effect("cpu-cfs-quota", QUOTA),
    no_effect("cpu-cfs-quota-period", QUOTA),
    no_effect("cpu-manager-policy", CPUS),
    no_effect("cpu-manager-policy-options", CPUS),
    no_effect("cpu-manager-reconcile-period", CPUS),
    no_effect(
        "enable-controller-attach-detach",
        "volumes that must be attached are not supported",
    ),
    no_effect("enable-load-reader", CADVISOR),
    reject_unless(
        "enable-server",
        &["true"],
        "the server is always there, guarded by authentication and authorisation",
    ),
    no_effect("enforce-node-allocatable", ALLOCATABLE),
    no_effect("event-burst", EVENTS),
    no_effect("event-qps", EVENTS),
    no_effect("event-storage-age-limit", CADVISOR),
    no_effect("event-storage-event-limit", CADVISOR),
    no_effect("eviction-hard", EVICTION),
    no_effect("eviction-max-pod-grace-period", EVICTION),
    no_effect("eviction-minimum-reclaim", EVICTION),
    no_effect("eviction-pressure-transition-period", EVICTION),
    no_effect("eviction-soft", EVICTION),
    no_effect("eviction-soft-grace-period", EVICTION),
    no_effect("exit-on-lock-contention", "there is no lock file"),
    no_effect("experimental-allocatable-ignore-eviction", EVICTION),
    no_effect(
        "experimental-mounter-path",
        "volumes are mounted by system calls",
    ),
    no_effect("fail-cgroupv1", "cgroup v1 is supported"),
    no_effect("file-check-frequency", LOOP),
    no_effect("global-housekeeping-interval", CADVISOR),
    no_effect(
        "hairpin-mode",
        "networks are the container runtime's matter",
    ),
    no_effect("housekeeping-interval", CADVISOR),
    no_effect("http-check-frequency", LOOP),
    no_effect(
        "image-credential-provider-bin-dir",
        "credentials for pulls come from imagePullSecrets only",
    ),
    no_effect(
        "image-credential-provider-config",
        "credentials for pulls come from imagePullSecrets only",
    ),
    no_effect("image-gc-high-threshold", IMAGES),
    no_effect("image-gc-low-threshold", IMAGES),
    reject_unless("image-service-endpoint", &[""], IMAGE_SERVICE),
    no_effect("kernel-memcg-notification", EVICTION),
    no_effect("kube-reserved-cgroup", ALLOCATABLE),
    no_effect("kubelet-cgroups", SYSTEM_CGROUPS),
    no_effect(
        "local-storage-capacity-isolation",
        "limits of local storage are always enforced",
    ),
    no_effect("lock-file", "there is no lock file"),
    no_effect("log-cadvisor-usage", CADVISOR),
    no_effect("machine-id-file", CADVISOR),
    no_effect(
        "make-iptables-util-chains",
        "packet rules are kube-proxy's matter",
    ),
    reject_unless("manifest-url", &[""], STATIC_URL),
    no_effect("manifest-url-header", STATIC_URL),
    no_effect("max-housekeeping-interval", CADVISOR),
    no_effect(
        "max-open-files",
        "the limit of open files is the one that the kubelet was started with",
    ),
    no_effect(
        "maximum-dead-containers",
        "the last exited container of each name is kept",
    ),
    no_effect(
        "maximum-dead-containers-per-container",
        "the last exited container of each name is kept",
    ),
    no_effect("memory-manager-policy", CPUS),
    no_effect(
        "minimum-container-ttl-duration",
        "the last exited container of each name is kept",
    ),
    no_effect("minimum-image-ttl-duration", IMAGES),
    no_effect(
        "network-plugin",
        "networks are the container runtime's matter",
    ),
    no_effect(
        "node-status-max-images",
        "the node's status names at most 50 images",
    ),
    no_effect(
        "oom-score-adj",
        "the kubelet keeps the OOM score that it was started with",
    ),
    no_effect("pod-cidr", "the pod network has its own configuration"),
    no_effect(
        "pod-infra-container-image",
        "the sandbox's image is the container runtime's matter",
    ),
    no_effect(
        "pods-per-core",
        "the number of pods is limited by --max-pods only",
    ),
    no_effect(
        "provider-id",
        "the node's spec.providerID is the cloud controller's to set",
    ),
    no_effect("qos-reserved", "memory is not reserved for classes of pods"),
    no_effect("read-only-port", "no port without authentication is served"),
    no_effect(
        "register-schedulable",
        "a new node is schedulable unless --register-with-taints says otherwise",
    ),
    no_effect("registry-burst", PULLS),
    no_effect("registry-qps", PULLS),
    no_effect("reserved-cpus", CPUS),
    no_effect("reserved-memory", CPUS),
    reject_unless(
        "runonce",
        &["false"],
        "the kubelet runs until it is stopped",
    ),
    no_effect("runtime-cgroups", SYSTEM_CGROUPS),
    no_effect(
        "runtime-request-timeout",
        "requests to the runtime have limits of their own, 2 to 4 minutes",
    ),
    no_effect("serialize-image-pulls", PULLS),
    no_effect("storage-driver-buffer-duration", CADVISOR),
    no_effect("storage-driver-db", CADVISOR),
    no_effect("storage-driver-host", CADVISOR),
    no_effect("storage-driver-password", CADVISOR),
    no_effect("storage-driver-secure", CADVISOR),
    no_effect("storage-driver-table", CADVISOR),
    no_effect("storage-driver-user", CADVISOR),
    no_effect(
        "streaming-connection-idle-timeout",
        "idle streams are kept until one side closes them",
    ),
    no_effect("sync-frequency", LOOP),
    no_effect("system-cgroups", SYSTEM_CGROUPS),
    no_effect("system-reserved-cgroup", ALLOCATABLE),
    no_effect("topology-manager-policy", CPUS),
    no_effect("topology-manager-policy-options", CPUS),
    no_effect("topology-manager-scope", CPUS),
    no_effect("volume-plugin-dir", VOLUME_PLUGINS),
    no_effect(
        "volume-stats-agg-period",
        "the use of volumes is not reported",
    ),
];

/// Fields of upstream's KubeletConfiguration that are not implemented, by their paths.
pub const UPSTREAM_FIELDS: &[Unsupported] = &[
    reject_unless(
        "enableServer",
        &["true"],
        "the server is always there, guarded by authentication and authorisation",
    ),
    no_effect("syncFrequency", LOOP),
    no_effect("fileCheckFrequency", LOOP),
    no_effect("httpCheckFrequency", LOOP),
    reject_unless("staticPodURL", &[], STATIC_URL),
    no_effect("staticPodURLHeader", STATIC_URL),
    no_effect("readOnlyPort", "no port without authentication is served"),
    reject_unless(
        "tlsCurvePreferences",
        &[],
        "the curves are rustls's secure ones and can't be chosen",
    ),
    no_effect("registryPullQPS", PULLS),
    no_effect("registryBurst", PULLS),
    reject_unless(
        "imagePullCredentialsVerificationPolicy",
        &["NeverVerify"],
        "an image that is on the node may be used by every pod of the node",
    ),
    no_effect(
        "preloadedImagesVerificationAllowlist",
        "an image that is on the node may be used by every pod of the node",
    ),
    no_effect("eventRecordQPS", EVENTS),
    no_effect("eventBurst", EVENTS),
    no_effect("enableContentionProfiling", shared::NO_PROFILES),
    no_effect(
        "oomScoreAdj",
        "the kubelet keeps the OOM score that it was started with",
    ),
    no_effect(
        "streamingConnectionIdleTimeout",
        "idle streams are kept until one side closes them",
    ),
    no_effect("imageMinimumGCAge", IMAGES),
    no_effect("imageMaximumGCAge", IMAGES),
    no_effect("imageGCHighThresholdPercent", IMAGES),
    no_effect("imageGCLowThresholdPercent", IMAGES),
    no_effect("volumeStatsAggPeriod", "the use of volumes is not reported"),
    no_effect("kubeletCgroups", SYSTEM_CGROUPS),
    no_effect("systemCgroups", SYSTEM_CGROUPS),
    no_effect("cpuManagerPolicy", CPUS),
    no_effect(
        "singleProcessOOMKill",
        "the kernel ends one process of a container that is out of memory, not all of them",
    ),
    no_effect("cpuManagerPolicyOptions", CPUS),
    no_effect("cpuManagerReconcilePeriod", CPUS),
    no_effect("memoryManagerPolicy", CPUS),
    no_effect("topologyManagerPolicy", CPUS),
    no_effect("topologyManagerScope", CPUS),
    no_effect("topologyManagerPolicyOptions", CPUS),
    no_effect("qosReserved", "memory is not reserved for classes of pods"),
    no_effect(
        "runtimeRequestTimeout",
        "requests to the runtime have limits of their own, 2 to 4 minutes",
    ),
    no_effect("hairpinMode", "networks are the container runtime's matter"),
    no_effect("podCIDR", "the pod network has its own configuration"),
    reject_unless(
        "runOnce",
        &["false"],
        "the kubelet runs until it is stopped",
    ),
    no_effect("cpuCFSQuota", QUOTA),
    no_effect("cpuCFSQuotaPeriod", QUOTA),
    no_effect(
        "nodeStatusMaxImages",
        "the node's status names at most 50 images",
    ),
    no_effect(
        "maxOpenFiles",
        "the limit of open files is the one that the kubelet was started with",
    ),
    no_effect("contentType", shared::JSON),
    no_effect("kubeAPIQPS", shared::NO_RATE),
    no_effect("kubeAPIBurst", shared::NO_RATE),
    no_effect("serializeImagePulls", PULLS),
    no_effect("maxParallelImagePulls", PULLS),
    no_effect("evictionHard", EVICTION),
    no_effect("evictionSoft", EVICTION),
    no_effect("evictionSoftGracePeriod", EVICTION),
    no_effect("evictionPressureTransitionPeriod", EVICTION),
    no_effect("evictionMaxPodGracePeriod", EVICTION),
    no_effect("evictionMinimumReclaim", EVICTION),
    no_effect("mergeDefaultEvictionSettings", EVICTION),
    no_effect(
        "podsPerCore",
        "the number of pods is limited by maxPods only",
    ),
    no_effect(
        "enableControllerAttachDetach",
        "volumes that must be attached are not supported",
    ),
    no_effect(
        "makeIPTablesUtilChains",
        "packet rules are kube-proxy's matter",
    ),
    no_effect(
        "iptablesMasqueradeBit",
        "packet rules are kube-proxy's matter",
    ),
    no_effect("iptablesDropBit", "packet rules are kube-proxy's matter"),
    no_effect("featureGates", shared::NO_GATES),
    reject_unless(
        "memorySwap.swapBehavior",
        &["NoSwap"],
        "the use of swap by pods is not limited",
    ),
    no_effect(
        "containerLogMaxWorkers",
        "logs are rotated one after the other",
    ),
    no_effect(
        "containerLogMonitorInterval",
        "logs are looked at every 10 s",
    ),
    no_effect(
        "configMapAndSecretChangeDetectionStrategy",
        "ConfigMaps and Secrets are always watched",
    ),
    no_effect("reservedSystemCPUs", CPUS),
    no_effect("showHiddenMetricsForVersion", shared::FIXED_METRICS),
    no_effect("systemReservedCgroup", ALLOCATABLE),
    no_effect("kubeReservedCgroup", ALLOCATABLE),
    no_effect("enforceNodeAllocatable", ALLOCATABLE),
    no_effect("volumePluginDir", VOLUME_PLUGINS),
    no_effect(
        "providerID",
        "the node's spec.providerID is the cloud controller's to set",
    ),
    no_effect("kernelMemcgNotification", EVICTION),
    no_effect(
        "logging.format",
        "the format is set by the flag --logging-format",
    ),
    no_effect("logging.flushFrequency", shared::ONE_STREAM),
    no_effect("logging.verbosity", "the level is set by the flag -v"),
    no_effect(
        "logging.vmodule",
        "the level of logging is the same for all modules",
    ),
    no_effect("logging.options", shared::ONE_STREAM),
    no_effect(
        "enableSystemLogHandler",
        "logs of the system are not served",
    ),
    no_effect("enableSystemLogQuery", "logs of the system are not served"),
    no_effect("shutdownGracePeriod", SHUTDOWN),
    no_effect("shutdownGracePeriodCriticalPods", SHUTDOWN),
    no_effect("shutdownGracePeriodByPodPriority", SHUTDOWN),
    no_effect(
        "crashLoopBackOff.maxContainerRestartPeriod",
        "restarts wait 10 s at first and 5 minutes at most",
    ),
    no_effect("reservedMemory", CPUS),
    no_effect("enableProfilingHandler", shared::NO_PROFILES),
    no_effect(
        "enableDebugFlagsHandler",
        "the level of logging can't be changed while the kubelet runs",
    ),
    no_effect("memoryThrottlingFactor", "memory.high is not set"),
    no_effect(
        "memoryReservationPolicy",
        "memory.min and memory.low are not set",
    ),
    no_effect("tracing", "there are no traces"),
    no_effect(
        "localStorageCapacityIsolation",
        "limits of local storage are always enforced",
    ),
    reject_unless("imageServiceEndpoint", &[], IMAGE_SERVICE),
    no_effect("failCgroupV1", "cgroup v1 is supported"),
    no_effect("userNamespaces", "pods with hostUsers: false are refused"),
];
