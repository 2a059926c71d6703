//! The writing part of DynamicResources: allocations and reservations, before the pod is bound.

use std::sync::Arc;
use std::time::Duration;

use api_semantics::devices::{FINALIZER, is_allocated, is_reserved_for};
use async_trait::async_trait;
use client::{Api, Client, Error, ObjectExt};
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::{
    AllocationResult, ResourceClaim, ResourceClaimConsumerReference,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use scheduler_devices::is_bound_by_conditions;
use scheduler_framework::{
    BindError, Cluster, CycleState, ExtensionPoints, Plugin, PodInfo, PreBind,
};
use serde_json::Value;

use super::claims::Decision;
use super::conditions::{Readiness, Settings, read_conditions};
use super::{Decided, NAME, with_allocation};

/// Attempts to write a claim that others change at the same time.
const ATTEMPTS: u32 = 12;
const FIRST_DELAY: Duration = Duration::from_millis(10);
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// Interval between two readings of binding conditions.
const CONDITIONS_INTERVAL: Duration = Duration::from_secs(1);

/// Writes claims. Created with [`DynamicResourceBinder::with_client`], because a registry entry has
/// no client.
pub struct DynamicResourceBinder {
    client: Client,
    cluster: Arc<dyn Cluster>,
    settings: Settings,
}

/// The failure of a write.
enum Failed {
    /// The claim is no longer what the decision was about.
    Changed(&'static str),
    /// The request failed.
    Request(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Request(error)
    }
}

fn bind_error(message: String) -> BindError {
    BindError {
        plugin: NAME,
        message,
    }
}

impl DynamicResourceBinder {
    /// Creates a binder that uses a client, with the plugin's arguments.
    ///
    /// # Errors
    /// A sentence that names the argument.
    pub fn with_client(
        client: Client,
        cluster: Arc<dyn Cluster>,
        args: &Value,
    ) -> Result<Self, String> {
        Ok(Self {
            client,
            cluster,
            settings: Settings::from_args(args)?,
        })
    }

    /// Writes a claim's allocation, if it is new, and its reservation for the pod.
    async fn bind_claim(
        &self,
        claim: &ResourceClaim,
        allocation: Option<&AllocationResult>,
        pod: &PodInfo,
    ) -> Result<ResourceClaim, BindError> {
        let claims = self.client.namespaced::<ResourceClaim>(claim.namespace());
        let fail = |error: &str| bind_error(format!("resourceclaim {}: {error}", claim.key()));
        let decision = Decision::new(claim, allocation, pod.uid());
        let mut known = Some(claim.clone());
        let mut delay = FIRST_DELAY;
        for _ in 0..ATTEMPTS {
            let written = match known.take() {
                Some(current) => write_claim(&claims, current, &decision, pod).await,
                None => match claims.get(claim.name()).await {
                    Ok(current) if current.uid() != claim.uid() => {
                        return Err(fail("was replaced"));
                    }
                    Ok(current) => write_claim(&claims, current, &decision, pod).await,
                    Err(error) => Err(Failed::Request(error)),
                },
            };
            match written {
                Ok(written) => return Ok(written),
                Err(Failed::Changed(text)) => return Err(fail(text)),
                // Without an answer of the server the claim may have been written. Its devices must
                // not look free before it was read again.
                Err(Failed::Request(error)) if may_be_written(&error) => {}
                Err(Failed::Request(error)) => return Err(fail(&error.to_string())),
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(LONGEST_DELAY);
        }
        Err(fail("could not be written"))
    }

    async fn wait_until_prepared(&self, claims: &[ResourceClaim]) -> Result<(), BindError> {
        for claim in claims {
            loop {
                let view = self.cluster.device_view();
                let current = view.resource_claim(claim.namespace(), claim.name());
                let current = current.filter(|current| current.uid() == claim.uid());
                let current = current.filter(|current| is_allocated(current));
                let lost = || bind_error(format!("resourceclaim {} was deallocated", claim.key()));
                match read_conditions(&*current.ok_or_else(lost)?) {
                    Readiness::Ready => break,
                    Readiness::Failed(text) => {
                        let text = format!("resourceclaim {}: {text}", claim.key());
                        return Err(bind_error(text));
                    }
                    Readiness::Waiting => tokio::time::sleep(CONDITIONS_INTERVAL).await,
                }
            }
        }
        Ok(())
    }
}

/// Returns whether a write that failed must be tried again: another one was first, or the server
/// has not said that the claim is as it was.
fn may_be_written(error: &Error) -> bool {
    error.is_conflict() || error.status().is_none() || error.is_unavailable()
}

async fn write_claim(
    claims: &Api<ResourceClaim>,
    mut claim: ResourceClaim,
    decision: &Decision<'_>,
    pod: &PodInfo,
) -> Result<ResourceClaim, Failed> {
    if decision.is_carried_out(&claim).map_err(Failed::Changed)? {
        return Ok(claim);
    }
    if let Some(allocation) = decision.fresh {
        let protected = claim
            .metadata
            .finalizers
            .iter()
            .flatten()
            .any(|f| f == FINALIZER);
        let mut fresh = allocation.clone();
        // The devices are taken only once the claim can't be deleted any more.
        if !protected {
            let mut with_finalizer = with_allocation(&claim, fresh.clone());
            with_finalizer.status.clone_from(&claim.status);
            claim = claims.update(&with_finalizer).await?;
        }
        fresh.allocation_timestamp = Some(Time(Timestamp::now()));
        claim = with_allocation(&claim, fresh);
    }
    let status = claim.status.get_or_insert_default();
    let reserved = status.reserved_for.get_or_insert_default();
    reserved.push(ResourceClaimConsumerReference {
        api_group: None,
        name: pod.name().to_owned(),
        resource: "pods".to_owned(),
        uid: pod.uid().to_owned(),
    });
    Ok(claims.update_status(&claim).await?)
}

impl Plugin for DynamicResourceBinder {
    const NAME: &'static str = NAME;

    fn new(_: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        Err("the allocation of devices needs a client".to_owned())
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.pre_bind(&self);
    }
}

#[async_trait]
impl PreBind for DynamicResourceBinder {
    async fn pre_bind(&self, state: &CycleState, pod: &PodInfo, _: &str) -> Result<(), BindError> {
        let Some(Decided(decided)) = state.get::<Decided>().cloned() else {
            return Ok(());
        };
        let mut prepared = Vec::new();
        for (claim, allocation) in decided.iter() {
            let written = if is_allocated(claim) && is_reserved_for(claim, pod.uid()) {
                (**claim).clone()
            } else {
                let written = self.bind_claim(claim, allocation.as_ref(), pod).await?;
                // From now on the written state counts, whatever becomes of the pod.
                self.cluster
                    .device_view()
                    .ledger()
                    .record_written(written.clone());
                written
            };
            let status = written.status.as_ref();
            let allocation = status.and_then(|status| status.allocation.as_ref());
            if allocation.is_some_and(is_bound_by_conditions) {
                prepared.push(written);
            }
        }
        let waits = self.wait_until_prepared(&prepared);
        let limit = self.settings.binding_timeout;
        let late = || bind_error(format!("the devices were not prepared within {limit:?}"));
        tokio::time::timeout(limit, waits)
            .await
            .map_err(|_| late())?
    }
}
