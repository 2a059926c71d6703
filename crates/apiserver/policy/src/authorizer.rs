//! Authorization checks that expressions make for the user of the request.
//!
//! A check may need a call to a webhook, for which an evaluation can't wait. It then fails, the
//! check is made, and the evaluation is repeated with its decision.

use crate::evaluate::Allowance;
use api_cel::library::authorizer::{AuthorizerCheck, CheckAttributes, CheckDecision, CheckTarget};
use apiserver_request::{Attributes, Authorizer, Decision, User};
use base_task::{ComputeKind, compute};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// Checks of one request that may wait for a webhook. The budget of a request pays for about 140.
const MAX_AWAITED: usize = 256;

/// Checks by the server's authorizer.
pub struct UserCheck {
    authorizer: Arc<dyn Authorizer>,
    user: User,
    awaited: Mutex<Awaited>,
}

/// Checks that needed a call to a webhook.
#[derive(Default)]
struct Awaited {
    known: Vec<(CheckAttributes, CheckDecision)>,
    pending: Vec<CheckAttributes>,
}

impl UserCheck {
    /// Creates the checks for a user.
    pub fn new(authorizer: Arc<dyn Authorizer>, user: &User) -> Self {
        UserCheck {
            authorizer,
            user: user.clone(),
            awaited: Mutex::default(),
        }
    }

    /// Runs an evaluation whose expressions have these checks, beside the runtime's tasks. Repeats
    /// it as long as a check has to be waited for.
    pub async fn evaluate<T>(
        &self,
        allowance: &mut Allowance,
        mut evaluation: impl FnMut(&mut Allowance) -> T,
    ) -> T {
        loop {
            // Each repetition has the cost budget of the first one. Work that has no cost counts
            // in each.
            let before = allowance.remaining_cost();
            let client = self.user.compute_client();
            let result = compute(client, ComputeKind::Evaluation, || evaluation(allowance)).await;
            if !self.wait_for_pending().await {
                return result;
            }
            allowance.restore_cost(before);
        }
    }

    /// Makes the checks that an evaluation needs; returns whether there were any.
    async fn wait_for_pending(&self) -> bool {
        let pending = std::mem::take(&mut self.awaited.lock().pending);
        let is_any = !pending.is_empty();
        for check in pending {
            let decision = self
                .authorizer
                .authorize(&self.build_attributes(&check))
                .await;
            let known = (check, convert_decision(decision));
            self.awaited.lock().known.push(known);
        }
        is_any
    }

    /// Returns the decision of a check that was waited for.
    fn find_known(&self, check: &CheckAttributes) -> Option<CheckDecision> {
        let awaited = self.awaited.lock();
        let known = awaited.known.iter().find(|(known, _)| known == check);
        known.map(|(_, decision)| decision.clone())
    }

    /// Records a check to wait for; returns an error if there are too many.
    fn record_pending(&self, check: &CheckAttributes) -> Option<CheckDecision> {
        let mut awaited = self.awaited.lock();
        if awaited.known.len() + awaited.pending.len() >= MAX_AWAITED {
            let error = format!("a request has at most {MAX_AWAITED} checks that need a webhook");
            return Some(CheckDecision {
                error: Some(error),
                ..CheckDecision::default()
            });
        }
        if !awaited.pending.contains(check) {
            awaited.pending.push(check.clone());
        }
        None
    }

