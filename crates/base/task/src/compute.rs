//! Long computations beside the tasks of a runtime.
//!
//! Invariant: a computation waits only for computations of its kind and of its class of clients,
//! and a client has a part of their places at most. One queue for all was rejected: large bodies of
//! one client held up the policies of all others, and the control plane.

use crate::blocking;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;
use tokio::sync::Semaphore;

/// Semaphores of the clients of a lane. Clients whose names have the same hash share one, so that a
/// lookup needs no lock. The hash is keyed at random: a client can't choose with whom it shares.
const CLIENTS: usize = 512;

/// The computations of the process. There is one number of places for it, as there is one for its
/// processors: more computations would only make all of them slower.
static PLACES: LazyLock<ComputePlaces> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(2, |count| count.get());
    // One processor of a kind remains for system clients.
    ComputePlaces::new(processors.max(2), processors.max(2) - 1)
});

/// A kind of computation. Each has places of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeKind {
    /// Encoding or decoding of a large body.
    Body,
    /// Evaluation of expressions.
    Evaluation,
}

/// A class of clients. Clients of the system have other places than those of tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    /// An administrator, or the server itself: without a limit for each client.
    Administrator,
    /// A node or a part of the control plane.
    System,
    /// Any other client.
    Other,
}

/// The client for whom a computation runs.
#[derive(Clone, Copy, Debug)]
pub struct ComputeClient<'a> {
    /// Clients of one name share a limit.
    pub name: &'a str,
    /// The class of the client.
    pub class: ClientClass,
}

/// Runs a computation that may take long, such as the evaluation of an expression of a client. It
/// waits for its turn, and other tasks continue meanwhile.
pub async fn compute<T>(
    client: ComputeClient<'_>,
    kind: ComputeKind,
    work: impl FnOnce() -> T,
) -> T {
    PLACES.run_computation(client, kind, work).await
}

/// Places for computations of all kinds and classes.
struct ComputePlaces {
    body: KindPlaces,
    evaluation: KindPlaces,
    hasher: RandomState,
}

/// Places for computations of one kind.
struct KindPlaces {
    system: Lane,
    other: Lane,
}

/// Places that a class of clients shares.
struct Lane {
    places: Semaphore,
    clients: Box<[Semaphore]>,
}

impl ComputePlaces {
    /// Creates places for system clients and for others; for each kind as many.
    fn new(system: usize, other: usize) -> Self {
        let create = || KindPlaces {
            system: Lane::new(system),
            other: Lane::new(other),
        };
        ComputePlaces {
            body: create(),
            evaluation: create(),
            hasher: RandomState::new(),
        }
    }

    async fn run_computation<T>(
        &self,
        client: ComputeClient<'_>,
        kind: ComputeKind,
        work: impl FnOnce() -> T,
    ) -> T {
        let places = match kind {
            ComputeKind::Body => &self.body,
            ComputeKind::Evaluation => &self.evaluation,
        };
        let lane = match client.class {
            ClientClass::Administrator | ClientClass::System => &places.system,
            ClientClass::Other => &places.other,
        };
        let limit = match client.class {
            ClientClass::Administrator => None,
            ClientClass::System | ClientClass::Other => lane.clients.get(self.find_index(client)),
        };
        // First the client's own limit: its further computations do not wait in the queue for the
        // places, where they would stand before those of other clients.
        // The semaphores are never closed; without a permit the work runs all the same.
        let _own = match limit {
            Some(limit) => limit.acquire().await.ok(),
            None => None,
        };
        let _place = lane.places.acquire().await.ok();
        blocking(work)
    }

    fn find_index(&self, client: ComputeClient<'_>) -> usize {
        let hash = self.hasher.hash_one(client.name) % CLIENTS as u64;
        usize::try_from(hash).unwrap_or_default()
    }
}

