//! Single requests: lists, metadata, credentials, and events.

use super::*;

#[tokio::test]
async fn failure_status_is_decoded_and_retry_after_is_obeyed() {
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"NotFound","code":404}"#;
    let (client, requests) = serve(vec![
        reply("429 Too Many Requests", "retry-after: 0\r\n", ""),
        reply("200 OK", "", &map("a", 1)),
        reply("404 Not Found", "", status),
        reply("500 Internal Server Error", "", "oops"),
    ])
    .await;
    let api = client.namespaced::<ConfigMap>("n");
    assert_eq!(api.get("a").await.unwrap().name(), "a");
    let error = api.get("b").await.unwrap_err();
    assert!(error.is_not_found() && error.to_string() == "no", "{error}");
    let error = api.get("b").await.unwrap_err();
    assert_eq!(error.code(), Some(500));
    assert!(error.to_string().contains("oops"), "{error}");
    assert_eq!(requests.lock()[0], "GET /api/v1/namespaces/n/configmaps/a");
    assert_eq!(requests.lock().len(), 4);
}

#[tokio::test]
async fn list_with_an_undecodable_object_contains_the_others() {
    let (client, _) = serve(vec![list(3, &[map("a", 1), broken("x", 2)])]).await;
    let list = client
        .api::<ConfigMap>()
        .list(&ListParams::new())
        .await
        .unwrap();
    assert_eq!(list.items.len(), 1);
    assert_eq!(list.resource_version(), "3");
}

#[tokio::test]
async fn metadata_is_requested_as_a_list_for_lists_and_as_objects_for_watches() {
    let resource = client::ApiResource::of_kind::<ConfigMap>();
    let (client, heads) = serve_heads(vec![
        list(5, &[map("a", 4)]),
        reply("200 OK", "x-stay: open\r\n", ""),
        reply("200 OK", "", &map("a", 4)),
        reply("200 OK", "", r#"{"kind":"Status","status":"Success"}"#),
    ])
    .await;
    let api = client.metadata(&resource, None);
    api.list(&ListParams::new()).await.unwrap();
    let _watch = api.watch(&ListParams::new(), "5", 60).await.unwrap();
    api.in_namespace("n").get("a").await.unwrap();
    api.in_namespace("n")
        .delete_collection(&client::DeleteParams::new(), &ListParams::new())
        .await
        .unwrap();
    let expected = [
        "accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
        "accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        "accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        "accept: application/json",
    ];
    for (head, accept) in heads.lock().iter().zip(expected) {
        let found = head
            .lines()
            .find(|line| line.starts_with("accept:"))
            .unwrap();
        assert_eq!(found, accept, "{head}");
    }
    assert_eq!(heads.lock().len(), expected.len());
}

/// Requests of a server that are served at the moment, the most at one time, and those done.
#[derive(Default)]
struct RequestCounts {
    current: usize,
    most: usize,
    done: usize,
}

/// Serves connections and counts received events, each after `pause`.
async fn event_sink(pause: Duration) -> (Client, Arc<Mutex<RequestCounts>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let counts = Arc::new(Mutex::new(RequestCounts::default()));
    let log = counts.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let log = log.clone();
            tokio::spawn(async move {
                let mut request = vec![0; 16384];
                while let Ok(1..) = stream.read(&mut request).await {
                    {
                        let mut counts = log.lock();
                        counts.current += 1;
                        counts.most = counts.most.max(counts.current);
                    }
                    tokio::time::sleep(pause).await;
                    {
                        let mut counts = log.lock();
                        counts.current -= 1;
                        counts.done += 1;
                    }
                    let _ = stream
                        .write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}")
                        .await;
                }
            });
        }
    });
    (
        Client::new(Config::builder(format!("http://{address}"))),
        counts,
    )
}

#[tokio::test]
async fn events_about_different_objects_are_written_side_by_side() {
    let (client, counts) = event_sink(Duration::from_millis(20)).await;
    let recorder = client::events::Recorder::new(client, "test", "");
    for i in 0..200 {
        let pod = k8s_openapi::api::core::v1::ObjectReference {
            name: Some(format!("p{i}")),
            namespace: Some("n".to_owned()),
            ..Default::default()
        };
        recorder.normal(&pod, "Scheduled", "assigned");
    }
    let all = async {
        while counts.lock().done < 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all)
        .await
        .unwrap();
    assert!(counts.lock().most > 1);
}

#[tokio::test]
async fn all_pages_of_a_list_are_read_with_the_continue_token() {
    let first = format!(
        r#"{{"metadata":{{"resourceVersion":"5","continue":"token"}},"items":[{}]}}"#,
        map("a", 1)
    );
    let (client, requests) =
        serve(vec![reply("200 OK", "", &first), list(5, &[map("b", 2)])]).await;
    let params = ListParams::new().with_limit(1);
    let all = client.api::<ConfigMap>().list(&params).await.unwrap();
    assert_eq!(all.items.len(), 2);
    assert_eq!(
        requests.lock()[1],
        "GET /api/v1/configmaps?limit=1&continue=token"
    );
}

#[tokio::test]
async fn objects_are_counted_from_one_page_if_the_server_returns_the_rest() {
    let page = |rest: &str| {
        let metadata = format!(r#"{{"resourceVersion":"5","continue":"t"{rest}}}"#);
        let body = format!(r#"{{"metadata":{metadata},"items":[{}]}}"#, map("a", 1));
        reply("200 OK", "", &body)
    };
    let (client, requests) = serve(vec![
        page(r#","remainingItemCount":41"#),
        page(""),
        list(5, &[map("a", 1), map("b", 2)]),
    ])
    .await;
    let maps = client.api::<ConfigMap>();
    assert_eq!(maps.count().await.unwrap(), 42);
    assert_eq!(maps.count().await.unwrap(), 2);
    assert_eq!(requests.lock().len(), 3);
}

#[tokio::test]
async fn rejected_token_is_read_again_from_its_file() {
    let file = std::env::temp_dir().join(format!("client-token-{}", std::process::id()));
    std::fs::write(&file, "first\n").unwrap();
    let unauthorized = r#"{"kind":"Status","code":401,"reason":"Unauthorized"}"#;
    let (client, heads) = serve_heads(vec![
        reply("401 Unauthorized", "", unauthorized),
        reply("200 OK", "", &map("a", 1)),
        reply("200 OK", "", &map("a", 1)),
    ])
    .await;
    let client = client.with_token(client::Source::File(file.clone()));
    let maps = client.namespaced::<ConfigMap>("n");
    assert!(maps.get("a").await.unwrap_err().is_unauthorized());
    std::fs::write(&file, "second\n").unwrap();
    maps.get("a").await.unwrap();
    // Cached for a minute after a success.
    std::fs::write(&file, "third\n").unwrap();
    maps.get("a").await.unwrap();
    std::fs::remove_file(&file).unwrap();
    let tokens: Vec<String> = heads
        .lock()
        .iter()
        .filter_map(|head| {
            head.lines()
                .find_map(|line| line.strip_prefix("authorization: Bearer "))
                .map(str::to_owned)
        })
        .collect();
    assert_eq!(tokens, ["first", "second", "second"]);
}
