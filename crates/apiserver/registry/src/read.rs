//! Get and list, from the watch caches.

use crate::errors::{cache_error, expired_error, expired_page, store_error};
use crate::registry::Registry;
use crate::write::Write;
use api_kinds::Resource;
use api_meta::{ApiError, Cause, Reason};
use apiserver_cache::{Entry, ResourceCache, Selection, Snapshot, convert_entries, convert_entry};
use apiserver_convert::convert_one;
use apiserver_storage::StoreError;
use serde_json::Value;
use std::sync::Arc;

/// Entries in one read of a past revision.
const PAGE: i64 = 500;

/// The parameters of a list.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// Scope and selectors.
    pub selection: Selection,
    /// Maximum number of objects; 0 for all.
    pub limit: usize,
    /// Token of the previous page.
    pub continue_token: String,
    /// `resourceVersion` as sent.
    pub resource_version: String,
    /// `resourceVersionMatch` as sent.
    pub version_match: String,
}

/// A page of objects.
#[derive(Debug)]
pub struct ListResult {
    /// The objects.
    pub entries: Vec<Arc<Entry>>,
    /// The revision of the whole list.
    pub revision: i64,
    /// Token of the next page; empty on the last.
    pub continue_token: String,
    /// Number of objects after this page, if known.
    pub remaining: Option<i64>,
}

impl Registry {
    /// Returns one object, at least as fresh as `resource_version` requires (empty: current).
    pub async fn get(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        name: &str,
        resource_version: &str,
    ) -> Result<Arc<Entry>, ApiError> {
        let cache = self
            .caches
            .find_cache(&resource.group, &resource.plural)
            .ok_or_else(ApiError::no_such_path)?;
        self.wait_for_version(resource_version).await?;
        let entry = cache
            .get(&cache.kind().object_key(namespace, name))
            .ok_or_else(|| ApiError::not_found(&resource.group, &resource.plural, name))?;
        convert_entry(resource, entry).await
    }

    /// Waits until the caches are as fresh as a read with this `resourceVersion` requires; returns
    /// their revision.
    pub async fn wait_for_version(&self, resource_version: &str) -> Result<i64, ApiError> {
        let reached = match resource_version {
            "" => self.caches.wait_for_current().await,
            // Any version will do: informers read this way, and cost the store nothing.
            "0" if self.caches.is_ready() => return Ok(self.caches.revision()),
            "0" => self.caches.wait_for(1).await,
            text => self.caches.wait_for(parse_version(text)?).await,
        };
        reached.map_err(|e| cache_error(&e))
    }

    /// Returns a list, or a page of one.
    pub async fn list(
        &self,
        resource: &Arc<Resource>,
        query: &ListQuery,
    ) -> Result<ListResult, ApiError> {
        let cache = self
            .caches
            .find_cache(&resource.group, &resource.plural)
            .ok_or_else(ApiError::no_such_path)?;
        check_match(query)?;
        let prefix = query.selection.key_prefix();
        let (snapshot, start) = if query.continue_token.is_empty() {
            (
                self.read_snapshot(&cache, query, &prefix).await?,
                String::new(),
            )
        } else {
            self.resume_list(&cache, query, &prefix).await?
        };
        let mut page = list_page(&snapshot, query, &prefix, &start);
        page.entries = convert_entries(resource, page.entries).await?;
        page.entries
            .retain(|entry| query.selection.matches_converted(entry));
        Ok(page)
    }

    async fn read_snapshot(
        &self,
        cache: &ResourceCache,
        query: &ListQuery,
        prefix: &str,
    ) -> Result<Source, ApiError> {
        if query.version_match == "Exact" {
            return self
                .snapshot_at(
                    cache,
                    parse_version(&query.resource_version)?,
                    query,
                    prefix,
                    "",
                )
                .await;
        }
        let revision = self.wait_for_version(&query.resource_version).await?;
        Ok(Source::Cached(
            cache.snapshot_for(&query.selection, revision),
        ))
    }

