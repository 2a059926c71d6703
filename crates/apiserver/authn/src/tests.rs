//! The authenticators over files of a temporary directory and a fake of the watch caches.
#![allow(clippy::unwrap_used, clippy::panic)]

mod certificates;
mod service_accounts;
mod tokens;

use apiserver_request::GroupResource;
use apiserver_request::testing::FakeObjects;
use serde_json::{Value, json};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Builds a fake of the watch caches with objects of the core group, given as (plural, object).
fn fake_objects(objects: Vec<(&str, Value)>) -> Arc<FakeObjects> {
    let objects = objects.into_iter();
    let core = objects.map(|(plural, object)| (GroupResource::new("", plural), object));
    Arc::new(FakeObjects::new(core))
}

fn write_file(directory: &Path, name: &str, content: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// Runs a future over the fakes, which never wait.
fn complete<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("the fakes must not wait"),
    }
}
