//! The chain of authorizers.

use crate::{EscalationCheck, NodeAuthorizer, Rbac};
use apiserver_request::{Attributes, Authorizer, Decision, Objects, User};
use serde_json::{Value, json};
use std::str::FromStr;
use std::sync::Arc;

/// A value of `--authorization-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// RBAC: roles and bindings.
    Rbac,
    /// The Node authorizer: requests of kubelets.
    Node,
    /// Allows every request.
    AlwaysAllow,
    /// Denies every request.
    AlwaysDeny,
}

/// An unknown mode.
#[derive(Debug, thiserror::Error)]
#[error("unknown authorization mode {0:?}; use Node, RBAC, AlwaysAllow or AlwaysDeny")]
pub struct UnknownMode(pub String);

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        match text {
            "RBAC" => Ok(Mode::Rbac),
            "Node" => Ok(Mode::Node),
            "AlwaysAllow" => Ok(Mode::AlwaysAllow),
            "AlwaysDeny" => Ok(Mode::AlwaysDeny),
            other => Err(UnknownMode(other.to_owned())),
        }
    }
}

/// A list of modes that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ModesError {
    /// One of them is unknown.
    #[error(transparent)]
    Unknown(#[from] UnknownMode),
    /// The list is empty.
    #[error("at least one authorization mode must be given")]
    Empty,
    /// One of them is given twice.
    #[error("the authorization mode {0:?} is given more than once")]
    Repeated(String),
}

/// Parses the values of `--authorization-mode`.
///
/// # Errors
/// An unknown or repeated mode, or none at all.
pub fn parse_modes(names: &[String]) -> Result<Vec<Mode>, ModesError> {
    let mut modes = Vec::new();
    for name in names {
        let mode = name.parse()?;
        if modes.contains(&mode) {
            return Err(ModesError::Repeated(name.clone()));
        }
        modes.push(mode);
    }
    if modes.is_empty() {
        return Err(ModesError::Empty);
    }
    Ok(modes)
}

/// The authorizers in order. The first one with an opinion decides.
pub struct Authz {
    members: Vec<Arc<dyn Authorizer>>,
    rbac: Option<Arc<Rbac>>,
}

impl Authz {
    /// Builds the chain of `modes`, after the group `system:masters`, which is always allowed;
    /// subscribes it to `objects`.
    pub fn new(modes: &[Mode], objects: &Arc<dyn Objects>) -> Arc<Authz> {
        // Always first: an administrator must still have access when no role or binding is left.
        let mut members: Vec<Arc<dyn Authorizer>> = vec![Arc::new(PrivilegedGroup)];
        let mut rbac = None;
        for mode in modes {
            match mode {
                Mode::Rbac => {
                    let one = Rbac::observing(&**objects);
                    members.push(one.clone());
                    rbac = Some(one);
                }
                Mode::Node => members.push(NodeAuthorizer::observing(&**objects)),
                Mode::AlwaysAllow => members.push(Arc::new(AlwaysAllow)),
                Mode::AlwaysDeny => members.push(Arc::new(AlwaysDeny)),
            }
        }
        Arc::new(Authz { members, rbac })
    }

    /// Returns the RBAC authorizer, if that mode is on.
    pub fn rbac(&self) -> Option<Arc<Rbac>> {
        self.rbac.clone()
    }

    /// Returns the check of writes to roles and bindings: an admission plugin that runs after all
    /// others. None without RBAC.
    pub fn escalation_check(
        self: &Arc<Self>,
        objects: &Arc<dyn Objects>,
    ) -> Option<Arc<EscalationCheck>> {
        let rbac = self.rbac.clone()?;
        Some(Arc::new(EscalationCheck::new(
            rbac,
            self.clone(),
            objects.clone(),
        )))
    }
}

impl Authorizer for Authz {
    fn authorize(&self, attributes: &Attributes) -> Decision {
        let mut reasons: Vec<String> = Vec::new();
        for member in &self.members {
            match member.authorize(attributes) {
                // An empty reason would only add an empty line.
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                // The first decision ends the chain, in the order of `--authorization-mode`.
                decided => return decided,
            }
        }
        Decision::NoOpinion(reasons.join("\n"))
    }

    fn rules(&self, user: &User, namespace: &str) -> (Vec<Value>, Vec<Value>, bool) {
        let mut all = (Vec::new(), Vec::new(), false);
        for member in &self.members {
            let (resources, paths, incomplete) = member.rules(user, namespace);
            all.0.extend(resources);
            all.1.extend(paths);
            // The Node authorizer cannot list its rules, which a SelfSubjectRulesReview must not
            // hide.
            all.2 |= incomplete;
        }
        all
    }
}

fn allow_all_rules() -> (Vec<Value>, Vec<Value>, bool) {
    let resources = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    (
        vec![resources],
        vec![json!({"verbs": ["*"], "nonResourceURLs": ["*"]})],
        false,
    )
}

