//! The commands for machines that join a cluster.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use api_bootstrap::BootstrapToken;
use operator_cluster::{
    ControlPlaneKey, DiscoveryOptions, DiscoverySource, JoinOptions, Layout, NodeObject,
};
use operator_discovery::Trust;

use crate::args::{Folder, Join};
use crate::progress::print_progress;

/// Bytes of a token file that are read: a token has 23.
const LONGEST_TOKEN_FILE: u64 = 1024;

/// Executes `ironclad join`.
pub async fn run_join(options: Join) -> anyhow::Result<()> {
    let discovery = read_discovery_options(&options).await?;
    let control_plane = read_control_plane_key(&options).await?;
    let options = JoinOptions {
        data_dir: options.folder.data_dir,
        bin_dir: options.bin_dir,
        discovery,
        control_plane,
        runtime_endpoint: options.runtime_endpoint,
        simulated: options.simulated,
        cni: options.cni,
        cni_backend: options.cni_backend,
        node_name: options.node_name,
        node_addresses: options.node_ip,
        labels: options.node_labels,
        taints: options.register_with_taints,
        pick_ports: options.pick_ports,
        kubelet_port: options.kubelet_port,
        verbosity: options.component_verbosity,
    };
    let settings = operator_cluster::join_cluster(&options, &print_progress).await?;
    // Such a machine has an administrator's kubeconfig of its own, unlike a worker.
    if settings.control_plane.is_some() {
        writeln!(
            std::io::stdout(),
            "\nThis machine is node {} and has a part of the control plane. Next:\n\n  export KUBECONFIG={}\n  kubectl get nodes -o wide",
            settings.node_name,
            Layout::for_settings(&settings).admin_kubeconfig().display()
        )?;
        return Ok(());
    }
    // A worker has no administrator's credential, so kubectl runs on another machine.
    let server = settings
        .membership
        .as_ref()
        .map(|membership| membership.server.as_str());
    writeln!(
        std::io::stdout(),
        "\nThis machine is node {} of the cluster at {}. On the machine of the cluster:\n\n  kubectl get nodes -o wide",
        settings.node_name,
        server.unwrap_or_default()
    )?;
    Ok(())
}

/// Executes `ironclad reset`.
pub async fn run_reset(folder: Folder) -> anyhow::Result<()> {
    let data_dir = std::path::absolute(folder.data_dir)?;
    let Some(removed) = operator_cluster::reset_machine(&data_dir, &print_progress).await? else {
        return Ok(());
    };
    print_progress("removed");
    if removed.object != NodeObject::Listed {
        return Ok(());
    }
    let node = removed.node;
    writeln!(
        std::io::stdout(),
        "\nThe node is still listed in the cluster. On the machine of the cluster:\n\n  kubectl delete node {node}"
    )?;
    Ok(())
}

/// Reads the certificate key of a machine that joins the control plane; None for a worker.
async fn read_control_plane_key(options: &Join) -> anyhow::Result<Option<ControlPlaneKey>> {
    if !options.control_plane {
        return Ok(None);
    }
    let text = match (&options.certificate_key, &options.certificate_key_file) {
        (Some(key), _) => key.clone(),
        (None, Some(path)) => read_secret_file(path.clone(), "the certificate key").await?,
        // A repeated command continues with the keys that an earlier one has unpacked.
        (None, None) => return Ok(Some(ControlPlaneKey::Present)),
    };
    // The error omits the text, which may be a mistyped key.
    Ok(Some(ControlPlaneKey::Key(text.trim().parse()?)))
}

/// Reads the options of discovery; None without any of them.
async fn read_discovery_options(options: &Join) -> anyhow::Result<Option<DiscoveryOptions>> {
    let source = match (&options.endpoint, &options.discovery_file) {
        (None, None) => return check_no_discovery(options).map(|()| None),
        (_, Some(path)) => DiscoverySource::File {
            path: path.clone(),
            pins: options.discovery_token_ca_cert_hash.clone(),
        },
        (Some(endpoint), None) => DiscoverySource::Token {
            endpoint: endpoint.parse()?,
            trust: choose_trust(options)?,
        },
    };
    let text = match (&options.token, &options.token_file) {
        (Some(token), _) => token.clone(),
        (None, Some(path)) => read_secret_file(path.clone(), "the token").await?,
        // The rules of the parser exclude this case, but its types do not.
        (None, None) => bail!("give a token with --token-file or --token"),
    };
    // The error omits the text, which may be a mistyped secret.
    let token: BootstrapToken = text.trim().parse()?;
    Ok(Some(DiscoveryOptions { source, token }))
}

/// Rejects options of discovery without a cluster to discover: the command would repair the machine
/// and ignore them.
fn check_no_discovery(options: &Join) -> anyhow::Result<()> {
    let given = [
        ("--token", options.token.is_some()),
        ("--token-file", options.token_file.is_some()),
        (
            "--discovery-token-ca-cert-hash",
            !options.discovery_token_ca_cert_hash.is_empty(),
        ),
        (
            "--discovery-token-unsafe-skip-ca-verification",
            options.discovery_token_unsafe_skip_ca_verification,
        ),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((flag, _)) => bail!(
            "{flag} needs the cluster that it is for: give the address of the API server, HOST:PORT, or --discovery-file"
        ),
    }
}

