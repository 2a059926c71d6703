//! Reflector: lists, watches, resumes and relists to update a store.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use rand::Rng;
use tokio::time::Instant;

use super::{Shared, Transform};
use crate::api::Api;
use crate::error::{Error, Result};
use crate::object::{Object, ObjectExt};
use crate::params::ListParams;
use crate::watch::{Undecodable, WatchEvent};

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(3);
/// A watch that lasted this long, or delivered an event, was successful: the back-off is reset.
const GOOD_WATCH: Duration = Duration::from_secs(5);

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
    fn version(&self) -> Option<&str> {
        match self {
            Self::At(version) => Some(version),
            Self::Start | Self::Expired => None,
        }
    }
}

pub(crate) struct Reflector<K: Object> {
    api: Api<K>,
    params: ListParams,
    transforms: Vec<Transform<K>>,
    shared: Arc<Shared<K>>,
}

impl<K: Object> Reflector<K> {
    pub(crate) fn new(
        api: Api<K>,
        params: ListParams,
        transforms: Vec<Transform<K>>,
        shared: Arc<Shared<K>>,
    ) -> Self {
        Self {
            api,
            params,
            transforms,
            shared,
        }
    }

    pub(crate) async fn run_reflector(self) {
        let mut position = Position::Start;
        let mut delay = FIRST_DELAY;
        let mut connections = self.api.client().subscribe_connections();
        loop {
            let began = Instant::now();
            connections.mark_unchanged();
            let before = position.version().map(str::to_owned);
            let step = self.list_and_watch(&mut position).await;
            match &step {
                Ok(()) => {}
                Err(error) if error.is_expired() => position = Position::Expired,
                Err(error) => self.log_failure(error, &mut position),
            }
            if began.elapsed() >= GOOD_WATCH || before.as_deref() != position.version() {
                delay = FIRST_DELAY;
            }
            let lost = step.is_err_and(|error| error.is_unavailable());
            tokio::select! {
                () = tokio::time::sleep(add_jitter(delay)) => {}
                // The server is reachable again: retry at once.
                _ = connections.changed(), if lost => {}
            }
            delay = (delay * 2).min(LONGEST_DELAY);
        }
    }

    fn log_failure(&self, error: &Error, position: &mut Position) {
        let resource = &self.api.resource().plural;
        match error {
            Error::Connect { .. } | Error::Connection { .. } | Error::Timeout { .. } => {
                tracing::debug!(%resource, %error, "watch interrupted");
            }
            Error::Decode { .. } => {
                tracing::error!(%resource, %error, "the watch sent no event; listing again");
                *position = Position::Expired;
            }
            other => tracing::warn!(%resource, error = %other, "cannot list or watch"),
        }
    }

    /// Lists if necessary, then watches until the watch ends.
    async fn list_and_watch(&self, position: &mut Position) -> Result<()> {
        let version = match position {
            Position::At(version) => version.clone(),
            Position::Start => self.list_into_store("0", position).await?,
            Position::Expired => self.list_into_store("", position).await?,
        };
        self.watch_from(version, position).await
    }

    async fn list_into_store(&self, version: &str, position: &mut Position) -> Result<String> {
        let mut params = self.params.clone();
        let mut list = if version.is_empty() {
            self.api.list_paged(&params).await?
        } else {
            params.resource_version = Some(version.to_owned());
            self.api.list(&params).await?
        };
        let version = list.resource_version().to_owned();
        list.items
            .iter_mut()
            .for_each(|item| self.transform_object(item));
        list.items.shrink_to_fit();
        self.shared
            .replace_all(list.items, &list.undecodable, &version);
        *position = Position::At(version.clone());
        Ok(version)
    }

    async fn watch_from(&self, version: String, position: &mut Position) -> Result<()> {
        let seconds = rand::rng().random_range(300..600);
        let resource = &self.api.resource().plural;
        tracing::debug!(%resource, version, "starting a watch");
        let mut events = self.api.watch(&self.params, &version, seconds).await?;
        tracing::debug!(%resource, version, "watching");
        while let Some(event) = events.next().await {
            let version = self.apply_event(event?)?;
            self.shared.advance_version(&version);
            *position = Position::At(version);
        }
        Ok(())
    }

    /// Applies an event to the store and returns its version.
    fn apply_event(&self, event: WatchEvent<K>) -> Result<String> {
        Ok(match event {
            WatchEvent::Added(mut object) | WatchEvent::Modified(mut object) => {
                let version = object.resource_version().to_owned();
                self.transform_object(&mut object);
                self.shared.apply_object(object);
                version
            }
            WatchEvent::Deleted(mut object) => {
                let version = object.resource_version().to_owned();
                self.transform_object(&mut object);
                self.shared.delete_object(object);
                version
            }
            WatchEvent::Undecodable(object) => self.handle_undecodable(*object),
            WatchEvent::Bookmark {
                resource_version, ..
            } => resource_version,
            WatchEvent::Error(status) => return Err(Error::Api(status)),
        })
    }

    /// Handles an object that can't be decoded: keeps its last known state, unless it was deleted.
    fn handle_undecodable(&self, object: Undecodable) -> String {
        let kind = &self.api.resource().kind;
        tracing::error!(%kind, object = object.key, error = object.error, "object can't be decoded; the store keeps its last known state");
        if object.deleted {
            self.shared.delete_key(&object.key);
        }
        object.resource_version
    }

    fn transform_object(&self, object: &mut K) {
        for transform in &self.transforms {
            transform(object);
        }
    }
}

fn add_jitter(delay: Duration) -> Duration {
    delay.mul_f64(rand::rng().random_range(1.0..2.0))
}
