//! Leader election and its Lease.

use super::*;
use client::election::{self, LeaderConfig};

#[tokio::test]
async fn dropped_campaign_ends_the_work_of_its_term() {
    let missing =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#;
    let lease =
        r#"{"metadata":{"namespace":"kube-system","name":"l"},"spec":{"holderIdentity":"me"}}"#;
    let (client, _) = serve(vec![
        reply("404 Not Found", "", missing),
        reply("201 Created", "", lease),
    ])
    .await;
    let working = Arc::new(());
    let count = || Arc::strong_count(&working);
    let own = working.clone();
    let lead = move |_| {
        let own = own.clone();
        async move {
            std::future::pending::<()>().await;
            drop(own);
        }
    };
    let until = async |expected: usize| {
        while count() != expected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let campaign = election::run_leader_election(
        &client,
        LeaderConfig::new("l", "me"),
        CancellationToken::new(),
        lead,
    );
    let limit = Duration::from_secs(60);
    let led = tokio::time::timeout(limit, async {
        tokio::select! { () = campaign => false, () = until(3) => true }
    });
    assert!(led.await.unwrap());
    tokio::time::timeout(limit, until(1)).await.unwrap();
}

#[tokio::test]
async fn released_lease_has_no_holder_and_is_released_after_the_work() {
    let missing = r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404}"#;
    let held = r#"{"metadata":{"namespace":"kube-system","name":"l","resourceVersion":"3"},"spec":{"holderIdentity":"me"}}"#;
    let (client, requests) = serve(vec![
        reply("404 Not Found", "", missing),
        reply("201 Created", "", held),
        reply("200 OK", "", held),
    ])
    .await;
    let stop = CancellationToken::new();
    let (ended, working) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(false)));
    let (log, begun, sent) = (ended.clone(), working.clone(), requests.clone());
    let lead = move |term: CancellationToken| {
        let (log, begun, sent) = (log.clone(), begun.clone(), sent.clone());
        async move {
            *begun.lock() = true;
            term.cancelled().await;
            *log.lock() = sent.lock().len();
        }
    };
    let campaign =
        election::run_leader_election(&client, LeaderConfig::new("l", "me"), stop.clone(), lead);
    let stopping = async {
        // The request alone is too early: the work starts when its response has arrived.
        while !*working.lock() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stop.cancel();
    };
    let both = async { tokio::join!(campaign, stopping) };
    tokio::time::timeout(Duration::from_secs(60), both)
        .await
        .unwrap();
    assert_eq!(*ended.lock(), 2, "the work ended before the release");
    let last = "PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l";
    assert_eq!(requests.lock().last().map(String::as_str), Some(last));
}

#[tokio::test]
async fn leader_that_loses_its_lease_ends_its_work_and_campaigns_again() {
    let held = |holder: &str| {
        format!(
            r#"{{"metadata":{{"namespace":"kube-system","name":"l","resourceVersion":"3"}},"spec":{{"holderIdentity":"{holder}","leaseDurationSeconds":15}}}}"#
        )
    };
    let conflict = r#"{"kind":"Status","reason":"Conflict","code":409}"#;
    let (client, requests) = serve(vec![
        reply("200 OK", "", &held("")),
        reply("200 OK", "", &held("me")),
        reply("409 Conflict", "", conflict),
        reply("200 OK", "", &held("other")),
        reply("200 OK", "", &held("other")),
    ])
    .await;
    let config = LeaderConfig {
        retry_period: Duration::from_millis(20),
        ..LeaderConfig::new("l", "me")
    };
    let terms = Arc::new(Mutex::new(Vec::new()));
    let log = terms.clone();
    let lead = move |term: CancellationToken| {
        let log = log.clone();
        async move {
            log.lock().push("led");
            term.cancelled().await;
            log.lock().push("ended");
        }
    };
    let campaign = election::run_leader_election(&client, config, CancellationToken::new(), lead);
    let again = async {
        while requests.lock().len() < 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(60), async {
        tokio::select! { () = campaign => false, () = again => true }
    });
    assert!(ended.await.unwrap());
    assert_eq!(*terms.lock(), ["led", "ended"]);
    assert!(requests.lock()[4].starts_with("GET "));
}