    async fn resume_list(
        &self,
        cache: &ResourceCache,
        query: &ListQuery,
        prefix: &str,
    ) -> Result<(Source, String), ApiError> {
        // The token has the revision, and a second one could contradict it.
        if !matches!(query.resource_version.as_str(), "" | "0") {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let (revision, key) = token::parse_token(&query.continue_token)?;
        // The key of the token is relative to the list's prefix, as upstream encodes it.
        let start = format!("{prefix}{key}");
        let source = match revision {
            // A token without a revision continues at the current revision.
            ..=0 => {
                let revision = self.wait_for_version("").await?;
                Source::Cached(cache.snapshot_for(&query.selection, revision))
            }
            revision => self
                .snapshot_at(cache, revision, query, prefix, &start)
                .await
                .map_err(|error| match error.reason {
                    // As upstream, the error has a token for clients that accept a list of mixed
                    // revisions.
                    Reason::Expired => expired_page(token::inconsistent_page(&key)),
                    _ => error,
                })?,
        };
        Ok((source, start))
    }

    /// Returns the state at a past revision, from the cache's history or from the store.
    async fn snapshot_at(
        &self,
        cache: &ResourceCache,
        revision: i64,
        query: &ListQuery,
        prefix: &str,
        start: &str,
    ) -> Result<Source, ApiError> {
        self.caches
            .wait_for(revision)
            .await
            .map_err(|e| cache_error(&e))?;
        // The cache keeps more history of a rarely written resource than the store does. Clients
        // get one limit for all resources and all servers.
        if revision < self.store.compacted_revision() {
            return Err(expired_error());
        }
        match cache.snapshot_at(revision) {
            Some(snapshot) => Ok(Source::Cached(snapshot)),
            None => self
                .read_past(cache, revision, query, prefix, start)
                .await
                .map(Source::Read),
        }
    }

    /// Reads from the store only as much as a page needs: a request for one object must not read
    /// the whole range.
    async fn read_past(
        &self,
        cache: &ResourceCache,
        revision: i64,
        query: &ListQuery,
        prefix: &str,
        start: &str,
    ) -> Result<PastRead, ApiError> {
        let root = format!("{}/", self.caches.store_prefix(cache.kind()));
        let range = format!("{root}{prefix}");
        let mut from = if start > prefix {
            format!("{root}{start}")
        } else {
            range.clone()
        };
        let mut entries = Vec::new();
        loop {
            let page = self
                .store
                .list_range(&range, &from, PAGE, revision)
                .await
                .map_err(|e| match e {
                    StoreError::Compacted => expired_error(),
                    other => store_error(&other),
                })?;
            for item in &page.items {
                let Ok(key) = std::str::from_utf8(&item.key) else {
                    continue;
                };
                from = format!("{key}\0");
                let name = key.get(root.len()..).unwrap_or_default();
                let entry = Entry::new(cache.kind(), name, &item.value, item.revision);
                // A selector may reject almost all of a large range.
                if query.selection.matches(&entry) {
                    entries.push(Arc::new(entry));
                }
            }
            let unread = page
                .count
                .saturating_sub(i64::try_from(page.items.len()).unwrap_or(i64::MAX));
            // One entry more than the page needs shows that a next page exists.
            if !page.more || (query.limit > 0 && entries.len() > query.limit) {
                return Ok(PastRead {
                    entries,
                    revision,
                    unread: if page.more { unread } else { 0 },
                });
            }
        }
    }

    /// Reads the object from the store; returns it in the client's version, with its revision.
    pub(crate) async fn live_entry(
        &self,
        write: &Write,
        key: &str,
        name: &str,
    ) -> Result<Option<(Value, i64)>, ApiError> {
        let Some(stored) = self
            .store
            .read_key(key)
            .await
            .map_err(|e| store_error(&e))?
        else {
            return Ok(None);
        };
        let kind = self.write_cache(write)?.kind().clone();
        let object_key = kind.object_key(&write.namespace, name);
        let tree = Entry::new(&kind, &object_key, &stored.value, stored.revision).decode_tree()?;
        let tree = convert_one(&kind.resource, &write.resource, tree).await?;
        Ok(Some((tree, stored.revision)))
    }
}

/// Selected entries of a past revision, enough for a page.
struct PastRead {
    entries: Vec<Arc<Entry>>,
    revision: i64,
    /// Number of entries after these.
    unread: i64,
}

/// The source of a list's entries.
enum Source {
    Cached(Snapshot),
    Read(PastRead),
}

impl Source {
    fn revision(&self) -> i64 {
        match self {
            Source::Cached(snapshot) => snapshot.revision,
            Source::Read(past) => past.revision,
        }
    }

    fn unread(&self) -> i64 {
        match self {
            Source::Cached(_) => 0,
            Source::Read(past) => past.unread,
        }
    }

    /// Returns the selected entries whose key is not before `start`, in order.
    fn select_entries<'a>(
        &'a self,
        selection: &'a Selection,
        start: &'a str,
    ) -> Box<dyn Iterator<Item = &'a Arc<Entry>> + 'a> {
        match self {
            Source::Cached(snapshot) => Box::new(snapshot.select_entries(selection, start)),
            Source::Read(past) => Box::new(past.entries.iter().filter(move |e| &*e.key >= start)),
        }
    }
}

