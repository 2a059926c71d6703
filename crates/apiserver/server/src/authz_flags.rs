//! The flags of authorization, and the authorizers that they name.

use crate::durations::parse_duration;
use anyhow::bail;
use apiserver_authz::{
    AuthorizerSpec, LoadedConfig, Mode, WebhookSpec, parse_modes, read_authorization_config,
};
use apiserver_webhook_client::ReviewVersion;
use std::path::{Path, PathBuf};

/// The flags of authorization. Those that exclude a file are optional, so that a given flag differs
/// from a default.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct AuthzFlags {
    /// Authorizers in their order: Node, RBAC, Webhook, ABAC, AlwaysAllow, AlwaysDeny
    /// (default AlwaysAllow without --authorization-config)
    #[arg(long, value_delimiter = ',')]
    authorization_mode: Vec<String>,
    /// File with the authorizers, instead of the modes and the webhook of the flags
    #[arg(long)]
    authorization_config: Option<PathBuf>,
    /// File with the policies of the mode ABAC, one JSON object a line
    #[arg(long)]
    authorization_policy_file: Option<PathBuf>,
    /// Kubeconfig with the server of the mode Webhook
    #[arg(long)]
    authorization_webhook_config_file: Option<PathBuf>,
    /// Version of SubjectAccessReview for the mode Webhook, v1 or v1beta1 (default v1beta1)
    #[arg(long)]
    authorization_webhook_version: Option<String>,
    /// Time for which a permission of the mode Webhook is reused, 0 for never (default 5m0s)
    #[arg(long)]
    authorization_webhook_cache_authorized_ttl: Option<String>,
    /// Time for which another decision of the mode Webhook is reused, 0 for never (default 30s)
    #[arg(long)]
    authorization_webhook_cache_unauthorized_ttl: Option<String>,
}

/// The authorizers of the flags or the file.
pub struct Authorizers {
    /// In their order.
    pub specs: Vec<AuthorizerSpec>,
    /// The file.
    pub file: Option<LoadedConfig>,
}

impl Authorizers {
    /// Returns whether every request may be allowed.
    pub fn allow_all(&self) -> bool {
        self.specs.iter().any(|spec| spec.mode == Mode::AlwaysAllow)
    }
}

impl AuthzFlags {
    /// Returns the authorizers.
    ///
    /// # Errors
    /// An unknown or repeated mode, flags that exclude each other, or a file that can't be used.
    pub fn authorizers(&self) -> anyhow::Result<Authorizers> {
        let found = self.find_authorizers()?;
        let has_abac = found.specs.iter().any(|spec| spec.mode == Mode::Abac);
        if self.authorization_policy_file.is_some() && !has_abac {
            bail!(
                "cannot specify --authorization-policy-file without mode ABAC; add it to the \
                 authorizers"
            );
        }
        Ok(found)
    }

    /// Returns the file with the policies of ABAC.
    pub fn policy_file(&self) -> Option<&Path> {
        self.authorization_policy_file.as_deref()
    }

    fn find_authorizers(&self) -> anyhow::Result<Authorizers> {
        let Some(path) = &self.authorization_config else {
            let specs = self.flag_authorizers()?;
            return Ok(Authorizers { specs, file: None });
        };
        if !self.authorization_mode.is_empty() || self.has_webhook_flags() {
            bail!(
                "--authorization-config can not be specified when --authorization-mode or \
                 --authorization-webhook-* flags are defined; move them to the file"
            );
        }
        let loaded = read_authorization_config(path)?;
        Ok(Authorizers {
            specs: loaded.authorizers.clone(),
            file: Some(loaded),
        })
    }

    fn has_webhook_flags(&self) -> bool {
        self.authorization_webhook_config_file.is_some()
            || self.authorization_webhook_version.is_some()
            || self.authorization_webhook_cache_authorized_ttl.is_some()
            || self.authorization_webhook_cache_unauthorized_ttl.is_some()
    }

    fn flag_authorizers(&self) -> anyhow::Result<Vec<AuthorizerSpec>> {
        let modes = match self.authorization_mode.as_slice() {
            [] => vec![Mode::AlwaysAllow],
            given => parse_modes(given)?,
        };
        if self.authorization_webhook_config_file.is_some() && !modes.contains(&Mode::Webhook) {
            bail!(
                "cannot specify --authorization-webhook-config-file without mode Webhook; add it \
                 to --authorization-mode"
            );
        }
        let build = |mode| match mode {
            Mode::Webhook => self.flag_webhook(),
            mode => Ok(AuthorizerSpec::built_in(mode)),
        };
        modes.into_iter().map(build).collect()
    }

