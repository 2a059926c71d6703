//! Metrics of gRPC calls by method: started, handled by code, duration.

use base_telemetry::{Histogram, MetricsPage};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Index of a method in `METHODS`; the last one stands for unknown methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call(usize);

/// Methods of etcd's API, the frequent ones first. Unknown names are counted together.
// A client that invents names cannot make the page of metrics grow without bound.
const METHODS: [&str; 49] = [
    "/etcdserverpb.KV/Range",
    "/etcdserverpb.KV/Put",
    "/etcdserverpb.KV/Txn",
    "/etcdserverpb.KV/DeleteRange",
    "/etcdserverpb.KV/Compact",
    "/etcdserverpb.Watch/Watch",
    "/etcdserverpb.Lease/LeaseGrant",
    "/etcdserverpb.Lease/LeaseRevoke",
    "/etcdserverpb.Lease/LeaseKeepAlive",
    "/etcdserverpb.Lease/LeaseTimeToLive",
    "/etcdserverpb.Lease/LeaseLeases",
    "/etcdserverpb.Cluster/MemberAdd",
    "/etcdserverpb.Cluster/MemberRemove",
    "/etcdserverpb.Cluster/MemberUpdate",
    "/etcdserverpb.Cluster/MemberList",
    "/etcdserverpb.Cluster/MemberPromote",
    "/etcdserverpb.Maintenance/Alarm",
    "/etcdserverpb.Maintenance/Status",
    "/etcdserverpb.Maintenance/Defragment",
    "/etcdserverpb.Maintenance/Hash",
    "/etcdserverpb.Maintenance/HashKV",
    "/etcdserverpb.Maintenance/Snapshot",
    "/etcdserverpb.Maintenance/MoveLeader",
    "/etcdserverpb.Maintenance/Downgrade",
    "/etcdserverpb.Auth/AuthEnable",
    "/etcdserverpb.Auth/AuthDisable",
    "/etcdserverpb.Auth/AuthStatus",
    "/etcdserverpb.Auth/Authenticate",
    "/etcdserverpb.Auth/UserAdd",
    "/etcdserverpb.Auth/UserGet",
    "/etcdserverpb.Auth/UserList",
    "/etcdserverpb.Auth/UserDelete",
    "/etcdserverpb.Auth/UserChangePassword",
    "/etcdserverpb.Auth/UserGrantRole",
    "/etcdserverpb.Auth/UserRevokeRole",
    "/etcdserverpb.Auth/RoleAdd",
    "/etcdserverpb.Auth/RoleGet",
    "/etcdserverpb.Auth/RoleList",
    "/etcdserverpb.Auth/RoleDelete",
    "/etcdserverpb.Auth/RoleGrantPermission",
    "/etcdserverpb.Auth/RoleRevokePermission",
    "/v3lockpb.Lock/Lock",
    "/v3lockpb.Lock/Unlock",
    "/v3electionpb.Election/Campaign",
    "/v3electionpb.Election/Proclaim",
    "/v3electionpb.Election/Leader",
    "/v3electionpb.Election/Observe",
    "/v3electionpb.Election/Resign",
    "/unknown/unknown",
];

/// Names of the codes in Go's library, by number.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// Upper bounds of a call's duration, in seconds.
const TIMES: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Counters of one method.
struct Calls {
    started: AtomicU64,
    handled: [AtomicU64; CODES.len()],
    took: Histogram,
}

/// Counters of all methods.
pub(crate) struct AllCalls(Box<[Calls]>);

impl Default for AllCalls {
    fn default() -> Self {
        let none = || Calls {
            started: AtomicU64::new(0),
            handled: std::array::from_fn(|_| AtomicU64::new(0)),
            took: Histogram::new(&TIMES),
        };
        AllCalls(METHODS.iter().map(|_| none()).collect())
    }
}

impl Call {
    /// Returns the method with this path.
    pub fn from_path(path: &str) -> Call {
        Call(
            METHODS
                .iter()
                // Linear, because nearly all calls are among the first four.
                .position(|method| *method == path)
                .unwrap_or(METHODS.len() - 1),
        )
    }

