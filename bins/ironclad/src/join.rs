//! The commands for machines that join a cluster.

use std::io::{Read as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use api_bootstrap::BootstrapToken;
use operator_cluster::{DiscoverySource, Invitation, JoinOptions};
use operator_discovery::Trust;

use crate::args::{Folder, Join};
use crate::progress::print_progress;

/// Bytes of a token file that are read: a token has 23.
const LONGEST_TOKEN_FILE: u64 = 1024;

/// Executes `ironclad join`.
pub async fn run_join(options: Join) -> anyhow::Result<()> {
    let invitation = read_invitation(&options)?;
    let options = JoinOptions {
        data_dir: options.folder.data_dir,
        bin_dir: options.bin_dir,
        invitation,
        runtime_endpoint: options.runtime_endpoint,
        simulated: options.simulated,
        node_name: options.node_name,
        node_address: options.node_ip,
        labels: options.node_labels,
        taints: options.register_with_taints,
        pick_ports: options.pick_ports,
        kubelet_port: options.kubelet_port,
        verbosity: options.component_verbosity,
    };
    let settings = operator_cluster::join_cluster(&options, &print_progress).await?;
    writeln!(
        std::io::stdout(),
        "\nThis machine is node {} of the cluster at {}. On the machine of the cluster:\n\n  kubectl get nodes -o wide",
        settings.node_name,
        settings.server_url()
    )?;
    Ok(())
}

/// Executes `ironclad reset`.
pub async fn run_reset(folder: Folder) -> anyhow::Result<()> {
    let data_dir = std::path::absolute(folder.data_dir)?;
    let Some(node) = operator_cluster::reset_machine(&data_dir, &print_progress).await? else {
        return Ok(());
    };
    print_progress("removed");
    writeln!(
        std::io::stdout(),
        "\nThe node is still listed in the cluster. On the machine of the cluster:\n\n  kubectl delete node {node}"
    )?;
    Ok(())
}

/// Reads the first contact with the cluster; None without an address.
fn read_invitation(options: &Join) -> anyhow::Result<Option<Invitation>> {
    let source = match (&options.endpoint, &options.discovery_file) {
        (None, None) => return Ok(None),
        (_, Some(path)) => DiscoverySource::File(path.clone()),
        (Some(endpoint), None) => DiscoverySource::Token {
            endpoint: endpoint.parse()?,
            trust: choose_trust(options)?,
        },
    };
    let text = match (&options.token, &options.token_file) {
        (Some(token), _) => token.clone(),
        (None, Some(path)) => read_token_file(path)?,
        (None, None) => bail!("give a token with --token-file or --token"),
    };
    // The error omits the text, which may be a mistyped secret.
    let token: BootstrapToken = text.trim().parse()?;
    Ok(Some(Invitation { source, token }))
}

fn choose_trust(options: &Join) -> anyhow::Result<Trust> {
    if options.discovery_token_unsafe_skip_ca_verification {
        return Ok(Trust::TokenOnly);
    }
    if options.discovery_token_ca_cert_hash.is_empty() {
        bail!(
            "give the public key of the cluster's CA with --discovery-token-ca-cert-hash; \
             `ironclad token create --print-join-command` prints it. Without it every holder of the token could pose as the \
             cluster (--discovery-token-unsafe-skip-ca-verification accepts that)"
        );
    }
    Ok(Trust::Pins(options.discovery_token_ca_cert_hash.clone()))
}

fn read_token_file(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(LONGEST_TOKEN_FILE)
            .read_to_string(&mut text)
    } else {
        std::fs::File::open(path)
            .and_then(|file| file.take(LONGEST_TOKEN_FILE).read_to_string(&mut text))
    };
    read.with_context(|| format!("can't read the token from {}", path.display()))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;

    fn parse(options: &[&str]) -> anyhow::Result<Option<Invitation>> {
        let words = ["ironclad", "join"].iter().chain(options);
        let Command::Join(join) = Cli::try_parse_from(words)?.command else {
            bail!("another command");
        };
        read_invitation(&join)
    }

    #[test]
    fn invitation_needs_a_token_and_the_key_of_the_ca() {
        let pin = format!("--discovery-token-ca-cert-hash=sha256:{}", "0".repeat(64));
        let token = "--token=abcdef.0123456789abcdef";
        let skip = "--discovery-token-unsafe-skip-ca-verification";
        for (options, expected) in [
            (&["192.0.2.1:6443", token, &pin][..], "ok"),
            (&["192.0.2.1:6443", token, &pin, &pin], "ok"),
            (&["192.0.2.1:6443", token, skip], "ok"),
            (&["--discovery-file=f", token], "ok"),
            (&["192.0.2.1:6443", token], "--discovery-token-ca-cert-hash"),
            (
                &["192.0.2.1:6443", token, &pin, skip],
                "cannot be used with",
            ),
            (&["192.0.2.1", token, &pin], "HOST:PORT"),
            (
                &["192.0.2.1:6443", "--token=abcdef.secretsecret", &pin],
                "a bootstrap token is",
            ),
        ] {
            match parse(options) {
                Ok(found) => assert!(found.is_some() && expected == "ok", "{options:?}"),
                Err(error) => {
                    let error = format!("{error:#}");
                    assert!(error.contains(expected), "{options:?}: {error}");
                    assert!(!error.contains("secretsecret"), "{error}");
                }
            }
        }
        assert!(parse(&[]).unwrap().is_none());
    }

    #[test]
    fn token_is_read_from_a_file() {
        let path = std::env::temp_dir().join(format!("ironclad-token-{}", std::process::id()));
        std::fs::write(&path, "abcdef.0123456789abcdef\n").unwrap();
        let option = format!("--token-file={}", path.display());
        let found = parse(&["--discovery-file=f", &option]).unwrap().unwrap();
        assert_eq!(found.token.expose(), "abcdef.0123456789abcdef");
        std::fs::write(&path, "abcdef.secretsecret").unwrap();
        let error = format!("{:#}", parse(&["--discovery-file=f", &option]).unwrap_err());
        assert!(!error.contains("secretsecret"), "{error}");
        std::fs::remove_file(&path).unwrap();
        assert!(parse(&["--discovery-file=f", &option]).is_err());
    }
}
