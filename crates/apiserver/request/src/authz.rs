//! Authorization: the attributes of a request and the decision.

use crate::User;

/// The attributes of a request, as `authorizer.Attributes` in Kubernetes. Empty strings mean "not
/// given".
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// User.
    pub user: User,
    /// `get`, `list`, `create`, ... or the lower-cased HTTP method for non-resource paths.
    pub verb: String,
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// Plural resource name.
    pub resource: String,
    /// Subresource, empty for the object itself.
    pub subresource: String,
    /// Object name, empty for collections.
    pub name: String,
    /// The path of a non-resource request.
    pub path: String,
    /// False for `/healthz`, `/apis`, ...
    pub is_resource: bool,
    /// Raw field selector of the request.
    pub field_selector: String,
    /// Raw label selector of the request.
    pub label_selector: String,
}

/// An authorizer's decision, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Allowed; the chain ends.
    Allow(String),
    /// Denied; the chain ends.
    Deny(String),
    /// The next authorizer decides; denied if there is none.
    NoOpinion(String),
}

/// One authorizer of the chain. It decides from memory, without IO.
pub trait Authorizer: Send + Sync {
    /// Decides about a request.
    fn authorize(&self, attributes: &Attributes) -> Decision;
    /// Returns the rules of `user` in `namespace`, for SelfSubjectRulesReview: (`resourceRules`,
    /// `nonResourceRules`, incomplete) as JSON.
    fn rules(
        &self,
        user: &User,
        namespace: &str,
    ) -> (Vec<serde_json::Value>, Vec<serde_json::Value>, bool);
}
