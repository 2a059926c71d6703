//! Optimistic concurrency, paging, and lists at a `resourceVersion`.

use integration_tests::{Components, ReplyExt, Test, config_map};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tokio::task::JoinSet;

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

async fn create_config_maps(test: &Test, count: usize) {
    let path = test.core("configmaps");
    for number in 0..count {
        let mut object = config_map(&format!("item-{number:03}"));
        object["metadata"]["labels"] = json!({"n": (number % 3).to_string()});
        test.create(&path, &object).await;
    }
}

fn names_of(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn update_of_an_old_version_conflicts() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut object = test.create(&path, &config_map("c")).await;
    let one = format!("{path}/c");
    test.admin
        .merge_patch(&one, &json!({"data": {"b": "2"}}))
        .await
        .expect_status(200);
    object["data"] = json!({"a": "9"});
    let status = test.admin.put(&one, &object).await.expect_failure(
        409,
        "Conflict",
        "Operation cannot be fulfilled on configmaps \"c\": the object has been modified; please apply your changes \
         to the latest version and try again",
    );
    assert_eq!(
        status["details"],
        json!({"name": "c", "kind": "configmaps"})
    );
    assert_eq!(test.read(&one).await["data"], json!({"a": "1", "b": "2"}));
}

#[tokio::test]
async fn one_of_concurrent_updates_of_a_version_succeeds() {
    let test = start().await;
    let path = test.core("configmaps");
    let object = test.create(&path, &config_map("c")).await;
    let mut updates = JoinSet::new();
    for number in 0..16 {
        let (admin, path, mut object) = (test.admin.clone(), format!("{path}/c"), object.clone());
        object["data"] = json!({"writer": number.to_string()});
        updates.spawn(async move { (number, admin.put(&path, &object).await.status) });
    }
    let mut winners = Vec::new();
    while let Some(update) = updates.join_next().await {
        match update.unwrap() {
            (number, 200) => winners.push(number),
            (number, status) => assert_eq!(status, 409, "writer {number}"),
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    let stored = test.read(&format!("{path}/c")).await;
    assert_eq!(stored["data"]["writer"], winners[0].to_string());
}

#[tokio::test]
async fn one_of_concurrent_creates_of_a_name_succeeds() {
    let test = start().await;
    let mut creates = JoinSet::new();
    for _ in 0..16 {
        let (admin, path) = (test.admin.clone(), test.core("configmaps"));
        creates.spawn(async move { admin.post(&path, &config_map("c")).await.status });
    }
    let mut statuses = creates.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses[0], 201);
    assert!(
        statuses[1..].iter().all(|&status| status == 409),
        "{statuses:?}"
    );
}

#[tokio::test]
async fn concurrent_merge_patches_are_all_applied() {
    let test = start().await;
    let path = test.core("configmaps");
    test.create(&path, &config_map("c")).await;
    let mut patches = JoinSet::new();
    for number in 0..16 {
        let (admin, path) = (test.admin.clone(), format!("{path}/c"));
        let patch = json!({"data": {format!("k{number}"): "v"}});
        patches.spawn(async move { admin.merge_patch(&path, &patch).await.status });
    }
    let statuses = patches.join_all().await;
    assert!(statuses.iter().all(|&status| status == 200), "{statuses:?}");
    let stored = test.read(&format!("{path}/c")).await;
    assert_eq!(stored["data"].as_object().unwrap().len(), 17);
}

#[tokio::test]
async fn concurrent_services_get_distinct_addresses() {
    let test = start().await;
    let mut creates = JoinSet::new();
    for number in 0..12 {
        let (admin, path) = (test.admin.clone(), test.core("services"));
        let service = json!({"metadata": {"name": format!("s{number}")}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        creates.spawn(async move { admin.post(&path, &service).await.expect_status(201).json() });
    }
    let services = creates.join_all().await;
    let addresses: BTreeSet<String> = services
        .iter()
        .map(|s| s["spec"]["clusterIP"].to_string())
        .collect();
    let ports: BTreeSet<u64> = services
        .iter()
        .map(|s| s["spec"]["ports"][0]["nodePort"].as_u64().unwrap())
        .collect();
    assert_eq!((addresses.len(), ports.len()), (12, 12));
    assert!(
        ports.iter().all(|port| (30000..=32767).contains(port)),
        "{ports:?}"
    );
}

#[tokio::test]
async fn update_without_a_version_is_unconditional() {
    let test = start().await;
    let path = test.core("configmaps");
    test.create(&path, &config_map("c")).await;
    let mut object = config_map("c");
    object["data"] = json!({"z": "1"});
    let reply = test.admin.put(&format!("{path}/c"), &object).await;
    assert_eq!(reply.expect_status(200).json()["data"], json!({"z": "1"}));
}

#[tokio::test]
async fn update_of_a_lease_needs_a_version() {
    let test = start().await;
    let path = test.group("coordination.k8s.io/v1", "leases");
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
        "spec": {"holderIdentity": "a"}});
    test.create(&path, &lease).await;
    let reply = test.admin.put(&format!("{path}/l"), &lease).await;
    let status = reply.expect_causes(&[("metadata.resourceVersion", "FieldValueInvalid")]);
    assert_eq!(
        status["message"],
        "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0x0: must be specified \
         for an update"
    );
}

#[tokio::test]
async fn patch_with_an_old_version_conflicts() {
    let test = start().await;
    let path = test.core("configmaps");
    test.create(&path, &config_map("c")).await;
    let patch = json!({"metadata": {"resourceVersion": "1"}, "data": {"a": "2"}});
    let reply = test.admin.merge_patch(&format!("{path}/c"), &patch).await;
    reply.expect_failure(
        409,
        "Conflict",
        "Operation cannot be fulfilled on configmaps \"c\": the object has been modified; please apply your changes \
         to the latest version and try again",
    );
}

#[tokio::test]
async fn pages_are_one_consistent_snapshot() {
    let test = start().await;
    let path = test.core("configmaps");
    create_config_maps(&test, 25).await;
    let (mut names, mut versions, mut remaining) = (Vec::new(), BTreeSet::new(), Vec::new());
    let mut token = String::new();
    loop {
        let page = test
            .read(&format!("{path}?limit=10&continue={token}"))
            .await;
        names.extend(names_of(&page).into_iter().map(str::to_owned));
        versions.insert(page["metadata"]["resourceVersion"].to_string());
        remaining.push(
            page["metadata"]
                .get("remainingItemCount")
                .and_then(Value::as_u64),
        );
        token = page["metadata"]["continue"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if token.is_empty() {
            break;
        }
        // Changes between the pages are not in the list.
        let name = format!("item-015-new-{}", names.len());
        test.create(&path, &config_map(&name)).await;
        let last = format!("{path}/item-{:03}", 25 - names.len() / 10);
        test.admin.delete(&last).await;
    }
    let expected: Vec<String> = (0..25).map(|number| format!("item-{number:03}")).collect();
    assert_eq!(names, expected);
    assert_eq!(versions.len(), 1, "{versions:?}");
    assert_eq!(remaining, [Some(15), Some(5), None]);
}

#[tokio::test]
async fn remaining_item_count_is_omitted_with_a_selector() {
    let test = start().await;
    create_config_maps(&test, 6).await;
    let path = format!("{}?limit=1&labelSelector=n%3D0", test.core("configmaps"));
    let page = test.read(&path).await;
    assert_eq!(names_of(&page), ["item-000"]);
    assert!(page["metadata"]["continue"].is_string());
    assert_eq!(page["metadata"].get("remainingItemCount"), None);
}

#[tokio::test]
async fn malformed_continue_token_is_a_bad_request() {
    let test = start().await;
    let path = format!("{}?limit=2&continue=nonsense", test.core("configmaps"));
    let status = test.admin.get(&path).await.expect_reason(400, "BadRequest");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("continue key is not valid"),
        "{message}"
    );
}

#[tokio::test]
async fn continue_token_with_a_version_is_a_bad_request() {
    let test = start().await;
    create_config_maps(&test, 3).await;
    let path = test.core("configmaps");
    let page = test.read(&format!("{path}?limit=1")).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let reply = test
        .admin
        .get(&format!(
            "{path}?limit=1&continue={token}&resourceVersion=5"
        ))
        .await;
    reply.expect_failure(
        400,
        "BadRequest",
        "specifying resource version is not allowed when using continue",
    );
}

#[tokio::test]
async fn exact_version_lists_the_past() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut versions = Vec::new();
    for name in ["a", "b"] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"past": "yes"});
        let object = test.create(&path, &object).await;
        versions.push(
            object["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    for (version, expected) in versions.iter().zip([vec!["a"], vec!["a", "b"]]) {
        let query =
            format!("labelSelector=past&resourceVersion={version}&resourceVersionMatch=Exact");
        let list = test.read(&format!("{path}?{query}")).await;
        assert_eq!(names_of(&list), expected);
        assert_eq!(list["metadata"]["resourceVersion"], version.as_str());
    }
}

