//! The AuthenticationConfiguration of `apiserver.config.k8s.io`, whose versions have the same
//! fields.

use serde::Deserialize;

/// An AuthenticationConfiguration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthenticationConfiguration {
    /// Group and version.
    pub api_version: String,
    /// `AuthenticationConfiguration`.
    pub kind: String,
    /// Issuers of tokens.
    #[serde(default)]
    pub jwt: Vec<JwtConfig>,
    /// Requests without credentials; replaces `--anonymous-auth`.
    pub anonymous: Option<AnonymousConfig>,
}

/// The paths that accept requests without credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AnonymousConfig {
    /// Such requests are accepted.
    pub enabled: bool,
    /// The paths; none for all.
    pub conditions: Vec<AnonymousCondition>,
}

/// A path that accepts requests without credentials.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnonymousCondition {
    /// The exact path.
    pub path: String,
}

/// An issuer and the mapping of its tokens to users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct JwtConfig {
    /// The issuer.
    pub issuer: IssuerConfig,
    /// Rules that the claims must satisfy.
    pub claim_validation_rules: Vec<ClaimRule>,
    /// Sources of the user's attributes.
    pub claim_mappings: ClaimMappings,
    /// Rules that the user must satisfy.
    pub user_validation_rules: Vec<UserRule>,
}

/// An issuer of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IssuerConfig {
    /// The value of `iss`, and the base of the discovery document's URL.
    pub url: String,
    /// URL of the discovery document, if it is not below `url`.
    #[serde(rename = "discoveryURL")]
    pub discovery_url: String,
    /// Certificates in PEM that verify the issuer's servers; empty for the system's.
    pub certificate_authority: String,
    /// Accepted values of `aud`.
    pub audiences: Vec<String>,
    /// `MatchAny`; required with several audiences.
    pub audience_match_policy: String,
    /// Not supported: connections are direct or through `HTTPS_PROXY`.
    pub egress_selector_type: String,
}

/// A rule about claims: a claim with a value, or an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClaimRule {
    /// Name of a claim.
    pub claim: String,
    /// Its value.
    pub required_value: String,
    /// An expression over `claims` that must be true.
    pub expression: String,
    /// Explanation in the log.
    pub message: String,
}

/// Sources of the user's attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClaimMappings {
    /// The name of the user.
    pub username: PrefixedMapping,
    /// Groups.
    pub groups: PrefixedMapping,
    /// UID.
    pub uid: UidMapping,
    /// Further attributes.
    pub extra: Vec<ExtraMapping>,
}

/// A claim with a prefix, or an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PrefixedMapping {
    /// Name of a claim.
    pub claim: String,
    /// Prefix of the claim's value; required with `claim`.
    pub prefix: Option<String>,
    /// An expression over `claims`.
    pub expression: String,
}

/// A claim, or an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UidMapping {
    /// Name of a claim.
    pub claim: String,
    /// An expression over `claims`.
    pub expression: String,
}

/// A further attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExtraMapping {
    /// The key, with a domain.
    pub key: String,
    /// An expression over `claims`: a string or a list of strings.
    pub value_expression: String,
}

/// A rule about the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UserRule {
    /// An expression over `user` that must be true.
    pub expression: String,
    /// Explanation in the log.
    pub message: String,
}
