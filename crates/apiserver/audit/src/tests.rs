//! Records of requests and the backends behind them.
#![allow(clippy::unwrap_used)]

use crate::{
    AuditMetrics, Auditor, Backend, BackendError, Backoff, Batching, Event, EventLimits,
    LineFormat, LogFile, Mode, ObjectReference, Policy, PostEvents, Record, RequestFacts, Rotation,
    Sink, UserInfo, Webhook,
};
use api_meta::ApiError;
use apiserver_request::{Attributes, AuditAnnotations, annotate_audit, annotate_audit_content};
use base_task::{CancellationToken, Tasks};
use bytes::Bytes;
use futures::FutureExt;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A backend in memory, which can be set to fail.
#[derive(Default)]
struct Memory {
    events: Mutex<Vec<Value>>,
    fails: bool,
    /// Time that it takes to record events.
    delay: Duration,
}

#[async_trait::async_trait]
impl Backend for Memory {
    fn name(&self) -> &'static str {
        "log"
    }

    async fn process_events(&self, events: &[Arc<Event>]) -> Result<(), BackendError> {
        if self.fails {
            return Err(BackendError::Post("disk full".to_owned()));
        }
        tokio::time::sleep(self.delay).await;
        let values = events.iter().map(|event| {
            let mut item = Vec::new();
            event.write_item(&mut item);
            serde_json::from_slice(&item).unwrap()
        });
        self.events.lock().extend(values);
        Ok(())
    }
}

fn bytes(body: &Value) -> Vec<u8> {
    body.to_string().into_bytes()
}

struct Setup {
    memory: Arc<Memory>,
    auditor: Arc<Auditor>,
    metrics: Arc<AuditMetrics>,
    tasks: Tasks,
    annotations: AuditAnnotations,
}

fn start(rule: &str, memory: Memory, mode: Mode, limits: Option<EventLimits>) -> Setup {
    let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{rule}]");
    let policy = Policy::parse(policy.as_bytes()).unwrap();
    let (memory, metrics) = (Arc::new(memory), Arc::new(AuditMetrics::default()));
    let tasks = Tasks::new(CancellationToken::new());
    let sink = Sink::new(memory.clone(), mode, limits, &metrics, &tasks);
    Setup {
        memory,
        auditor: Auditor::new(policy, vec![sink], metrics.clone()),
        metrics,
        tasks,
        annotations: AuditAnnotations::default(),
    }
}

fn facts() -> RequestFacts {
    RequestFacts {
        audit_id: "id".into(),
        uri: "/api/v1/namespaces/d/pods?limit=1".into(),
        verb: "create".into(),
        user: Some(UserInfo {
            username: "alice".into(),
            groups: vec!["people".into()],
            ..UserInfo::default()
        }),
        source_ips: vec!["10.0.0.1".into()],
        user_agent: "kubectl".into(),
        object: Some(ObjectReference {
            resource: "pods".into(),
            namespace: "d".into(),
            api_version: "v1".into(),
            ..ObjectReference::default()
        }),
        received: "2026-01-02T03:04:05.000006Z".parse().unwrap(),
        is_anonymous: false,
    }
}

impl Setup {
    fn begin(&self) -> Option<Arc<Record>> {
        let annotations = self.annotations.clone();
        self.auditor
            .begin_record(&Attributes::default(), annotations, facts)
    }

    fn take(&self) -> Vec<Value> {
        std::mem::take(&mut *self.memory.events.lock())
    }
}

