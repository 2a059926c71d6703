//! Compiled rules of an issuer.

use super::config::IssuerConfig;
use super::expression::CompiledExpression;

/// A source of an attribute.
#[derive(Clone, Debug)]
pub enum Source {
    /// The value of a claim after a prefix.
    Claim {
        /// Name of the claim.
        name: String,
        /// The prefix.
        prefix: String,
    },
    /// The result of an expression.
    Expression(CompiledExpression),
}

/// The compiled rules of an issuer.
#[derive(Clone, Debug)]
pub struct IssuerRules {
    /// The issuer.
    pub issuer: IssuerConfig,
    /// Claims with their required values.
    pub required: Vec<(String, String)>,
    /// Rules about claims, with the explanation.
    pub claim_rules: Vec<(CompiledExpression, String)>,
    /// The user's name.
    pub username: Source,
    /// The user's groups.
    pub groups: Option<Source>,
    /// The user's UID.
    pub uid: Option<Source>,
    /// Further attributes by key.
    pub extra: Vec<(String, CompiledExpression)>,
    /// Rules about the user, with the explanation.
    pub user_rules: Vec<(CompiledExpression, String)>,
}
