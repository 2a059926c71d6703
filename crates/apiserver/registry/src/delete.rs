//! Delete.
//!
//! An object is removed at once, or its deletion is only requested: it has a grace period, or
//! finalizers that controllers must remove first.

use crate::delete_options::DeleteOptions;
use crate::errors::store_error;
use crate::grace::{self, Grace};
use crate::registry::Registry;
use crate::write::Write;
use crate::{meta, namespaces, propagation};
use api_meta::{ApiError, Meta};
use apiserver_cache::Entry;
use apiserver_convert::{convert_one, encode_stored};
use apiserver_request::Operation;
use apiserver_storage::StoreError;
use serde_json::Value;

// Each attempt loses to another successful write, so that this many mean a hot loop elsewhere.
const ATTEMPTS: usize = 100;

/// The result of a delete.
#[derive(Debug)]
pub struct DeleteOutcome {
    /// The last state, or the object with the deletion requested.
    pub object: Value,
    /// The object was removed.
    pub removed: bool,
}

/// Admission of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeleteAdmission {
    /// The client deletes the object.
    Runs,
    /// Another request that was admitted, such as an eviction, leads to the deletion.
    Done,
}

/// A state of the object that was read before, and that may have changed since.
pub(crate) struct KnownState {
    object: Value,
    revision: i64,
}

impl KnownState {
    /// Returns the state in a list, if the delete may begin with it.
    pub(crate) fn from_list(write: &Write, entry: &Entry, options: &DeleteOptions) -> Option<Self> {
        // Without a write, nothing would show that the state is outdated.
        let is_dry_run = write.dry_run || options.dry_run;
        let has_preconditions = options.uid.is_some() || options.resource_version.is_some();
        if is_dry_run || has_preconditions || write.resource.schema.converter().is_some() {
            return None;
        }
        let object = entry.tree_as(&write.resource).ok()?;
        Some(KnownState {
            object,
            revision: entry.revision,
        })
    }
}

/// The decision of one attempt.
enum DeletionPlan {
    /// Remove it from the store.
    Remove,
    /// Write it with `deletionTimestamp`.
    RequestDeletion(Value),
    /// Deletion was requested before; nothing changes.
    Unchanged,
}

impl Registry {
    /// Deletes one object.
    pub async fn delete(
        &self,
        write: &mut Write,
        options: &DeleteOptions,
    ) -> Result<DeleteOutcome, ApiError> {
        self.delete_as(write, options, DeleteAdmission::Runs).await
    }

    /// Deletes one object, with or without admission of the deletion.
    pub(crate) async fn delete_as(
        &self,
        write: &mut Write,
        options: &DeleteOptions,
        admission: DeleteAdmission,
    ) -> Result<DeleteOutcome, ApiError> {
        self.delete_from(write, options, admission, None).await
    }

    /// Deletes one object, beginning with a state that was read before. The store rejects a write
    /// that is based on an outdated one, and the delete then reads the object.
    pub(crate) async fn delete_from(
        &self,
        write: &mut Write,
        options: &DeleteOptions,
        admission: DeleteAdmission,
        mut known: Option<KnownState>,
    ) -> Result<DeleteOutcome, ApiError> {
        // Options may come in the query and in the body; either is enough.
        write.dry_run |= options.dry_run;
        write.options = options.raw.clone();
        let key = self.caches.store_key(
            self.write_cache(write)?.kind(),
            &write.namespace,
            &write.name,
        );
        for _ in 0..ATTEMPTS {
            let is_live = known.is_none();
            // Reads the store and not the cache: preconditions and finalizers of a stale object
            // could delete what a client just protected.
            let (object, revision) = match known.take() {
                Some(known) => (known.object, known.revision),
                None => self
                    .live_entry(write, &key, &write.name)
                    .await?
                    .ok_or_else(|| write.not_found())?,
            };
            // In every attempt: the object may have been replaced by one of the same name.
            check_preconditions(write, options, &object)?;
            if admission == DeleteAdmission::Runs {
                match self.admit_delete(write, &object).await {
                    Ok(()) => {}
                    // The object may have become admissible.
                    Err(_) if !is_live => continue,
                    Err(error) => return Err(error),
                }
            }
            let plan = plan_deletion(write, options, &object);
            if matches!(plan, DeletionPlan::Unchanged) && !is_live {
                continue;
            }
            let executed = self.execute_plan(write, plan, object, &key, revision);
            match executed.await? {
                Err(StoreError::Conflict(_)) => {}
                Err(e) => return Err(store_error(&e)),
                Ok(deleted) => return Ok(deleted),
            }
        }
        Err(ApiError::stale(
            &write.resource.group,
            &write.resource.plural,
            &write.name,
        ))
    }

    async fn admit_delete(&self, write: &mut Write, object: &Value) -> Result<(), ApiError> {
        let name = write.name.clone();
        let mut request =
            write.admission_request(Operation::Delete, &name, Value::Null, Some(object.clone()));
        self.run_mutating(&mut request).await?;
        self.run_validating(&request).await?;
        let warnings = request.warnings;
        write.warnings.extend(warnings);
        Ok(())
    }

    async fn execute_plan(
        &self,
        write: &Write,
        plan: DeletionPlan,
        object: Value,
        key: &str,
        revision: i64,
    ) -> Result<Result<DeleteOutcome, StoreError>, ApiError> {
        let stored = match &plan {
            DeletionPlan::RequestDeletion(object) if !write.dry_run => {
                Some(self.encode_marked(write, object).await?)
            }
            _ => None,
        };
        Ok(self
            .write_plan(write, plan, object, stored, key, revision)
            .await)
    }