    fn flag_webhook(&self) -> anyhow::Result<AuthorizerSpec> {
        let Some(kubeconfig) = self.authorization_webhook_config_file.clone() else {
            bail!(
                "authorization-mode Webhook's authorization config file not passed; set \
                 --authorization-webhook-config-file"
            );
        };
        let version = self.authorization_webhook_version.as_deref();
        let version = version.unwrap_or("v1beta1");
        let Some(version) = ReviewVersion::from_name(version) else {
            bail!("--authorization-webhook-version: {version:?} is not v1 or v1beta1");
        };
        let ttl = |name: &str, given: &Option<String>, default: &str| {
            let flag = format!("authorization-webhook-cache-{name}-ttl");
            parse_duration(&flag, given.as_deref().unwrap_or(default))
        };
        let authorized = &self.authorization_webhook_cache_authorized_ttl;
        let unauthorized = &self.authorization_webhook_cache_unauthorized_ttl;
        Ok(AuthorizerSpec {
            mode: Mode::Webhook,
            // Upstream's name for it in metrics.
            name: "default".to_owned(),
            webhook: Some(WebhookSpec::from_flags(
                kubeconfig,
                version,
                ttl("authorized", authorized, "5m0s")?,
                ttl("unauthorized", unauthorized, "30s")?,
            )),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;
    use std::time::Duration;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        authz: AuthzFlags,
    }

    fn authorizers(flags: &[&str]) -> anyhow::Result<Authorizers> {
        let words = std::iter::once("x").chain(flags.iter().copied());
        Flags::try_parse_from(words).unwrap().authz.authorizers()
    }

    #[test]
    fn modes_have_the_order_of_the_flag() {
        for (flags, expect) in [
            (&[][..], &[Mode::AlwaysAllow][..]),
            (
                &["--authorization-mode=Node,RBAC"],
                &[Mode::Node, Mode::Rbac],
            ),
        ] {
            let specs = authorizers(flags).unwrap().specs;
            let modes: Vec<Mode> = specs.iter().map(|spec| spec.mode).collect();
            assert_eq!(modes, expect);
        }
    }

    #[test]
    fn webhook_of_the_flags_has_upstreams_defaults() {
        let base = [
            "--authorization-mode=RBAC,Webhook",
            "--authorization-webhook-config-file=/k",
        ];
        let webhook = |more: &[&str]| {
            let flags: Vec<&str> = base.iter().chain(more).copied().collect();
            let specs = authorizers(&flags).unwrap().specs;
            let spec = specs.into_iter().next_back().unwrap();
            assert_eq!(spec.name, "default");
            spec.webhook.unwrap()
        };
        let found = webhook(&[]);
        assert_eq!(found.version, ReviewVersion::V1beta1);
        assert_eq!(found.timeout, Duration::from_secs(30));
        assert_eq!(found.authorized_ttl, Duration::from_secs(300));
        assert_eq!(found.unauthorized_ttl, Duration::from_secs(30));
        assert!(!found.denies_on_error);
        let found = webhook(&[
            "--authorization-webhook-version=v1",
            "--authorization-webhook-cache-authorized-ttl=0",
        ]);
        assert_eq!(found.version, ReviewVersion::V1);
        assert!(found.authorized_ttl.is_zero());
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        for flags in [
            &["--authorization-mode=Maybe"][..],
            &["--authorization-mode=RBAC,RBAC"],
            &["--authorization-mode=Webhook"],
            &["--authorization-webhook-config-file=/k"],
            &[
                "--authorization-mode=Webhook",
                "--authorization-webhook-config-file=/k",
                "--authorization-webhook-version=v2",
            ],
            &[
                "--authorization-mode=Webhook",
                "--authorization-webhook-config-file=/k",
                "--authorization-webhook-cache-authorized-ttl=-1s",
            ],
            &["--authorization-config=/missing"],
            &["--authorization-policy-file=/p"],
            &[
                "--authorization-config=/missing",
                "--authorization-mode=RBAC",
            ],
        ] {
            assert!(authorizers(flags).is_err(), "{flags:?}");
        }
    }
}
