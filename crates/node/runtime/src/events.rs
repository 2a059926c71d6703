//! Event streams of container changes, so that the kubelet need not relist often.
//!
//! Three sources, best first: CRI's own `GetContainerEvents`; containerd's event stream, for
//! containerd before 1.7, which lacks the CRI call but serves the stream on the same socket; none,
//! so that the caller relists periodically.

use crate::client::Runtime;
use crate::error::Result;
use futures::{Stream, StreamExt};
use prost::Message;
use proto_cri::containerd_events::events_client::EventsClient;
use proto_cri::containerd_events::{Envelope, SubscribeRequest, TaskEvent};
use proto_cri::v1::{ContainerEventResponse, ContainerEventType, GetEventsRequest};
use std::pin::Pin;

const OUT_OF_MEMORY: &str = "/tasks/oom";

/// A change of a container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Id of the container or sandbox.
    pub id: String,
    /// Uid of its pod, if the runtime reports it.
    pub pod_uid: Option<String>,
    /// The container ran out of memory. The runtime may learn that only after it reported the exit.
    pub out_of_memory: bool,
}

/// An open stream of changes.
pub struct EventSource {
    /// Name of the source, for the log.
    pub name: &'static str,
    /// The changes; ends with the connection.
    pub changes: Pin<Box<dyn Stream<Item = Change> + Send>>,
}

impl Runtime {
    /// Opens the best source that the runtime has; None if it has none.
    ///
    /// # Errors
    /// The runtime can't be reached.
    pub async fn open_events(&self) -> Result<Option<EventSource>> {
        // Unimplemented is the one error that leads to the next source: others are a runtime that
        // is starting.
        match self.cri_events().await {
            Err(e) if e.is_unimplemented() => {}
            other => return other.map(Some),
        }
        match self.containerd_events().await {
            Err(e) if e.is_unimplemented() => Ok(None),
            other => other.map(Some),
        }
    }

    async fn cri_events(&self) -> Result<EventSource> {
        let mut client = self.runtime_service();
        let call = async move { client.get_container_events(GetEventsRequest {}).await };
        Ok(EventSource {
            name: "CRI events",
            changes: open_stream(call, convert_cri_event).await?,
        })
    }

    async fn containerd_events(&self) -> Result<EventSource> {
        // Only the events that the kubelet acts on: a busy node has many snapshot and content
        // events.
        let topics = ["/tasks/exit", OUT_OF_MEMORY];
        let filters = topics
            .iter()
            .map(|topic| format!("topic==\"{topic}\",namespace==k8s.io"))
            .collect();
        let mut client = EventsClient::new(self.channel.clone());
        let call = async move { client.subscribe(SubscribeRequest { filters }).await };
        Ok(EventSource {
            name: "containerd's events",
            changes: open_stream(call, convert_containerd_event).await?,
        })
    }
}

type StreamResult<T> =
    std::result::Result<tonic::Response<proto_cri::MessageStream<T>>, tonic::Status>;

/// Opens a stream. gRPC servers in Go send headers with the first message only, so a call without a
/// response after a moment counts as open; an unimplemented call fails at once.
async fn open_stream<T, F>(
    call: F,
    change: fn(T) -> Option<Change>,
) -> Result<Pin<Box<dyn Stream<Item = Change> + Send>>>
where
    T: Send + 'static,
    F: Future<Output = StreamResult<T>> + Send + 'static,
{
    let mut call = Box::pin(call);
    // Waited for only briefly, and kept: dropping the call would close the stream.
    let early = tokio::time::timeout(std::time::Duration::from_millis(300), &mut call).await;
    let later = async move {
        match early {
            Ok(response) => response,
            Err(_) => call.await,
        }
    };
    let mut later = Box::pin(later);
    // Ready means headers or an error. A Go server reports an unimplemented call with its first
    // message, hence the peek.
    let stream = match futures::poll!(&mut later) {
        std::task::Poll::Ready(response) => {
            let mut stream = response?.into_inner().peekable();
            let first = tokio::time::timeout(
                std::time::Duration::from_millis(300),
                Pin::new(&mut stream).peek(),
            )
            .await;
            if let Ok(Some(Err(status))) = first {
                return Err(status.clone().into());
            }
            stream.boxed()
        }
        std::task::Poll::Pending => futures::stream::once(later)
            .filter_map(|response| async { response.ok().map(tonic::Response::into_inner) })
            .flatten()
            .boxed(),
    };
    Ok(Box::pin(
        stream
            // An error ends the stream; the caller opens it again and relists, so that no exit is
            // missed.
            .take_while(|event| futures::future::ready(event.is_ok()))
            .filter_map(move |event| async move { event.ok().and_then(change) }),
    ))
}