    async fn encode_marked(&self, write: &Write, object: &Value) -> Result<Vec<u8>, ApiError> {
        let resource = self.storage_version(write);
        let mut object = object.clone();
        // The store's revision is the resourceVersion. A stored copy would be wrong after this
        // write.
        object.metadata_mut().remove("resourceVersion");
        let converted = convert_one(&write.resource, &resource, object).await?;
        Ok(encode_stored(&resource, &converted))
    }

    async fn write_plan(
        &self,
        write: &Write,
        plan: DeletionPlan,
        mut object: Value,
        stored: Option<Vec<u8>>,
        key: &str,
        revision: i64,
    ) -> Result<DeleteOutcome, StoreError> {
        match plan {
            DeletionPlan::Unchanged => Ok(DeleteOutcome {
                object,
                removed: false,
            }),
            DeletionPlan::RequestDeletion(object) if write.dry_run => Ok(DeleteOutcome {
                object,
                removed: false,
            }),
            DeletionPlan::Remove if write.dry_run => Ok(DeleteOutcome {
                object,
                removed: true,
            }),
            DeletionPlan::Remove => {
                // First the object, then its allocations: in the other order another Service could
                // get the address while this one still has it.
                let removed = self.store.delete(key, revision).await?;
                self.options
                    .services
                    .release_deleted(self, &write.resource, &object)
                    .await;
                meta::set_revision(&mut object, removed);
                Ok(DeleteOutcome {
                    object,
                    removed: true,
                })
            }
            DeletionPlan::RequestDeletion(mut object) => {
                let stored = stored.unwrap_or_default();
                let written = self
                    .store
                    .update(key, stored.into(), revision, self.key_ttl(write))
                    .await?;
                meta::set_revision(&mut object, written);
                Ok(DeleteOutcome {
                    object,
                    removed: false,
                })
            }
        }
    }
}

fn plan_deletion(write: &Write, options: &DeleteOptions, object: &Value) -> DeletionPlan {
    // Policy and grace period are applied to a copy; the comparison below shows what they changed.
    let mut marked = object.clone();
    // A custom resource may have the group, too.
    let is_definition = write.resource.group == "apiextensions.k8s.io"
        && write.resource.kind == "CustomResourceDefinition";
    if is_definition {
        // Before the finalizers are looked at: instances must not survive their definition.
        api_strategy::definition::prepare_delete(&mut marked);
    }
    if let Some(finalizers) =
        propagation::propagation_finalizers(&write.resource, object, options.propagation)
    {
        propagation::set_finalizers(&mut marked, finalizers);
    }
    let grace = grace::decide_grace(&write.resource, object, options.grace);
    // Computed after the propagation policy was applied, because the policy is a finalizer.
    let held = !marked.finalizers().is_empty() || namespaces::is_held(&write.resource, &marked);
    match grace {
        Grace::None if !held => return DeletionPlan::Remove,
        Grace::None if object.is_being_deleted() => {
            // A pod whose grace period was cut to 0 still waits for its finalizers.
            marked
                .metadata_mut()
                .insert("deletionGracePeriodSeconds".into(), 0.into());
        }
        // Finalizers keep an object that has no grace period.
        Grace::None => grace::mark_deleted(&mut marked, 0),
        Grace::Mark(seconds) => grace::mark_deleted(&mut marked, seconds),
        Grace::Marked => {}
    }
    namespaces::mark_terminating(&write.resource, &mut marked);
    let begins = !object.is_being_deleted();
    if is_definition && begins {
        // Upstream marks a definition by itself, without a grace period and a new generation.
        marked.metadata_mut().remove("deletionGracePeriodSeconds");
    }
    // A repeated delete writes nothing: each write would wake the watchers.
    if marked == *object {
        return DeletionPlan::Unchanged;
    }
    let generation = marked
        .metadata()
        .and_then(|m| m.get("generation"))
        .and_then(Value::as_i64)
        .unwrap_or(0);
    // As upstream: requesting deletion counts as a change of the desired state.
    if generation > 0 && begins && !is_definition {
        marked
            .metadata_mut()
            .insert("generation".into(), (generation + 1).into());
    }
    DeletionPlan::RequestDeletion(marked)
}

pub(crate) fn check_preconditions(
    write: &Write,
    options: &DeleteOptions,
    object: &Value,
) -> Result<(), ApiError> {
    let failed = |what: &str, expected: &str, found: &str, cause: &str| {
        let kind = write.kind();
        let why = format!(
            "the {what} in the precondition ({expected}) does not match the {what} in record ({found}). The object \
             might have been {cause}"
        );
        // Upstream names the kind here, not the resource.
        ApiError::conflict(kind.group, kind.kind, object.name(), &why)
    };
    match &options.uid {
        Some(uid) if uid != object.uid() => {
            return Err(failed(
                "UID",
                uid,
                object.uid(),
                "deleted and then recreated",
            ));
        }
        _ => {}
    }
    match &options.resource_version {
        Some(version) if version != object.resource_version() => Err(failed(
            "ResourceVersion",
            version,
            object.resource_version(),
            "modified",
        )),
        _ => Ok(()),
    }
}
