//! Decisions of webhooks whose server is a function.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::chain::{Chain, Member};
use crate::fixed::AlwaysAllow;
use apiserver_request::User;
use apiserver_webhook_client::ReviewVersion;
use base_telemetry::MetricsPage;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

type Respond = Box<dyn Fn(usize, &Value) -> Result<Value, CallError> + Send + Sync>;

/// A server that responds by a function of the number of the call and the review.
struct FakeServer {
    calls: AtomicUsize,
    respond: Respond,
}

#[async_trait::async_trait]
impl ReviewServer for FakeServer {
    async fn post_review(&self, review: Bytes, timeout: Duration) -> Result<Bytes, CallError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let review: Value = serde_json::from_slice(&review).unwrap();
        match (self.respond)(call, &review) {
            Ok(Value::Null) => {
                tokio::time::sleep(timeout).await;
                Err(CallError::Deadline { url: "u".into() })
            }
            Ok(status) => Ok(json!({"status": status}).to_string().into()),
            Err(error) => Err(error),
        }
    }
}

struct Setup {
    server: Arc<FakeServer>,
    webhook: Arc<WebhookAuthorizer>,
    metrics: Arc<AuthzMetrics>,
}

impl Setup {
    fn new(
        change: impl Fn(&mut WebhookSpec),
        respond: impl Fn(usize, &Value) -> Result<Value, CallError> + Send + Sync + 'static,
    ) -> Self {
        let minute = Duration::from_secs(60);
        let mut spec = WebhookSpec::from_flags(PathBuf::new(), ReviewVersion::V1, minute, minute);
        spec.denies_on_error = true;
        change(&mut spec);
        let server = Arc::new(FakeServer {
            calls: AtomicUsize::new(0),
            respond: Box::new(respond),
        });
        let metrics: Arc<AuthzMetrics> = Arc::default();
        let (name, shared) = ("hook".to_owned(), metrics.clone());
        Setup {
            webhook: WebhookAuthorizer::new(name, spec, server.clone(), shared),
            server,
            metrics,
        }
    }

    async fn authorize(&self, attributes: &Attributes) -> Decision {
        let members = vec![Member::webhook(self.webhook.clone(), Arc::default())];
        Chain::new(members).authorize(attributes).await
    }

    fn calls(&self) -> usize {
        self.server.calls.load(Ordering::SeqCst)
    }

    fn has_metric(&self, line: &str) -> bool {
        let mut page = MetricsPage::default();
        self.metrics.write_metrics(&mut page);
        page.finish().lines().any(|found| found == line)
    }
}

fn request(name: &str) -> Attributes {
    Attributes {
        user: User {
            name: "jane".into(),
            ..User::default()
        },
        verb: "get".into(),
        resource: "pods".into(),
        name: name.into(),
        is_resource: true,
        ..Attributes::default()
    }
}

fn status_error(code: u16) -> CallError {
    CallError::Status {
        code,
        message: "secret.internal said no".into(),
    }
}

#[tokio::test]
async fn response_decides_and_is_reused() {
    let setup = Setup::new(
        |_| {},
        |_, review| match review["spec"]["resourceAttributes"]["name"].as_str() {
            Some("a") => Ok(json!({"allowed": true, "reason": "yes"})),
            Some("b") => Ok(json!({"denied": true, "reason": "no"})),
            _ => Ok(json!({"reason": "why"})),
        },
    );
    for (name, expect, calls) in [
        ("a", Decision::Allow("yes".into()), 1),
        ("a", Decision::Allow("yes".into()), 1),
        ("b", Decision::Deny("no".into()), 2),
        ("b", Decision::Deny("no".into()), 2),
        ("c", Decision::NoOpinion("why".into()), 3),
        ("c", Decision::NoOpinion("why".into()), 3),
    ] {
        assert_eq!(setup.authorize(&request(name)).await, expect, "{name}");
        assert_eq!(setup.calls(), calls, "{name}");
    }
    let count =
        r#"apiserver_authorization_webhook_evaluations_total{name="hook",result="success"} 3"#;
    assert!(setup.has_metric(count));
}

#[tokio::test]
async fn cached_decision_is_of_one_user_only() {
    let setup = Setup::new(
        |_| {},
        |_, review| Ok(json!({"allowed": review["spec"]["user"] == "jane"})),
    );
    let mut other = request("a");
    other.user.groups.push("jane".into());
    other.user.name = "joe".into();
    assert!(matches!(
        setup.authorize(&request("a")).await,
        Decision::Allow(_)
    ));
    assert!(matches!(
        setup.authorize(&other).await,
        Decision::NoOpinion(_)
    ));
}

