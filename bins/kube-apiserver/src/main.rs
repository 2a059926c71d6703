//! kube-apiserver: the Kubernetes API over an etcd v3 store.

use apiserver_server::{ServerOptions, UPSTREAM_FLAGS, run};
use std::process::ExitCode;

// With many threads it costs fewer cycles and fragments less than glibc's allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    base_cli::run_component(
        "kube-apiserver",
        UPSTREAM_FLAGS,
        |options: &ServerOptions| options.logs.clone(),
        run,
    )
}
