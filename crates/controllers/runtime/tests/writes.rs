//! When a controller writes and when it does not, against a server that logs requests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    missing_docs
)]

use std::time::Duration;

use base_task::{CancellationToken, Tasks};
use client::Client;
use controllers_runtime::testing::{Requests, serve};
use controllers_runtime::{Action, Decide, Queue, ReconcileMetrics, Setup, Target};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

/// Confirms the owner, then patches the object of the key.
struct Adopt;

impl Decide for Adopt {
    fn reconcile(&self, key: &str, _now: Timestamp) -> Vec<Action> {
        let owner = Target {
            uid: Some("u".to_owned()),
            ..Target::with_name::<ConfigMap>(Some("n"), "owner")
        };
        let child = Target::with_name::<ConfigMap>(Some("n"), key);
        vec![
            Action::Confirm(owner),
            Action::merge(child, json!({"data": {"a": "b"}})),
        ]
    }
}

const OWNER: &str = "GET /api/v1/namespaces/n/configmaps/owner";

/// Runs the controller over `keys`, one after the other, and cancels it at the request `count` for
/// the owner; returns true if all its tasks then end.
async fn run(client: Client, requests: &Requests, keys: &[&str], count: usize) -> bool {
    let stop = CancellationToken::new();
    let tasks = Tasks::new(stop.clone());
    let queue = Queue::new();
    keys.iter().for_each(|key| queue.add((*key).to_owned()));
    let mut setup = Setup::new(client, tasks.clone(), false, ReconcileMetrics::default());
    setup.add_reconciler("adopter", 1, queue, Adopt);
    let running = tokio::spawn(setup.run(stop.clone()));
    let count_reads = || requests.lock().iter().filter(|line| *line == OWNER).count();
    let reached = async {
        while count_reads() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reached)
        .await
        .unwrap();
    stop.cancel();
    running.await.unwrap();
    tasks.wait(Duration::from_secs(10)).await
}

#[tokio::test]
async fn lost_lease_aborts_the_pass_and_leaves_ready_keys_alone() {
    let (client, requests) = serve(|_| None).await.unwrap();
    assert!(
        run(client, &requests, &["a", "b", "c"], 1).await,
        "a task outlived the lease"
    );
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(*requests.lock(), [OWNER]);
}

#[tokio::test]
async fn adoption_happens_only_if_the_owner_is_alive_on_the_server() {
    let cases = [
        (r#"{"metadata":{"uid":"u"}}"#, true),
        (
            r#"{"metadata":{"uid":"u","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#,
            false,
        ),
        (r#"{"metadata":{"uid":"another"}}"#, false),
    ];
    for (owner, adopts) in cases {
        let (client, requests) = serve(move |_| Some(owner.to_owned())).await.unwrap();
        // The second pass begins after the end of the first one.
        run(client, &requests, &["child", "other"], 2).await;
        let patched = requests
            .lock()
            .iter()
            .any(|line| line == "PATCH /api/v1/namespaces/n/configmaps/child");
        assert_eq!(patched, adopts, "{owner}: {:?}", requests.lock());
    }
}

/// Panics on its first key.
struct Broken;

impl Decide for Broken {
    fn reconcile(&self, _key: &str, _now: Timestamp) -> Vec<Action> {
        panic!("planted")
    }
}

#[tokio::test]
async fn controller_that_dies_ends_the_term_as_a_failure() {
    let (client, _) = serve(|_| None).await.unwrap();
    let stop = CancellationToken::new();
    let tasks = Tasks::new(stop.clone());
    let queue = Queue::new();
    queue.add("a".to_owned());
    let mut setup = Setup::new(client, tasks.clone(), false, ReconcileMetrics::default());
    setup.add_reconciler("broken", 1, queue, Broken);
    tokio::time::timeout(Duration::from_secs(60), setup.run(stop))
        .await
        .unwrap();
    assert_eq!(tasks.failure().map(|failure| failure.name), Some("broken"));
}
