//! A container runtime that runs nothing: CRI v1 on a Unix socket, in this process.
//!
//! Pods "run" at once with made-up addresses. A container's behaviour follows from its command if
//! that is simple (`sleep 3`, `true`, `sh -c "exit 4"`), or from the pod's annotations:
//! `simulated.ironclad/exit-after` (seconds) and `simulated.ironclad/exit-code`. The first
//! `simulated.ironclad/stop-failures` requests to stop its containers fail, and the first
//! `simulated.ironclad/cpu-update-failures` updates of their CPU. Other containers run until they
//! are stopped. Each start writes one line to the container's log.

mod behaviour;
mod dispatch;
mod images;
mod runtime;
mod server;
mod state;

pub use server::FakeRuntime;
