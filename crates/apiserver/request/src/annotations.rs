//! Annotations of the audit events of a request.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

tokio::task_local! {
    static CURRENT: AuditAnnotations;
}

/// Annotations that the stages of a request add to its audit events.
///
/// They belong to the task of the request, because any code below it may add one, and most
/// requests have none.
#[derive(Clone, Debug, Default)]
pub struct AuditAnnotations(Arc<Mutex<BTreeMap<String, Annotation>>>);

#[derive(Debug)]
struct Annotation {
    value: String,
    /// The value shows a part of a body.
    is_content: bool,
}

impl AuditAnnotations {
    /// Runs a request whose stages add to these annotations.
    pub async fn collect<T>(&self, request: impl Future<Output = T>) -> T {
        CURRENT.scope(self.clone(), request).await
    }

    /// Returns the annotations; those that show a part of a body only with `content`.
    pub fn list(&self, content: bool) -> BTreeMap<String, String> {
        let all = self.0.lock();
        let shown = all.iter().filter(|(_, one)| content || !one.is_content);
        shown
            .map(|(key, one)| (key.clone(), one.value.clone()))
            .collect()
    }
}

/// Adds an annotation to the audit events of the current request, if it has any. The first value
/// of a key stays.
pub fn annotate_audit(key: impl Into<String>, value: impl FnOnce() -> String) {
    insert_annotation(key.into(), value, false);
}

/// Adds an annotation that shows a part of a body.
pub fn annotate_audit_content(key: impl Into<String>, value: impl FnOnce() -> String) {
    insert_annotation(key.into(), value, true);
}

fn insert_annotation(key: String, value: impl FnOnce() -> String, is_content: bool) {
    // An error means that the request is not audited.
    let _ = CURRENT.try_with(|annotations| {
        let mut all = annotations.0.lock();
        all.entry(key).or_insert_with(|| Annotation {
            value: value(),
            is_content,
        });
    });
}
