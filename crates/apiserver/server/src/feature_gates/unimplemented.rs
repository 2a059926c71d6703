//! Gates of features that upstream has on by default and that no component here implements.
//!
//! The metric shows them as off, a start that enables one logs the consequence, and one that is not
//! locked may be disabled. Not among them: gates of the inner workings of Go programs (client-go,
//! logging, indexes of caches), which change nothing that a user can rely on.

const NO_CPUS: &str = "no container gets processors or memory nodes of its own";
const NO_CSI: &str = "kubelets do not call CSI drivers";
const NO_HEALTH: &str = "no kubelet writes status.containerStatuses[*].allocatedResourcesStatus";
const NO_IMAGES: &str = "kubelets remove no images";
const NO_POD_RESOURCES: &str = "kubelets do not serve the pod resources API";
const NO_SHUTDOWN: &str = "pods are not ended in order when a machine is shut down";
const NO_SWAP: &str = "the use of swap by pods is not limited";
const NO_USERS: &str = "kubelets reject pods that need a user namespace";
const NO_WINDOWS: &str = "there are no Windows nodes";

/// The gates with the consequence of what is missing, in the order of their names.
pub const UNIMPLEMENTED_GATES: &[(&str, &str)] = &[
    ("APIServerTracing", "no traces are sent"),
    (
        "AllowParsingUserUIDFromCertAuth",
        "users of client certificates have no UID",
    ),
    ("CPUManagerPolicyBetaOptions", NO_CPUS),
    ("CPUManagerPolicyOptions", NO_CPUS),
    (
        "CRDObservedGenerationTracking",
        "definitions have no observedGeneration in their status",
    ),
    ("CSIServiceAccountTokenSecrets", NO_CSI),
    (
        "ClearingNominatedNodeNameAfterBinding",
        "a bound pod keeps status.nominatedNodeName",
    ),
    (
        "ConstrainedImpersonation",
        "the verb impersonate alone decides about impersonation",
    ),
    ("ContainerCheckpoint", "kubelets do not serve /checkpoint"),
    (
        "CustomCPUCFSQuotaPeriod",
        "CPU limits have a period of 100 ms",
    ),
    (
        "DRAExtendedResource",
        "no claim is made for extended resources that a DeviceClass names, so such pods stay pending",
    ),
    (
        "DetectCacheInconsistency",
        "watch caches are not compared with the store",
    ),
    ("DisableCPUQuotaWithExclusiveCPUs", NO_CPUS),
    (
        "EnvFiles",
        "kubelets do not start containers with a variable from fileKeyRef",
    ),
    (
        "ExtendWebSocketsToKubelet",
        "API servers translate WebSockets for each kubelet",
    ),
    (
        "ExternalServiceAccountTokenSigner",
        "tokens are signed with the key in a file",
    ),
    ("GracefulNodeShutdown", NO_SHUTDOWN),
    ("GracefulNodeShutdownBasedOnPodPriority", NO_SHUTDOWN),
    ("ImageMaximumGCAge", NO_IMAGES),
    (
        "KubeletCrashLoopBackOffMax",
        "restarts wait 10 s at first and 5 minutes at most",
    ),
    (
        "KubeletEnsureSecretPulledImages",
        "every pod of a node may use the images on it",
    ),
    (
        "KubeletPSI",
        "kubelets do not report the pressure on a node",
    ),
    ("KubeletPodResourcesDynamicResources", NO_POD_RESOURCES),
    ("KubeletPodResourcesGet", NO_POD_RESOURCES),
    ("KubeletPodResourcesListUseActivePods", NO_POD_RESOURCES),
    ("KubeletSeparateDiskGC", NO_IMAGES),
    (
        "KubeletServiceAccountTokenForCredentialProviders",
        "credentials for pulls come from imagePullSecrets only",
    ),
    ("KubeletTracing", "no traces are sent"),
    ("MutableCSINodeAllocatableCount", NO_CSI),
    ("NodeLogQuery", "kubelets do not serve logs of the system"),
    ("NodeSwap", NO_SWAP),
    ("OpportunisticBatching", "each pod is scheduled on its own"),
    (
        "PodTopologyLabelsAdmission",
        "pods do not get their node's topology labels",
    ),
    ("ProcMountType", NO_USERS),
    (
        "RecoverVolumeExpansionFailure",
        "no controller expands volumes",
    ),
    ("ResourceHealthStatus", NO_HEALTH),
    ("ResourceHealthStatusMessage", NO_HEALTH),
    (
        "RestartAllContainersOnContainerExits",
        "kubelets reject pods with the action RestartAllContainers",
    ),
    ("SELinuxChangePolicy", NO_CSI),
    ("SELinuxMountReadWriteOncePod", NO_CSI),
    (
        "SizeBasedListCostEstimate",
        "a list takes one seat, whatever its size",
    ),
    (
        "StructuredAuthenticationConfigurationEgressSelector",
        "connections to issuers of tokens are direct",
    ),
    ("SystemdWatchdog", "kubelets do not notify systemd"),
    (
        "TokenRequestServiceAccountUIDValidation",
        "the UID in a request for a token is not compared with that of the ServiceAccount",
    ),
    ("TopologyManagerPolicyBetaOptions", NO_CPUS),
    ("TopologyManagerPolicyOptions", NO_CPUS),
    (
        "UnauthenticatedHTTP2DOSMitigation",
        "connections stay open after a request without valid credentials",
    ),
    (
        "UnknownVersionInteroperabilityProxy",
        "requests are not passed on to other API servers",
    ),
    ("UserNamespacesSupport", NO_USERS),
    ("WinDSR", NO_WINDOWS),
    ("WinOverlay", NO_WINDOWS),
    ("WindowsGracefulNodeShutdown", NO_WINDOWS),
];

/// Returns the consequence of what is missing, if no component implements the feature.
pub fn find_consequence(gate: &str) -> Option<&'static str> {
    let mut rows = UNIMPLEMENTED_GATES.iter();
    rows.find(|(name, _)| *name == gate).map(|(_, why)| *why)
}