/// Selects exits only: the kubelet itself creates and starts containers, so those events carry no
/// news.
fn convert_cri_event(event: ContainerEventResponse) -> Option<Change> {
    let kind = ContainerEventType::try_from(event.container_event_type).ok()?;
    if !matches!(
        kind,
        ContainerEventType::ContainerStoppedEvent | ContainerEventType::ContainerDeletedEvent
    ) {
        return None;
    }
    let uid = event
        .pod_sandbox_status
        .and_then(|s| s.metadata)
        .map(|m| m.uid);
    Some(Change {
        id: event.container_id,
        pod_uid: uid.filter(|u| !u.is_empty()),
        out_of_memory: false,
    })
}

fn convert_containerd_event(envelope: Envelope) -> Option<Change> {
    let out_of_memory = envelope.topic == OUT_OF_MEMORY;
    let event = TaskEvent::decode(envelope.event?.value.as_slice()).ok()?;
    // containerd reports the exit of an exec process too, under the process's own id: ignored.
    let main = event.id.is_empty() || event.id == event.container_id;
    main.then_some(Change {
        id: event.container_id,
        pod_uid: None,
        out_of_memory,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(topic: &str, container: &str, process: &str) -> Option<Change> {
        let event = TaskEvent {
            container_id: container.into(),
            id: process.into(),
        };
        let event = prost_types::Any {
            type_url: String::new(),
            value: event.encode_to_vec(),
        };
        convert_containerd_event(Envelope {
            topic: topic.into(),
            event: Some(event),
            ..Envelope::default()
        })
    }

    #[test]
    fn cri_events_of_starts_are_ignored() {
        for (kind, want) in [
            (ContainerEventType::ContainerCreatedEvent, false),
            (ContainerEventType::ContainerStartedEvent, false),
            (ContainerEventType::ContainerStoppedEvent, true),
            (ContainerEventType::ContainerDeletedEvent, true),
        ] {
            let event = ContainerEventResponse {
                container_event_type: kind as i32,
                ..Default::default()
            };
            assert_eq!(convert_cri_event(event).is_some(), want, "{kind:?}");
        }
    }

    #[test]
    fn containerd_exits_and_oom_events_become_changes() {
        let change = |out_of_memory| {
            Some(Change {
                id: "c".into(),
                pod_uid: None,
                out_of_memory,
            })
        };
        assert_eq!(convert("/tasks/exit", "c", "c"), change(false));
        assert_eq!(convert("/tasks/oom", "c", ""), change(true));
        assert_eq!(convert("/tasks/exit", "c", "a command run inside"), None);
    }

    #[test]
    fn cri_event_names_the_pod_if_the_runtime_reports_it() {
        let event = |uid: Option<&str>| ContainerEventResponse {
            container_id: "c".into(),
            container_event_type: ContainerEventType::ContainerStoppedEvent as i32,
            pod_sandbox_status: uid.map(|uid| proto_cri::v1::PodSandboxStatus {
                metadata: Some(proto_cri::v1::PodSandboxMetadata {
                    uid: uid.into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        for (uid, expected) in [(None, None), (Some(""), None), (Some("u"), Some("u"))] {
            let change = convert_cri_event(event(uid));
            assert_eq!(
                change.map(|c| (c.id, c.pod_uid)),
                Some(("c".into(), expected.map(str::to_owned))),
                "{uid:?}"
            );
        }
    }

    /// Go's gRPC servers send headers with the first event, which may come hours later.
    #[tokio::test]
    async fn stream_without_headers_counts_as_open() {
        let silent = std::future::pending::<StreamResult<ContainerEventResponse>>();
        assert!(open_stream(silent, convert_cri_event).await.is_ok());
    }

    #[tokio::test]
    async fn stream_that_the_runtime_does_not_implement_is_an_error() {
        let call = async {
            StreamResult::<ContainerEventResponse>::Err(tonic::Status::unimplemented("no events"))
        };
        let opened = open_stream(call, convert_cri_event).await;
        assert!(opened.is_err_and(|e| e.is_unimplemented()));
    }
}
