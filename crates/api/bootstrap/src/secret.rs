//! The Secret of a token: `bootstrap-token-ID` in kube-system.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::token::{BootstrapToken, is_token_id};

/// The type of such Secrets.
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const NAMESPACE: &str = "kube-system";
const PREFIX: &str = "bootstrap-token-";
const SIGNING: &str = "usage-bootstrap-signing";
const AUTHENTICATION: &str = "usage-bootstrap-authentication";

/// Returns the name of a token's Secret.
#[must_use]
pub fn secret_name(id: &str) -> String {
    format!("{PREFIX}{id}")
}

/// The time after which a token is no longer valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiration {
    /// It has none.
    Never,
    /// That time.
    At(Timestamp),
    /// A text that is no time. Such a token counts as expired.
    Invalid,
}

impl Expiration {
    fn parse(text: Option<&str>) -> Self {
        match text {
            None | Some("") => Self::Never,
            Some(text) => api_meta::time::parse(text).map_or(Self::Invalid, Self::At),
        }
    }

    /// Returns whether the token is no longer valid.
    #[must_use]
    pub fn is_past(self, now: Timestamp) -> bool {
        match self {
            Self::Never => false,
            Self::At(end) => end <= now,
            Self::Invalid => true,
        }
    }
}

/// The content of a token's Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSecret {
    /// The token.
    pub token: BootstrapToken,
    /// Text for administrators; may be empty.
    pub description: String,
    /// End of the validity.
    pub expiration: Expiration,
    /// The token signs the cluster-info ConfigMap.
    pub signs: bool,
    /// The token authenticates clients.
    pub authenticates: bool,
    /// Groups of such clients beside `system:bootstrappers`.
    pub groups: Vec<String>,
}

impl TokenSecret {
    /// Returns the end of the validity of any Secret of this type, also of a malformed one.
    #[must_use]
    pub fn expiration_of(secret: &Secret) -> Expiration {
        Expiration::parse(data(secret, "expiration"))
    }

    /// Reads a Secret. Returns None for one that is of another type, malformed, of another name
    /// than its token, or in deletion: deletion revokes a token, also while a finalizer delays it.
    #[must_use]
    pub fn read(secret: &Secret) -> Option<Self> {
        let name = secret.metadata.name.as_deref()?;
        let id = name.strip_prefix(PREFIX).filter(|id| is_token_id(id))?;
        let is_token = secret.type_.as_deref() == Some(SECRET_TYPE)
            && secret.metadata.namespace.as_deref() == Some(NAMESPACE)
            && secret.metadata.deletion_timestamp.is_none()
            && data(secret, "token-id") == Some(id);
        if !is_token {
            return None;
        }
        let groups = data(secret, "auth-extra-groups").unwrap_or_default();
        Some(Self {
            token: BootstrapToken::new(id, data(secret, "token-secret")?).ok()?,
            description: data(secret, "description").unwrap_or_default().to_owned(),
            expiration: Self::expiration_of(secret),
            signs: data(secret, SIGNING) == Some("true"),
            authenticates: data(secret, AUTHENTICATION) == Some("true"),
            groups: groups
                .split(',')
                .filter(|group| !group.is_empty())
                .map(str::to_owned)
                .collect(),
        })
    }

    /// Returns the token if it may sign now.
    #[must_use]
    pub fn signing_token(&self, now: Timestamp) -> Option<&BootstrapToken> {
        (self.signs && !self.expiration.is_past(now)).then_some(&self.token)
    }

    /// Builds the Secret.
    #[must_use]
    pub fn to_secret(&self) -> Secret {
        let expiration = match self.expiration {
            Expiration::At(end) => api_meta::time::format(end),
            Expiration::Never | Expiration::Invalid => String::new(),
        };
        let usage = |is_set: bool| if is_set { "true" } else { "" };
        let entries = [
            ("token-id", self.token.id()),
            ("token-secret", self.token.secret()),
            ("description", self.description.as_str()),
            ("expiration", &expiration),
            (SIGNING, usage(self.signs)),
            (AUTHENTICATION, usage(self.authenticates)),
            ("auth-extra-groups", &self.groups.join(",")),
        ];
        let data: BTreeMap<_, _> = entries
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())))
            .collect();
        Secret {
            metadata: ObjectMeta {
                name: Some(secret_name(self.token.id())),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some(data),
            ..Secret::default()
        }
    }
}

fn data<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    let bytes = secret.data.as_ref()?.get(key)?;
    std::str::from_utf8(&bytes.0).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn token() -> TokenSecret {
        TokenSecret {
            token: "abcdef.0123456789abcdef".parse().unwrap(),
            description: "for node 7".to_owned(),
            expiration: Expiration::At("2026-01-02T00:00:00Z".parse().unwrap()),
            signs: true,
            authenticates: true,
            groups: vec!["system:bootstrappers:a".to_owned()],
        }
    }

    fn set(secret: &mut Secret, key: &str, value: &[u8]) {
        let value = ByteString(value.to_vec());
        secret
            .data
            .get_or_insert_default()
            .insert(key.to_owned(), value);
    }

    #[test]
    fn secret_is_read_as_it_was_written() {
        let never = TokenSecret {
            description: String::new(),
            expiration: Expiration::Never,
            signs: false,
            groups: Vec::new(),
            ..token()
        };
        for written in [token(), never] {
            assert_eq!(TokenSecret::read(&written.to_secret()), Some(written));
        }
    }

    #[test]
    fn only_a_live_secret_with_the_name_of_its_token_counts() {
        type Change = fn(&mut Secret);
        let changes: [(&str, Change); 9] = [
            ("another name", |s| {
                s.metadata.name = Some(secret_name("other0"));
            }),
            ("no prefix", |s| s.metadata.name = Some("abcdef".into())),
            ("another namespace", |s| {
                s.metadata.namespace = Some("default".into());
            }),
            ("another type", |s| s.type_ = Some("Opaque".into())),
            ("in deletion", |s| {
                s.metadata.deletion_timestamp =
                    serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap();
            }),
            ("another id", |s| set(s, "token-id", b"ABCDEF")),
            ("a short secret", |s| set(s, "token-secret", b"a")),
            ("bytes that are no text", |s| {
                set(s, "token-secret", &[0xff; 16]);
            }),
            ("no data", |s| s.data = None),
        ];
        for (what, change) in changes {
            let mut secret = token().to_secret();
            change(&mut secret);
            assert_eq!(TokenSecret::read(&secret), None, "{what}");
        }
    }

    #[test]
    fn token_signs_until_it_expires_and_only_with_the_usage() {
        let signs = |expiration: &[u8], usage: &[u8]| {
            let mut secret = token().to_secret();
            set(&mut secret, "expiration", expiration);
            set(&mut secret, SIGNING, usage);
            let now = "2026-01-01T00:00:00Z".parse().unwrap();
            let read = TokenSecret::read(&secret).unwrap();
            read.signing_token(now).is_some()
        };
        for (expiration, usage, expected) in [
            (&b"2026-01-01T00:00:01Z"[..], &b"true"[..], true),
            (b"2026-01-01T01:30:00+01:00", b"true", true),
            (b"", b"true", true),
            (b"2026-01-01T00:00:00Z", b"true", false),
            (b"tomorrow", b"true", false),
            (b"", b"True", false),
            (b"", b"false", false),
            (b"", b"", false),
        ] {
            let found = signs(expiration, usage);
            assert_eq!(found, expected, "{expiration:?} {usage:?}");
        }
    }
}
