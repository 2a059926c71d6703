//! Authorisation: the attributes of a request and the decision about them.

use crate::User;

/// What a user wants to do, as `authorizer.Attributes` in Kubernetes. Empty strings mean "not given".
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// Who asks.
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
    /// The path when this is not a resource request.
    pub path: String,
    /// False for `/healthz`, `/apis`, ...
    pub is_resource: bool,
    /// Raw field selector of the request.
    pub field_selector: String,
    /// Raw label selector of the request.
    pub label_selector: String,
}

/// An authoriser's answer with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Allowed, stop asking.
    Allow(String),
    /// Refused, stop asking.
    Deny(String),
    /// Ask the next authoriser; refused if there is none.
    NoOpinion(String),
}

/// One authoriser of the chain. Decisions come from memory, without IO.
pub trait Authorizer: Send + Sync {
    /// Decides about one request.
    fn authorize(&self, attributes: &Attributes) -> Decision;
    /// The rules that apply to `user` in `namespace`, for SelfSubjectRulesReview:
    /// (`resourceRules`, `nonResourceRules`, incomplete) as JSON.
    fn rules(&self, user: &User, namespace: &str) -> (Vec<serde_json::Value>, Vec<serde_json::Value>, bool);
}
