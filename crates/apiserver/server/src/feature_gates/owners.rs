//! Gates that upstream's API server accepts and does not read: every component of a cluster may get
//! the same `--feature-gates`.

/// Owners, and those of their gates that are on by default and may be turned off.
const OWNERS: &[(&str, &[&str])] = &[
    (
        "the kubelet",
        &[
            "CPUManagerPolicyBetaOptions",
            "ContainerCheckpoint",
            "CustomCPUCFSQuotaPeriod",
            "DisableCPUQuotaWithExclusiveCPUs",
            "GracefulNodeShutdown",
            "GracefulNodeShutdownBasedOnPodPriority",
            "KubeletCrashLoopBackOffMax",
            "KubeletEnsureSecretPulledImages",
            "KubeletPodResourcesListUseActivePods",
            "KubeletSeparateDiskGC",
            "PLEGOnDemandRelist",
            "PodReadyToStartContainersCondition",
            "PreventStaticPodAPIReferences",
            "ReloadKubeletClientCAFile",
            "ReloadKubeletServerCertificateFile",
            "RotateKubeletServerCertificate",
            "TopologyManagerPolicyBetaOptions",
            "WindowsGracefulNodeShutdown",
        ],
    ),
    (
        "kube-scheduler",
        &[
            "DRASchedulerFilterTimeout",
            "NominatedNodeNameForExpectation",
            "OpportunisticBatching",
            "SchedulerAsyncPreemption",
            "SchedulerPopFromBackoffQ",
        ],
    ),
    (
        "kube-controller-manager",
        &[
            "StaleControllerConsistencyDaemonSet",
            "StaleControllerConsistencyJob",
            "StaleControllerConsistencyReplicaSet",
            "StaleControllerConsistencyStatefulSet",
            "StatefulSetSemanticRevisionComparison",
        ],
    ),
    ("kube-proxy", &["AllowServiceExternalIPs"]),
    (
        "client-go",
        &[
            "AtomicFIFO",
            "ClientsAllowCARotation",
            "ClientsAllowTLSCacheGC",
            "InOrderInformersBatchProcess",
            "InformerResourceVersion",
            "UnlockWhileProcessingFIFO",
            "WatchListClient",
        ],
    ),
    ("Go's logging", &["ContextualLogging", "LoggingBetaOptions"]),
];

/// Returns the owner of a gate that has no effect on API servers, upstream's included.
pub fn find_owner(gate: &str) -> Option<&'static str> {
    OWNERS
        .iter()
        .find(|(_, gates)| gates.contains(&gate))
        .map(|(owner, _)| *owner)
}

/// Returns the gates of the table.
#[cfg(test)]
pub fn owned_gates() -> impl Iterator<Item = &'static str> {
    OWNERS.iter().flat_map(|(_, gates)| gates.iter().copied())
}
