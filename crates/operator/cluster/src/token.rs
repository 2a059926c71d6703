//! Bootstrap tokens of a cluster on this machine, for `ironclad token`.

use std::path::Path;
use std::time::Duration;

use api_bootstrap::{
    BootstrapToken, Expiration, SECRET_NAMESPACE, SECRET_TYPE, TokenSecret, secret_name,
};
use client::{Client, DeleteParams, ListParams};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use operator_pki::CertificateKey;

use crate::addons::TOKEN_GROUP;
use crate::admin_kubeconfig::connect_admin_anywhere;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::random_token::{compute_end, generate_token};
use crate::settings::Settings;
use crate::shared_keys::{CONTROL_PLANE_GROUP, KEYS_LIFETIME, upload_keys};

/// Options of `create_token`.
#[derive(Debug, Clone)]
pub struct TokenOptions {
    /// Time for which the token is valid; None without a limit, which tokens for the control plane
    /// always have.
    pub lifetime: Option<Duration>,
    /// Text for administrators.
    pub description: String,
}

/// Creates a token with which machines join the control plane of the cluster in `data_dir`, and the
/// key that decrypts the cluster's keys. It is stored nowhere.
pub async fn create_control_plane_token(
    data_dir: &Path,
    options: &TokenOptions,
) -> Result<(BootstrapToken, CertificateKey)> {
    let settings = load_settings(data_dir)?;
    if settings.control_plane.is_none() {
        return Err(Error::Refused(
            "the store of this cluster listens on this machine only; run `ironclad init` first"
                .to_owned(),
        ));
    }
    let layout = Layout::for_settings(&settings);
    let options = TokenOptions {
        lifetime: Some(limit_lifetime(options.lifetime)),
        ..options.clone()
    };
    // The keys first: a token for the control plane is of no use without them.
    let key = upload_keys(&connect_admin_anywhere(&settings, &layout)?, &layout).await?;
    let groups = vec![TOKEN_GROUP.to_owned(), CONTROL_PLANE_GROUP.to_owned()];
    let token = store_token(data_dir, &options, groups).await?;
    Ok((token, key))
}

/// Returns the lifetime of a token for the control plane, which has no use after that of the keys.
fn limit_lifetime(given: Option<Duration>) -> Duration {
    given.map_or(KEYS_LIFETIME, |given| given.min(KEYS_LIFETIME))
}

/// Creates a token with which machines join the cluster in `data_dir`.
pub async fn create_token(data_dir: &Path, options: &TokenOptions) -> Result<BootstrapToken> {
    store_token(data_dir, options, vec![TOKEN_GROUP.to_owned()]).await
}

async fn store_token(
    data_dir: &Path,
    options: &TokenOptions,
    groups: Vec<String>,
) -> Result<BootstrapToken> {
    let client = connect_cluster(data_dir)?;
    let expiration = match options.lifetime {
        None => Expiration::Never,
        Some(lifetime) => {
            let end = compute_end(Timestamp::now(), lifetime).ok_or_else(|| {
                Error::Refused("--ttl is too long; 0 makes a token that never expires".into())
            })?;
            Expiration::At(end)
        }
    };
    let token = generate_token()?;
    let secret = new_secret(&token, expiration, &options.description, groups).to_secret();
    client
        .namespaced::<Secret>(SECRET_NAMESPACE)
        .create(&secret)
        .await
        .map_err(describe_error("creating the token"))?;
    Ok(token)
}

fn new_secret(
    token: &BootstrapToken,
    expiration: Expiration,
    description: &str,
    groups: Vec<String>,
) -> TokenSecret {
    TokenSecret {
        token: token.clone(),
        description: description.to_owned(),
        expiration,
        signs: true,
        authenticates: true,
        groups,
    }
}

/// Returns the tokens of the cluster in `data_dir`, in the order of their IDs.
pub async fn list_tokens(data_dir: &Path) -> Result<Vec<TokenSecret>> {
    let client = connect_cluster(data_dir)?;
    // The namespace has Secrets of other types, too.
    let only = ListParams::new().with_fields(format!("type={SECRET_TYPE}"));
    let list = client
        .namespaced::<Secret>(SECRET_NAMESPACE)
        .list(&only)
        .await
        .map_err(describe_error("listing the tokens"))?;
    // Secrets of this type that other clients created need not be tokens.
    let mut tokens: Vec<_> = list.items.iter().filter_map(TokenSecret::read).collect();
    tokens.sort_by(|a, b| a.token.id().cmp(b.token.id()));
    Ok(tokens)
}