impl Lane {
    fn new(places: usize) -> Self {
        let each = (places / 2).max(1);
        Lane {
            places: Semaphore::new(places),
            clients: (0..CLIENTS).map(|_| Semaphore::new(each)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::time::Duration;
    use tokio::task::JoinSet;

    const DEADLINE: Duration = Duration::from_secs(20);

    fn client(name: &str, class: ClientClass) -> ComputeClient<'_> {
        ComputeClient { name, class }
    }

    /// Computations of clients `c0`, `c1`, ... that last until the value is dropped.
    struct Occupants {
        ends: Vec<Option<mpsc::Sender<()>>>,
        running: Vec<usize>,
        _tasks: JoinSet<()>,
    }

    impl Occupants {
        /// Ends a computation that runs.
        fn end_one(&mut self) {
            self.ends[self.running[0]] = None;
        }
    }

    /// Starts `count` computations, and waits until `running` of them run.
    async fn occupy_places(
        places: &Arc<ComputePlaces>,
        (kind, class): (ComputeKind, ClientClass),
        names: &[String],
        running: usize,
    ) -> Occupants {
        let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
        let (mut ends, mut tasks) = (Vec::new(), JoinSet::new());
        for (n, name) in names.iter().enumerate() {
            let (end, ended) = mpsc::channel();
            ends.push(Some(end));
            let (places, name, started) = (places.clone(), name.clone(), started.clone());
            tasks.spawn(async move {
                let work = move || {
                    started.send(n).unwrap();
                    let _ = ended.recv();
                };
                places
                    .run_computation(client(&name, class), kind, work)
                    .await;
            });
        }
        let mut found = Vec::new();
        while found.len() < running {
            let start = tokio::time::timeout(DEADLINE, starts.recv()).await;
            found.extend(start.unwrap());
        }
        Occupants {
            ends,
            running: found,
            _tasks: tasks,
        }
    }

    /// Returns names of clients with limits of their own: the hash is random.
    fn find_names(places: &ComputePlaces, count: usize) -> Vec<String> {
        let index = |name: &str| places.find_index(client(name, ClientClass::Other));
        let mut names: Vec<String> = Vec::new();
        for name in (0..).map(|n| format!("c{n}")) {
            if names.len() == count {
                break;
            }
            if names.iter().all(|other| index(other) != index(&name)) {
                names.push(name);
            }
        }
        names
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_continue_during_a_computation() {
        let (sender, receiver) = mpsc::channel();
        let computation = tokio::spawn(async move {
            let other = tokio::spawn(async move { sender.send(()).unwrap() });
            // Waits for a task that only another thread can run.
            let work = move || receiver.recv_timeout(DEADLINE).is_ok();
            let someone = client("c", ClientClass::Other);
            let continued = compute(someone, ComputeKind::Evaluation, work).await;
            other.await.unwrap();
            continued
        });
        assert!(computation.await.unwrap());
    }

    #[tokio::test]
    async fn computation_runs_on_a_runtime_of_one_thread() {
        let someone = client("c", ClientClass::Other);
        assert_eq!(compute(someone, ComputeKind::Body, || 1).await, 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn computation_waits_for_its_kind_and_class_only() {
        use ClientClass::{Administrator, Other, System};
        use ComputeKind::{Body, Evaluation};
        for (occupied, next, runs) in [
            ((Body, Other), (Body, Other), false),
            ((Body, Other), (Evaluation, Other), true),
            ((Body, Other), (Body, System), true),
            ((Body, Other), (Body, Administrator), true),
            ((Evaluation, Other), (Evaluation, Other), false),
            ((Evaluation, Other), (Body, Other), true),
            ((Evaluation, Other), (Evaluation, System), true),
            ((Evaluation, Other), (Evaluation, Administrator), true),
            ((Body, System), (Evaluation, System), true),
            ((Body, System), (Body, Other), true),
        ] {
            let places = Arc::new(ComputePlaces::new(3, 3));
            let names = find_names(&places, 11);
            let (last, tenants) = names.split_last().unwrap();
            let _occupants = occupy_places(&places, occupied, tenants, 3).await;
            let (kind, class) = next;
            let computation = places.run_computation(client(last, class), kind, || ());
            let mut computation = pin!(computation);
            let is_ready = futures::poll!(computation.as_mut()).is_ready();
            assert_eq!(is_ready, runs, "{occupied:?} {next:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn client_with_many_computations_does_not_hold_up_another_one() {
        for (class, count, running) in [
            (ClientClass::Other, 4, 2),
            (ClientClass::System, 4, 2),
            // With one place, a client waits for one computation of another client at most.
            (ClientClass::Other, 1, 1),
        ] {
            let places = Arc::new(ComputePlaces::new(count, count));
            let names = find_names(&places, 2);
            let (many, kind) = (vec![names[0].clone(); 10], ComputeKind::Evaluation);
            let mut occupants = occupy_places(&places, (kind, class), &many, running).await;
            let next = places.run_computation(client(&names[1], class), kind, || ());
            let mut next = pin!(next);
            let is_ready = futures::poll!(next.as_mut()).is_ready();
            assert_eq!(is_ready, count > 1, "{class:?} {count}");
            if !is_ready {
                // The first one ends, and the others do not begin before this one.
                occupants.end_one();
                tokio::time::timeout(DEADLINE, next).await.unwrap();
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn administrator_has_all_places_of_the_system() {
        let places = Arc::new(ComputePlaces::new(4, 1));
        let names = vec!["admin".to_owned(); 4];
        let lane = (ComputeKind::Body, ClientClass::Administrator);
        occupy_places(&places, lane, &names, 4).await;
    }
}