    /// Returns the path of the method.
    pub fn path(self) -> &'static str {
        METHODS.get(self.0).copied().unwrap_or_default()
    }

    /// Returns the kind of streaming, named like in Go's library.
    pub fn kind(self) -> &'static str {
        match self.path() {
            "/etcdserverpb.Watch/Watch" | "/etcdserverpb.Lease/LeaseKeepAlive" => "bidi_stream",
            "/etcdserverpb.Maintenance/Snapshot" | "/v3electionpb.Election/Observe" => {
                "server_stream"
            }
            _ => "unary",
        }
    }

    /// Returns whether the method responds as soon as possible, without waiting for an event.
    pub fn is_prompt(self) -> bool {
        let waits = matches!(
            self.path(),
            "/v3lockpb.Lock/Lock" | "/v3electionpb.Election/Campaign"
        );
        self.kind() == "unary" && !waits
    }

    fn labels(self) -> String {
        let (service, method) = self
            .path()
            .trim_start_matches('/')
            .split_once('/')
            .unwrap_or_default();
        format!(
            "grpc_method=\"{method}\",grpc_service=\"{service}\",grpc_type=\"{}\"",
            self.kind()
        )
    }
}

impl AllCalls {
    pub fn count_started(&self, call: Call) {
        if let Some(calls) = self.0.get(call.0) {
            calls.started.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn count_handled(&self, call: Call, code: tonic::Code, took: Duration) {
        let Some(calls) = self.0.get(call.0) else {
            return;
        };
        if let Some(count) = calls.handled.get(code as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        calls.took.observe_duration(took);
    }

    /// Writes the metrics. `detailed` includes durations.
    pub fn write_metrics(&self, page: &mut MetricsPage, detailed: bool) {
        let used = || {
            let all = self
                .0
                .iter()
                .enumerate()
                .map(|(at, calls)| (Call(at).labels(), calls));
            // Unused methods are left out: 48 methods with 17 codes are 800 lines of zeros.
            all.filter(|(_, calls)| calls.started.load(Ordering::Relaxed) > 0)
        };
        page.head(
            "grpc_server_started_total",
            "counter",
            "Calls that have begun.",
        );
        for (labels, calls) in used() {
            page.sample(
                "grpc_server_started_total",
                &labels,
                calls.started.load(Ordering::Relaxed) as f64,
            );
        }
        page.head(
            "grpc_server_handled_total",
            "counter",
            "Calls that have ended.",
        );
        for (labels, calls) in used() {
            for (code, count) in CODES.iter().zip(&calls.handled) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let labels = format!("grpc_code=\"{code}\",{labels}");
                    page.sample("grpc_server_handled_total", &labels, count as f64);
                }
            }
        }
        // Histograms multiply the series by their buckets, so that `--metrics=basic` omits them.
        if !detailed {
            return;
        }
        page.head(
            "grpc_server_handling_seconds",
            "histogram",
            "Time until calls ended.",
        );
        for (labels, calls) in used() {
            page.histogram("grpc_server_handling_seconds", &labels, &calls.took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_method_has_a_number_of_its_own() {
        let paths: BTreeSet<&str> = METHODS
            .iter()
            .map(|path| Call::from_path(path).path())
            .collect();
        assert_eq!(paths.len(), METHODS.len());
    }

    #[test]
    fn methods_of_clients_inventions_are_counted_together() {
        for path in ["/etcdserverpb.KV/Nothing", "", "/", "/unknown/unknown"] {
            assert_eq!(Call::from_path(path).path(), "/unknown/unknown", "{path:?}");
        }
    }

    #[test]
    fn kind_of_a_method_is_that_of_grpc_prometheus() {
        for (path, kind, prompt) in [
            ("/etcdserverpb.KV/Range", "unary", true),
            ("/v3lockpb.Lock/Lock", "unary", false),
            ("/v3electionpb.Election/Campaign", "unary", false),
            ("/etcdserverpb.Watch/Watch", "bidi_stream", false),
            ("/etcdserverpb.Lease/LeaseKeepAlive", "bidi_stream", false),
            ("/etcdserverpb.Maintenance/Snapshot", "server_stream", false),
            ("/v3electionpb.Election/Observe", "server_stream", false),
        ] {
            let call = Call::from_path(path);
            assert_eq!((call.kind(), call.is_prompt()), (kind, prompt), "{path}");
        }
    }

    #[test]
    fn page_has_used_methods_and_durations_only_in_detail() {
        let calls = AllCalls::default();
        let call = Call::from_path("/etcdserverpb.KV/Range");
        calls.count_started(call);
        calls.count_handled(call, tonic::Code::Ok, Duration::from_millis(7));
        let page = |detailed| {
            let mut page = MetricsPage::default();
            calls.write_metrics(&mut page, detailed);
            page.finish()
        };
        let labels = "grpc_method=\"Range\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"";
        let basic = page(false);
        assert!(
            basic.contains(&format!("grpc_server_started_total{{{labels}}} 1")),
            "{basic}"
        );
        assert!(
            !basic.contains("Put") && !basic.contains("handling_seconds"),
            "{basic}"
        );
        assert!(page(true).contains("grpc_server_handling_seconds_bucket{"));
    }
}
