//! The audit of a server: its policy and its sinks.

use crate::event::RequestFacts;
use crate::level::Level;
use crate::metrics::AuditMetrics;
use crate::policy::Policy;
use crate::record::Record;
use crate::sink::Sink;
use crate::sinks::Sinks;
use apiserver_request::{Attributes, AuditAnnotations};
use std::sync::Arc;

/// The audit of a server.
pub struct Auditor {
    policy: Policy,
    sinks: Arc<Sinks>,
}

impl Auditor {
    /// Creates the audit of a server.
    pub fn new(policy: Policy, sinks: Vec<Sink>, metrics: Arc<AuditMetrics>) -> Arc<Self> {
        let sinks = Arc::new(Sinks {
            all: sinks,
            metrics,
        });
        Arc::new(Auditor { policy, sinks })
    }

    /// Begins the record of a request; None if the policy wants no events of it.
    pub fn begin_record(
        &self,
        attributes: &Attributes,
        annotations: AuditAnnotations,
        facts: impl FnOnce() -> RequestFacts,
    ) -> Option<Arc<Record>> {
        let config = self.policy.evaluate(attributes);
        self.sinks.metrics.count_level(config.level);
        if config.level == Level::None {
            return None;
        }
        let record = Record::new(self.sinks.clone(), config, annotations, facts());
        Some(Arc::new(record))
    }
}
