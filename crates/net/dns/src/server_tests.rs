#![allow(clippy::unwrap_used, clippy::disallowed_methods)]
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::test_resolver::{TestResolver, addresses};
use crate::test_server::{new_server, question};

/// Longer than a resolver is waited for.
const DEADLINE: Duration = Duration::from_secs(30);

/// Returns a resolver that does not respond to names that begin with `slow`, and only to the second
/// request for one that begins with `lost`.
async fn start_resolver() -> TestResolver {
    let lost = Mutex::new(HashMap::<String, usize>::new());
    TestResolver::start(move |request, _| {
        let name = request.queries[0].name().to_ascii();
        if name.starts_with("slow") {
            return Vec::new();
        }
        if name.starts_with("lost") {
            let mut lost = lost.lock();
            let count = lost.entry(name).or_default();
            *count += 1;
            if *count == 1 {
                return Vec::new();
            }
        }
        vec![addresses(request, 60, &[1])]
    })
    .await
}

async fn start_server() -> Arc<Server> {
    let resolver = start_resolver().await;
    Arc::new(new_server("10.0.0.0/8", vec![resolver.address], Vec::new()))
}

/// A request in progress, and the code of its response.
type Response = JoinHandle<ResponseCode>;

/// Sends a request from `10.0.0.CLIENT`.
fn send(server: &Arc<Server>, client: u8, name: &str) -> Response {
    send_from(server, IpAddr::from([10, 0, 0, client]), name)
}

fn send_from(server: &Arc<Server>, client: IpAddr, name: &str) -> Response {
    let step = server.start_request(&question(name), client, Transport::Udp);
    let server = server.clone();
    tokio::spawn(async move {
        let response = match step {
            Step::Respond(response) => response,
            Step::Ignore => panic!("a request is ignored"),
            Step::Wait(forwarded) => server.finish_request(*forwarded).await.unwrap(),
        };
        let response = Message::from_vec(&response).unwrap();
        response.metadata.response_code
    })
}

fn send_many(server: &Arc<Server>, client: u8, count: usize) -> Vec<Response> {
    (0..count)
        .map(|n| send(server, client, &format!("slow{client}-{n}.example.")))
        .collect()
}

async fn wait_until(condition: impl Fn() -> bool) {
    let reached = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, reached).await.unwrap();
}

/// Waits for a number of questions in flight.
async fn wait_for_questions(server: &Server, count: usize) {
    wait_until(|| server.forwarder.count_questions() == count).await;
}

fn count_finished(responses: &[Response]) -> usize {
    responses
        .iter()
        .filter(|response| response.is_finished())
        .count()
}

#[tokio::test]
async fn waiting_requests_of_one_client_leave_room_for_others() {
    let server = start_server().await;
    let many = send_many(&server, 1, 200);
    wait_until(|| count_finished(&many) == 72).await;
    assert_eq!(server.forwarder.count_questions(), 128);
    for response in many.into_iter().filter(JoinHandle::is_finished) {
        assert_eq!(response.await.unwrap(), ResponseCode::Refused);
    }
    let names = ["fast.example.", "fast.example.", "w.ns.svc.cluster.local."];
    // Cached answers and names of the cluster need no resolver.
    for (name, client) in names.into_iter().zip([2, 1, 1]) {
        let code = send(&server, client, name).await.unwrap();
        assert_eq!(code, ResponseCode::NoError, "{name}");
    }
}

/// A pod in the node's network can send from each of 16 million addresses.
#[tokio::test]
async fn loopback_addresses_share_one_limit() {
    let server = start_server().await;
    let many: Vec<_> = (0..200)
        .map(|n| {
            let name = format!("slow{n}.example.");
            send_from(&server, IpAddr::from([127, 0, n, 1]), &name)
        })
        .collect();
    wait_until(|| count_finished(&many) == 72).await;
    assert_eq!(server.forwarder.count_questions(), 128);
}

#[tokio::test]
async fn client_without_requests_is_admitted_if_a_total_is_reached() {
    // Eight clients with the questions of four reach the total of requests as well.
    for clients in [4, 8] {
        let server = start_server().await;
        let mut many = Vec::new();
        for (client, n) in (1..=clients).flat_map(|client| (0..128).map(move |n| (client, n))) {
            let name = format!("slow{}-{n}.example.", client % 4);
            many.push(send(&server, client, &name));
        }
        wait_for_questions(&server, 512).await;
        let other = timeout(DEADLINE, send(&server, 200, "fast.example."));
        let code = other.await.unwrap().unwrap();
        assert_eq!(code, ResponseCode::NoError, "{clients} clients");
        // One request of the others was rejected for each total.
        let rejected = count_finished(&many);
        assert_eq!(rejected, usize::from(clients / 4), "{clients} clients");
    }
}

