//! The class of a request.

use crate::body::Body;
use http::{HeaderValue, Response};
use std::sync::Arc;

/// FlowSchema and priority level of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    pub(super) schema: Arc<str>,
    pub(super) level: Arc<str>,
    pub(super) schema_uid: Arc<str>,
    pub(super) level_uid: Arc<str>,
}

impl Class {
    /// Adds headers with the uids of schema and level to a response.
    pub fn mark_response(&self, response: &mut Response<Body>) {
        // Uids, not names: the caller may lack the permission to read these objects.
        let both = [
            ("x-kubernetes-pf-flowschema-uid", &self.schema_uid),
            ("x-kubernetes-pf-prioritylevel-uid", &self.level_uid),
        ];
        for (name, uid) in both {
            if let Ok(value) = HeaderValue::from_str(uid) {
                response.headers_mut().insert(name, value);
            }
        }
    }
}