/// Deletes a token of the cluster in `data_dir`. No client can authenticate with it from then on;
/// nodes that joined with it stay.
///
/// # Errors
/// There is no token with this ID.
pub async fn delete_token(data_dir: &Path, id: &str) -> Result<()> {
    let client = connect_cluster(data_dir)?;
    let deleted = client
        .namespaced::<Secret>(SECRET_NAMESPACE)
        .delete(&secret_name(id), &DeleteParams::new())
        .await;
    match deleted {
        Err(error) if error.is_not_found() => Err(Error::Refused(format!(
            "there is no token {id}; `ironclad token list` shows all"
        ))),
        deleted => deleted
            .map(drop)
            .map_err(describe_error("deleting the token")),
    }
}

fn describe_error(what: &str) -> impl FnOnce(client::Error) -> Error + use<> {
    let what = what.to_owned();
    |cause| Error::Api { what, cause }
}

fn connect_cluster(data_dir: &Path) -> Result<Client> {
    let settings = load_settings(data_dir)?;
    connect_admin_anywhere(&settings, &Layout::for_settings(&settings))
}

fn load_settings(data_dir: &Path) -> Result<Settings> {
    // A worker has no administrator's credentials.
    let settings = Settings::load(data_dir)?.filter(|settings| settings.membership.is_none());
    settings.ok_or_else(|| {
        Error::Refused(format!(
            "{} holds no cluster; tokens are made on the machine that started it, or on one of its control plane",
            data_dir.display()
        ))
    })
}

/// Returns the command that joins another machine to the cluster in `data_dir` with this token.
pub fn format_join_command(data_dir: &Path, token: &BootstrapToken) -> Result<String> {
    let settings = load_settings(data_dir)?;
    let ca = crate::addons::read_ca(&Layout::for_settings(&settings))?;
    Ok(format_command(&settings, token, &ca))
}

fn format_command(settings: &Settings, token: &BootstrapToken, ca: &str) -> String {
    let url = settings.join_url();
    let endpoint = url.strip_prefix("https://").unwrap_or(&url);
    let mut command = format!("ironclad join {endpoint} --token {}", token.expose());
    // Each certificate of a bundle: the API server's may be signed by any of them.
    for pin in operator_discovery::pin_certificates(ca.as_bytes()) {
        command += &format!(" --discovery-token-ca-cert-hash {pin}");
    }
    command
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn generated_tokens_differ() {
        let (one, other) = (generate_token().unwrap(), generate_token().unwrap());
        assert_ne!(one.id(), other.id());
        assert_ne!(one.secret(), other.secret());
    }

    #[test]
    fn join_command_names_the_server_the_token_and_the_key_of_the_ca() {
        let dir = tempfile::tempdir().unwrap();
        let ca = operator_pki::Authority::ensure(dir.path(), "ca", "ca").unwrap();
        let token: BootstrapToken = "abcdef.0123456789abcdef".parse().unwrap();
        let command = format_command(&Settings::example(), &token, ca.certificate());
        let start = "ironclad join 192.0.2.2:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:";
        assert!(command.starts_with(start), "{command}");
        let other = operator_pki::Authority::ensure(dir.path(), "b", "b").unwrap();
        let two = format!("{}{}", ca.certificate(), other.certificate());
        let command = format_command(&Settings::example(), &token, &two);
        assert_eq!(
            command.matches(" --discovery-token-ca-cert-hash ").count(),
            2
        );
    }

    #[test]
    fn token_for_the_control_plane_ends_with_its_keys() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        for (given, expected) in [
            (None, hours(2)),
            (Some(hours(24)), hours(2)),
            (Some(hours(1)), hours(1)),
        ] {
            assert_eq!(limit_lifetime(given), expected, "{given:?}");
        }
    }

    #[test]
    fn machine_that_joined_makes_no_tokens() {
        let dir = tempfile::tempdir().unwrap();
        let joined = Settings {
            data_dir: dir.path().into(),
            ..Settings::example_joined()
        };
        joined.save().unwrap();
        let error = load_settings(dir.path()).unwrap_err();
        assert!(error.to_string().contains("holds no cluster"), "{error}");
    }

    #[test]
    fn new_token_signs_and_authenticates_in_the_group_of_joining_nodes() {
        let token = generate_token().unwrap();
        let now = Timestamp::now();
        let end = compute_end(now, Duration::from_secs(60)).unwrap();
        let created = new_secret(
            &token,
            Expiration::At(end),
            "",
            vec![TOKEN_GROUP.to_owned()],
        );
        assert!(created.authenticates && created.signing_token(now).is_some());
        assert_eq!(created.signing_token(end), None);
        assert_eq!(created.groups, [TOKEN_GROUP]);
        assert_eq!(compute_end(now, Duration::MAX), None);
    }
}
