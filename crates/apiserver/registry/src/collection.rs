//! deletecollection: a list, then a delete of each object.

use crate::delete_options::DeleteOptions;
use crate::read::ListQuery;
use crate::registry::Registry;
use crate::write::Write;
use api_meta::{ApiError, Reason};
use apiserver_cache::Entry;
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::Value;

/// Concurrent deletes; the store commits them together.
const AT_ONCE: usize = 32;

/// The result of a deletecollection.
#[derive(Debug)]
pub struct CollectionDelete {
    /// The deleted objects, in the order of the list.
    pub objects: Vec<Value>,
    /// The revision of the list.
    pub revision: i64,
}

impl Registry {
    /// Deletes the objects that the query selects; skips those that another client deletes first.
    pub async fn delete_collection(
        &self,
        write: &Write,
        query: &ListQuery,
        options: &DeleteOptions,
    ) -> Result<CollectionDelete, ApiError> {
        let list = self.list(&write.resource, query).await?;
        let each: Vec<_> = list
            .entries
            .iter()
            .map(|entry| self.delete_entry(write, entry, options).boxed())
            .collect();
        let objects: Vec<Option<Value>> =
            stream::iter(each).buffered(AT_ONCE).try_collect().await?;
        Ok(CollectionDelete {
            objects: objects.into_iter().flatten().collect(),
            revision: list.revision,
        })
    }

    /// Deletes one object and returns it; `None` if it was already deleted.
    async fn delete_entry(
        &self,
        write: &Write,
        entry: &Entry,
        options: &DeleteOptions,
    ) -> Result<Option<Value>, ApiError> {
        let mut write = write.clone();
        write.namespace = entry.namespace().to_owned();
        write.name = entry.name().to_owned();
        match self.delete(&mut write, options).await {
            // The list has converted it.
            Ok(_) => entry.tree_as(&write.resource).map(Some),
            // The list may be older than another client's delete. The desired state is reached all
            // the same.
            Err(e) if e.reason == Reason::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}
