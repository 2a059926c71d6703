#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use serde_json::json;
use tokio::time::timeout;

/// Higher priority first; gated by a scheduling gate; only deleted pods help.
struct Simple;

impl QueuePlugins for Simple {
    fn rank(&self, pod: &PodInfo, since: i128) -> Rank {
        Rank(-i64::from(pod.priority()), since)
    }

    fn is_gated(&self, pod: &PodInfo) -> bool {
        pod.spec()
            .is_some_and(|spec| spec.scheduling_gates.is_some())
    }

    fn listens_for(&self, plugin: &str, _: &ClusterEvent) -> bool {
        plugin != "Deaf"
    }

    fn queueing_hint(&self, _: &str, _: &PodInfo, event: &ClusterEvent) -> bool {
        matches!(event, ClusterEvent::AssignedPodDeleted(_))
    }
}

fn pod(name: &str, priority: i32, gated: bool) -> Arc<PodInfo> {
    let mut object = json!({"metadata": {"name": name, "uid": name}, "spec": {"priority": priority, "containers": []}});
    if gated {
        object["spec"]["schedulingGates"] = json!([{"name": "g"}]);
    }
    Arc::new(PodInfo::new(Arc::new(
        serde_json::from_value(object).unwrap(),
    )))
}

fn queue() -> Queue {
    let (first_backoff, longest_backoff) = (Duration::from_millis(50), Duration::from_secs(1));
    Queue::new(
        Arc::new(Simple),
        QueueDelays {
            first_backoff,
            longest_backoff,
            ..QueueDelays::default()
        },
    )
}

async fn next(queue: &Queue) -> String {
    let attempt = timeout(Duration::from_secs(5), queue.next())
        .await
        .unwrap()
        .unwrap();
    attempt.pod.name().to_owned()
}

fn deleted() -> ClusterEvent {
    ClusterEvent::AssignedPodDeleted(pod("gone", 0, false))
}

fn by(plugin: &'static str) -> Failure {
    Failure {
        plugins: [plugin].into(),
        ..Failure::default()
    }
}

fn preempting() -> Failure {
    Failure {
        preempting: true,
        ..by("Fit")
    }
}

#[tokio::test(start_paused = true)]
async fn pods_come_by_priority_and_age_unless_gated() {
    let queue = queue();
    queue.set_pod(pod("low", 0, false), None, 1);
    queue.set_pod(pod("late", 0, false), None, 2);
    queue.set_pod(pod("high", 5, false), None, 3);
    queue.set_pod(pod("held", 9, true), None, 0);
    for want in ["high", "low", "late"] {
        assert_eq!(next(&queue).await, want);
        queue.done(want);
    }
    assert_eq!(queue.count_pending().gated, 1);
    queue.set_pod(pod("held", 9, false), None, 4);
    assert_eq!(next(&queue).await, "held");
}

#[tokio::test(start_paused = true)]
async fn rejected_pods_wait_for_a_change_that_helps() {
    let queue = queue();
    queue.set_pod(pod("p", 0, false), None, 1);
    assert_eq!(next(&queue).await, "p");
    queue.requeue_failed("p", by("Fit"), 2);
    queue.move_pods(ClusterEvent::NamespaceChanged);
    assert_eq!(queue.count_pending().unschedulable, 1);
    queue.move_pods(deleted());
    assert_eq!(queue.count_pending().unschedulable, 0);
    assert_eq!(next(&queue).await, "p");
    // An event during the attempt is not lost.
    queue.move_pods(deleted());
    queue.requeue_failed("p", by("Fit"), 2);
    assert_eq!(next(&queue).await, "p");
    queue.remove_pod("p");
    queue.requeue_failed("p", by("Fit"), 2);
    assert_eq!(queue.count_pending(), Counts::default());
}

#[tokio::test(start_paused = true)]
async fn errored_pod_backs_off() {
    let queue = queue();
    queue.set_pod(pod("p", 0, false), None, 1);
    assert_eq!(next(&queue).await, "p");
    queue.requeue_failed(
        "p",
        Failure {
            errored: true,
            ..Failure::default()
        },
        2,
    );
    let before = Instant::now();
    assert_eq!(next(&queue).await, "p");
    assert!(before.elapsed() >= Duration::from_millis(50));
}

/// Returns whether the queue has no pod to try for longer than the maximum back-off of these tests.
async fn rests(queue: &Queue) -> bool {
    timeout(Duration::from_millis(300), queue.next())
        .await
        .is_err()
}

#[tokio::test(start_paused = true)]
async fn held_pod_is_tried_only_after_its_preemption_has_ended() {
    let queue = queue();
    queue.set_pod(pod("p", 0, false), None, 1);
    assert_eq!(next(&queue).await, "p");
    queue.requeue_failed("p", preempting(), 2);
    // The first victim is deleted while others are still to be evicted.
    queue.move_pods(deleted());
    assert!(rests(&queue).await);
    queue.release_held("p", false);
    assert_eq!(next(&queue).await, "p");
}