#[tokio::test]
async fn shared_question_is_sent_again_if_its_first_client_loses_its_place() {
    let server = start_server().await;
    // The client with the highest address loses its longest question first.
    let first = send(&server, 9, "lost.example.");
    wait_for_questions(&server, 1).await;
    let second = send(&server, 8, "lost.example.");
    let mut many = send_many(&server, 9, 127);
    many.extend((1..=3).flat_map(|client| send_many(&server, client, 128)));
    wait_for_questions(&server, 512).await;
    assert_eq!(count_finished(&many), 0);
    let other = send(&server, 5, "fast.example.").await.unwrap();
    assert_eq!(other, ResponseCode::NoError);
    assert_eq!(first.await.unwrap(), ResponseCode::Refused);
    assert_eq!(second.await.unwrap(), ResponseCode::NoError);
}

/// Returns the response to a request from the pod in the namespace `other`.
async fn request_from_pod(server: &Arc<Server>, request: &[u8]) -> Message {
    let client = IpAddr::from([10, 0, 0, 9]);
    let response = match server.start_request(request, client, Transport::Udp) {
        Step::Respond(response) => response,
        Step::Ignore => panic!("a request is ignored"),
        Step::Wait(forwarded) => server.finish_request(*forwarded).await.unwrap(),
    };
    Message::from_vec(&response).unwrap()
}

/// Returns the code and the answers, as text, of a request from that pod.
async fn search(server: &Arc<Server>, name: &str) -> (ResponseCode, String) {
    let response = request_from_pod(server, &question(name)).await;
    let texts = response
        .answers
        .iter()
        .map(|record| record.data.to_string());
    let texts = texts.collect::<Vec<_>>().join(" ");
    (response.metadata.response_code, texts)
}

#[tokio::test]
async fn search_path_is_answered_at_once_or_denied() {
    let resolver = TestResolver::start(|request, _| {
        let name = request.queries[0].name().to_ascii();
        let code = match name.as_str() {
            "example.com." => return vec![addresses(request, 60, &[1])],
            "broken.example." => ResponseCode::ServFail,
            _ => ResponseCode::NXDomain,
        };
        vec![crate::test_resolver::response_to(request, code)]
    })
    .await;
    let mut server = new_server("10.0.0.0/8", vec![resolver.address], Vec::new());
    server.search_paths = Some(SearchPaths {
        has_node_domains: false,
    });
    let server = Arc::new(server);
    let under = |name: &str| format!("{name}.other.svc.cluster.local.");
    // Twice: the second answer is cached.
    for _ in 0..2 {
        let (code, answers) = search(&server, &under("example.com")).await;
        assert_eq!(code, ResponseCode::NoError);
        assert!(answers.starts_with("example.com. "), "{answers}");
        let denied = (ResponseCode::NXDomain, String::new());
        assert_eq!(search(&server, &under("absent.example")).await, denied);
        let failed = (ResponseCode::ServFail, String::new());
        assert_eq!(search(&server, &under("broken.example")).await, failed);
    }
    let (_, answers) = search(&server, &under("w.ns")).await;
    assert_eq!(answers, "w.ns.svc.cluster.local. 10.96.0.7");
    let metrics = server.write_metrics();
    let found = metrics
        .lines()
        .find(|line| line.starts_with("coredns_autopath_success_total"));
    // The name outside of the cluster twice, and the one of the cluster.
    assert!(found.is_some_and(|line| line.ends_with(" 3")), "{metrics}");
}

/// A resolver validates its answer, and not the alias before it.
#[tokio::test]
async fn answer_behind_an_alias_of_the_cluster_is_not_authentic() {
    let resolver = TestResolver::start(|request, _| {
        let mut response = crate::test_resolver::response_to(request, ResponseCode::NXDomain);
        if request.queries[0].name().to_ascii() == "example.com." {
            response = addresses(request, 60, &[1]);
        }
        response.metadata.authentic_data = true;
        vec![response]
    })
    .await;
    let mut server = new_server("10.0.0.0/8", vec![resolver.address], Vec::new());
    server.search_paths = Some(SearchPaths {
        has_node_domains: false,
    });
    let server = Arc::new(server);
    for (name, expect) in [
        ("example.com.", true),
        ("example.com.other.svc.cluster.local.", false),
        ("absent.example.other.svc.cluster.local.", false),
        ("out.ns.svc.cluster.local.", false),
    ] {
        let mut request = crate::test_server::request(name, RecordType::A);
        request.metadata.authentic_data = true;
        let response = request_from_pod(&server, &request.to_vec().unwrap()).await;
        assert_eq!(response.metadata.authentic_data, expect, "{name}");
    }
}
