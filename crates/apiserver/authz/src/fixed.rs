//! Authorizers with a fixed decision.

use apiserver_request::{Attributes, Decision, LocalAuthorizer, User, UserRules};
use serde_json::json;

fn allow_all_rules() -> UserRules {
    let resources = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    UserRules {
        resources: vec![resources],
        paths: vec![json!({"verbs": ["*"], "nonResourceURLs": ["*"]})],
        ..UserRules::default()
    }
}

/// Allows every request of members of `system:masters`.
pub struct PrivilegedGroup;

impl LocalAuthorizer for PrivilegedGroup {
    fn decide(&self, attributes: &Attributes) -> Decision {
        if attributes.user.in_group(User::MASTERS) {
            Decision::Allow(String::new())
        } else {
            Decision::NoOpinion(String::new())
        }
    }

    fn list_rules(&self, user: &User, _namespace: &str) -> UserRules {
        if user.in_group(User::MASTERS) {
            allow_all_rules()
        } else {
            UserRules::default()
        }
    }
}

/// Allows every request.
pub struct AlwaysAllow;

impl LocalAuthorizer for AlwaysAllow {
    fn decide(&self, _attributes: &Attributes) -> Decision {
        Decision::Allow(String::new())
    }

    fn list_rules(&self, _user: &User, _namespace: &str) -> UserRules {
        allow_all_rules()
    }
}

/// Gives the reason for which a chain without an opinion denies a request.
pub struct AlwaysDeny;

impl LocalAuthorizer for AlwaysDeny {
    fn decide(&self, _attributes: &Attributes) -> Decision {
        // As upstream no denial: a later authorizer of the chain may still allow the request.
        Decision::NoOpinion("Everything is forbidden.".to_owned())
    }

    fn list_rules(&self, _user: &User, _namespace: &str) -> UserRules {
        UserRules::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_system_masters_may_do_everything() {
        let mut request = Attributes::default();
        assert_eq!(
            PrivilegedGroup.decide(&request),
            Decision::NoOpinion(String::new())
        );
        request.user.groups.push(User::MASTERS.into());
        assert_eq!(
            PrivilegedGroup.decide(&request),
            Decision::Allow(String::new())
        );
        assert_eq!(
            PrivilegedGroup.list_rules(&request.user, "n"),
            allow_all_rules()
        );
    }

    #[test]
    fn always_deny_gives_a_reason_and_leaves_the_decision_to_later_authorizers() {
        let reason = Decision::NoOpinion("Everything is forbidden.".into());
        assert_eq!(AlwaysDeny.decide(&Attributes::default()), reason);
    }
}
