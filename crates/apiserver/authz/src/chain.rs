//! The chain of authorizers: the first one with an opinion decides.

use crate::fixed::PrivilegedGroup;
use crate::message::aggregate_errors;
use crate::metrics::DecisionCounts;
use crate::webhook::{Prepared, ReviewCall, WebhookAuthorizer};
use apiserver_request::{
    Attributes, Decision, DecisionFuture, Failure, LocalAuthorizer, User, UserRules,
};
use std::sync::Arc;

/// The authorizers of one configuration, in order.
pub struct Chain {
    members: Vec<Member>,
}

/// One authorizer.
pub struct Member {
    kind: MemberKind,
    counts: Arc<DecisionCounts>,
}

enum MemberKind {
    Local(Arc<dyn LocalAuthorizer>),
    Webhook(Arc<WebhookAuthorizer>),
}

impl Member {
    /// Creates a member that decides from memory.
    pub fn local(authorizer: Arc<dyn LocalAuthorizer>, counts: Arc<DecisionCounts>) -> Self {
        let kind = MemberKind::Local(authorizer);
        Member { kind, counts }
    }

    /// Creates a webhook.
    pub fn webhook(authorizer: Arc<WebhookAuthorizer>, counts: Arc<DecisionCounts>) -> Self {
        let kind = MemberKind::Webhook(authorizer);
        Member { kind, counts }
    }
}

/// The opinions of the authorizers so far.
#[derive(Default)]
struct Progress {
    next: usize,
    reasons: Vec<String>,
    errors: Vec<String>,
}

/// The end of a run through the members without IO.
enum Step {
    Decided(Decision),
    /// The next member needs a call.
    Call(Box<ReviewCall>),
}

impl Chain {
    /// Creates a chain.
    pub fn new(members: Vec<Member>) -> Arc<Self> {
        Arc::new(Chain { members })
    }

    /// Decides about a request. Waits only if a webhook has to be called.
    pub fn authorize<'a>(self: &Arc<Self>, attributes: &'a Attributes) -> DecisionFuture<'a> {
        // Always first: an administrator must still have access when no role or binding is left.
        if let Decision::Allow(reason) = PrivilegedGroup.decide(attributes) {
            return Decision::Allow(reason).into();
        }
        let mut progress = Progress::default();
        match self.advance(&mut progress, attributes) {
            Step::Decided(decision) => decision.into(),
            Step::Call(call) => {
                let chain = self.clone();
                DecisionFuture::Pending(Box::pin(async move {
                    chain.finish(progress, call, attributes).await
                }))
            }
        }
    }

    /// Runs through the members up to a decision or a call.
    fn advance(&self, progress: &mut Progress, attributes: &Attributes) -> Step {
        while let Some(member) = self.members.get(progress.next) {
            let decision = match &member.kind {
                MemberKind::Local(authorizer) => authorizer.decide(attributes),
                MemberKind::Webhook(webhook) => match webhook.prepare(attributes) {
                    Prepared::Decided(decision) => decision,
                    Prepared::Call(call) => return Step::Call(call),
                },
            };
            if let Some(decision) = progress.add(member, decision) {
                return Step::Decided(decision);
            }
        }
        Step::Decided(progress.conclude())
    }

    /// Makes the call at which the run has stopped, and then continues.
    async fn finish(
        &self,
        mut progress: Progress,
        mut call: Box<ReviewCall>,
        attributes: &Attributes,
    ) -> Decision {
        loop {
            let decision = call.send().await;
            if let Some(member) = self.members.get(progress.next)
                && let Some(decision) = progress.add(member, decision)
            {
                return decision;
            }
            match self.advance(&mut progress, attributes) {
                Step::Decided(decision) => return decision,
                Step::Call(next) => call = next,
            }
        }
    }

    /// Returns the rules of a user, of all members.
    pub fn rules(&self, user: &User, namespace: &str) -> UserRules {
        let mut all = PrivilegedGroup.list_rules(user, namespace);
        for member in &self.members {
            all.extend(match &member.kind {
                MemberKind::Local(authorizer) => authorizer.list_rules(user, namespace),
                MemberKind::Webhook(webhook) => webhook.list_rules(),
            });
        }
        all
    }
}

