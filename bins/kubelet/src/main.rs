//! kubelet: the node agent.

use node_kubelet::{Flags, UPSTREAM_FLAGS};
use std::process::ExitCode;
use testkit_cri::FakeRuntime;

fn main() -> ExitCode {
    base_cli::run_component(
        "kubelet",
        UPSTREAM_FLAGS,
        |flags: &Flags| flags.logs.clone(),
        |flags, shutdown| async move {
            let settings = node_kubelet::read_settings(&flags)?;
            // The simulated runtime listens on a socket like a real one, so that the kubelet's code
            // has no second path.
            if !settings.simulated() {
                let endpoint = settings.runtime_endpoint.clone();
                return node_kubelet::run(settings, &endpoint, shutdown).await;
            }
            let runtime = match settings.simulated_network() {
                Some(network) => FakeRuntime::start_in(&settings.root_dir, network).await?,
                None => FakeRuntime::start(&settings.root_dir).await?,
            };
            node_kubelet::run(settings, runtime.endpoint(), shutdown).await
        },
    )
}
