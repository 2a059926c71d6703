//! The issuers of tokens that an administrator adds to the API servers: the field `jwt` of an
//! AuthenticationConfiguration (`--authentication-config`).
//!
//! Invariant: the rest of the API servers' configuration is the cluster's own, so health checks
//! and cluster-info are open to requests without credentials, and nothing else is. Only the API
//! server knows all rules of the file, so its program checks the issuers before they are stored.

use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::command::run_with_input;
use crate::configs::{authentication_config, make_anonymous_access};
use crate::error::{Error, Result};
use crate::settings::Settings;

/// The flag of the command line.
const FLAG: &str = "--authentication-config";
/// Maximum size of a file in bytes: the ConfigMap in which the issuers are published has 1 MiB.
const MAX_BYTES: u64 = 256 * 1024;
const KIND: &str = "AuthenticationConfiguration";
const GROUP: &str = "apiserver.config.k8s.io";
/// The versions of the kind, which have the same fields.
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// The fields of the kind. Issuers are not parsed further: the API server does that.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AuthenticationConfiguration {
    api_version: String,
    kind: String,
    // YAML and not JSON, because this type rejects repeated fields.
    jwt: Option<Vec<serde_yaml::Value>>,
    anonymous: Option<serde_yaml::Value>,
}

/// Reasons why the issuers of a file can't be used.
#[derive(Debug, thiserror::Error)]
enum Defect {
    #[error("it is no {KIND}: {0}")]
    Syntax(#[from] serde_yaml::Error),
    #[error("its apiVersion is {0:?} and its kind {1:?}; write {GROUP}/v1 and {KIND}")]
    Kind(String, String),
    #[error(
        "the field anonymous is set by `ironclad`, which opens the health checks and cluster-info and no other path; \
         remove the field"
    )]
    Anonymous,
    #[error("the field jwt can't be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it has more than {MAX_BYTES} bytes; name fewer issuers")]
    Size,
}

/// Returns the issuers of the option's file, or the stored ones. An empty path removes them.
pub(crate) fn choose_issuers(
    given: Option<&Path>,
    before: Option<&Settings>,
) -> Result<Vec<Value>> {
    match given {
        None => Ok(before.map_or_else(Vec::new, |before| before.token_issuers.clone())),
        Some(path) if path.as_os_str().is_empty() => Ok(Vec::new()),
        Some(path) => {
            let mut text = String::new();
            let file = std::fs::File::open(path).map_err(Error::io(path))?;
            let read = file.take(MAX_BYTES + 1).read_to_string(&mut text);
            read.map_err(Error::io(path))?;
            parse_issuers(&text)
                .map_err(|defect| Error::Refused(format!("{FLAG}: {}: {defect}", path.display())))
        }
    }
}

/// Parses the content of a file.
fn parse_issuers(text: &str) -> std::result::Result<Vec<Value>, Defect> {
    if u64::try_from(text.len()).is_ok_and(|length| length > MAX_BYTES) {
        return Err(Defect::Size);
    }
    let file: AuthenticationConfiguration = serde_yaml::from_str(text)?;
    let version = file.api_version.strip_prefix(GROUP);
    let version = version.and_then(|rest| rest.strip_prefix('/'));
    if file.kind != KIND || !version.is_some_and(|version| VERSIONS.contains(&version)) {
        return Err(Defect::Kind(file.api_version, file.kind));
    }
    if let Some(anonymous) = file.anonymous.filter(|anonymous| !anonymous.is_null())
        // A file that was copied from the data directory has it.
        && serde_json::to_value(anonymous)? != make_anonymous_access()
    {
        return Err(Defect::Anonymous);
    }
    let issuers = file.jwt.unwrap_or_default();
    let issuers = issuers.iter().map(serde_json::to_value);
    Ok(issuers.collect::<serde_json::Result<_>>()?)
}