#[tokio::test]
async fn events_have_the_fields_of_their_level_and_stage() {
    let pod = json!({"metadata": {"name": "p", "uid": "u", "managedFields": []}, "spec": {}});
    for (level, request, response) in [
        ("Metadata", Value::Null, Value::Null),
        ("Request", pod.clone(), Value::Null),
        ("RequestResponse", pod.clone(), json!({"kind": "Pod"})),
    ] {
        let setup = start(
            &format!("{{level: {level}}}"),
            Memory::default(),
            Mode::Blocking,
            None,
        );
        let record = setup.begin().unwrap();
        record.send_received().await.unwrap();
        record.set_request_object(&pod, || bytes(&pod));
        record.set_response_object(|| bytes(&json!({"kind": "Pod"})));
        record.send_complete(201).await;
        drop(record);
        let events = setup.take();
        assert_eq!(events.len(), 2, "{level}");
        assert_eq!(events[0]["stage"], "RequestReceived");
        assert_eq!(
            events[0]["stageTimestamp"],
            events[0]["requestReceivedTimestamp"]
        );
        assert_eq!(events[0].get("responseStatus"), None);
        let last = &events[1];
        assert_eq!(last["stage"], "ResponseComplete");
        assert_eq!(last["level"], level);
        assert_eq!(last["responseStatus"], json!({"metadata": {}, "code": 201}));
        assert_eq!(last["requestObject"], request);
        assert_eq!(last["responseObject"], response);
        let object = json!({"resource": "pods", "namespace": "d", "name": "p", "uid": "u", "apiVersion": "v1"});
        assert_eq!(last["objectRef"], object);
        assert_eq!(
            last["requestReceivedTimestamp"],
            "2026-01-02T03:04:05.000006Z"
        );
    }
}

#[tokio::test]
async fn policy_omits_requests_stages_and_managed_fields() {
    let none = start("{level: None}", Memory::default(), Mode::Blocking, None);
    assert!(none.begin().is_none());
    let rule = "{level: RequestResponse, omitStages: [RequestReceived], omitManagedFields: true}";
    let setup = start(rule, Memory::default(), Mode::Blocking, None);
    let record = setup.begin().unwrap();
    record.send_received().await.unwrap();
    let meta = json!({"name": "a", "managedFields": [{"manager": "m"}]});
    record.set_request_object(&json!({}), || bytes(&json!({"metadata": meta})));
    let rows = json!([{"object": {"metadata": meta}}]);
    record.set_response_object(|| bytes(&json!({"items": [{"metadata": meta}], "rows": rows})));
    record.send_complete(200).await;
    let events = setup.take();
    assert_eq!(events.len(), 1);
    assert!(
        !events[0].to_string().contains("managedFields"),
        "{}",
        events[0]
    );
}

#[tokio::test]
async fn status_is_recorded_with_its_message() {
    let setup = start(
        "{level: RequestResponse}",
        Memory::default(),
        Mode::Blocking,
        None,
    );
    let record = setup.begin().unwrap();
    record.set_status(&ApiError::forbidden("", "pods", "p", "no").status());
    record.send_complete(403).await;
    let event = setup.take().remove(0);
    assert_eq!(event["responseStatus"]["status"], "Failure");
    assert_eq!(event["responseStatus"]["reason"], "Forbidden");
    assert_eq!(event["responseStatus"]["code"], 403);
    assert_eq!(
        event["responseStatus"]["message"],
        "pods \"p\" is forbidden: no"
    );
    assert_eq!(event["responseObject"]["kind"], "Status");
}

#[tokio::test]
async fn long_response_is_complete_when_its_last_holder_drops_it() {
    let setup = start("{level: Metadata}", Memory::default(), Mode::Blocking, None);
    let record = setup.begin().unwrap();
    record.send_started(101).await;
    let held = record.clone();
    drop(record);
    assert_eq!(setup.take().len(), 1, "the stream still holds it");
    drop(held);
    assert!(setup.tasks.wait(Duration::from_secs(10)).await);
    let events = setup.take();
    assert_eq!(events[0]["stage"], "ResponseComplete");
    assert_eq!(events[0]["responseStatus"]["code"], 101);
    drop(setup.begin());
    assert!(setup.tasks.wait(Duration::from_secs(10)).await);
    let early = setup.take();
    assert_eq!(
        early[0]["responseStatus"]["message"],
        "Connection closed early"
    );
}

