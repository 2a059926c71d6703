//! Writes statuses, events and the Services of Gateways. Of several gateways, the leader does.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base_task::CancellationToken;
use client::events::Recorder;
use client::{ApiResource, Client, DeleteParams, ObjectExt, Patch, object_reference};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::networking::v1::Ingress;
use serde_json::json;
use tokio::sync::watch;

use crate::compile::{RefusedIngress, StatusChange, StatusKind};
use crate::controller::{Findings, OWNERS, OWNERS_KEY};
use crate::crds::{GATEWAY_CLASSES, GATEWAYS, HTTP_ROUTES, KindName, resource_of};
use crate::gateway_services::ServiceChange;
use crate::ingress::IngressProblem;
use crate::metrics::Metrics;
use crate::service_deletion::LiveGateways;

/// Time after which failed writes are repeated.
const RETRY: Duration = Duration::from_secs(10);

/// Served versions of the kinds of the Gateway API, by plural name.
type KindVersions = HashMap<&'static str, &'static str>;

/// A problem of an Ingress (`namespace/name`) that has an event.
type ReportedProblem = (String, IngressProblem);

/// Writer of statuses.
#[derive(Clone)]
pub(crate) struct StatusWriter {
    pub(crate) client: Client,
    /// Name of the controller in GatewayClasses.
    pub(crate) controller: String,
    /// Namespace of the record of owners.
    pub(crate) namespace: String,
    pub(crate) findings: watch::Receiver<Arc<Findings>>,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Arc<Metrics>,
}

impl StatusWriter {
    /// Writes until `stop`.
    pub(crate) async fn write_until(mut self, stop: CancellationToken) {
        let mut reported = HashSet::new();
        loop {
            let findings = self.findings.borrow_and_update().clone();
            self.report_refusals(&findings.refused, &mut reported);
            let mut failed = findings.owners_changed && !self.write_owners(&findings.owners).await;
            for change in &findings.services {
                if stop.is_cancelled() {
                    return;
                }
                failed |= !self.write_service(change, &findings.versions).await;
            }
            for change in &findings.statuses {
                if stop.is_cancelled() {
                    return;
                }
                failed |= !self.write_status(change, &findings.versions).await;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                changed = self.findings.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(RETRY), if failed => {}
            }
        }
    }

    /// Records the owners of hosts, for other gateways and the next start. Returns whether that
    /// succeeded.
    async fn write_owners(&self, owners: &str) -> bool {
        let api = self.client.namespaced::<ConfigMap>(&self.namespace);
        let record = json!({"metadata": {"name": OWNERS}, "data": {OWNERS_KEY: owners}});
        let written = match api.patch(OWNERS, &Patch::Merge(record)).await {
            Err(error) if error.is_not_found() => api.create(&new_record(owners)).await,
            written => written,
        };
        if let Err(error) = &written {
            self.metrics.failed_statuses.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%error, "can't record the owners of hosts");
        }
        written.is_ok()
    }

    /// Changes a Service of a Gateway. Returns whether that succeeded, or the Service has changed
    /// meanwhile: its new version brings a new decision.
    async fn write_service(&self, change: &ServiceChange, versions: &KindVersions) -> bool {
        let service: &Service = match change {
            ServiceChange::Create(service) | ServiceChange::Update(service) => service,
            ServiceChange::Delete { service, .. } => service,
        };
        let api = self.client.namespaced::<Service>(service.namespace());
        let written = match change {
            ServiceChange::Create(service) => api.create(service).await.map(drop),
            ServiceChange::Update(service) => api.update(service).await.map(drop),
            ServiceChange::Delete { has_gateway, .. } => {
                match *has_gateway || self.is_unused(service, versions).await {
                    true => self.delete_service(service).await,
                    // Tried again, until the informers have the Gateway.
                    false => return false,
                }
            }
        };
        match written {
            Ok(()) => true,
            Err(error)
                if error.is_conflict() || error.is_already_exists() || error.is_not_found() =>
            {
                true
            }
            Err(error) => {
                self.metrics.failed_statuses.fetch_add(1, Ordering::Relaxed);
                let service = service.key();
                tracing::warn!(service, %error, "can't write the Service of a Gateway");
                false
            }
        }
    }

    async fn delete_service(&self, service: &Service) -> client::Result<()> {
        let params = DeleteParams::background().uid(service.uid());
        let api = self.client.namespaced::<Service>(service.namespace());
        api.delete(service.name(), &params).await
    }

    /// Returns whether the API server has no Gateway for a Service, either.
    async fn is_unused(&self, service: &Service, versions: &KindVersions) -> bool {
        let version = |kind: KindName| versions.get(kind.1).copied();
        let live = LiveGateways {
            client: &self.client,
            controller: &self.controller,
            versions: (version(GATEWAYS), version(GATEWAY_CLASSES)),
        };
        let service_key = service.key();
        match live.is_unused(service).await {
            Ok(true) => true,
            Ok(false) => {
                tracing::warn!(
                    service = service_key,
                    "the Service is not deleted: its Gateway exists, and is not known yet"
                );
                false
            }
            Err(error) => {
                self.metrics.failed_statuses.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    service = service_key,
                    %error,
                    "the Service is not deleted: its Gateway can't be read"
                );
                false
            }
        }
    }

    /// Writes a status. Returns whether that succeeded, or another attempt can't.
    async fn write_status(&self, change: &StatusChange, versions: &KindVersions) -> bool {
        let namespace = (!change.namespace.is_empty()).then_some(change.namespace.as_str());
        let api = self
            .client
            .dynamic(&resource(change.kind, versions), namespace);
        // Of this version only: the status says something about what was read.
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": change.resource_version},
            "status": change.status,
        }));
        match api.patch_status(&change.name, &patch).await {
            Ok(_) => true,
            // A newer version of the object brings a newer status.
            Err(error) if error.is_conflict() || error.is_not_found() => true,
            Err(error) => {
                self.metrics.failed_statuses.fetch_add(1, Ordering::Relaxed);
                let StatusChange {
                    namespace, name, ..
                } = change;
                tracing::warn!(kind = ?change.kind, namespace, name, %error, "can't write the status");
                false
            }
        }
    }

    fn report_refusals(&self, refused: &[RefusedIngress], reported: &mut HashSet<ReportedProblem>) {
        let mut current = HashSet::new();
        for RefusedIngress { ingress, problems } in refused {
            for problem in problems {
                let report = (ingress.key(), problem.clone());
                if !reported.contains(&report) {
                    let reference = object_reference::<Ingress>(ingress);
                    self.recorder
                        .warning(&reference, problem.reason, problem.message.clone());
                }
                current.insert(report);
            }
        }
        *reported = current;
    }
}

fn new_record(owners: &str) -> ConfigMap {
    let mut record = ConfigMap::default();
    record.metadata.name = Some(OWNERS.to_owned());
    record.data = Some([(OWNERS_KEY.to_owned(), owners.to_owned())].into());
    record
}

fn resource(kind: StatusKind, versions: &KindVersions) -> ApiResource {
    let name = match kind {
        StatusKind::Ingress => return ApiResource::of_kind::<Ingress>(),
        StatusKind::GatewayClass => GATEWAY_CLASSES,
        StatusKind::Gateway => GATEWAYS,
        StatusKind::HttpRoute => HTTP_ROUTES,
    };
    resource_of(name, versions.get(name.1).copied().unwrap_or("v1"))
}
