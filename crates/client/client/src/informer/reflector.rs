//! Reflector: lists, watches, resumes and relists to update a store.

use std::sync::Arc;
use std::time::Duration;

use base_task::CancellationToken;
use futures::StreamExt;
use futures::future::BoxFuture;
use rand::Rng;
use tokio::time::Instant;

use super::Shared;
use super::decoder::{ObjectDecoder, ReceivedObject};
use crate::collection::Collection;
use crate::error::{Error, Result};
use crate::list::List;
use crate::params::ListParams;
use crate::watch_event::{Undecodable, WatchEvent};

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(3);
/// A watch that lasted this long, or delivered an event, was successful: the back-off is reset.
const GOOD_WATCH: Duration = Duration::from_secs(5);
/// Objects in a page of a consistent list.
const PAGE: u32 = 500;

/// Position from which to continue.
enum Position {
    /// No version is known: any state is acceptable.
    Start,
    /// The last known version is too old: only the newest state is acceptable.
    Expired,
    /// Everything up to this version is in the store.
    At(String),
}

impl Position {
    fn last_version(&self) -> Option<&str> {
        match self {
            Self::At(version) => Some(version),
            Self::Start | Self::Expired => None,
        }
    }
}

/// Not generic: there are informers for some fifty kinds.
pub(crate) struct Reflector {
    pub(crate) collection: Collection,
    pub(crate) params: ListParams,
    pub(crate) decoder: Box<dyn ObjectDecoder>,
    pub(crate) shared: Arc<Shared>,
}

