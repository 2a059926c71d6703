//! kube-controller-manager: the cluster's controllers in one process.

use std::process::ExitCode;

use controllers_manager::{Options, UPSTREAM_FLAGS, run};

fn main() -> ExitCode {
    base_cli::run_component(
        "kube-controller-manager",
        UPSTREAM_FLAGS,
        |o: &Options| o.logs.clone(),
        run,
    )
}
