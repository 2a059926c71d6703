//! The watch cache reader: feeds the caches with one list of everything, then one watch on
//! everything.

use crate::caches::Caches;
use crate::resource::ResourceCache;
use apiserver_storage::{Change, StoreError, WatchItem};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const PAGE: i64 = 2000;
const RETRY: Duration = Duration::from_millis(200);

type EntriesByPrefix = HashMap<&'static str, Vec<(String, Bytes, i64)>>;

pub(crate) async fn run_watch(caches: Arc<Caches>, stop: CancellationToken) {
    let work = async {
        loop {
            let revision = load_all(&caches).await;
            follow_watch(&caches, revision, stop.clone()).await;
            tracing::warn!(
                "the revision of the store's watch was compacted; listing all objects again"
            );
        }
    };
    stop.run_until_cancelled(work).await;
}

/// Lists everything, retrying until it succeeds; returns the revision.
async fn load_all(caches: &Caches) -> i64 {
    let mut warned = false;
    loop {
        match read_all(caches).await {
            Ok((mut found, revision)) => {
                for (prefix, cache) in &caches.by_prefix {
                    cache.replace_all(found.remove(prefix).unwrap_or_default(), revision);
                }
                caches.connected.store(true, Ordering::Relaxed);
                caches.revision.send_replace(revision);
                return revision;
            }
            Err(e) if !warned => {
                warned = true;
                tracing::warn!(error = %e, "the store can't be read yet; trying again");
            }
            Err(e) => tracing::debug!(error = %e, "the store can't be read yet"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn read_all(caches: &Caches) -> Result<(EntriesByPrefix, i64), StoreError> {
    let prefix = format!("{}/", caches.root);
    let (mut found, mut start, mut revision) = (EntriesByPrefix::new(), prefix.clone(), 0);
    loop {
        let page = caches
            .store
            .list_range(&prefix, &start, PAGE, revision)
            .await?;
        revision = if revision == 0 {
            page.revision
        } else {
            revision
        };
        for item in page.items {
            let Ok(key) = std::str::from_utf8(&item.key) else {
                continue;
            };
            start = format!("{key}\0");
            if let Some((cache, name)) = locate_cache(caches, key) {
                let name = name.to_owned();
                found.entry(cache.kind().prefix).or_default().push((
                    name,
                    item.value,
                    item.revision,
                ));
            }
        }
        if !page.more {
            return Ok((found, revision));
        }
    }
}

/// Returns the cache of a key, and the key within it.
fn locate_cache<'a, 'k>(
    caches: &'a Caches,
    key: &'k str,
) -> Option<(&'a Arc<ResourceCache>, &'k str)> {
    let path = key.strip_prefix(&caches.root)?;
    let mut slashes = path.match_indices('/').map(|(at, _)| at).skip(1);
    let (one, two) = (slashes.next()?, slashes.next());
    two.into_iter().chain([one]).find_map(|end| {
        let cache = caches.by_prefix.get(path.get(..end)?)?;
        Some((cache, path.get(end + 1..)?))
    })
}

/// Applies changes until the watch's revision is compacted.
async fn follow_watch(caches: &Caches, after: i64, stop: CancellationToken) {
    let mut feed = caches
        .store
        .watch_prefix(&format!("{}/", caches.root), after, stop);
    *caches.progress_requests.lock() = Some(feed.progress_requests.clone());
    while let Some(item) = feed.next().await {
        match item {
            WatchItem::Changes(changes, revision) => {
                for change in changes {
                    apply_change(caches, change);
                }
                advance_revision(caches, revision);
            }
            WatchItem::Progress(revision) => advance_revision(caches, revision),
            WatchItem::Lost(why) => {
                caches.connected.store(false, Ordering::Relaxed);
                tracing::warn!(why, "the store's watch is lost; connecting again");
            }
            WatchItem::Restored => caches.connected.store(true, Ordering::Relaxed),
            WatchItem::Compacted => return,
        }
    }
}

fn apply_change(caches: &Caches, change: Change) {
    let (Change::Put(stored) | Change::Delete(stored)) = &change;
    let Some((cache, key)) = std::str::from_utf8(&stored.key)
        .ok()
        .and_then(|key| locate_cache(caches, key))
    else {
        return;
    };
    match &change {
        Change::Put(stored) => cache.apply_put(key, &stored.value, stored.revision),
        Change::Delete(stored) => cache.apply_delete(key, stored.revision),
    }
}

fn advance_revision(caches: &Caches, revision: i64) {
    caches.revision.send_if_modified(|current| {
        let newer = revision > *current;
        *current = revision.max(*current);
        newer
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]
    use super::*;
    use apiserver_request::{GroupResource, ObjectEvent, Objects, Observer};
    use apiserver_storage::{Store, StoreConfig};
    use base_task::Tasks;
    use proto_etcd::{etcdserverpb as pb, mvccpb};
    use tokio_stream::wrappers::TcpListenerStream;
    use tonic::{Request, Response, Status};

    /// A store with one ConfigMap.
    struct OneObject;

    #[tonic::async_trait]
    impl pb::kv_server::Kv for OneObject {
        async fn range(
            &self,
            _: Request<pb::RangeRequest>,
        ) -> Result<Response<pb::RangeResponse>, Status> {
            let resource = api_kinds::find("", "v1", "configmaps").unwrap();
            let object = serde_json::json!({"metadata": {"name": "c", "namespace": "d"}});
            let key = Bytes::from_static(b"/registry/configmaps/d/c");
            let value = apiserver_convert::encode_stored(resource, &object).into();
            let kvs = vec![mvccpb::KeyValue {
                key,
                value,
                mod_revision: 1,
                ..Default::default()
            }];
            let header = Some(pb::ResponseHeader {
                revision: 1,
                ..Default::default()
            });
            Ok(Response::new(pb::RangeResponse {
                header,
                kvs,
                count: 1,
                more: false,
            }))
        }

        async fn put(
            &self,
            _: Request<pb::PutRequest>,
        ) -> Result<Response<pb::PutResponse>, Status> {
            Err(Status::unimplemented(""))
        }

        async fn delete_range(
            &self,
            _: Request<pb::DeleteRangeRequest>,
        ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
            Err(Status::unimplemented(""))
        }

        async fn txn(
            &self,
            _: Request<pb::TxnRequest>,
        ) -> Result<Response<pb::TxnResponse>, Status> {
            Err(Status::unimplemented(""))
        }

        async fn compact(
            &self,
            _: Request<pb::CompactionRequest>,
        ) -> Result<Response<pb::CompactionResponse>, Status> {
            Err(Status::unimplemented(""))
        }
    }

    /// Panics on the reader's task.
    struct Planted;

    impl Observer for Planted {
        fn object_changed(&self, _: &GroupResource, _: &ObjectEvent) {
            panic!("planted");
        }
    }

    #[tokio::test]
    async fn dead_pump_stops_the_component_within_a_second() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let service = tonic::transport::Server::builder()
            .add_service(pb::kv_server::KvServer::new(OneObject));
        let serving = tokio::spawn(service.serve_with_incoming(TcpListenerStream::new(listener)));
        let store = Store::new(&StoreConfig {
            servers: vec![server],
            ..StoreConfig::default()
        })
        .unwrap();
        let tasks = Tasks::new(CancellationToken::new());
        let caches = Caches::start(store, "/registry", &tasks);
        caches.observe(&GroupResource::new("", "configmaps"), Arc::new(Planted));
        let stopped =
            tokio::time::timeout(Duration::from_secs(1), tasks.shutdown().cancelled()).await;
        assert!(stopped.is_ok(), "the dead pump did not stop the component");
        assert_eq!(
            tasks.failure().map(|failure| failure.name),
            Some("watch-cache")
        );
        serving.abort();
    }
}