#[tokio::test]
async fn decisions_are_not_cached_without_a_time_or_of_large_requests() {
    let setup = Setup::new(
        |spec| spec.authorized_ttl = Duration::ZERO,
        |_, _| Ok(json!({"allowed": true})),
    );
    for _ in 0..2 {
        setup.authorize(&request("a")).await;
    }
    assert_eq!(setup.calls(), 2);
    let setup = Setup::new(|_| {}, |_, _| Ok(json!({"allowed": true})));
    for _ in 0..2 {
        setup.authorize(&request(&"n".repeat(10_000))).await;
    }
    assert_eq!(setup.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn errors_that_may_pass_are_tried_again() {
    let setup = Setup::new(
        |_| {},
        |call, _| match call {
            0 => Err(status_error(500)),
            1 => Err(status_error(429)),
            2 => Err(status_error(504)),
            _ => Ok(json!({"allowed": true})),
        },
    );
    let begun = tokio::time::Instant::now();
    assert!(matches!(
        setup.authorize(&request("a")).await,
        Decision::Allow(_)
    ));
    // 0.5 s, 0.75 s and 1.125 s, each with up to a fifth more.
    let waited = begun.elapsed().as_secs_f64();
    assert!((2.3..2.9).contains(&waited), "{waited}");
    assert_eq!(setup.calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn failure_policy_decides_after_an_error_and_clients_see_no_address() {
    for (respond, calls, result) in [
        (Err(status_error(500)), 5, "error"),
        (Err(status_error(404)), 1, "error"),
        (Ok(Value::Null), 1, "timeout"),
        (Ok(json!({"allowed": "yes"})), 1, "error"),
    ] {
        for denies in [true, false] {
            let respond = respond.clone();
            let setup = Setup::new(
                |spec| spec.denies_on_error = denies,
                move |_, _| respond.clone(),
            );
            let Decision::Failed(failure) = setup.authorize(&request("a")).await else {
                panic!("{result}");
            };
            assert_eq!(failure.is_denied, denies);
            assert!(!failure.error.contains("secret"), "{failure:?}");
            assert_eq!(setup.calls(), calls);
            let open = format!(
                "apiserver_authorization_webhook_evaluations_fail_open_total\
                 {{name=\"hook\",result=\"{result}\"}} 1"
            );
            assert_eq!(setup.has_metric(&open), !denies, "{open}");
        }
    }
}

#[tokio::test]
async fn failed_webhook_is_followed_by_the_next_authorizer_unless_it_denies() {
    for denies in [true, false] {
        let setup = Setup::new(
            |spec| spec.denies_on_error = denies,
            |_, _| Err(status_error(404)),
        );
        let chain = Chain::new(vec![
            Member::webhook(setup.webhook.clone(), Arc::default()),
            Member::local(Arc::new(AlwaysAllow), Arc::default()),
        ]);
        let request = request("a");
        let decision = chain.authorize(&request).await;
        assert_eq!(matches!(decision, Decision::Allow(_)), !denies);
    }
}

#[tokio::test]
async fn false_condition_skips_the_webhook_and_an_error_is_a_failure() {
    for (source, calls, expect) in [
        ("request.user == 'jane'", 1, Decision::Allow(String::new())),
        (
            "request.user == 'joe'",
            0,
            Decision::NoOpinion(String::new()),
        ),
    ] {
        let setup = Setup::new(
            |spec| spec.conditions = vec![MatchCondition::compile(source).unwrap()],
            |_, _| Ok(json!({"allowed": true})),
        );
        assert_eq!(setup.authorize(&request("a")).await, expect, "{source}");
        assert_eq!(setup.calls(), calls, "{source}");
    }
    let setup = Setup::new(
        |spec| {
            let broken = "request.nonResourceAttributes.path == '/'";
            spec.conditions = vec![MatchCondition::compile(broken).unwrap()];
        },
        |_, _| Ok(json!({"allowed": true})),
    );
    let decision = setup.authorize(&request("a")).await;
    assert!(matches!(decision, Decision::Failed(failure) if failure.is_denied));
    assert_eq!(setup.calls(), 0);
    let errors = r#"apiserver_authorization_match_condition_evaluation_errors_total{type="Webhook",name="hook"} 1"#;
    assert!(setup.has_metric(errors));
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_a_silent_webhook_are_bounded() {
    let setup = Setup::new(|spec| spec.denies_on_error = false, |_, _| Ok(Value::Null));
    let mut waiting = send_requests(&setup, 256, |_| {});
    // All are sent before the next one.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let Decision::Failed(failure) = setup.authorize(&request("last")).await else {
        panic!("the request was decided");
    };
    assert!(failure.error.contains("too many requests"), "{failure:?}");
    assert!(failure.is_denied, "a client could skip the webhook");
    assert!(failure.is_overloaded, "it may succeed soon");
    let limited = r#"ironclad_authorization_webhook_limited_total{name="hook"} 1"#;
    assert!(setup.has_metric(limited));
    while waiting.join_next().await.is_some() {}
    assert_eq!(setup.calls(), 256);
    assert!(setup.authorize(&request("last")).await != Decision::Failed(failure));
}

#[tokio::test]
async fn oversized_review_is_denied_whatever_the_failure_policy_is() {
    let setup = Setup::new(
        |spec| spec.denies_on_error = false,
        |_, _| Ok(json!({"allowed": true})),
    );
    let decision = setup.authorize(&request(&"n".repeat(MAX_REVIEW))).await;
    assert!(matches!(decision, Decision::Failed(failure) if failure.is_denied));
    assert_eq!(setup.calls(), 0);
}

#[tokio::test]
async fn attributes_are_bounded_before_anything_is_built_of_them() {
    let many = |count: usize| "a,".repeat(count) + "a";
    let condition = MatchCondition::compile("true").unwrap();
    let setup = Setup::new(
        |spec| {
            spec.denies_on_error = false;
            spec.conditions = vec![condition.clone()];
        },
        |_, _| Ok(json!({"allowed": true})),
    );
    let mut rows = [(); 5].map(|()| request("a"));
    rows[0].label_selector = many(1_500_000);
    rows[1].label_selector = many(1000);
    rows[2].field_selector = "a=b,".repeat(1000) + "a=b";
    rows[3].user.groups = vec![String::new(); 1_000_000];
    rows[4].user.extra = [("k".to_owned(), vec![String::new(); 1_000_000])].into();
    for (row, attributes) in rows.iter().enumerate() {
        let begun = Instant::now();
        let decision = setup.authorize(attributes).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{row}");
        let Decision::Failed(failure) = decision else {
            panic!("{row}: {decision:?}");
        };
        assert!(failure.is_denied && !failure.is_overloaded, "{row}");
    }
    assert_eq!(setup.calls(), 0);
    let mut most = request("a");
    most.label_selector = many(999);
    assert!(matches!(setup.authorize(&most).await, Decision::Allow(_)));
}

#[tokio::test]
async fn costly_condition_denies_whatever_the_failure_policy_is() {
    let requirements = "request.resourceAttributes.labelSelector.requirements";
    let costly = format!("{requirements}.all(r, {requirements}.all(s, r.key == s.key))");
    let setup = Setup::new(
        |spec| {
            spec.denies_on_error = false;
            spec.conditions = vec![MatchCondition::compile(&costly).unwrap()];
        },
        |_, _| Ok(json!({"denied": true})),
    );
    let mut large = request("a");
    large.label_selector = "a,".repeat(999) + "a";
    let decision = setup.authorize(&large).await;
    assert!(matches!(decision, Decision::Failed(failure) if failure.is_denied));
}

#[tokio::test(start_paused = true)]
async fn reviews_about_others_count_for_the_caller() {
    let setup = Setup::new(|_| {}, |_, _| Ok(Value::Null));
    let scheduler = User {
        name: "system:kube-scheduler".into(),
        ..User::default()
    };
    let (subject, caller) = (scheduler.clone(), request("").user);
    let mut waiting = send_requests(&setup, 256, |attributes| {
        attributes.user = subject.clone();
        attributes.caller = Some(caller.clone());
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let is_overloaded = |decision| match decision {
        Decision::Failed(failure) => failure.is_overloaded,
        _ => false,
    };
    assert!(is_overloaded(setup.authorize(&request("last")).await));
    let mut own = request("last");
    own.user = scheduler;
    assert!(!is_overloaded(setup.authorize(&own).await));
    while waiting.join_next().await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn probe_has_a_place_beside_other_requests_without_credentials() {
    let setup = Setup::new(|_| {}, |_, _| Ok(Value::Null));
    let path = |path: &str| Attributes {
        is_resource: false,
        path: path.to_owned(),
        ..request("")
    };
    let mut waiting = send_requests(&setup, 256, |attributes| {
        *attributes = path(&format!("/livez/{}", attributes.name));
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    for (probe, is_overloaded) in [("/livez/ping", true), ("/livez", false)] {
        let Decision::Failed(failure) = setup.authorize(&path(probe)).await else {
            panic!("{probe}");
        };
        assert_eq!(failure.is_overloaded, is_overloaded, "{probe}");
    }
    while waiting.join_next().await.is_some() {}
}

fn send_requests(
    setup: &Setup,
    count: usize,
    change: impl Fn(&mut Attributes),
) -> tokio::task::JoinSet<Decision> {
    let mut all = tokio::task::JoinSet::new();
    for number in 0..count {
        let webhook = setup.webhook.clone();
        let mut attributes = request(&number.to_string());
        change(&mut attributes);
        all.spawn(async move {
            match webhook.prepare(&attributes) {
                Prepared::Call(call) => call.send().await,
                Prepared::Decided(decision) => decision,
            }
        });
    }
    all
}

#[tokio::test(start_paused = true)]
async fn dropped_request_is_recorded_as_canceled() {
    let setup = Setup::new(|_| {}, |_, _| Ok(Value::Null));
    let short = Duration::from_millis(10);
    let request = request("a");
    let waited = tokio::time::timeout(short, setup.authorize(&request)).await;
    assert!(waited.is_err());
    let count =
        r#"apiserver_authorization_webhook_evaluations_total{name="hook",result="canceled"} 1"#;
    assert!(setup.has_metric(count));
}
