//! Counts calls when they end.

use crate::metrics::{Call, StoreMetrics};
use std::ops::Deref;
use tokio::time::Instant;

/// Counts a call when it ends or is cancelled.
pub(crate) struct CallEnd<M: Deref<Target = StoreMetrics>> {
    metrics: M,
    /// `None` once the call is counted.
    call: Option<Call>,
    began: Instant,
}

impl<M: Deref<Target = StoreMetrics>> CallEnd<M> {
    pub fn new(metrics: M, call: Call) -> Self {
        metrics.call_started(call);
        CallEnd {
            metrics,
            call: Some(call),
            began: Instant::now(),
        }
    }

    /// Returns the call if it has not ended.
    pub fn call(&self) -> Option<Call> {
        self.call
    }

    /// Counts the call with its code, and drops the guard.
    pub fn finish(mut self, code: tonic::Code) {
        self.count(code);
    }

    /// Counts the call with its code; further calls have no effect.
    pub fn count(&mut self, code: tonic::Code) {
        if let Some(call) = self.call.take() {
            self.metrics.call_handled(call, code, self.began.elapsed());
        }
    }
}

impl<M: Deref<Target = StoreMetrics>> Drop for CallEnd<M> {
    fn drop(&mut self) {
        self.count(tonic::Code::Cancelled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base_telemetry::MetricsPage;

    fn page(metrics: &StoreMetrics) -> String {
        let mut page = MetricsPage::default();
        metrics.calls.write_metrics(&mut page, false);
        page.finish()
    }

    #[test]
    fn call_is_counted_once_with_its_first_code() {
        let metrics = StoreMetrics::default();
        let mut end = CallEnd::new(&metrics, Call::from_path("/etcdserverpb.KV/Put"));
        end.count(tonic::Code::NotFound);
        end.finish(tonic::Code::Ok);
        let page = page(&metrics);
        assert!(
            page.contains("grpc_code=\"NotFound\",grpc_method=\"Put\""),
            "{page}"
        );
        assert!(
            !page.contains("\"OK\"") && !page.contains("\"Canceled\""),
            "{page}"
        );
    }

    #[test]
    fn abandoned_call_is_counted_as_cancelled() {
        let metrics = StoreMetrics::default();
        drop(CallEnd::new(
            &metrics,
            Call::from_path("/etcdserverpb.KV/Put"),
        ));
        let page = page(&metrics);
        assert!(
            page.contains("grpc_code=\"Canceled\",grpc_method=\"Put\""),
            "{page}"
        );
    }
}
