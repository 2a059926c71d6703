//! kube-apiserver: the Kubernetes API over an etcd v3 store.

use apiserver_server::{ServerOptions, UPSTREAM_FLAGS, check_config, run};
use std::process::ExitCode;

// With many threads it costs fewer cycles and fragments less than glibc's allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Before the flags of a server are parsed, since required ones are missing here.
    if let Some(code) = check_config(std::env::args_os()) {
        return code;
    }
    base_cli::run_component(
        "kube-apiserver",
        UPSTREAM_FLAGS,
        |options: &ServerOptions| options.logs.clone(),
        |options, shutdown| {
            return_unused_memory();
            run(options, shutdown)
        },
    )
}

/// Starts the allocator's thread that returns unused pages. Without it, pages are returned only by
/// threads that allocate, so that an idle server keeps the memory of its last burst.
fn return_unused_memory() {
    if let Err(error) = tikv_jemalloc_ctl::background_thread::write(true) {
        tracing::warn!(%error, "the allocator has no thread that returns unused memory");
    }
}
