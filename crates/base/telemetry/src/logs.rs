//! Logging: text or JSON lines on standard error. `-v N` sets the verbosity like in upstream's
//! components, `RUST_LOG` overrides it.

use clap::{Args, ValueEnum};
use std::io::IsTerminal;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Logging flags, equal for every component.
#[derive(Args, Clone, Debug, Default)]
pub struct LogOptions {
    /// Log verbosity: 0 to 2 info, 3 to 5 debug, 6 and more trace
    #[arg(short = 'v', long = "v", value_name = "N", default_value_t = 0)]
    pub verbosity: u8,
    /// Format of log lines
    #[arg(long = "logging-format", value_enum, default_value_t)]
    pub format: LogFormat,
    /// Levels in the syntax of `RUST_LOG` that replace those of the verbosity, for components with
    /// other flags
    #[arg(skip)]
    pub levels: Option<&'static str>,
}

/// Returns the levels of a verbosity.
///
/// Libraries for HTTP, TLS and files stay at info: their lines for each frame would hide the
/// component's own, and their content is not under this project's control.
/// `tests/security/tests/logs.rs` searches all lines for credentials.
fn levels_of_verbosity(verbosity: u8) -> &'static str {
    match verbosity {
        0..=2 => {
            "info,hyper=warn,h2=warn,rustls=warn,tonic=warn,openraft=warn,sled=warn,fjall=warn,lsm_tree=warn"
        }
        3..=5 => {
            "debug,hyper=info,hyper_util=info,h2=info,rustls=info,tonic=info,tower=info,sled=info,fjall=info,\
                  lsm_tree=info"
        }
        _ => {
            "trace,hyper=info,hyper_util=info,h2=info,rustls=info,tonic=info,tower=info,sled=info,fjall=info,\
              lsm_tree=info"
        }
    }
}

/// Parses levels that this project wrote: `info,h2=warn`.
fn parse_levels(levels: &str) -> Targets {
    // If the text is invalid, all crates log at INFO: too many lines are better than none.
    levels
        .parse()
        .unwrap_or_else(|_| Targets::new().with_default(Level::INFO))
}

/// Parses `RUST_LOG`: a level, and levels of crates and modules (`info,h2=warn`). Returns `None` if
/// it is empty or invalid.
///
/// Levels of spans and fields are invalid, because the filter that has them brings regular
/// expressions into every component.
pub fn parse_directives(text: &str) -> Option<Targets> {
    // `Targets` takes an empty part for the level ERROR and everything else for the name of a
    // crate, with which a typing error would log nothing.
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let parts: Vec<&str> = parts.collect();
    let is_valid = |part: &str| match part.split_once('=') {
        Some((target, level)) => is_module(target) && !level.is_empty(),
        None => is_module(part),
    };
    if parts.is_empty() || !parts.iter().all(|part| is_valid(part)) {
        return None;
    }
    parts.join(",").parse().ok()
}

fn is_module(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':');
    !text.is_empty() && text.chars().all(is_part)
}

/// Returns the filter of a verbosity.
pub fn level_filter(verbosity: u8) -> Targets {
    parse_levels(levels_of_verbosity(verbosity))
}

/// Starts logging. `RUST_LOG` overrides the verbosity. A second call has no effect.
pub fn init_logging(options: &LogOptions) {
    let level = options
        .levels
        .unwrap_or_else(|| levels_of_verbosity(options.verbosity));
    // An invalid RUST_LOG must not stop a component, so that it counts as absent.
    let from_environment = std::env::var("RUST_LOG").ok();
    let from_environment = from_environment.and_then(|text| parse_directives(&text));
    let filter = from_environment.unwrap_or_else(|| parse_levels(level));
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer()
        // Standard output is for results: `ironclad` and the completions are used in pipes.
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // Fails if a subscriber is installed already, as expected in tests.
    let _ = match options.format {
        LogFormat::Text => registry.with(lines).try_init(),
        LogFormat::Json => registry.with(lines.json()).try_init(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_select_by_level_and_crate() {
        let filter = level_filter(0);
        assert!(filter.would_enable("kv_raft", &Level::INFO));
        assert!(!filter.would_enable("kv_raft", &Level::DEBUG));
        assert!(!filter.would_enable("h2::codec", &Level::INFO));
        for verbosity in [3, 6] {
            assert!(!level_filter(verbosity).would_enable("h2::codec", &Level::DEBUG));
            assert!(level_filter(verbosity).would_enable("kv_raft", &Level::DEBUG));
        }
    }

    #[test]
    fn invalid_directives_count_as_absent() {
        for (text, enabled) in [
            ("info", Some([true, false])),
            (" info ", Some([true, false])),
            ("info,", Some([true, false])),
            ("warn, kv_raft = debug,", None),
            ("warn, kv_raft=debug,", Some([true, true])),
            ("kv_raft", Some([true, true])),
            ("kv_raft=off", Some([false, false])),
            ("", None),
            (",", None),
            ("kv_raft=", None),
            ("kv_raft=verbose", None),
            ("[reconcile]=debug", None),
            ("info,[{peer}]=debug", None),
            ("info[{x=1}]=debug", None),
        ] {
            let filter = parse_directives(text);
            let levels = [Level::INFO, Level::DEBUG];
            let found =
                filter.map(|filter| levels.map(|level| filter.would_enable("kv_raft", &level)));
            assert_eq!(found, enabled, "{text:?}");
        }
    }

    #[test]
    fn verbosity_selects_the_levels_of_upstream_s_ranges() {
        for (verbosity, want) in [
            (0, "info"),
            (2, "info"),
            (3, "debug"),
            (5, "debug"),
            (6, "trace"),
            (255, "trace"),
        ] {
            let levels = levels_of_verbosity(verbosity);
            assert_eq!(levels.split(',').next(), Some(want), "{verbosity}");
            // Libraries that see credentials never log below info.
            assert!(
                levels.contains("hyper=") && levels.contains("rustls="),
                "{levels}"
            );
        }
    }
}
