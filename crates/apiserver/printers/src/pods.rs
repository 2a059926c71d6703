//! Pods: the status column, which summarizes phase, conditions and all containers.

use api_semantics::pods::is_terminal_phase;
use serde_json::{Value, json};

use crate::printer::{AGE, NAME, Printer, text_column, wide_column};
use crate::view::{View, text_of};

pub(crate) static POD: Printer = Printer {
    columns: &[
        NAME,
        text_column("Ready", "Containers that are ready, of all."),
        text_column("Status", "What the pod and its containers are doing."),
        text_column(
            "Restarts",
            "How often containers were restarted, and when last.",
        ),
        AGE,
        wide_column("IP", "First address of the pod."),
        wide_column("Node", "Node that the pod is bound to."),
        wide_column("Nominated Node", "Node on which room is being made."),
        wide_column("Readiness Gates", "Readiness gates that are met, of all."),
    ],
    cells: pod_cells,
};

fn pod_cells(view: &View<'_>) -> Vec<Value> {
    let summary = Summary::from_pod(view);
    let ip = view
        .list("/status/podIPs")
        .first()
        .map_or("", |ip| text_of(ip.get("ip")));
    // Older kubelets report only podIP.
    let ip = if ip.is_empty() {
        view.text_or("/status/podIP", "<none>")
    } else {
        ip
    };
    vec![
        view.name(),
        json!(format!("{}/{}", summary.ready, summary.total)),
        json!(summary.reason),
        json!(summary.restarts_text(view)),
        view.age(),
        json!(ip),
        json!(view.text_or("/spec/nodeName", "<none>")),
        json!(view.text_or("/status/nominatedNodeName", "<none>")),
        json!(readiness_gates(view)),
    ]
}