/// Rejects issuers that the program of the API server can't use. Writes nothing.
pub(crate) fn check_issuers(settings: &Settings) -> Result<()> {
    if settings.token_issuers.is_empty() {
        return Ok(());
    }
    let program = settings.bin_dir.join("kube-apiserver");
    let issuer = format!(
        "--service-account-issuer={}",
        settings.service_account_issuer()
    );
    let arguments = ["check-config", "--authentication-config=-", &issuer];
    let config = authentication_config(&settings.token_issuers);
    match run_with_input(&program.to_string_lossy(), &arguments, &config) {
        Ok(_) => Ok(()),
        Err(Error::Command { reason, .. }) => Err(Error::Refused(format!(
            "{FLAG}: the API server can't use the issuers of tokens: {reason}; correct the file, and give it again"
        ))),
        Err(error) => Err(error),
    }
}

/// Returns the issuers to publish, if the cluster has published the given ones (None: no list).
///
/// Only a command with the option changes them. A machine without its own change may have an older
/// list, with an issuer whose removal another machine has published.
///
/// # Errors
/// Another machine has published a list since the command with the option began here.
pub(crate) fn choose_published_issuers(
    settings: &Settings,
    published: Option<Vec<Value>>,
) -> Result<Vec<Value>> {
    let own = &settings.token_issuers;
    match (published, &settings.replaced_issuers) {
        (None, _) => Ok(own.clone()),
        (Some(published), None) => Ok(published),
        (Some(published), Some(replaced)) if published == *replaced || published == *own => {
            Ok(own.clone())
        }
        (Some(published), Some(_)) => Err(Error::Refused(format!(
            "another machine has changed the issuers of tokens of the cluster since a command changed those of this one. The              cluster has {}, and this machine's API server {}; nothing was published. Give the file that counts to              `ironclad init {FLAG}`",
            list_urls(&published),
            list_urls(own)
        ))),
    }
}