    fn build_attributes(&self, check: &CheckAttributes) -> Attributes {
        let user = match &check.service_account {
            Some((namespace, name)) => service_account(namespace, name),
            None => self.user.clone(),
        };
        // The limits are those of the user of the request, also for checks about an account.
        let caller = Some(self.user.clone());
        match &check.target {
            CheckTarget::Path(path) => Attributes {
                user,
                caller,
                verb: check.verb.clone(),
                path: path.clone(),
                ..Attributes::default()
            },
            CheckTarget::Resource(resource) => Attributes {
                user,
                caller,
                verb: check.verb.clone(),
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
    fn decide(&self, check: &CheckAttributes) -> Option<CheckDecision> {
        // First, so that a repeated evaluation does not run through the authorizers again.
        if let Some(decision) = self.find_known(check) {
            return Some(decision);
        }
        let attributes = self.build_attributes(check);
        match self.authorizer.authorize(&attributes).decided() {
            Some(decision) => Some(convert_decision(decision)),
            None => self.record_pending(check),
        }
    }
}

fn convert_decision(decision: Decision) -> CheckDecision {
    let (allowed, reason, error) = match decision {
        Decision::Allow(reason) => (true, reason, None),
        // As upstream, `allowed()` is true for an explicit permission only.
        Decision::Deny(reason) | Decision::NoOpinion(reason) => (false, reason, None),
        Decision::Failed(failure) => (false, failure.reason, Some(failure.error)),
    };
    CheckDecision {
        allowed,
        reason,
        error,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use api_cel::library::authorizer::CheckResource;
    use apiserver_request::{DecisionFuture, Failure, LocalAuthorizer, UserRules};

    /// Allows `get`, and repeats the attributes as the reason.
    struct Echo;

    impl LocalAuthorizer for Echo {
        fn decide(&self, attributes: &Attributes) -> Decision {
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
    }

    fn decide(verb: &str, account: Option<(&str, &str)>, target: CheckTarget) -> CheckDecision {
        let user = User {
            name: "jane".to_owned(),
            ..User::default()
        };
        let account = account.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        let check = UserCheck::new(Arc::new(Echo), &user);
        let decision = check.decide(&CheckAttributes {
            service_account: account,
            verb: verb.to_owned(),
            target,
        });
        decision.unwrap()
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

    /// Allows what has the name `yes`, after a wait.
    struct Slow(Mutex<Vec<String>>);

    impl Authorizer for Slow {
        fn authorize<'a>(&'a self, attributes: &'a Attributes) -> DecisionFuture<'a> {
            DecisionFuture::Pending(Box::pin(async move {
                tokio::task::yield_now().await;
                self.0.lock().push(attributes.name.clone());
                match attributes.name.as_str() {
                    "yes" => Decision::Allow(String::new()),
                    "broken" => Decision::Failed(Failure {
                        error: "down".to_owned(),
                        ..Failure::default()
                    }),
                    _ => Decision::NoOpinion(String::new()),
                }
            }))
        }

        fn rules(&self, _: &User, _: &str) -> UserRules {
            UserRules::default()
        }
    }

    #[tokio::test]
    async fn evaluation_is_repeated_with_the_decisions_that_it_waits_for() {
        let slow = Arc::new(Slow(Mutex::default()));
        let check = UserCheck::new(slow.clone(), &User::default());
        let check_name = |name: &str| {
            let decision = check.decide(&CheckAttributes {
                service_account: None,
                verb: "get".to_owned(),
                target: CheckTarget::Resource(CheckResource {
                    name: name.to_owned(),
                    ..CheckResource::default()
                }),
            });
            decision.map(|decision| (decision.allowed, decision.error.is_some()))
        };
        let mut allowance = Allowance::new();
        allowance.begin(1000);
        let before = allowance.remaining_cost();
        let mut costs = Vec::new();
        let evaluation = |allowance: &mut Allowance| {
            costs.push(allowance.remaining_cost());
            allowance.charge_total(7).unwrap();
            // The second check is made only if the first one allows.
            let (allowed, _) = check_name("yes")?;
            Some((allowed, check_name("no")?, check_name("broken")?))
        };
        let result = check.evaluate(&mut allowance, evaluation).await;
        assert_eq!(result, Some((true, (false, false), (false, true))));
        assert_eq!(*slow.0.lock(), ["yes", "no", "broken"]);
        assert_eq!(costs, [before; 4], "each repetition has the same budget");
        assert_eq!(allowance.remaining_cost().1, before.1 - 7);
    }

    #[tokio::test]
    async fn checks_of_a_request_that_wait_are_bounded() {
        let check = UserCheck::new(Arc::new(Slow(Mutex::default())), &User::default());
        let mut rounds = 0;
        let evaluation = |_: &mut Allowance| {
            rounds += 1;
            let decision = check.decide(&CheckAttributes {
                service_account: None,
                verb: rounds.to_string(),
                target: CheckTarget::Path("/x".to_owned()),
            });
            decision.map(|decision| decision.error)
        };
        let result = check.evaluate(&mut Allowance::new(), evaluation).await;
        assert!(result.flatten().is_some());
        assert_eq!(rounds, MAX_AWAITED + 1);
    }
}
