//! A container runtime that runs nothing: CRI v1 on a Unix socket, in this process.
//!
//! Pods "run" at once with made-up addresses. What a container does follows from its command where that is plain
//! (`sleep 3`, `true`, `sh -c "exit 4"`), or from the pod's annotations:
//! `simulated.ironclad/exit-after` (seconds) and `simulated.ironclad/exit-code`; the first
//! `simulated.ironclad/stop-failures` stops of its containers fail. Everything else runs until it is
//! stopped. Each start writes one line to the container's log.

mod behaviour;
mod images;
mod runtime;
mod server;
mod state;

pub use server::FakeRuntime;
