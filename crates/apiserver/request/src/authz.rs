//! Authorization: the attributes of a request and the decision.

use crate::User;
use serde_json::Value;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

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
    /// The caller, if it is not the user: reviews and expressions may be about other users.
    pub caller: Option<User>,
}

impl Attributes {
    /// Returns the user whose limits apply. A caller chooses the subject of a review, so that the
    /// subject's limits are not the caller's to use.
    pub fn caller(&self) -> &User {
        self.caller.as_ref().unwrap_or(&self.user)
    }
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
    /// The authorizer could not decide, which never allows the request.
    Failed(Failure),
}

/// An authorizer that could not decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// True if the chain ends; otherwise the next authorizer decides.
    pub is_denied: bool,
    /// True if the same request may succeed soon, because a limit of waiting requests was reached.
    pub is_overloaded: bool,
    /// The reasons of the authorizers.
    pub reason: String,
    /// The error, without addresses or credentials: clients see it.
    pub error: String,
}

/// A decision that may have to wait for a webhook. Without one, it is ready and costs no
/// allocation.
pub enum DecisionFuture<'a> {
    /// The decision.
    Ready(Ready<Decision>),
    /// Waits for a webhook.
    Pending(Pin<Box<dyn Future<Output = Decision> + Send + 'a>>),
}

impl DecisionFuture<'_> {
    /// Returns the decision if it is ready.
    pub fn decided(self) -> Option<Decision> {
        match self {
            DecisionFuture::Ready(decision) => Some(decision.into_inner()),
            DecisionFuture::Pending(_) => None,
        }
    }
}

impl From<Decision> for DecisionFuture<'_> {
    fn from(decision: Decision) -> Self {
        DecisionFuture::Ready(ready(decision))
    }
}

impl Future for DecisionFuture<'_> {
    type Output = Decision;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Decision> {
        match self.get_mut() {
            DecisionFuture::Ready(decision) => Pin::new(decision).poll(context),
            DecisionFuture::Pending(waiting) => waiting.as_mut().poll(context),
        }
    }
}

/// The rules of a user in a namespace, for SelfSubjectRulesReview.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserRules {
    /// `resourceRules`.
    pub resources: Vec<Value>,
    /// `nonResourceRules`.
    pub paths: Vec<Value>,
    /// True if there may be more rules.
    pub incomplete: bool,
    /// Errors of authorizers.
    pub errors: Vec<String>,
}

impl UserRules {
    /// Adds the rules of another authorizer.
    pub fn extend(&mut self, other: UserRules) {
        self.resources.extend(other.resources);
        self.paths.extend(other.paths);
        self.incomplete |= other.incomplete;
        self.errors.extend(other.errors);
    }
}

/// Decides about requests.
pub trait Authorizer: Send + Sync {
    /// Decides about a request.
    fn authorize<'a>(&'a self, attributes: &'a Attributes) -> DecisionFuture<'a>;
    /// Returns the rules of `user` in `namespace`.
    fn rules(&self, user: &User, namespace: &str) -> UserRules;
}

/// An authorizer that decides from memory, without IO.
pub trait LocalAuthorizer: Send + Sync {
    /// Decides about a request.
    fn decide(&self, attributes: &Attributes) -> Decision;

    /// Returns the rules of `user` in `namespace`.
    fn list_rules(&self, _user: &User, _namespace: &str) -> UserRules {
        UserRules {
            incomplete: true,
            ..UserRules::default()
        }
    }
}

impl<T: LocalAuthorizer> Authorizer for T {
    fn authorize<'a>(&'a self, attributes: &'a Attributes) -> DecisionFuture<'a> {
        self.decide(attributes).into()
    }

    fn rules(&self, user: &User, namespace: &str) -> UserRules {
        self.list_rules(user, namespace)
    }
}
