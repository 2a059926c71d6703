//! ironclad-gateway: forwards HTTP requests to Services, for Ingress and the Gateway API.

use std::process::ExitCode;

use net_gateway::{Flags, run};

fn main() -> ExitCode {
    base_cli::run_component("ironclad-gateway", &[], Flags::logs, run)
}
