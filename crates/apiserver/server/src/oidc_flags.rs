//! The flags `--oidc-*`, which describe one issuer of tokens.

use anyhow::{Context as _, bail};
use apiserver_authn::{ClaimMappings, ClaimRule, IssuerConfig, JwtConfig, PrefixedMapping};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The flags of an issuer. Each is optional, so that a given flag differs from a default.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct OidcFlags {
    /// URL of the OpenID Connect issuer, https only
    #[arg(long)]
    oidc_issuer_url: Option<String>,
    /// Audience of the issuer's tokens for this cluster
    #[arg(long)]
    oidc_client_id: Option<String>,
    /// CA of the issuer's servers, instead of the system's roots
    #[arg(long)]
    oidc_ca_file: Option<PathBuf>,
    /// Claim with the user name (default sub)
    #[arg(long)]
    oidc_username_claim: Option<String>,
    /// Prefix of user names, - for none (default: the issuer and #, or none for the claim email)
    #[arg(long)]
    oidc_username_prefix: Option<String>,
    /// Claim with the groups
    #[arg(long)]
    oidc_groups_claim: Option<String>,
    /// Prefix of groups
    #[arg(long)]
    oidc_groups_prefix: Option<String>,
    /// Accepted algorithms of signatures (default RS256)
    #[arg(long, value_delimiter = ',')]
    oidc_signing_algs: Vec<String>,
    /// Claim that tokens must have, CLAIM=VALUE; may be repeated
    #[arg(long)]
    oidc_required_claim: Vec<String>,
}

impl OidcFlags {
    /// Returns whether any of the flags is given.
    pub fn is_given(&self) -> bool {
        let OidcFlags {
            oidc_issuer_url,
            oidc_client_id,
            oidc_ca_file,
            oidc_username_claim,
            oidc_username_prefix,
            oidc_groups_claim,
            oidc_groups_prefix,
            oidc_signing_algs,
            oidc_required_claim,
        } = self;
        let texts = [
            oidc_issuer_url,
            oidc_client_id,
            oidc_username_claim,
            oidc_username_prefix,
            oidc_groups_claim,
            oidc_groups_prefix,
        ];
        texts.iter().any(|flag| flag.is_some())
            || oidc_ca_file.is_some()
            || !oidc_signing_algs.is_empty()
            || !oidc_required_claim.is_empty()
    }

    /// Returns the accepted algorithms.
    pub fn algorithms(&self) -> Vec<String> {
        match self.oidc_signing_algs.as_slice() {
            [] => vec!["RS256".to_owned()],
            given => given.to_vec(),
        }
    }

    /// Returns the issuer; `None` without flags.
    ///
    /// # Errors
    /// One of the issuer and the client ID is missing, a required claim has no value, or the CA
    /// can't be read.
    pub fn issuer(&self) -> anyhow::Result<Option<JwtConfig>> {
        if !self.is_given() {
            return Ok(None);
        }
        let text = |flag: &Option<String>| flag.clone().unwrap_or_default();
        let (url, client) = (text(&self.oidc_issuer_url), text(&self.oidc_client_id));
        if url.is_empty() || client.is_empty() {
            bail!(
                "--oidc-issuer-url and --oidc-client-id must be given together when any --oidc-* flag is"
            );
        }
        let certificate_authority = match &self.oidc_ca_file {
            Some(path) => std::fs::read_to_string(path)
                .with_context(|| format!("can't read {}", path.display()))?,
            None => String::new(),
        };
        Ok(Some(JwtConfig {
            claim_mappings: self.mappings(&url),
            claim_validation_rules: self.required_claims()?,
            issuer: IssuerConfig {
                url,
                audiences: vec![client],
                certificate_authority,
                ..IssuerConfig::default()
            },
            ..JwtConfig::default()
        }))
    }

