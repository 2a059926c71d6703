//! Parses arguments and runs the component's future to completion.

use crate::flags::accept_upstream_flags;
use crate::pages;
use crate::sentence;
use crate::upstream::Unsupported;
use base_task::CancellationToken;
use base_telemetry::LogOptions;
use base_zpages::FlagValues;
use clap::{ArgMatches, Command, CommandFactory, Parser};
use std::ffi::{OsStr, OsString};
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
        Ok((args, flags)) => {
            base_zpages::record_flags(flags);
            args
        }
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
    parse_command(<A as CommandFactory>::command(), arguments).map(|(args, _)| args)
}

fn parse_command<A: Parser>(
    command: Command,
    arguments: &[OsString],
) -> Result<(A, FlagValues), clap::Error> {
    // Go's flag packages accept a repeated flag; clap rejects it by default.
    let mut command = command.args_override_self(true);
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    // Before the values are moved out of the matches.
    let flags = collect_flags(&command, &matches);
    let args = A::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))?;
    Ok((args, flags))
}

/// Returns all flags with their values, given or default; flags without a value are empty.
fn collect_flags(command: &Command, matches: &ArgMatches) -> FlagValues {
    let value = |id: &str| match matches.try_get_raw(id) {
        Ok(Some(values)) => values
            .map(OsStr::to_string_lossy)
            .collect::<Vec<_>>()
            .join(","),
        Ok(None) | Err(_) => String::new(),
    };
    command
        .get_arguments()
        .filter_map(|argument| {
            let name = argument.get_long()?;
            // Help and version end the process, so that they never have a value.
            let is_setting = !matches!(name, "help" | "version");
            is_setting.then(|| (name.to_owned(), value(argument.get_id().as_str())))
        })
        .collect()
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
    // Tasks that still run end with the process, as they do if it is killed. Dropping the runtime
    // would wait for blocking work, such as a read on a hung disk, and stops the timers under tasks
    // that return from such work: they panic.
    std::mem::forget(runtime);
    result
}

/// Returns the number of worker threads, at most four: a component of a small cluster gains nothing
/// from more, and each costs stack and allocator arenas.
fn worker_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 4))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[derive(Debug, Parser)]
    struct Flags {
        #[arg(long)]
        bootstrap_token: Option<String>,
        #[arg(long, default_value = "10s")]
        sync_period: String,
        #[arg(long, value_delimiter = ',')]
        controllers: Vec<String>,
        #[arg(long)]
        profiling: bool,
        #[arg(long)]
        config: Option<String>,
    }

    #[test]
    fn tasks_that_block_at_the_end_do_not_panic() {
        let panicked = Arc::new(AtomicBool::new(false));
        let observed = panicked.clone();
        let former = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // Other tests run beside, on threads of other names.
            if std::thread::current().name() == Some("tokio-rt-worker") {
                observed.store(true, Ordering::SeqCst);
            }
            former(panic);
        }));
        let (started, starts) = std::sync::mpsc::channel();
        let (sender, slept) = std::sync::mpsc::channel();
        let main = |(), shutdown| async move {
            let tasks = base_task::Tasks::new(shutdown);
            tasks.spawn("blocks", async move {
                base_task::blocking(|| {
                    started.send(()).unwrap();
                    // Long enough for the end of `main` and of the runtime.
                    std::thread::sleep(Duration::from_millis(200));
                });
                tokio::time::sleep(Duration::from_millis(1)).await;
                sender.send(()).unwrap();
            });
            starts.recv_timeout(Duration::from_secs(60))?;
            Ok(())
        };
        block_on_main(main, ()).unwrap();
        // Either the task ran on or it was dropped.
        let _ = slept.recv_timeout(Duration::from_secs(60));
        drop(std::panic::take_hook());
        assert!(!panicked.load(Ordering::SeqCst));
    }

    #[test]
    fn recorded_flags_have_given_and_default_values_and_no_secret() {
        let line = [
            "x",
            "--bootstrap-token=s3cret",
            "--controllers=a,b",
            "--controllers",
            "c",
        ];
        let arguments: Vec<OsString> = line.iter().map(OsString::from).collect();
        let (flags, values) = parse_command::<Flags>(Flags::command(), &arguments).unwrap();
        assert_eq!(flags.bootstrap_token.as_deref(), Some("s3cret"));
        let values: Vec<_> = values.iter().collect();
        assert_eq!(
            values,
            [
                ("bootstrap-token", "CLASSIFIED"),
                ("config", ""),
                ("controllers", "a,b,c"),
                ("profiling", "false"),
                ("sync-period", "10s"),
            ]
        );
    }
}