#[tokio::test(start_paused = true)]
async fn released_pod_waits_for_a_change_unless_its_preemption_failed() {
    let queue = queue();
    queue.set_pod(pod("p", 0, false), None, 1);
    for failed in [false, true] {
        if queue.count_pending().unschedulable == 0 {
            assert_eq!(next(&queue).await, "p");
        }
        queue.requeue_failed("p", preempting(), 2);
        queue.release_held("p", failed);
        assert_eq!(rests(&queue).await, !failed);
    }
}

#[tokio::test(start_paused = true)]
async fn plugins_see_only_the_kinds_of_changes_that_they_asked_for() {
    let queue = queue();
    queue.set_pod(pod("p", 0, false), None, 1);
    assert_eq!(next(&queue).await, "p");
    queue.requeue_failed("p", by("Deaf"), 2);
    queue.move_pods(deleted());
    assert_eq!(queue.count_pending().unschedulable, 1);
    queue.activate("p");
    assert_eq!(queue.count_pending().unschedulable, 0);
}

#[tokio::test(start_paused = true)]
async fn failed_pod_goes_behind_younger_pods_of_its_priority() {
    let queue = queue();
    queue.set_pod(pod("old", 0, false), None, 1);
    assert_eq!(next(&queue).await, "old");
    queue.set_pod(pod("young", 0, false), None, 2);
    queue.requeue_failed("old", by("Fit"), 3);
    tokio::time::sleep(Duration::from_millis(60)).await;
    queue.move_pods(deleted());
    for want in ["young", "old"] {
        assert_eq!(next(&queue).await, want);
        queue.done(want);
    }
}

#[tokio::test(start_paused = true)]
async fn pod_does_not_wake_itself_by_its_own_change() {
    let queue = queue();
    queue.set_pod(pod("p", 0, false), None, 1);
    assert_eq!(next(&queue).await, "p");
    queue.requeue_failed("p", by("Fit"), 2);
    queue.move_other_pods("p", deleted());
    assert_eq!(queue.count_pending().unschedulable, 1);
}

#[test]
fn backoff_doubles_with_each_attempt_up_to_the_maximum() {
    let queue = Queue::new(Arc::new(Simple), QueueDelays::default());
    let seconds: Vec<u64> = [1, 2, 3, 4, 5, 100]
        .into_iter()
        .map(|attempts| queue.backoff_duration(attempts).as_secs())
        .collect();
    assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
}

#[tokio::test(start_paused = true)]
async fn unschedulable_pod_is_retried_after_the_maximum_time_without_an_event() {
    let delays = QueueDelays {
        unschedulable: Duration::from_millis(80),
        ..QueueDelays::default()
    };
    let queue = Queue::new(Arc::new(Simple), delays);
    queue.set_pod(pod("p", 0, false), None, 1);
    assert_eq!(next(&queue).await, "p");
    let before = Instant::now();
    queue.requeue_failed("p", by("Fit"), 2);
    assert_eq!(next(&queue).await, "p");
    assert!(before.elapsed() >= Duration::from_millis(80));
}

#[tokio::test(start_paused = true)]
async fn pod_in_back_off_is_tried_early_if_no_other_pod_is_active() {
    let delays = QueueDelays {
        first_backoff: Duration::from_secs(60),
        longest_backoff: Duration::from_secs(60),
        ..QueueDelays::default()
    };
    let queue = Queue::new(Arc::new(Simple), delays);
    queue.set_pod(pod("p", 0, false), None, 1);
    assert_eq!(next(&queue).await, "p");
    queue.requeue_failed("p", by("Fit"), 2);
    queue.move_pods(deleted());
    assert_eq!(queue.count_pending().backoff, 1);
    assert_eq!(next(&queue).await, "p");
    // A pod that failed with an error waits for the end of its back-off.
    let errored = Failure {
        errored: true,
        ..Failure::default()
    };
    queue.requeue_failed("p", errored, 3);
    assert!(rests(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn event_does_not_release_a_gated_pod() {
    let queue = queue();
    queue.set_pod(pod("p", 0, true), None, 1);
    queue.move_pods(deleted());
    queue.activate("p");
    assert_eq!(queue.count_pending().gated, 1);
    assert!(rests(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn change_of_the_pod_during_its_attempt_is_considered_at_the_end() {
    let queue = queue();
    queue.set_pod(pod("p", 0, false), None, 1);
    assert_eq!(next(&queue).await, "p");
    queue.set_pod(pod("p", 7, false), Some(deleted()), 2);
    queue.requeue_failed("p", by("Fit"), 3);
    assert_eq!(queue.count_pending().unschedulable, 0);
    let attempt = timeout(Duration::from_secs(5), queue.next())
        .await
        .unwrap()
        .unwrap();
    assert_eq!((attempt.pod.priority(), attempt.attempts), (7, 2));
}

#[tokio::test(start_paused = true)]
async fn pods_in_flight_are_tried_again_in_a_new_term() {
    let queue = queue();
    queue.set_pod(pod("p", 0, false), None, 1);
    assert_eq!(next(&queue).await, "p");
    queue.requeue_in_flight();
    assert_eq!(next(&queue).await, "p");
}

#[tokio::test(start_paused = true)]
async fn closed_queue_returns_no_pod() {
    let queue = queue();
    queue.set_pod(pod("p", 0, false), None, 1);
    queue.close();
    assert!(
        timeout(Duration::from_secs(5), queue.next())
            .await
            .unwrap()
            .is_none()
    );
}