impl Progress {
    /// Adds the decision of a member; returns it if it ends the chain.
    fn add(&mut self, member: &Member, decision: Decision) -> Option<Decision> {
        self.next += 1;
        member.counts.record(&decision);
        match decision {
            Decision::NoOpinion(reason) => self.add_reason(reason),
            Decision::Failed(failure) if !failure.is_denied => {
                self.add_reason(failure.reason);
                self.errors.push(failure.error);
            }
            decided => return Some(decided),
        }
        None
    }

    fn add_reason(&mut self, reason: String) {
        // An empty reason would only add an empty line.
        if !reason.is_empty() {
            self.reasons.push(reason);
        }
    }

    /// Returns the decision of a chain in which no member has an opinion.
    fn conclude(&mut self) -> Decision {
        let reason = self.reasons.join("\n");
        if self.errors.is_empty() {
            return Decision::NoOpinion(reason);
        }
        Decision::Failed(Failure {
            is_denied: false,
            is_overloaded: false,
            reason,
            error: aggregate_errors(&self.errors),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{AlwaysAllow, fixed::AlwaysDeny};
    use serde_json::json;

    struct Fixed(Decision);

    impl LocalAuthorizer for Fixed {
        fn decide(&self, _: &Attributes) -> Decision {
            self.0.clone()
        }
        fn list_rules(&self, _: &User, _: &str) -> UserRules {
            UserRules {
                resources: vec![json!({})],
                ..UserRules::default()
            }
        }
    }

    fn decide(authorizers: Vec<Arc<dyn LocalAuthorizer>>) -> Decision {
        let members = authorizers
            .into_iter()
            .map(|authorizer| Member::local(authorizer, Arc::default()));
        let chain = Chain::new(members.collect());
        chain.authorize(&Attributes::default()).decided().unwrap()
    }

    fn fixed(decision: &Decision) -> Arc<dyn LocalAuthorizer> {
        Arc::new(Fixed(decision.clone()))
    }

    #[test]
    fn first_opinion_decides() {
        let (allow, deny) = (Decision::Allow("a".into()), Decision::Deny("d".into()));
        let none = Decision::NoOpinion(String::new());
        let failed = Decision::Failed(Failure {
            is_denied: true,
            ..Failure::default()
        });
        for (members, expect) in [
            ([&none, &allow, &deny], &allow),
            ([&deny, &allow, &none], &deny),
            ([&failed, &allow, &none], &failed),
        ] {
            let members = members.into_iter().map(fixed).collect();
            assert_eq!(decide(members), *expect);
        }
    }

    #[test]
    fn reasons_without_an_opinion_are_joined_by_lines() {
        let reasons = ["one", "", "two"].map(|reason| Decision::NoOpinion(reason.into()));
        let decision = decide(reasons.iter().map(fixed).collect());
        assert_eq!(decision, Decision::NoOpinion("one\ntwo".into()));
    }

    #[test]
    fn error_without_a_denial_counts_only_if_no_authorizer_allows() {
        let failed = |error: &str| {
            Decision::Failed(Failure {
                is_denied: false,
                is_overloaded: false,
                reason: String::new(),
                error: error.to_owned(),
            })
        };
        let (one, two) = (failed("one"), failed("two"));
        let allow = Decision::Allow("a".into());
        assert_eq!(decide(vec![fixed(&one), fixed(&allow)]), allow);
        let none = Decision::NoOpinion("why".into());
        let Decision::Failed(failure) = decide(vec![fixed(&one), fixed(&none), fixed(&two)]) else {
            panic!("the errors are lost");
        };
        assert_eq!((failure.is_denied, failure.reason.as_str()), (false, "why"));
        assert_eq!(failure.error, "[one, two]");
    }

    #[test]
    fn members_of_system_masters_are_allowed_before_all_authorizers() {
        let members = vec![Member::local(
            fixed(&Decision::Deny(String::new())),
            Arc::default(),
        )];
        let mut request = Attributes::default();
        request.user.groups.push(User::MASTERS.into());
        let decision = Chain::new(members).authorize(&request).decided();
        assert_eq!(decision, Some(Decision::Allow(String::new())));
    }

    #[test]
    fn always_deny_leaves_the_decision_to_later_authorizers() {
        let decision = decide(vec![Arc::new(AlwaysDeny), Arc::new(AlwaysAllow)]);
        assert!(matches!(decision, Decision::Allow(_)));
    }
}
