//! Authorization checks that expressions make for the user of the request.

use api_cel::library::authorizer::{AuthorizerCheck, CheckAttributes, CheckDecision, CheckTarget};
use apiserver_request::{Attributes, Authorizer, Decision, User};
use std::fmt;
use std::sync::Arc;

/// Checks by the server's authorizer.
pub struct UserCheck {
    authorizer: Arc<dyn Authorizer>,
    user: User,
}

impl UserCheck {
    /// Creates the checks for a user.
    pub fn new(authorizer: Arc<dyn Authorizer>, user: &User) -> Self {
        UserCheck {
            authorizer,
            user: user.clone(),
        }
    }
}

impl fmt::Debug for UserCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserCheck").finish_non_exhaustive()
    }
}

fn service_account(namespace: &str, name: &str) -> User {
    User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        // Upstream's `serviceaccount.UserInfo` has these two groups. `system:authenticated` is
        // added by authentication only.
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ],
        ..User::default()
    }
}

impl AuthorizerCheck for UserCheck {
    fn decide(&self, asked: &CheckAttributes) -> CheckDecision {
        let user = match &asked.service_account {
            Some((namespace, name)) => service_account(namespace, name),
            None => self.user.clone(),
        };
        let attributes = match &asked.target {
            CheckTarget::Path(path) => Attributes {
                user,
                verb: asked.verb.clone(),
                path: path.clone(),
                ..Attributes::default()
            },
            CheckTarget::Resource(resource) => Attributes {
                user,
                verb: asked.verb.clone(),
                group: resource.group.clone(),
                // Upstream's CEL library sets `APIVersion: "*"`: expressions name no version, and
                // RBAC does not use it.
                version: "*".to_owned(),
                namespace: resource.namespace.clone(),
                resource: resource.resource.clone(),
                subresource: resource.subresource.clone(),
                name: resource.name.clone(),
                is_resource: true,
                field_selector: resource.field_selector.clone(),
                label_selector: resource.label_selector.clone(),
                ..Attributes::default()
            },
        };
        let (allowed, reason) = match self.authorizer.authorize(&attributes) {
            Decision::Allow(reason) => (true, reason),
            // As upstream, `allowed()` is true for an explicit permission only.
            Decision::Deny(reason) | Decision::NoOpinion(reason) => (false, reason),
        };
        CheckDecision {
            allowed,
            reason,
            error: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_cel::library::authorizer::CheckResource;
    use serde_json::Value;

    /// Allows `get`, and repeats the attributes as the reason.
    struct Echo;

    impl Authorizer for Echo {
        fn authorize(&self, attributes: &Attributes) -> Decision {
            let text = format!(
                "{} {:?} {} {} {} {}",
                attributes.user.name,
                attributes.user.groups,
                attributes.is_resource,
                attributes.path,
                attributes.version,
                attributes.resource
            );
            match attributes.verb.as_str() {
                "get" => Decision::Allow(text),
                "put" => Decision::Deny(text),
                _ => Decision::NoOpinion(text),
            }
        }

        fn rules(&self, _: &User, _: &str) -> (Vec<Value>, Vec<Value>, bool) {
            (Vec::new(), Vec::new(), false)
        }
    }

    fn decide(verb: &str, account: Option<(&str, &str)>, target: CheckTarget) -> CheckDecision {
        let user = User {
            name: "jane".to_owned(),
            ..User::default()
        };
        let account = account.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        UserCheck::new(Arc::new(Echo), &user).decide(&CheckAttributes {
            service_account: account,
            verb: verb.to_owned(),
            target,
        })
    }

    #[test]
    fn only_an_allowed_check_is_allowed() {
        for (verb, expect) in [("get", true), ("put", false), ("list", false)] {
            let decision = decide(verb, None, CheckTarget::Path("/x".to_owned()));
            assert_eq!(decision.allowed, expect, "{verb}");
        }
    }

    #[test]
    fn check_has_the_attributes_of_the_request() {
        let path = decide("get", None, CheckTarget::Path("/x".to_owned()));
        assert_eq!(path.reason, "jane [] false /x  ");
        let pods = CheckResource {
            resource: "pods".to_owned(),
            ..CheckResource::default()
        };
        let account = Some(("ns", "sa"));
        let resource = decide("get", account, CheckTarget::Resource(pods));
        let groups = "[\"system:serviceaccounts\", \"system:serviceaccounts:ns\"]";
        let expect = format!("system:serviceaccount:ns:sa {groups} true  * pods");
        assert_eq!(resource.reason, expect);
    }
}