fn choose_trust(options: &Join) -> anyhow::Result<Trust> {
    // kubeadm has the same flag. Without a pin, the token's signature over cluster-info is the only
    // proof.
    if options.discovery_token_unsafe_skip_ca_verification {
        return Ok(Trust::TokenOnly);
    }
    // As in kubeadm, trust without a pin must be requested by its own flag.
    if options.discovery_token_ca_cert_hash.is_empty() {
        bail!(
            "give the public key of the cluster's CA with --discovery-token-ca-cert-hash; \
             `ironclad token create --print-join-command` prints it. Without it every holder of the token could pose as the \
             cluster (--discovery-token-unsafe-skip-ca-verification accepts that)"
        );
    }
    Ok(Trust::Pins(options.discovery_token_ca_cert_hash.clone()))
}

/// Reads a file with a secret on a thread of its own. The end of the program does not wait for it,
/// so that an interrupt ends a command that waits for standard input.
async fn read_secret_file(path: PathBuf, what: &str) -> anyhow::Result<String> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let failed = format!("can't read {what} from {}", path.display());
    std::thread::Builder::new()
        .name("token-file".to_owned())
        .spawn(move || {
            // The command may have been interrupted.
            let _ = sender.send(read_text(&path));
        })?;
    let text = receiver
        .await
        .context("the thread of the token file ended")?;
    text.context(failed)
}

fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    if path == Path::new("-") {
        // The limit holds also for an endless input, such as `/dev/zero` by mistake.
        let stdin = std::io::stdin().lock();
        stdin.take(LONGEST_TOKEN_FILE).read_to_string(&mut text)?;
    } else {
        let file = std::fs::File::open(path)?;
        file.take(LONGEST_TOKEN_FILE).read_to_string(&mut text)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;

    async fn parse(options: &[&str]) -> anyhow::Result<Option<DiscoveryOptions>> {
        let words = ["ironclad", "join"].iter().chain(options);
        let Command::Join(join) = Cli::try_parse_from(words)?.command else {
            bail!("another command");
        };
        read_discovery_options(&join).await
    }

    #[tokio::test]
    async fn discovery_needs_a_token_and_the_key_of_the_ca() {
        let pin = format!("--discovery-token-ca-cert-hash=sha256:{}", "0".repeat(64));
        let token = "--token=abcdef.0123456789abcdef";
        let skip = "--discovery-token-unsafe-skip-ca-verification";
        for (options, expected) in [
            (&["192.0.2.1:6443", token, &pin][..], "ok"),
            (&["192.0.2.1:6443", token, &pin, &pin], "ok"),
            (&["192.0.2.1:6443", token, skip], "ok"),
            (&["--discovery-file=f", token], "ok"),
            (&["192.0.2.1:6443", token], "--discovery-token-ca-cert-hash"),
            (&["--discovery-file=f", token, &pin], "ok"),
            (&["--discovery-file=f", token, skip], "cannot be used with"),
            // Without a cluster they would be ignored.
            (&[token], "--token needs the cluster"),
            (&["--token-file=f"], "--token-file needs the cluster"),
            (&[&pin], "--discovery-token-ca-cert-hash needs the cluster"),
            (&[skip], "verification needs the cluster"),
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
            match parse(options).await {
                Ok(found) => assert!(found.is_some() && expected == "ok", "{options:?}"),
                Err(error) => {
                    let error = format!("{error:#}");
                    assert!(error.contains(expected), "{options:?}: {error}");
                    assert!(!error.contains("secretsecret"), "{error}");
                }
            }
        }
        assert!(parse(&[]).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn pins_apply_to_a_discovery_file() {
        let pin = format!("--discovery-token-ca-cert-hash=sha256:{}", "0".repeat(64));
        let options = [
            "--discovery-file=f",
            "--token=abcdef.0123456789abcdef",
            &pin,
        ];
        let found = parse(&options).await.unwrap().unwrap();
        assert!(
            matches!(&found.source, DiscoverySource::File { pins, .. } if pins.len() == 1),
            "{found:?}"
        );
    }

    /// The future must be pending and not block its thread: the select of the interrupt runs on it.
    #[tokio::test]
    async fn token_file_without_an_end_does_not_block() {
        let path = std::env::temp_dir().join(format!("ironclad-fifo-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let is_pending = tokio::select! {
            biased;
            _ = read_secret_file(path.clone(), "the token") => false,
            () = std::future::ready(()) => true,
        };
        assert!(is_pending);
        std::fs::remove_file(&path).unwrap();
    }

    #[tokio::test]
    async fn token_is_read_from_a_file() {
        let path = std::env::temp_dir().join(format!("ironclad-token-{}", std::process::id()));
        std::fs::write(&path, "abcdef.0123456789abcdef\n").unwrap();
        let option = format!("--token-file={}", path.display());
        let found = parse(&["--discovery-file=f", &option])
            .await
            .unwrap()
            .unwrap();
        assert_eq!(found.token.expose(), "abcdef.0123456789abcdef");
        std::fs::write(&path, "abcdef.secretsecret").unwrap();
        let error = format!(
            "{:#}",
            parse(&["--discovery-file=f", &option]).await.unwrap_err()
        );
        assert!(!error.contains("secretsecret"), "{error}");
        std::fs::remove_file(&path).unwrap();
        assert!(parse(&["--discovery-file=f", &option]).await.is_err());
    }
}
