//! `--config-file`: etcd's YAML. Keys are the names of flags; the TLS settings of clients and of
//! peers have a section each.
//!
//! As in etcd, such a file replaces all other flags and the environment. Unlike in etcd, a key that
//! is no flag is rejected.

use super::unsupported::UPSTREAM_FLAGS;
use anyhow::{Context, Result, bail};
use clap::builder::Resettable;
use clap::{ArgMatches, Command};
use serde_yaml::Value;
use std::ffi::OsString;
use std::path::Path;

/// Maximum size in bytes, far above that of any real file.
const LONGEST: u64 = 1 << 20;
/// Durations, which are nanoseconds in etcd's files if they are numbers.
const TIMES: &[&str] = &[
    "compact-hash-check-time",
    "corrupt-check-time",
    "experimental-compact-hash-check-time",
    "experimental-corrupt-check-time",
    "experimental-warning-apply-duration",
    "experimental-warning-unary-request-duration",
    "experimental-watch-progress-notify-interval",
    "grpc-keepalive-interval",
    "grpc-keepalive-timeout",
    "warning-apply-duration",
    "warning-unary-request-duration",
    "watch-progress-notify-interval",
];

/// Loads a file as flags of `command`, with warnings about settings that are not implemented.
pub(super) fn load_flags(path: &Path, command: Command) -> Result<(ArgMatches, Vec<String>)> {
    let context = || format!("--config-file {}", path.display());
    // Before reading: the path may be that of a device or of a database.
    let length = std::fs::metadata(path).with_context(context)?.len();
    if length > LONGEST {
        bail!(
            "--config-file {} is {length} bytes long: it can't be a configuration",
            path.display()
        );
    }
    let text = std::fs::read_to_string(path).with_context(context)?;
    parse_flags(&text, command).with_context(context)
}

fn parse_flags(text: &str, command: Command) -> Result<(ArgMatches, Vec<String>)> {
    let words = std::iter::once("kvstore".to_owned())
        .chain(to_words(text)?)
        .map(OsString::from);
    let accepted = base_cli::accept_upstream_flags(words, UPSTREAM_FLAGS);
    if !accepted.refusals.is_empty() {
        bail!("{}", accepted.refusals.join("; "));
    }
    // etcd ignores the environment if there is a file.
    let command = command.mut_args(|argument| argument.env(Resettable::Reset));
    let matches = command
        .try_get_matches_from(accepted.arguments)
        .map_err(|error| {
            let text = error.render().to_string();
            // The first line names the key. The rest is clap's usage, which is about a command
            // line.
            anyhow::anyhow!(
                "{}",
                text.trim_start_matches("error: ")
                    .lines()
                    .next()
                    .unwrap_or_default()
            )
        })?;
    Ok((matches, accepted.warnings))
}

/// Converts each key to a flag.
fn to_words(text: &str) -> Result<Vec<String>> {
    let mapping = match serde_yaml::from_str(text)? {
        Value::Mapping(mapping) => mapping,
        Value::Null => return Ok(Vec::new()),
        _ => bail!("it has no keys: write NAME-OF-FLAG: VALUE on each line"),
    };
    let mut words = Vec::new();
    for (key, value) in &mapping {
        let key = key.as_str().context("a key is no text")?;
        match (key, value) {
            ("client-transport-security", Value::Mapping(section)) => {
                security_words("", section, &mut words)?
            }
            ("peer-transport-security", Value::Mapping(section)) => {
                security_words("peer-", section, &mut words)?
            }
            ("config-file", _) => {
                bail!("config-file in a configuration file: put everything into one")
            }
            _ => push_word(key, value, &mut words)?,
        }
    }
    Ok(words)
}

/// Converts a TLS section.
fn security_words(
    prefix: &str,
    section: &serde_yaml::Mapping,
    words: &mut Vec<String>,
) -> Result<()> {
    for (key, value) in section {
        let key = key.as_str().context("a key is no text")?;
        let flag = match key {
            // In etcd, these two keys differ from the names of their flags.
            "allowed-cn" | "allowed-hostname" if prefix.is_empty() => format!("client-cert-{key}"),
            "allowed-cn" | "allowed-hostname" => format!("{prefix}cert-{key}"),
            _ => format!("{prefix}{key}"),
        };
        push_word(&flag, value, words)?;
    }
    Ok(())
}

fn push_word(flag: &str, value: &Value, words: &mut Vec<String>) -> Result<()> {
    let text = match value {
        Value::Sequence(several) => several
            .iter()
            .map(|one| format_scalar(flag, one))
            .collect::<Result<Vec<_>>>()?
            .join(","),
        // etcd's structure has time.Duration here, which Go reads as nanoseconds.
        Value::Number(number) if TIMES.contains(&flag) => format!("{number}ns"),
        _ => format_scalar(flag, value)?,
    };
    // An empty value means that the flag is not given.
    if !text.is_empty() {
        words.push(format!("--{flag}={text}"));
    }
    Ok(())
}

fn format_scalar(flag: &str, value: &Value) -> Result<String> {
    Ok(match value {
        Value::Null => String::new(),
        Value::Bool(on) => on.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => bail!("{flag} has a value that is no text, number or list of them"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::flags::Flags;
    use clap::{CommandFactory, FromArgMatches};

    #[test]
    fn keys_are_flags() {
        let file = "name: m1\nquota-backend-bytes: 0\nlog-outputs: [stderr]\ndiscovery:\ncors:\n\
                    client-transport-security:\n  cert-file: c.crt\n  client-cert-auth: false\n  trusted-ca-file:\n\
                    peer-transport-security:\n  auto-tls: true\n  allowed-cn: [m]\n\
                    warning-apply-duration: 200000000\ncorrupt-check-time: 1m\nheartbeat-interval: 50\n";
        assert_eq!(
            to_words(file).unwrap(),
            [
                "--name=m1",
                "--quota-backend-bytes=0",
                "--log-outputs=stderr",
                "--cert-file=c.crt",
                "--client-cert-auth=false",
                "--peer-auto-tls=true",
                "--peer-cert-allowed-cn=m",
                "--warning-apply-duration=200000000ns",
                "--corrupt-check-time=1m",
                "--heartbeat-interval=50",
            ]
        );
        let (matches, warnings) = parse_flags(file, Flags::command()).unwrap();
        let flags = Flags::from_arg_matches(&matches).unwrap();
        assert_eq!(
            (flags.serve.name.as_str(), flags.serve.heartbeat_interval),
            ("m1", 50)
        );
        assert_eq!(
            warnings,
            ["--log-outputs has no effect: logs go to standard error"]
        );
        assert_eq!(to_words("").unwrap(), [""; 0]);
    }

    #[test]
    fn unknown_key_is_rejected_by_name() {
        for (file, context) in [
            ("nmae: m1", "--nmae"),
            ("- a", "no keys"),
            ("name: {a: b}", "name has a value"),
            ("config-file: other", "config-file"),
            ("heartbeat-interval: soon", "--heartbeat-interval"),
            (
                "client-transport-security: {allowed-cn: [x]}",
                "--client-cert-allowed-cn",
            ),
            ("a: [", "line"),
        ] {
            let message = format!("{:#}", parse_flags(file, Flags::command()).unwrap_err());
            assert!(message.contains(context), "{file}: {message}");
        }
    }
}