#[tokio::test]
async fn annotations_of_the_task_are_in_later_events() {
    for (level, has_content) in [("Metadata", false), ("Request", true)] {
        let setup = start(
            &format!("{{level: {level}}}"),
            Memory::default(),
            Mode::Blocking,
            None,
        );
        let work = async {
            let record = setup.begin().unwrap();
            annotate_audit("a/decision", || "allow".to_owned());
            annotate_audit("a/decision", || "later".to_owned());
            annotate_audit_content("a/patch", || "[]".to_owned());
            record.send_complete(200).await;
        };
        setup.annotations.collect(work).await;
        annotate_audit("a/outside", || "lost".to_owned());
        let annotations = setup.take().remove(0)["annotations"].clone();
        assert_eq!(annotations["a/decision"], "allow");
        assert_eq!(annotations.get("a/patch").is_some(), has_content, "{level}");
        assert_eq!(annotations.get("a/outside"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn event_of_a_client_that_leaves_is_recorded() {
    for stage in ["ResponseComplete", "Panic"] {
        let slow = Memory {
            delay: Duration::from_secs(5),
            ..Memory::default()
        };
        let setup = start("{level: Metadata}", slow, Mode::Blocking, None);
        let record = setup.begin().unwrap();
        let sending = async {
            match stage {
                "Panic" => record.send_panic().await,
                _ => record.send_complete(200).await,
            }
        };
        let left = tokio::time::timeout(Duration::from_secs(1), sending).await;
        assert!(
            left.is_err(),
            "the request ends before the backend has the event"
        );
        drop(record);
        assert!(setup.tasks.wait(Duration::from_secs(10)).await);
        let stages: Vec<_> = setup
            .take()
            .iter()
            .map(|event| event["stage"].clone())
            .collect();
        assert_eq!(stages, [stage]);
    }
}

#[tokio::test(start_paused = true)]
async fn events_beyond_the_limit_of_a_slow_backend_wait_or_are_counted() {
    let slow = Memory {
        delay: Duration::from_secs(5),
        ..Memory::default()
    };
    let setup = start("{level: Metadata}", slow, Mode::Blocking, None);
    let records: Vec<_> = (0..4098).filter_map(|_| setup.begin()).collect();
    let mut left: Vec<_> = records
        .iter()
        .map(|record| Box::pin(record.send_complete(200)))
        .collect();
    for sending in &mut left {
        assert!(sending.now_or_never().is_none());
    }
    let waiting = left.pop().unwrap();
    drop(left);
    waiting.await;
    assert!(setup.tasks.wait(Duration::from_secs(30)).await);
    assert_eq!(
        setup.take().len(),
        4097,
        "one client has left while it waited"
    );
    let mut page = base_telemetry::MetricsPage::default();
    setup.metrics.write_metrics(&mut page);
    let page = page.finish();
    assert!(
        page.contains("error_total{plugin=\"buffered\"} 1"),
        "{page}"
    );
}

#[tokio::test]
async fn buffer_is_limited_in_bytes() {
    let batching = Batching {
        buffer: 1000,
        batch: 1000,
        wait: Duration::from_secs(3600),
        throttle: None,
        concurrent: 1,
    };
    let setup = start(
        "{level: Request}",
        Memory::default(),
        Mode::Batch(batching),
        None,
    );
    let body = vec![b' '; 100 << 20];
    for _ in 0..3 {
        let record = setup.begin().unwrap();
        record.set_request_object(&json!({}), || [b"\"", &body[..], b"\""].concat());
        record.send_complete(200).await;
    }
    let mut page = base_telemetry::MetricsPage::default();
    setup.metrics.write_metrics(&mut page);
    assert!(
        page.finish().contains("error_total{plugin=\"buffered\"} 1"),
        "256 MiB hold two"
    );
}

#[tokio::test]
async fn only_a_strict_backend_rejects_requests() {
    for (mode, accepted) in [(Mode::Blocking, true), (Mode::BlockingStrict, false)] {
        let broken = Memory {
            fails: true,
            ..Memory::default()
        };
        let setup = start("{level: Metadata}", broken, mode, None);
        let record = setup.begin().unwrap();
        assert_eq!(record.send_received().await.is_ok(), accepted);
        record.discard();
        let mut page = base_telemetry::MetricsPage::default();
        setup.metrics.write_metrics(&mut page);
        let page = page.finish();
        assert!(
            page.contains("apiserver_audit_error_total{plugin=\"log\"} 1"),
            "{page}"
        );
        let rejected = format!(
            "apiserver_audit_requests_rejected_total {}",
            u8::from(!accepted)
        );
        assert!(page.contains(&rejected), "{page}");
    }
}

#[tokio::test]
async fn large_event_loses_its_bodies() {
    let limits = Some(EventLimits { event: 1000 });
    let setup = start(
        "{level: Request}",
        Memory::default(),
        Mode::Blocking,
        limits,
    );
    for (length, shown) in [(10, true), (2000, false)] {
        let record = setup.begin().unwrap();
        record.set_request_object(&json!({}), || bytes(&json!({"data": "x".repeat(length)})));
        record.send_complete(200).await;
        let event = setup.take().remove(0);
        assert_eq!(event.get("requestObject").is_some(), shown, "{length}");
        let truncated = event["annotations"]["audit.k8s.io/truncated"] == "true";
        assert_eq!(truncated, !shown, "{length}");
    }
}

#[tokio::test(start_paused = true)]
async fn batches_are_sent_when_they_are_full_or_late() {
    let batching = Batching {
        buffer: 4,
        batch: 2,
        wait: Duration::from_secs(30),
        throttle: None,
        concurrent: 1,
    };
    let setup = start(
        "{level: Metadata}",
        Memory::default(),
        Mode::Batch(batching),
        None,
    );
    let send = async || setup.begin().unwrap().send_complete(200).await;
    send().await;
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(setup.take().len(), 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(setup.take().len(), 1, "late");
    send().await;
    send().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(setup.take().len(), 2, "full");
    send().await;
    setup.tasks.shutdown().cancel();
    assert!(setup.tasks.wait(Duration::from_secs(10)).await);
    assert_eq!(setup.take().len(), 1, "the rest at the shutdown");
}

/// Fails some times, then takes bodies.
struct Receiver {
    failures: Mutex<u32>,
    bodies: Arc<Mutex<Vec<Value>>>,
}

#[async_trait::async_trait]
impl PostEvents for Receiver {
    async fn post_events(&self, body: Bytes) -> Result<(), BackendError> {
        let mut failures = self.failures.lock();
        if *failures > 0 {
            *failures -= 1;
            return Err(BackendError::Post("unavailable".to_owned()));
        }
        self.bodies
            .lock()
            .push(serde_json::from_slice(&body).unwrap());
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn webhook_repeats_failed_posts() {
    for (failures, delivered) in [(0, true), (4, true), (5, false)] {
        let setup = start("{level: Metadata}", Memory::default(), Mode::Blocking, None);
        setup.begin().unwrap().send_complete(200).await;
        let bodies: Arc<Mutex<Vec<Value>>> = Arc::default();
        let receiver = Receiver {
            failures: Mutex::new(failures),
            bodies: bodies.clone(),
        };
        let backoff = Backoff {
            initial: Duration::from_secs(10),
        };
        let event = Arc::new(Event::new(crate::Level::Metadata, facts()));
        let sent = Webhook::new(receiver, backoff)
            .process_events(&[event.clone(), event])
            .await;
        assert_eq!(sent.is_ok(), delivered, "{failures}");
        if delivered {
            let list = bodies.lock().remove(0);
            assert_eq!(list["kind"], "EventList");
            assert_eq!(list["items"].as_array().unwrap().len(), 2);
            assert_eq!(
                list["items"][0].get("kind"),
                None,
                "as items of a typed list"
            );
        }
    }
}

async fn write_events(path: &Path, format: LineFormat, rotation: Rotation, count: usize) {
    let tasks = Tasks::new(CancellationToken::new());
    let log = LogFile::open(path, format, rotation, &tasks).unwrap();
    for _ in 0..count {
        let event = Arc::new(Event::new(crate::Level::Metadata, facts()));
        log.process_events(&[event]).await.unwrap();
    }
    drop(log);
    assert!(tasks.wait(Duration::from_secs(10)).await);
}

#[tokio::test]
async fn log_has_one_line_per_event_that_only_its_owner_reads() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/audit.log");
    write_events(&path, LineFormat::Json, Rotation::default(), 2).await;
    write_events(&path, LineFormat::Legacy, Rotation::default(), 1).await;
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].starts_with(r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"#));
    let event: Value = serde_json::from_str(lines[1]).unwrap();
    assert_eq!(
        event["user"],
        json!({"username": "alice", "groups": ["people"]})
    );
    let legacy = "2026-01-02T03:04:05.000006Z AUDIT: id=\"id\" stage=\"RequestReceived\" ip=\"10.0.0.1\" \
        method=\"create\" user=\"alice\" groups=\"\\\"people\\\"\" as=\"<self>\" asgroups=\"<lookup>\" \
        user-agent=\"kubectl\" namespace=\"d\" uri=\"/api/v1/namespaces/d/pods?limit=1\" \
        response=\"<deferred>\"";
    assert_eq!(lines[2], legacy);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
}

#[tokio::test]
async fn full_log_is_renamed_compressed_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let rotation = Rotation {
        size: 500,
        files: 2,
        compress: true,
        ..Rotation::default()
    };
    let other = directory.path().join("audit-notes.log");
    std::fs::write(&other, "kept").unwrap();
    for _ in 0..4 {
        write_events(&path, LineFormat::Json, rotation, 1).await;
        // Names have milliseconds.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let names = std::fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names.len(), 4, "{names:?}");
    assert_eq!(
        names
            .iter()
            .filter(|name| name.ends_with(".log.gz"))
            .count(),
        2,
        "{names:?}"
    );
    assert!(other.exists());
}

#[tokio::test]
async fn log_that_another_program_has_removed_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let rotation = Rotation {
        size: 500,
        ..Rotation::default()
    };
    let tasks = Tasks::new(CancellationToken::new());
    let log = LogFile::open(&path, LineFormat::Json, rotation, &tasks).unwrap();
    for round in 0..3 {
        let event = Arc::new(Event::new(crate::Level::Metadata, facts()));
        log.process_events(&[event]).await.unwrap();
        assert!(path.exists(), "{round}");
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn rotated_files_are_found_by_number_and_age() {
    let now: Timestamp = "2026-01-10T00:00:00Z".parse().unwrap();
    let names = crate::rotation::Names::new(Path::new("/l/audit.log"));
    let file = |day: u8| {
        names
            .parse(&format!("audit-2026-01-0{day}T00-00-00.000.log"))
            .unwrap()
    };
    let all: Vec<_> = [3, 9, 1, 7].map(file).to_vec();
    for (files, days, expect) in [
        (0, 0, vec![]),
        (2, 0, vec![3, 1]),
        (0, 5, vec![3, 1]),
        (3, 8, vec![1]),
        (0, u32::MAX, vec![]),
    ] {
        let rotation = Rotation {
            files,
            days,
            ..Rotation::default()
        };
        let expect: Vec<_> = expect.into_iter().map(|day| file(day).path).collect();
        assert_eq!(
            rotation.find_surplus(all.clone(), now),
            expect,
            "{files} {days}"
        );
    }
    for other in [
        "audit.log",
        "audit-x.log",
        "other-2026-01-01T00-00-00.000.log",
    ] {
        assert_eq!(names.parse(other), None, "{other}");
    }
}