impl Reflector {
    /// Returns a future that updates the store until `stop` is cancelled. It is boxed here, because
    /// the code of a future is compiled where it gets its place in memory: otherwise, in each crate
    /// with an informer.
    pub(crate) fn run_until(self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.run_reflector() => {}
            }
        })
    }

    async fn run_reflector(&self) {
        let mut position = Position::Start;
        let mut delay = FIRST_DELAY;
        let mut connections = self.collection.client.subscribe_connections();
        loop {
            let began = Instant::now();
            // Marked before the attempt: a connection that another task opens during it must count
            // as news afterwards.
            connections.mark_unchanged();
            // Progress is measured by the version, not by events: a bookmark on a quiet resource is
            // progress, too.
            let before = position.last_version().map(str::to_owned);
            let step = self.list_and_watch(&mut position).await;
            match &step {
                Ok(()) => {}
                // 410: the server has compacted the version away. client-go relists in this case as
                // well.
                Err(error) if error.is_expired() => position = Position::Expired,
                Err(error) => self.log_failure(error, &mut position),
            }
            // A server that accepts watches and closes them at once must not be asked again without
            // a delay; one that served for a while is healthy.
            if began.elapsed() >= GOOD_WATCH || before.as_deref() != position.last_version() {
                delay = FIRST_DELAY;
            }
            // Only for lost servers: a rejected request is not repaired by a new connection of
            // another task.
            let lost = step.is_err_and(|error| error.is_unavailable());
            tokio::select! {
                // With jitter, since all informers of all nodes lose their watches at the same
                // moment when an API server restarts.
                () = tokio::time::sleep(add_jitter(delay)) => {}
                // The server is reachable again: retry at once.
                _ = connections.changed(), if lost => {}
            }
            delay = (delay * 2).min(LONGEST_DELAY);
        }
    }

    fn log_failure(&self, error: &Error, position: &mut Position) {
        let resource = &self.collection.resource.plural;
        match error {
            // Restarts of the API server and load balancers that cut idle streams are normal, so
            // this is no warning.
            Error::Connect { .. } | Error::Connection { .. } | Error::Timeout { .. } => {
                tracing::debug!(%resource, %error, "watch interrupted");
            }
            Error::Decode { .. } => {
                tracing::error!(%resource, %error, "the watch sent no event; listing again");
                // The stream is out of step, so nothing after this line can be trusted; the
                // versions of the store can.
                *position = Position::Expired;
            }
            other => tracing::warn!(%resource, error = %other, "cannot list or watch"),
        }
    }

    /// Lists if necessary, then watches until the watch ends.
    async fn list_and_watch(&self, position: &mut Position) -> Result<()> {
        let version = match position {
            Position::At(version) => version.clone(),
            // Any state will do for the first list, so that the API server answers from its watch
            // cache. The watch that follows brings it up to date.
            Position::Start => self.list_into_store("0", position).await?,
            // Not from the cache: that may be as old as the version that has just expired, and the
            // watch would expire again.
            Position::Expired => self.list_into_store("", position).await?,
        };
        self.watch_from(version, position).await
    }

    async fn list_into_store(&self, version: &str, position: &mut Position) -> Result<String> {
        let mut params = self.params.clone();
        // With `resourceVersion=0` the server ignores a limit and sends one page from its cache. A
        // consistent list comes in pages, to bound the memory of both sides.
        if version.is_empty() {
            params.limit = params.limit.or(Some(PAGE));
        } else {
            params.resource_version = Some(version.to_owned());
        }
        let kind = &self.collection.resource.kind;
        let mut list = List::default();
        let mut add = |bytes: &[u8]| {
            let page = self.decoder.decode_list(bytes, kind)?;
            Ok(list.append_page(page))
        };
        list.metadata = self.collection.read_pages(&params, &mut add).await?;
        // The version of the list, not the highest of its items: deletions leave no item behind.
        let version = list.resource_version().to_owned();
        self.shared
            .replace_all(list.items, &list.undecodable, &version);
        *position = Position::At(version.clone());
        Ok(version)
    }

    async fn watch_from(&self, version: String, position: &mut Position) -> Result<()> {
        // The server ends the watch after this time. At random times, so that the watches of a
        // cluster are not all renewed at once; client-go takes 5 to 10 minutes, too.
        let seconds = rand::rng().random_range(300..600);
        let resource = &self.collection.resource.plural;
        tracing::debug!(%resource, version, "starting a watch");
        let lines = self.collection.watch(&self.params, &version, seconds);
        let mut lines = lines.await?;
        tracing::debug!(%resource, version, "watching");
        let client = &self.collection.client;
        while let Some(line) = lines.next().await {
            let event = self.decoder.decode_event(&line?);
            let event = event.map_err(|source| lines.describe_error(source))?;
            let is_bookmark = matches!(event, WatchEvent::Bookmark { .. });
            // The store changes first and the version afterwards: a caller that waits for a version
            // must find its objects.
            let version = self.apply_event(event)?;
            self.shared.advance_version(&version);
            *position = Position::At(version);
            // Servers send bookmarks about once a minute. The next watch continues from this
            // bookmark with the new certificate; the open watch has the former one until it ends.
            if is_bookmark && client.has_new_tls(lines.tls()) {
                tracing::debug!(%resource, "watching again with the changed certificates");
                return Ok(());
            }
        }
        Ok(())
    }

    /// Applies an event to the store and returns its version.
    fn apply_event(&self, event: WatchEvent<ReceivedObject>) -> Result<String> {
        Ok(match event {
            WatchEvent::Added(received) | WatchEvent::Modified(received) => {
                self.shared.apply_object(received.object);
                received.version
            }
            WatchEvent::Deleted(received) => {
                self.shared.delete_object(received.object);
                received.version
            }
            // One object that this version of the types cannot represent must not stop the informer
            // for all others.
            WatchEvent::Undecodable(object) => self.handle_undecodable(*object),
            WatchEvent::Bookmark {
                resource_version, ..
            } => resource_version,
            // Mostly 410. The HTTP status of the watch was 200 long ago, so errors come as events.
            WatchEvent::Error(status) => return Err(Error::Api(status)),
        })
    }

    /// Handles an object that can't be decoded: keeps its last known state, unless it was deleted.
    fn handle_undecodable(&self, object: Undecodable) -> String {
        let kind = &self.collection.resource.kind;
        tracing::error!(%kind, object = object.key, error = object.error, "object can't be decoded; the store keeps its last known state");
        // The deletion itself is known for certain, whatever the object contains.
        if object.deleted {
            self.shared.delete_key(&object.key);
        }
        object.resource_version
    }
}

fn add_jitter(delay: Duration) -> Duration {
    delay.mul_f64(rand::rng().random_range(1.0..2.0))
}
