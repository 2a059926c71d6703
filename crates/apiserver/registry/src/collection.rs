//! deletecollection: a list, then a delete of each object.

use crate::delete::{DeleteAdmission, KnownState};
use crate::delete_options::DeleteOptions;
use crate::read::ListQuery;
use crate::registry::Registry;
use crate::write::Write;
use api_meta::{ApiError, Reason};
use apiserver_cache::Entry;
use futures::FutureExt;
use futures::future::ready;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::sync::Arc;

/// Concurrent deletes; the store commits them together.
///
/// Not in one transaction: all its events would have one revision, and a watch that breaks between
/// two of them would resume after both.
const AT_ONCE: usize = 32;

/// The result of a deletecollection.
#[derive(Debug)]
pub struct CollectionDelete {
    /// The deleted objects as they were listed, in the order of the list.
    pub entries: Vec<Arc<Entry>>,
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
        let revision = list.revision;
        // Each future is created when it is started: all at once, they would need more memory than
        // the objects.
        let deletes = list
            .entries
            .into_iter()
            .map(|entry| self.delete_entry(write, entry, options).boxed());
        let deleted = stream::iter(deletes).buffered(AT_ONCE);
        let entries = deleted
            .try_filter_map(|entry| ready(Ok(entry)))
            .try_collect();
        Ok(CollectionDelete {
            entries: entries.await?,
            revision,
        })
    }

    /// Deletes one object and returns it; `None` if it was already deleted.
    async fn delete_entry(
        &self,
        write: &Write,
        entry: Arc<Entry>,
        options: &DeleteOptions,
    ) -> Result<Option<Arc<Entry>>, ApiError> {
        let mut write = write.clone();
        write.namespace = entry.namespace().to_owned();
        write.name = entry.name().to_owned();
        let known = KnownState::from_list(&write, &entry, options);
        match self
            .delete_from(&mut write, options, DeleteAdmission::Runs, known)
            .await
        {
            Ok(_) => Ok(Some(entry)),
            // The list may be older than another client's delete. The desired state is reached all
            // the same.
            Err(e) if e.reason == Reason::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}