/// Lists the URLs of issuers for a message.
fn list_urls(issuers: &[Value]) -> String {
    let urls: Vec<_> = issuers
        .iter()
        .map(|issuer| issuer.pointer("/issuer/url").and_then(Value::as_str))
        .map(|url| format!("{:?}", url.unwrap_or("without a URL")))
        .collect();
    match urls.is_empty() {
        true => "none".to_owned(),
        false => urls.join(", "),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    const HEAD: &str =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    const JWT: &str = "jwt:\n- issuer:\n    url: https://login.example.com\n    audiences: [a]\n";

    fn issuer() -> Value {
        json!({"issuer": {"url": "https://login.example.com", "audiences": ["a"]}})
    }

    #[test]
    fn issuers_of_a_file_replace_the_stored_ones_and_an_empty_path_removes_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("authentication.yaml");
        std::fs::write(&path, format!("{HEAD}{JWT}")).unwrap();
        let stored = Settings {
            token_issuers: vec![json!({"issuer": {"url": "https://former"}})],
            ..Settings::example()
        };
        for (given, before, expected) in [
            (None, None, vec![]),
            (None, Some(&stored), stored.token_issuers.clone()),
            (Some(path.as_path()), None, vec![issuer()]),
            (Some(path.as_path()), Some(&stored), vec![issuer()]),
            (Some(Path::new("")), Some(&stored), vec![]),
        ] {
            let chosen = choose_issuers(given, before).unwrap();
            assert_eq!(chosen, expected, "{given:?} {before:?}");
        }
        let absent = dir.path().join("absent.yaml");
        let error = choose_issuers(Some(&absent), Some(&stored)).unwrap_err();
        assert!(error.to_string().contains("absent.yaml"), "{error}");
    }

    /// An issuer that another machine has removed would be back.
    #[test]
    fn issuers_are_published_only_over_those_that_the_command_replaces() {
        let list = |url: &str| vec![json!({"issuer": {"url": url}})];
        let own = || list("https://own");
        let former = || list("https://former");
        let other = || list("https://other");
        for (replaced, published, expected) in [
            (None, None, Some(own())),
            (None, Some(other()), Some(other())),
            (None, Some(vec![]), Some(vec![])),
            (Some(former()), None, Some(own())),
            (Some(former()), Some(former()), Some(own())),
            (Some(former()), Some(own()), Some(own())),
            (Some(former()), Some(other()), None),
            (Some(former()), Some(vec![]), None),
            (Some(vec![]), Some(other()), None),
        ] {
            let settings = Settings {
                token_issuers: own(),
                replaced_issuers: replaced.clone(),
                ..Settings::example_shared()
            };
            let chosen = choose_published_issuers(&settings, published.clone());
            assert_eq!(chosen.ok(), expected, "{replaced:?} {published:?}");
        }
    }

    #[test]
    fn every_version_of_the_kind_is_read() {
        for version in VERSIONS {
            let text = format!("apiVersion: {GROUP}/{version}\nkind: {KIND}\n{JWT}");
            assert_eq!(parse_issuers(&text).unwrap(), [issuer()], "{version}");
        }
        for text in [
            HEAD.to_owned(),
            format!("{HEAD}jwt: null\nanonymous: null\n"),
        ] {
            assert!(parse_issuers(&text).unwrap().is_empty(), "{text}");
        }
    }

    /// A copy of the file in the data directory, to which the administrator adds issuers.
    #[test]
    fn file_with_the_anonymous_access_of_the_cluster_is_accepted() {
        let written = authentication_config(&[issuer()]);
        assert_eq!(parse_issuers(&written).unwrap(), [issuer()]);
    }

    #[test]
    fn defect_of_a_file_names_the_field_and_the_remedy() {
        let anonymous = "remove the field";
        for (text, expected) in [
            (String::new(), "missing field"),
            ("- a\n".to_owned(), "it is no AuthenticationConfiguration"),
            (format!("{HEAD}jwts: []\n"), "unknown field `jwts`"),
            (format!("{HEAD}{JWT}{JWT}"), "duplicate field `jwt`"),
            (
                format!("{HEAD}{JWT}    url: https://other\n"),
                "duplicate entry",
            ),
            (format!("{HEAD}---\n{HEAD}"), "more than one document"),
            (
                HEAD.replace("Authentication", "Authorization"),
                "write apiserver.config.k8s.io/v1",
            ),
            (HEAD.replace("/v1", "/v2"), "apiserver.config.k8s.io/v2"),
            (HEAD.replace(GROUP, "audit.k8s.io"), "audit.k8s.io/v1"),
            (format!("{HEAD}anonymous: {{enabled: true}}\n"), anonymous),
            (format!("{HEAD}anonymous: {{enabled: false}}\n"), anonymous),
            (
                format!("{HEAD}anonymous: {{enabled: true, conditions: [{{path: /api}}]}}\n"),
                anonymous,
            ),
            ("#".repeat(1 + 256 * 1024), "more than 262144 bytes"),
        ] {
            let error = parse_issuers(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    /// The program gets the whole configuration, and the issuer of ServiceAccounts, which no file
    /// may name.
    #[test]
    fn issuers_that_the_api_server_rejects_are_refused_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("kube-apiserver");
        let script = "#!/bin/sh\ncat >\"$0.input\"; echo \"$@\" >\"$0.arguments\"\n[ ! -e \"$0.fails\" ] || { echo 'jwt[0]: bad' >&2; exit 1; }\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let settings = Settings {
            bin_dir: dir.path().into(),
            token_issuers: vec![issuer()],
            ..Settings::example()
        };
        check_issuers(&settings).unwrap();
        let read = |suffix: &str| {
            std::fs::read_to_string(dir.path().join(format!("kube-apiserver.{suffix}"))).unwrap()
        };
        assert_eq!(read("input"), authentication_config(&[issuer()]));
        assert!(read("arguments").contains("=https://kubernetes.default.svc.cluster.local"));
        std::fs::write(dir.path().join("kube-apiserver.fails"), "").unwrap();
        let error = check_issuers(&settings).unwrap_err().to_string();
        assert!(
            error.contains("jwt[0]: bad") && error.contains(FLAG),
            "{error}"
        );
        let without = Settings {
            token_issuers: Vec::new(),
            ..settings
        };
        check_issuers(&without).unwrap();
    }
}
