//! kube-scheduler: assigns pods to nodes.

use std::process::ExitCode;

use scheduler_core::{Flags, UPSTREAM_FLAGS, run};

fn main() -> ExitCode {
    base_cli::run_component(
        "kube-scheduler",
        UPSTREAM_FLAGS,
        |flags: &Flags| flags.logs.clone(),
        run,
    )
}
