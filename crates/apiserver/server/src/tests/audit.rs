//! The audit log of requests.

use super::{MAPS, TestServer, config_map, request, start_server};
use http::Request;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A server with an audit log.
struct Audited {
    server: TestServer,
    log: PathBuf,
    _folder: TempDir,
}

fn write_policy(folder: &Path, rules: &str) -> PathBuf {
    let path = folder.join("policy.yaml");
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{rules}]\n");
    std::fs::write(&path, text).unwrap();
    path
}

async fn start_audited(rules: &str, flags: &[&str]) -> Audited {
    let folder = tempfile::tempdir().unwrap();
    let policy = write_policy(folder.path(), rules);
    let log = folder.path().join("audit.log");
    let own = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ];
    let all: Vec<&str> = own
        .iter()
        .map(String::as_str)
        .chain(flags.iter().copied())
        .collect();
    Audited {
        server: start_server(&all).await,
        log,
        _folder: folder,
    }
}

impl Audited {
    /// Returns the events of the last request in the log.
    fn last_events(&self, stage: &str) -> Value {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let mut events = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        events
            .rfind(|event| event["stage"] == stage)
            .unwrap_or_default()
    }

    fn last_line(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap();
        text.lines().last().unwrap_or_default().to_owned()
    }

    fn count(&self) -> usize {
        std::fs::read_to_string(&self.log).unwrap().lines().count()
    }
}

#[tokio::test]
async fn write_is_recorded_with_user_object_and_decision() {
    let audited = start_audited("{level: RequestResponse}", &[]).await;
    audited.server.create_map("a").await;
    assert_eq!(audited.count(), 2);
    let received = audited.last_events("RequestReceived");
    let event = audited.last_events("ResponseComplete");
    assert_eq!(received["auditID"], event["auditID"]);
    assert_eq!(event["requestURI"], MAPS);
    assert_eq!(event["verb"], "create");
    let user = json!({"username": "admin", "uid": "1", "groups": ["system:masters", "system:authenticated"]});
    assert_eq!(event["user"], user);
    let object =
        json!({"resource": "configmaps", "namespace": "d", "name": "a", "apiVersion": "v1"});
    assert_eq!(event["objectRef"], object);
    assert_eq!(event["requestObject"]["data"]["k"], "v");
    assert_eq!(event["responseObject"]["metadata"]["name"], "a");
    assert_eq!(
        event["responseStatus"],
        json!({"metadata": {}, "code": 201})
    );
    assert_eq!(
        event["annotations"]["authorization.k8s.io/decision"],
        "allow"
    );
}

