//! Metrics of the controllers.

use base_telemetry::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    controller: String,
    result: &'static str,
}

/// Counter of reconciles by controller and result. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ReconcileMetrics(Family<Labels, Counter>);

impl ReconcileMetrics {
    /// Registers the counter.
    pub fn new(metrics: &Metrics) -> Self {
        let help = "Passes of controllers over one object";
        Self(metrics.register("controller_passes", help, Family::default()))
    }

    /// Counts one reconcile.
    pub fn count_reconcile(&self, controller: &str, ok: bool) {
        let result = if ok { "success" } else { "error" };
        self.0
            .get_or_create(&Labels {
                controller: controller.to_owned(),
                result,
            })
            .inc();
    }
}