fn list_page(source: &Source, query: &ListQuery, prefix: &str, start: &str) -> ListResult {
    let mut matching = source.select_entries(&query.selection, start);
    let revision = source.revision();
    if query.limit == 0 {
        let entries = matching.cloned().collect();
        return ListResult {
            entries,
            revision,
            continue_token: String::new(),
            remaining: None,
        };
    }
    let entries: Vec<_> = matching.by_ref().take(query.limit).cloned().collect();
    let whole = query.selection.is_whole_scope();
    // remainingItemCount is omitted with a selector, because computing it would scan the whole
    // range.
    let more = if whole {
        matching.count()
    } else {
        usize::from(matching.next().is_some())
    };
    let continue_token = match entries.last() {
        Some(last) if more > 0 => {
            token::next_page(revision, last.key.get(prefix.len()..).unwrap_or_default())
        }
        _ => String::new(),
    };
    // Entries that were read but not sent, and those that were not read.
    let left = i64::try_from(more)
        .unwrap_or(i64::MAX)
        .saturating_add(source.unread());
    let remaining = (whole && more > 0).then_some(left);
    ListResult {
        entries,
        revision,
        continue_token,
        remaining,
    }
}

fn parse_version(text: &str) -> Result<i64, ApiError> {
    text.parse().ok().filter(|n| *n >= 0).ok_or_else(|| {
        ApiError::bad_request(format!(
            "invalid resource version {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

/// Checks the combination of `resourceVersion` and `resourceVersionMatch`, as documented.
fn check_match(query: &ListQuery) -> Result<(), ApiError> {
    let version = query.resource_version.as_str();
    let forbidden = |why: &str| ("FieldValueForbidden", format!("Forbidden: {why}"));
    let wrong = match query.version_match.as_str() {
        "" => return Ok(()),
        // The rules are those of Kubernetes' API concepts page.
        _ if !query.continue_token.is_empty() => {
            forbidden("resourceVersionMatch is forbidden when continue is provided")
        }
        _ if version.is_empty() => {
            forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
        }
        "Exact" if version == "0" => {
            forbidden("resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\"")
        }
        "Exact" | "NotOlderThan" => return Ok(()),
        other => {
            let text = format!(
                "Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\", \"\""
            );
            ("FieldValueNotSupported", text)
        }
    };
    let cause = Cause {
        reason: wrong.0.into(),
        message: wrong.1,
        field: "resourceVersionMatch".into(),
    };
    Err(ApiError::invalid(
        "meta.k8s.io",
        "ListOptions",
        "",
        vec![cause],
    ))
}

mod token {
    //! Continue tokens in upstream's form, so that one page may come from a stock server and the
    //! next from this one.

    use api_meta::ApiError;
    use serde_json::{Value, json};

    pub(super) fn next_page(revision: i64, last: &str) -> String {
        encode_token(revision, &format!("{last}\0"))
    }

    /// Creates a token that continues at `start`, at the current revision.
    pub(super) fn inconsistent_page(start: &str) -> String {
        encode_token(-1, start)
    }

    fn encode_token(revision: i64, start: &str) -> String {
        let text = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string();
        base64::encode_bytes(text.as_bytes())
    }

    pub(super) fn parse_token(token: &str) -> Result<(i64, String), ApiError> {
        let bad = |why: &str| ApiError::bad_request(format!("continue key is not valid: {why}"));
        let bytes = base64::decode_text(token).ok_or_else(|| bad("illegal base64 data"))?;
        let value: Value =
            serde_json::from_slice(&bytes).map_err(|_| bad("it is no JSON object"))?;
        if value["v"] != "meta.k8s.io/v1" {
            return Err(bad("server does not recognize this encoded version"));
        }
        let start = value["start"]
            .as_str()
            .filter(|s| !s.is_empty())
            .ok_or_else(|| bad("it has no start key"))?;
        // The start key is appended to a prefix. A clean one can not leave the namespace of the
        // request.
        if start.starts_with('/') || start.split('/').any(|part| part == ".." || part == ".") {
            return Err(bad("it is not clean"));
        }
        Ok((value["rv"].as_i64().unwrap_or(0), start.to_owned()))
    }

    mod base64 {
        //! URL-safe base64 without padding.
        use ::base64::Engine;
        use ::base64::engine::general_purpose::URL_SAFE_NO_PAD;

        pub(super) fn encode_bytes(bytes: &[u8]) -> String {
            URL_SAFE_NO_PAD.encode(bytes)
        }

        pub(super) fn decode_text(text: &str) -> Option<Vec<u8>> {
            URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
        }
    }

    #[cfg(test)]
    mod tests {
        #![allow(clippy::unwrap_used)]

        #[test]
        fn tokens_are_read_back() {
            assert_eq!(
                super::parse_token(&super::next_page(7, "ns/a")).unwrap(),
                (7, "ns/a\0".to_owned())
            );
            assert_eq!(
                super::parse_token(&super::inconsistent_page("ns/a\0")).unwrap(),
                (-1, "ns/a\0".to_owned())
            );
            assert!(super::parse_token("nonsense").is_err());
        }
    }
}
