//! The Secret of a token: `bootstrap-token-ID` in kube-system.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::token::{BootstrapToken, is_token_id};

/// The type of such Secrets.
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// The namespace of such Secrets.
pub const SECRET_NAMESPACE: &str = "kube-system";
const PREFIX: &str = "bootstrap-token-";
const SIGNING: &str = "usage-bootstrap-signing";
const AUTHENTICATION: &str = "usage-bootstrap-authentication";
/// The group of all clients with a token, and the prefix of their other groups.
const GROUP: &str = "system:bootstrappers";
const LONGEST_GROUP_SUFFIX: usize = 256;

/// Returns the name of a token's Secret.
#[must_use]
pub fn secret_name(id: &str) -> String {
    format!("{PREFIX}{id}")
}

/// The time after which a token is no longer valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiration {
    /// No end: the token is valid until its Secret is deleted.
    Never,
    /// The first instant at which the token is no longer valid.
    At(Timestamp),
    /// A text that is no time. Such a token counts as expired.
    Invalid,
}

impl Expiration {
    fn parse(text: &str) -> Self {
        if text.is_empty() {
            return Self::Never;
        }
        api_meta::time::parse(text).map_or(Self::Invalid, Self::At)
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
    /// Groups of such clients beside `system:bootstrappers`. They may be invalid.
    pub groups: Vec<String>,
}

impl TokenSecret {
    /// Reads the end of the validity of any Secret of this type, also of a malformed one.
    #[must_use]
    pub fn read_expiration(secret: &Secret) -> Expiration {
        Expiration::parse(&read_text(secret, "expiration"))
    }

    /// Reads a Secret. Returns None for one that is of another type, malformed, of another name
    /// than its token, or in deletion: deletion revokes a token, also while a finalizer delays it.
    #[must_use]
    pub fn read(secret: &Secret) -> Option<Self> {
        let name = secret.metadata.name.as_deref()?;
        let id = name.strip_prefix(PREFIX).filter(|id| is_token_id(id))?;
        let is_token = secret.type_.as_deref() == Some(SECRET_TYPE)
            && secret.metadata.namespace.as_deref() == Some(SECRET_NAMESPACE)
            && secret.metadata.deletion_timestamp.is_none()
            && read_text(secret, "token-id") == id;
        if !is_token {
            return None;
        }
        let groups = read_text(secret, "auth-extra-groups");
        Some(Self {
            token: BootstrapToken::new(id, &read_text(secret, "token-secret")).ok()?,
            description: read_text(secret, "description").into_owned(),
            expiration: Self::read_expiration(secret),
            signs: read_text(secret, SIGNING) == "true",
            authenticates: read_text(secret, AUTHENTICATION) == "true",
            groups: match &*groups {
                "" => Vec::new(),
                groups => groups.split(',').map(str::to_owned).collect(),
            },
        })
    }

    /// Returns the token if it may sign now.
    #[must_use]
    pub fn signing_token(&self, now: Timestamp) -> Option<&BootstrapToken> {
        (self.signs && !self.expiration.is_past(now)).then_some(&self.token)
    }

    /// Returns the groups of clients with this token if it may authenticate now, sorted. The caller
    /// compares the secret part.
    #[must_use]
    pub fn client_groups(&self, now: Timestamp) -> Option<Vec<String>> {
        // As upstream, an invalid group rejects the token: a Secret in kube-system must not grant
        // membership in arbitrary groups.
        let is_valid = self.authenticates
            && !self.expiration.is_past(now)
            && self.groups.iter().all(|group| is_token_group(group));
        is_valid.then(|| {
            let mut groups = self.groups.clone();
            groups.push(GROUP.to_owned());
            groups.sort();
            groups.dedup();
            groups
        })
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
                namespace: Some(SECRET_NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some(data),
            ..Secret::default()
        }
    }
}

/// Returns whether clients with a token may be members of the group: upstream's
/// `BootstrapGroupPattern`.
fn is_token_group(group: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    group
        .strip_prefix(GROUP)
        .and_then(|rest| rest.strip_prefix(':'))
        .is_some_and(|suffix| {
            suffix.len() <= LONGEST_GROUP_SUFFIX
                && suffix.bytes().last().is_some_and(is_word)
                && suffix
                    .bytes()
                    .all(|byte| is_word(byte) || matches!(byte, b':' | b'-'))
        })
}

/// Returns a value; empty if it is absent. Bytes that are not UTF-8 become replacement characters,
/// which no valid value contains: such a value must not count as absent.
fn read_text<'a>(secret: &'a Secret, key: &str) -> Cow<'a, str> {
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    value.map_or(Cow::Borrowed(""), |bytes| String::from_utf8_lossy(&bytes.0))
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
            // Forms that stock components do not accept.
            (b"2999-01-01 00:00:00Z", b"true", false),
            (b"2999-01-01t00:00:00Z", b"true", false),
            (b"2999-01-01T00:00Z", b"true", false),
            (b"2999-01-01T00:00:00Z[UTC]", b"true", false),
            (b"2999-01-01T00:00:00+00:00[UTC]", b"true", false),
            (b" 2999-01-01T00:00:00Z", b"true", false),
            (b"\xff", b"true", false),
            (b"2999-01-01T00:00:00Z\xff", b"true", false),
            (b"", b"True", false),
            (b"", b"false", false),
            (b"", b"", false),
        ] {
            let found = signs(expiration, usage);
            assert_eq!(found, expected, "{expiration:?} {usage:?}");
        }
    }

    #[test]
    fn token_authenticates_until_it_expires_and_only_in_groups_of_tokens() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let groups = |key: &str, value: &[u8]| {
            let mut secret = token().to_secret();
            set(&mut secret, key, value);
            TokenSecret::read(&secret)?.client_groups(now)
        };
        let long = |length| format!("{GROUP}:{}", "a".repeat(length)).into_bytes();
        for (key, value, count) in [
            ("expiration", &b""[..], Some(2)),
            ("expiration", b"2026-01-01T00:00:00Z", None),
            ("expiration", b"2026-01-01T00:00:00.5Z", Some(2)),
            ("expiration", b"\xff", None),
            ("expiration", b"2999-01-01 00:00:00Z", None),
            ("expiration", b"2999-01-01T00:00Z", None),
            (AUTHENTICATION, b"", None),
            (AUTHENTICATION, b"false", None),
            ("auth-extra-groups", b"", Some(1)),
            ("auth-extra-groups", b"system:bootstrappers:a:b-0", Some(2)),
            (
                "auth-extra-groups",
                b"system:bootstrappers:b,system:bootstrappers:a,system:bootstrappers:b",
                Some(3),
            ),
            ("auth-extra-groups", &long(256), Some(2)),
            ("auth-extra-groups", &long(257), None),
            ("auth-extra-groups", b"system:masters", None),
            (
                "auth-extra-groups",
                b"system:bootstrappers:a,system:masters",
                None,
            ),
            ("auth-extra-groups", b"system:bootstrappers:a,", None),
            ("auth-extra-groups", b"system:bootstrappers", None),
            ("auth-extra-groups", b"system:bootstrappers:", None),
            ("auth-extra-groups", b"system:bootstrappers:a-", None),
            ("auth-extra-groups", b"system:bootstrappers:A", None),
            ("auth-extra-groups", b"system:bootstrappers:a\xff", None),
        ] {
            let found = groups(key, value);
            let case = String::from_utf8_lossy(value);
            assert_eq!(found.as_ref().map(Vec::len), count, "{key} {case}");
            assert!(
                found.is_none_or(|groups| groups.is_sorted()),
                "{key} {case}"
            );
        }
    }
}
