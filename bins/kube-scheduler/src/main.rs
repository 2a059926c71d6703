//! kube-scheduler: decides which node each pod runs on.

use std::process::ExitCode;

use scheduler_core::{Flags, UPSTREAM_FLAGS, run};

fn main() -> ExitCode {
    base_cli::run("kube-scheduler", UPSTREAM_FLAGS, |flags: &Flags| flags.logs.clone(), run)
}
