//! kube-controller-manager: the cluster's controllers in one process.

use std::process::ExitCode;

use controllers_manager::{IGNORED_FLAGS, Options, run};

fn main() -> ExitCode {
    base_cli::run("kube-controller-manager", IGNORED_FLAGS, |o: &Options| o.logs.clone(), run)
}
