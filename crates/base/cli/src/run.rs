//! Parses arguments and runs the component's future to completion.

use crate::flags::accept_upstream_flags;
use crate::pages;
use crate::sentence;
use crate::upstream::Unsupported;
use base_task::CancellationToken;
use base_telemetry::LogOptions;
use clap::{Command, CommandFactory, Parser};
use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;

/// Runs a component: parses `std::env::args`, starts logging and the runtime, and calls `main` with
/// the parsed arguments and a cancellation token. `unsupported` lists upstream flags that are not
/// implemented. An error exits with code 1 and one sentence with its causes on standard error.
pub fn run_component<A, F, Fut>(
    name: &str,
    unsupported: &[Unsupported],
    logs: impl Fn(&A) -> LogOptions,
    main: F,
) -> ExitCode
where
    A: Parser,
    F: FnOnce(A, CancellationToken) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // Before the flags are parsed, since required flags are missing here.
    if let Some(code) = pages::serve_pages::<A>(name, &arguments) {
        return code;
    }
    let accepted = accept_upstream_flags(arguments.into_iter(), unsupported);
    let args = match parse_command(pages::describe_command::<A>(name), &accepted.arguments) {
        Ok(args) => args,
        Err(e) => {
            // clap treats help and version as errors, too.
            if e.use_stderr() {
                eprintln!("{name}: {}", sentence::format_usage_error(&e, name));
                return ExitCode::from(2);
            }
            // Help and version are printed to standard output and exit with code 0.
            let _ = e.print();
            return ExitCode::SUCCESS;
        }
    };
    // Before the warnings, which are log lines, and after parsing, which decides the format.
    base_telemetry::init_logging(&logs(&args));
    for warning in accepted.warnings {
        tracing::warn!("{warning}");
    }
    if !accepted.refusals.is_empty() {
        // Not a log line: the component does not run, and a person or an installer reads this.
        eprintln!("{name}: {}", accepted.refusals.join("; "));
        return ExitCode::from(2);
    }
    match block_on_main(main, args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{name}: {}", sentence::format_error(&e));
            ExitCode::FAILURE
        }
    }
}

/// Parses a command line like Go's flag packages: if a flag is repeated, the last value counts.
/// Lists collect all values.
///
/// # Errors
/// Any other error of clap, and requests for help or the version.
pub fn parse_arguments<A: Parser>(arguments: &[OsString]) -> Result<A, clap::Error> {
    parse_command(<A as CommandFactory>::command(), arguments)
}

fn parse_command<A: Parser>(command: Command, arguments: &[OsString]) -> Result<A, clap::Error> {
    // Go's flag packages accept a repeated flag; clap rejects it by default.
    let mut command = command.args_override_self(true);
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    A::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

fn block_on_main<A, F, Fut>(main: F, args: A) -> anyhow::Result<()>
where
    F: FnOnce(A, CancellationToken) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(worker_threads())
        .enable_all()
        .build()?;
    let result = runtime.block_on(async { main(args, base_task::shutdown_on_signals()?).await });
    // Blocking tasks, such as a read on a hung disk, must not delay the exit.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    result
}

/// Returns the number of worker threads, at most four: a component of a small cluster gains nothing
/// from more, and each costs stack and allocator arenas.
fn worker_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 4))
}

/// A command line.
pub(crate) type Arguments = Vec<OsString>;