    fn mappings(&self, issuer: &str) -> ClaimMappings {
        let claim = self.oidc_username_claim.clone();
        let claim = claim.unwrap_or_else(|| "sub".to_owned());
        let prefix = match self.oidc_username_prefix.as_deref().unwrap_or_default() {
            "-" => String::new(),
            // A name of one issuer must not be that of another authenticator's user. Addresses are
            // unique without a prefix.
            "" if claim != "email" => format!("{issuer}#"),
            given => given.to_owned(),
        };
        let groups = self.oidc_groups_claim.clone().unwrap_or_default();
        let groups_prefix = self.oidc_groups_prefix.clone().unwrap_or_default();
        ClaimMappings {
            username: PrefixedMapping {
                claim,
                prefix: Some(prefix),
                ..PrefixedMapping::default()
            },
            groups: PrefixedMapping {
                prefix: (!groups.is_empty()).then_some(groups_prefix),
                claim: groups,
                ..PrefixedMapping::default()
            },
            ..ClaimMappings::default()
        }
    }

    fn required_claims(&self) -> anyhow::Result<Vec<ClaimRule>> {
        // The last value of a claim counts, as for upstream's map.
        let mut values = BTreeMap::new();
        for pair in &self.oidc_required_claim {
            let (claim, value) = pair
                .split_once('=')
                .with_context(|| format!("--oidc-required-claim: {pair:?} is not CLAIM=VALUE"))?;
            values.insert(claim.trim(), value.trim());
        }
        let rule = |(claim, value): (&str, &str)| ClaimRule {
            claim: claim.to_owned(),
            required_value: value.to_owned(),
            ..ClaimRule::default()
        };
        Ok(values.into_iter().map(rule).collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        oidc: OidcFlags,
    }

    fn parse(flags: &[&str]) -> OidcFlags {
        let words = std::iter::once("x").chain(flags.iter().copied());
        Flags::try_parse_from(words).unwrap().oidc
    }

    #[test]
    fn flags_describe_one_issuer() {
        let base = ["--oidc-issuer-url=https://i", "--oidc-client-id=c"];
        let with = |more: &[&str]| {
            let flags: Vec<&str> = base.iter().chain(more).copied().collect();
            parse(&flags).issuer().unwrap().unwrap()
        };
        for (flags, claim, prefix) in [
            (&[][..], "sub", "https://i#"),
            (&["--oidc-username-claim=email"], "email", ""),
            (&["--oidc-username-prefix=-"], "sub", ""),
            (&["--oidc-username-prefix=p:"], "sub", "p:"),
            (
                &["--oidc-username-claim=email", "--oidc-username-prefix=p:"],
                "email",
                "p:",
            ),
        ] {
            let username = with(flags).claim_mappings.username;
            assert_eq!(username.claim, claim, "{flags:?}");
            assert_eq!(username.prefix.as_deref(), Some(prefix), "{flags:?}");
        }
        let full = with(&[
            "--oidc-groups-claim=g",
            "--oidc-groups-prefix=p:",
            "--oidc-required-claim=a=1",
            "--oidc-required-claim=b=x=y,z",
        ]);
        assert_eq!(full.claim_mappings.groups.prefix.as_deref(), Some("p:"));
        let rules = full.claim_validation_rules.iter();
        let rules: Vec<(&str, &str)> = rules
            .map(|rule| (rule.claim.as_str(), rule.required_value.as_str()))
            .collect();
        assert_eq!(rules, [("a", "1"), ("b", "x=y,z")]);
    }

    #[test]
    fn incomplete_flags_are_refused() {
        assert_eq!(parse(&[]).issuer().unwrap(), None);
        for flags in [
            &["--oidc-issuer-url=https://i"][..],
            &["--oidc-client-id=c"],
            &["--oidc-username-claim=sub"],
            &["--oidc-signing-algs=RS256"],
            &[
                "--oidc-issuer-url=https://i",
                "--oidc-client-id=c",
                "--oidc-required-claim=a",
            ],
            &[
                "--oidc-issuer-url=https://i",
                "--oidc-client-id=c",
                "--oidc-ca-file=/missing",
            ],
        ] {
            assert!(parse(flags).issuer().is_err(), "{flags:?}");
        }
    }
}
