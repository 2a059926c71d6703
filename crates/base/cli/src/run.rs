//! Parses arguments and drives the component's future to its end.

use crate::flags::accept_upstream_flags;
use crate::sentence;
use crate::upstream::Unsupported;
use base_task::CancellationToken;
use base_telemetry::LogOptions;
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;

/// Runs a component: parses `std::env::args`, starts logging and the runtime, calls `main` with the parsed arguments
/// and the token that signals cancel. `unsupported` lists upstream's flags that are not implemented. Errors end with one
/// sentence on standard error, causes included, and exit code 1.
pub fn run<A, F, Fut>(name: &str, unsupported: &[Unsupported], logs: impl Fn(&A) -> LogOptions, main: F) -> ExitCode
where
    A: Parser,
    F: FnOnce(A, CancellationToken) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let accepted = accept_upstream_flags(std::env::args_os(), unsupported);
    let args = match parse::<A>(&accepted.arguments) {
        Ok(args) => args,
        Err(e) => {
            if e.use_stderr() {
                eprintln!("{name}: {}", sentence::of_usage(&e, name));
                return ExitCode::from(2);
            }
            // Help and version are printed to standard output and are no failure.
            let _ = e.print();
            return ExitCode::SUCCESS;
        }
    };
    base_telemetry::init(&logs(&args));
    for warning in accepted.warnings {
        tracing::warn!("{warning}");
    }
    if !accepted.refusals.is_empty() {
        eprintln!("{name}: {}", accepted.refusals.join("; "));
        return ExitCode::from(2);
    }
    match drive(main, args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{name}: {}", sentence::of_error(&e));
            ExitCode::FAILURE
        }
    }
}

/// Parses a command line as Go's flag packages do: a flag may be given several times, and the last value counts. Lists
/// collect all values.
///
/// # Errors
/// Anything else that clap refuses, and requests for help or the version.
pub fn parse<A: Parser>(arguments: &[OsString]) -> Result<A, clap::Error> {
    let mut command = <A as CommandFactory>::command().args_override_self(true);
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    A::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

fn drive<A, F, Fut>(main: F, args: A) -> anyhow::Result<()>
where
    F: FnOnce(A, CancellationToken) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(worker_threads()).enable_all().build()?;
    let result = runtime.block_on(async { main(args, base_task::shutdown_on_signals()?).await });
    // Blocking work (a read of a hung disk) must not hold up the end.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    result
}

/// At most four: a component of a small cluster gains nothing from more, and each costs stack and arenas.
fn worker_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 4))
}

/// A command line.
pub(crate) type Arguments = Vec<OsString>;