/// Allows every request of members of `system:masters`.
pub struct PrivilegedGroup;

impl Authorizer for PrivilegedGroup {
    fn authorize(&self, attributes: &Attributes) -> Decision {
        if attributes.user.in_group(User::MASTERS) {
            Decision::Allow(String::new())
        } else {
            Decision::NoOpinion(String::new())
        }
    }

    fn rules(&self, user: &User, _namespace: &str) -> (Vec<Value>, Vec<Value>, bool) {
        if user.in_group(User::MASTERS) {
            allow_all_rules()
        } else {
            (Vec::new(), Vec::new(), false)
        }
    }
}

/// Allows every request.
pub struct AlwaysAllow;

impl Authorizer for AlwaysAllow {
    fn authorize(&self, _attributes: &Attributes) -> Decision {
        Decision::Allow(String::new())
    }

    fn rules(&self, _user: &User, _namespace: &str) -> (Vec<Value>, Vec<Value>, bool) {
        allow_all_rules()
    }
}

/// Gives the reason for which a chain without an opinion denies a request.
pub struct AlwaysDeny;

impl Authorizer for AlwaysDeny {
    fn authorize(&self, _attributes: &Attributes) -> Decision {
        // As upstream no denial: a later authorizer of the chain may still allow the request.
        Decision::NoOpinion("Everything is forbidden.".to_owned())
    }

    fn rules(&self, _user: &User, _namespace: &str) -> (Vec<Value>, Vec<Value>, bool) {
        (Vec::new(), Vec::new(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Decision);

    impl Authorizer for Fixed {
        fn authorize(&self, _: &Attributes) -> Decision {
            self.0.clone()
        }
        fn rules(&self, _: &User, _: &str) -> (Vec<Value>, Vec<Value>, bool) {
            (vec![json!({})], Vec::new(), true)
        }
    }

    fn chain(decisions: Vec<Decision>) -> Authz {
        let fixed = |decision| Arc::new(Fixed(decision)) as Arc<dyn Authorizer>;
        Authz {
            members: decisions.into_iter().map(fixed).collect(),
            rbac: None,
        }
    }

    #[test]
    fn first_opinion_decides() {
        let (allow, deny) = (Decision::Allow("a".into()), Decision::Deny("d".into()));
        let none = || Decision::NoOpinion(String::new());
        for (members, expect) in [
            (vec![none(), allow.clone(), deny.clone()], &allow),
            (vec![deny.clone(), allow.clone()], &deny),
        ] {
            assert_eq!(chain(members).authorize(&Attributes::default()), *expect);
        }
    }

    #[test]
    fn reasons_without_an_opinion_are_joined_by_lines() {
        let reasons = ["one", "", "two"].map(|reason| Decision::NoOpinion(reason.into()));
        let decision = chain(reasons.into()).authorize(&Attributes::default());
        assert_eq!(decision, Decision::NoOpinion("one\ntwo".into()));
    }

    #[test]
    fn members_of_system_masters_may_do_everything() {
        let mut request = Attributes::default();
        assert_eq!(
            PrivilegedGroup.authorize(&request),
            Decision::NoOpinion(String::new())
        );
        request.user.groups.push(User::MASTERS.into());
        assert_eq!(
            PrivilegedGroup.authorize(&request),
            Decision::Allow(String::new())
        );
        assert_eq!(PrivilegedGroup.rules(&request.user, "n"), allow_all_rules());
    }

    #[test]
    fn unknown_authorization_mode_is_rejected() {
        for (text, expect) in [
            ("RBAC", Some(Mode::Rbac)),
            ("Node", Some(Mode::Node)),
            ("rbac", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Mode>().ok(), expect, "{text:?}");
        }
    }

    #[test]
    fn modes_that_repeat_or_are_absent_are_rejected() {
        for (names, accepted) in [
            (&["Node", "RBAC"][..], true),
            (&["AlwaysDeny"], true),
            (&["RBAC", "Node", "RBAC"], false),
            (&["RBAC", "rbac"], false),
            (&[], false),
        ] {
            let list: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(parse_modes(&list).is_ok(), accepted, "{names:?}");
        }
    }

    #[test]
    fn always_deny_gives_a_reason_and_leaves_the_decision_to_later_authorizers() {
        let request = Attributes::default();
        let reason = Decision::NoOpinion("Everything is forbidden.".into());
        assert_eq!(AlwaysDeny.authorize(&request), reason);
        let members: Vec<Arc<dyn Authorizer>> = vec![Arc::new(AlwaysDeny), Arc::new(AlwaysAllow)];
        let chain = Authz {
            members,
            rbac: None,
        };
        assert!(matches!(chain.authorize(&request), Decision::Allow(_)));
    }
}