#[tokio::test]
async fn bodies_of_all_kinds_of_requests_are_recorded_in_json() {
    let audited = start_audited("{level: RequestResponse}", &[]).await;
    let server = &audited.server;
    server.create_map("a").await;
    let one = format!("{MAPS}/a");
    let send = async |method: &str, path: &str, headers: &[(&str, &str)], body: Value| {
        let mut request = request(method, path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = server.send(request, body).await;
        assert!(answer.code < 300, "{method} {path}: {}", answer.code);
        audited.last_events("ResponseComplete")
    };
    let merge = [("content-type", "application/merge-patch+json")];
    let patched = send("PATCH", &one, &merge, json!({"data": {"k": "w"}})).await;
    assert_eq!(patched["requestObject"], json!({"data": {"k": "w"}}));
    assert_eq!(patched["responseObject"]["data"]["k"], "w");
    let apply = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{one}?fieldManager=m&force=true");
    let applied = send("PATCH", &path, &apply, config_map("a")).await;
    assert_eq!(applied["requestObject"]["kind"], "ConfigMap");
    let proto = [("accept", "application/vnd.kubernetes.protobuf")];
    let read = send("GET", &one, &proto, Value::Null).await;
    assert_eq!(read["responseObject"]["kind"], "ConfigMap");
    assert_eq!(read.get("requestObject"), None);
    let listed = send("GET", MAPS, &proto, Value::Null).await;
    assert_eq!(
        listed["responseObject"]["items"][0]["metadata"]["name"],
        "a"
    );
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let rows = send("GET", MAPS, &table, Value::Null).await;
    assert_eq!(rows["responseObject"]["kind"], "Table");
    let json = [("content-type", "application/json")];
    let deleted = send("DELETE", &one, &json, json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(deleted["requestObject"]["gracePeriodSeconds"], 0);
    assert_eq!(deleted["responseStatus"]["status"], "Success");
}

#[tokio::test]
async fn failures_are_recorded_with_their_status() {
    let audited = start_audited("{level: Metadata}", &["--anonymous-auth=false"]).await;
    audited.server.get(&format!("{MAPS}/none")).await;
    let event = audited.last_events("ResponseComplete");
    assert_eq!(event["responseStatus"]["reason"], "NotFound");
    assert_eq!(event["responseStatus"]["code"], 404);
    let alice = Request::builder()
        .uri(MAPS)
        .header("authorization", "Bearer alice-token");
    audited.server.send(alice, "").await;
    let event = audited.last_events("ResponseComplete");
    assert_eq!(event["responseStatus"]["code"], 403);
    assert_eq!(
        event["annotations"]["authorization.k8s.io/decision"],
        "forbid"
    );
    let before = audited.count();
    audited.server.send(Request::builder().uri(MAPS), "").await;
    assert_eq!(audited.count(), before + 1);
    let event = audited.last_events("ResponseStarted");
    assert_eq!(event["responseStatus"]["code"], 401);
    assert_eq!(event["user"], json!({}));
}

/// The timeout is parsed before the authentication.
#[tokio::test]
async fn request_with_an_invalid_timeout_is_recorded_without_its_user() {
    let audited = start_audited("{level: Metadata}", &[]).await;
    let rejected = audited.server.get(&format!("{MAPS}?timeout=abc")).await;
    assert_eq!(rejected.code, 400);
    assert_eq!(audited.count(), 1);
    let event = audited.last_events("ResponseStarted");
    assert_eq!(event["responseStatus"]["code"], 400);
    assert_eq!(event["user"], json!({}));
}

/// A failure of a critical task cancels the group, and requests are served until their end.
#[tokio::test]
async fn requests_are_recorded_after_the_background_tasks_have_ended() {
    let audited = start_audited("{level: Metadata}", &[]).await;
    let tasks = &audited.server.server.tasks;
    tasks.finish(Duration::from_secs(2)).await.unwrap();
    audited.server.get("/version").await;
    let event = audited.last_events("ResponseComplete");
    assert_eq!(event["requestURI"], "/version");
}

#[tokio::test]
async fn impersonated_user_is_recorded_beside_the_real_one() {
    let audited = start_audited("{level: Metadata}", &[]).await;
    let request = request("GET", MAPS).header("impersonate-user", "bob");
    audited.server.send(request, "").await;
    let event = audited.last_events("ResponseComplete");
    assert_eq!(event["user"]["username"], "admin");
    assert_eq!(event["impersonatedUser"]["username"], "bob");
}

#[tokio::test]
async fn watch_has_an_event_at_its_start_and_at_its_end() {
    let audited = start_audited("{level: Metadata, verbs: [watch]}", &[]).await;
    let path = format!("{MAPS}?watch=true&timeoutSeconds=1&resourceVersion=0");
    let watched = audited.server.get(&path).await;
    assert_eq!(watched.code, 200);
    assert_eq!(
        audited.last_events("ResponseStarted")["responseStatus"]["code"],
        200
    );
    super::soon(async {
        while audited.last_events("ResponseComplete").is_null() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(audited.count(), 3);
}

#[tokio::test]
async fn policy_selects_requests() {
    let rules =
        "{level: None, resources: [{resources: [configmaps]}]}, {level: Metadata, verbs: [get]}";
    let audited = start_audited(rules, &[]).await;
    audited.server.create_map("a").await;
    assert_eq!(audited.count(), 0);
    audited.server.get("/version").await;
    let event = audited.last_events("ResponseComplete");
    assert_eq!(event["requestURI"], "/version");
    assert_eq!(event.get("objectRef"), None);
}

/// A line of the log is one event: no client adds lines or breaks those of others.
#[tokio::test]
async fn patch_is_recorded_as_compact_json() {
    let audited = start_audited("{level: Request, verbs: [patch]}", &[]).await;
    audited.server.create_map("a").await;
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    let event = "{\"kind\":\"Event\",\"auditID\":\"forged\"}";
    for (body, recorded) in [
        (format!("{{\"data\":\n{event}\n}}").into_bytes(), true),
        // As in Go, bytes that are no text are replaced.
        (b"{\"data\": \"\xff\"}".to_vec(), true),
        (br#"{"data": "\ud800"}"#.to_vec(), false),
        (deep.into_bytes(), false),
    ] {
        let before = audited.count();
        let patch = request("PATCH", &format!("{MAPS}/a"))
            .header("content-type", "application/merge-patch+json");
        audited.server.send(patch, body).await;
        assert_eq!(audited.count(), before + 2, "one line for each stage");
        let event = audited.last_events("ResponseComplete");
        assert_eq!(event["verb"], "patch");
        assert_eq!(event.get("requestObject").is_some(), recorded, "{event}");
    }
}

#[tokio::test]
async fn event_of_an_anonymous_client_is_short() {
    let audited = start_audited("{level: RequestResponse}", &[]).await;
    let long = "x".repeat(20_000);
    for path in [
        format!("/api/v1/namespaces/{long}"),
        format!("/livez?{long}"),
        format!("/version?timeout={long}"),
    ] {
        let forwarded = vec!["2001:db8::1"; 1000].join(",");
        let sent = Request::builder()
            .uri(&path)
            .header("x-forwarded-for", forwarded);
        audited.server.send(sent, "").await;
        let line = audited.last_line();
        assert!(
            line.len() < 5000,
            "{} bytes for {}",
            line.len(),
            &path[..20]
        );
    }
}