fn readiness_gates(view: &View<'_>) -> String {
    let gates = view.list("/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let met = gates
        .iter()
        .filter(|gate| view.condition_is_true(text_of(gate.get("conditionType"))))
        .count();
    format!("{met}/{}", gates.len())
}

/// Summary of the containers' states.
#[derive(Default)]
struct Summary {
    ready: usize,
    total: usize,
    reason: String,
    restarts: i64,
    last_restart: String,
}

impl Summary {
    fn from_pod(view: &View<'_>) -> Self {
        // Sidecars run for the pod's whole life, so that they count like containers.
        let sidecars = view
            .list("/spec/initContainers")
            .iter()
            .filter(|container| is_sidecar(container))
            .count();
        let mut summary = Self {
            total: view.list("/spec/containers").len() + sidecars,
            // `Evicted` says more than the phase, which is Failed for other causes as well.
            reason: view.text_or("/status/reason", "").to_owned(),
            ..Self::default()
        };
        if summary.reason.is_empty() {
            view.text("/status/phase").clone_into(&mut summary.reason);
        }
        if view
            .condition("PodScheduled")
            .is_some_and(|c| text_of(c.get("reason")) == "SchedulingGated")
        {
            // The phase of such a pod is Pending, as if the scheduler had tried it.
            "SchedulingGated".clone_into(&mut summary.reason);
        }
        let (initializing, of_sidecars) = summary.add_init_containers(view);
        // Restarts of ordinary init containers are history once the pod runs; sidecars keep
        // running.
        if !initializing || view.condition_is_true("Initialized") {
            (summary.restarts, summary.last_restart) = of_sidecars;
            summary.add_containers(view);
        }
        // Last, because deletion overrides what the containers do.
        summary.add_deletion(view);
        summary
    }

    fn restarts_text(&self, view: &View<'_>) -> String {
        // The last state is lost when the container is removed, so the time may be unknown.
        if self.restarts == 0 || self.last_restart.is_empty() {
            return self.restarts.to_string();
        }
        format!("{} ({} ago)", self.restarts, view.ago(&self.last_restart))
    }

    fn count_restarts(&mut self, status: &Value) {
        self.restarts += restart_count(status);
        // The latest time is the greatest text: timestamps are RFC 3339 in UTC.
        self.last_restart =
            std::mem::take(&mut self.last_restart).max(finished_last(status).to_owned());
    }

    /// Adds init containers; returns whether the pod is still initializing, and the restarts of its
    /// sidecars.
    fn add_init_containers(&mut self, view: &View<'_>) -> (bool, (i64, String)) {
        let specs = view.list("/spec/initContainers");
        let mut of_sidecars = (0, String::new());
        for (index, status) in view
            .list("/status/initContainerStatuses")
            .iter()
            .enumerate()
        {
            self.count_restarts(status);
            // By name: there may be fewer statuses than specs, so that positions need not agree.
            let sidecar = specs
                .iter()
                .any(|spec| spec.get("name") == status.get("name") && is_sidecar(spec));
            if sidecar {
                of_sidecars.0 += restart_count(status);
                of_sidecars.1 = of_sidecars.1.max(finished_last(status).to_owned());
            }
            let terminated = status.pointer("/state/terminated");
            // Succeeded: the next init container decides.
            if terminated.is_some_and(|state| exit_code(state) == 0) {
                continue;
            }
            // A started sidecar does not hold up the following init containers.
            if sidecar && is_true(status, "started") {
                self.ready += usize::from(is_true(status, "ready"));
                continue;
            }
            let waiting = text_of(status.pointer("/state/waiting/reason"));
            self.reason = match terminated {
                Some(state) => format!("Init:{}", termination_text(state)),
                // PodInitializing only repeats that the pod waits; the progress says more.
                None if !waiting.is_empty() && waiting != "PodInitializing" => {
                    format!("Init:{waiting}")
                }
                None => format!("Init:{index}/{}", specs.len()),
            };
            // The first init container that has not finished holds up all others, so that their
            // states say nothing.
            return (true, of_sidecars);
        }
        (false, of_sidecars)
    }

    fn add_containers(&mut self, view: &View<'_>) {
        let mut has_running = false;
        // In reverse, so that the first container with a reason has the last word.
        for status in view.list("/status/containerStatuses").iter().rev() {
            self.count_restarts(status);
            let waiting = text_of(status.pointer("/state/waiting/reason"));
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(state) = status.pointer("/state/terminated") {
                self.reason = termination_text(state);
            } else if is_true(status, "ready") && status.pointer("/state/running").is_some() {
                has_running = true;
                self.ready += 1;
            }
        }
        // One container completed while others run: the pod as a whole has not.
        if self.reason == "Completed" && has_running {
            let ready = view.condition_is_true("Ready");
            self.reason = if ready { "Running" } else { "NotReady" }.to_owned();
        }
    }

    fn add_deletion(&mut self, view: &View<'_>) {
        if !view.has("/metadata/deletionTimestamp") {
            return;
        }
        // A pod that has terminated keeps its result while finalizers hold it.
        let terminal = is_terminal_phase(view.text("/status/phase"));
        // The kubelet can not confirm the deletion, so the state is unknown.
        if view.text("/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut self.reason);
        } else if !terminal {
            "Terminating".clone_into(&mut self.reason);
        }
    }
}

fn is_sidecar(container: &Value) -> bool {
    text_of(container.get("restartPolicy")) == "Always"
}

fn restart_count(status: &Value) -> i64 {
    status
        .get("restartCount")
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

fn finished_last(status: &Value) -> &str {
    text_of(status.pointer("/lastState/terminated/finishedAt"))
}

fn is_true(status: &Value, name: &str) -> bool {
    status
        .get(name)
        .and_then(Value::as_bool)
        .unwrap_or_default()
}

fn exit_code(state: &Value) -> i64 {
    state
        .get("exitCode")
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

/// Returns how a container terminated: its reason, signal or exit code.
fn termination_text(state: &Value) -> String {
    let reason = text_of(state.get("reason"));
    let signal = state
        .get("signal")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    match (reason, signal) {
        // Runtimes may leave the reason empty.
        ("", 0) => format!("ExitCode:{}", exit_code(state)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn deleted_pod_is_terminating_unless_its_phase_is_terminal() {
        let pods = api_kinds::served().find(|r| r.plural == "pods").unwrap();
        let cases: Vec<Value> = serde_json::from_str(api_semantics::cases::POD_PHASES).unwrap();
        for case in cases {
            let pod = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
                "status": {"phase": case["phase"]}});
            let cells = crate::row_cells(pods, &pod, jiff::Timestamp::UNIX_EPOCH);
            let is_terminating = cells[2] == "Terminating";
            assert_eq!(json!(!is_terminating), case["terminal"], "{case}");
        }
    }
}