#[tokio::test]
async fn list_is_not_older_than_the_version() {
    let test = start().await;
    let path = test.core("configmaps");
    let object = test.create(&path, &config_map("a")).await;
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    for query in [
        format!("resourceVersion={version}"),
        format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan"),
    ] {
        let list = test.read(&format!("{path}?labelSelector=!x&{query}")).await;
        assert!(names_of(&list).contains(&"a"), "{query}");
        let of_list: u64 = list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!(of_list >= version.parse::<u64>().unwrap(), "{query}");
    }
}

#[tokio::test]
async fn contradictory_version_parameters_are_invalid() {
    let test = start().await;
    for (query, field) in [
        ("resourceVersionMatch=Exact", "resourceVersionMatch"),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            "resourceVersionMatch",
        ),
        (
            "resourceVersionMatch=Bogus&resourceVersion=1",
            "resourceVersionMatch",
        ),
        ("sendInitialEvents=true", "sendInitialEvents"),
    ] {
        let path = format!("{}?{query}", test.core("configmaps"));
        let status = test.admin.get(&path).await.expect_reason(422, "Invalid");
        assert_eq!(
            status["details"]["causes"][0]["field"], field,
            "{query}: {status}"
        );
    }
}

#[tokio::test]
async fn version_that_is_no_number_is_a_bad_request() {
    let test = start().await;
    let path = format!("{}?resourceVersion=abc", test.core("configmaps"));
    test.admin.get(&path).await.expect_reason(400, "BadRequest");
}

#[tokio::test]
async fn version_of_the_future_times_out() {
    let test = start().await;
    let version: u64 = test
        .version(&test.core("configmaps"))
        .await
        .parse()
        .unwrap();
    let future = version + 10_000_000;
    let path = format!(
        "{}?resourceVersionMatch=NotOlderThan&resourceVersion={future}",
        test.core("configmaps")
    );
    let reply = test.admin.get(&path).await;
    assert!(!reply.header("retry-after").is_empty());
    let status = reply.expect_reason(504, "Timeout");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with(&format!("Too large resource version: {future}, current: ")),
        "{message}"
    );
    assert_eq!(
        status["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
}

#[tokio::test]
async fn list_shows_the_callers_last_write() {
    let test = start().await;
    let path = test.core("configmaps");
    for number in 0..30 {
        let name = format!("c{number}");
        test.create(&path, &config_map(&name)).await;
        assert!(test.names(&path).await.contains(&name), "{name}");
    }
}
