//! Update: read, change, check, compare-and-swap; retried after a conflict.
//!
//! The first attempt uses the cached object. If it fails in a way that a stale object may have
//! caused, it is repeated on the object from the store.

use crate::create::name_mismatch;
use crate::errors::{store_error, unreadable_error};
use crate::meta;
use crate::owners::{Stage, remove_duplicate_owners};
use crate::registry::Registry;
use crate::scale_view::{apply_scale, scale_of};
use crate::strategy::{
    add_object_warnings, as_stored, default_object, prepare_update, validate_update,
};
use crate::write::Write;
use api_kinds::Resource;
use api_meta::{ApiError, Cause, Meta, Reason};
use apiserver_cache::{Entry, convert_entry};
use apiserver_convert::{codec, convert_to_store, encode_readable};
use apiserver_request::Operation;
use apiserver_storage::StoreError;
use async_trait::async_trait;
use serde_json::Value;

const ATTEMPTS: usize = 100;

/// Computes the new object from the current one.
#[async_trait]
pub trait ObjectChange: Send + Sync {
    /// Returns the new object.
    async fn apply(&self, old: &Value) -> Result<Value, ApiError>;
}

#[async_trait]
impl<F: Fn(&Value) -> Result<Value, ApiError> + Send + Sync> ObjectChange for F {
    async fn apply(&self, old: &Value) -> Result<Value, ApiError> {
        self(old)
    }
}

/// The change of an update.
pub type Change<'a> = &'a dyn ObjectChange;

/// An update.
pub struct Update<'a> {
    /// Computes the new object; called again for each attempt.
    pub change: Change<'a>,
    /// PUT: the body's UID is a precondition (409) rather than an immutable field (422).
    pub replaces: bool,
    /// The checks of the new object.
    pub mode: Mode,
}

/// The checks of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Defaulting, strategy, admission, validation.
    Full,
    /// As `Full`, but with the strategy and validation of the object itself, whatever the
    /// subresource.
    Scale,
    /// No checks: the server changes fields that clients may not.
    Raw,
}

impl Mode {
    fn is_checked(self) -> bool {
        self != Mode::Raw
    }

    fn subresource(self, write: &Write) -> &str {
        if self == Mode::Scale {
            ""
        } else {
            &write.subresource
        }
    }
}

enum Outcome {
    Done(Value),
    /// The change changes nothing of the object that was read.
    Unchanged(Value),
    /// A conflict: another write came first.
    Conflict,
}

impl Registry {
    /// Changes an object; returns it as stored.
    pub async fn update(&self, write: &mut Write, update: &Update<'_>) -> Result<Value, ApiError> {
        let kind = self.write_cache(write)?.kind().clone();
        let key = self.caches.store_key(&kind, &write.namespace, &write.name);
        // The cache is usually current. Reading the store first would double the cost of each
        // update.
        let mut live = false;
        // An attempt on the cached object that failed: its revision and error.
        let mut failed: Option<(i64, ApiError)> = None;
        for _ in 0..ATTEMPTS {
            let found = self.current_object(write, &key, live).await?;
            let Some((old, revision)) = found else {
                // The cache may not show a new object yet, so that only the store can say that it
                // is missing.
                if live {
                    return Err(write.not_found());
                }
                live = true;
                continue;
            };
            // The cache was current. Another attempt would call webhooks twice for one error.
            if let Some((_, error)) = failed.take_if(|(tried, _)| *tried == revision) {
                return Err(error);
            }
            // Warnings of an attempt that is repeated do not belong to the result.
            write.warnings.clear();
            match self.update_once(write, update, &key, old, revision).await {
                Ok(Outcome::Done(object)) => return Ok(object),
                // No compare-and-swap has shown that the object is current. Behind a cache that
                // lags, another client's change would remain, and the client would not know.
                Ok(Outcome::Unchanged(object)) => {
                    if live || self.is_current(&key, revision).await? {
                        return Ok(object);
                    }
                    live = true;
                }
                Ok(Outcome::Conflict) => live = true,
                // The error may be about fields that another write has changed already.
                Err(error) if !live => {
                    failed = Some((revision, error));
                    live = true;
                }
                Err(e) => return Err(e),
            }
        }
        Err(ApiError::stale(
            &write.resource.group,
            &write.resource.plural,
            &write.name,
        ))
    }

    /// Returns the current object in the client's version with its revision, from the cache or from
    /// the store.
    async fn current_object(
        &self,
        write: &Write,
        key: &str,
        live: bool,
    ) -> Result<Option<(Value, i64)>, ApiError> {
        if live {
            return self.live_entry(write, key, &write.name).await;
        }
        let cache = self.write_cache(write)?;
        let Some(entry) = cache.get(&cache.kind().object_key(&write.namespace, &write.name)) else {
            return Ok(None);
        };
        let entry = convert_entry(&write.resource, entry).await?;
        Ok(Some((entry.tree_as(&write.resource)?, entry.revision)))
    }

    /// Returns whether a revision of an object is the stored one.
    async fn is_current(&self, key: &str, revision: i64) -> Result<bool, ApiError> {
        let stored = self.store.read_key(key).await;
        let stored = stored.map_err(|e| store_error(&e))?;
        Ok(stored.is_some_and(|stored| stored.revision == revision))
    }

    async fn update_once(
        &self,
        write: &mut Write,
        update: &Update<'_>,
        key: &str,
        mut old: Value,
        revision: i64,
    ) -> Result<Outcome, ApiError> {
        if update.mode.is_checked() {
            // Defaults that are not stored must not count as a change.
            default_object(write, &mut old);
        }
        let mut new = update.change.apply(&old).await?;
        check_identity(write, update, &mut new, &old, revision)?;
        // Before defaulting and validation, which compare immutable metadata with the old object.
        meta::carry_over(&mut new, &old);
        if update.mode.is_checked() {
            new = self.prepare_checked(write, update, new, &mut old).await?;
        }
        let allocation = self
            .options
            .services
            .allocate_for(self, write, &mut new, Some(&old))
            .await?;
        let done = self
            .compare_and_swap(write, update, key, new, old, revision)
            .await;
        // After a conflict the change is computed again, and allocates again.
        if !matches!(done, Ok(Outcome::Done(_))) || write.dry_run {
            self.options
                .services
                .release_allocated(self, allocation)
                .await;
        } else {
            self.options
                .services
                .release_replaced(self, allocation)
                .await;
        }
        done
    }

    /// Defaults, prepares and admits the new object of a checked update.
    async fn prepare_checked(
        &self,
        write: &mut Write,
        update: &Update<'_>,
        mut new: Value,
        old: &mut Value,
    ) -> Result<Value, ApiError> {
        default_object(write, &mut new);
        let disabled = &self.options.disabled_fields;
        let subresource = update.mode.subresource(write);
        prepare_update(disabled, write, subresource, &mut new, old);
        as_stored(write, &mut new);
        // As upstream, the duplicates of a patch are found after admission only.
        if update.replaces {
            remove_duplicate_owners(write, Stage::Request, &mut new);
        }
        if !write.applies {
            self.track_fields(write, Some(old), &mut new).await;
        }
        let (mut new, rewritten) = self.admit_update(write, update.mode, new, old).await?;
        remove_duplicate_owners(write, Stage::Admitted, &mut new);
        default_object(write, &mut new);
        if rewritten {
            // A webhook may change any field, also those that only the server sets.
            meta::carry_over(&mut new, old);
            let subresource = update.mode.subresource(write);
            prepare_update(disabled, write, subresource, &mut new, old);
        }
        // Plugins may write explicit zero values, which must not count as a change.
        codec::canonicalize(&write.resource.schema, &mut new);
        as_stored(write, &mut new);
        Ok(new)
    }

    /// Returns the object, and whether a webhook has changed it. After an error, `old` is null.
    async fn admit_update(
        &self,
        write: &mut Write,
        mode: Mode,
        mut new: Value,
        old: &mut Value,
    ) -> Result<(Value, bool), ApiError> {
        let name = write.name.clone();
        let scales = mode == Mode::Scale;
        let (object, former) = if scales {
            (
                scale_of(&write.resource, &new),
                scale_of(&write.resource, old),
            )
        } else {
            (new.take(), old.take())
        };
        let mut request = write.admission_request(Operation::Update, &name, object, Some(former));
        self.run_mutating(&mut request).await?;
        let rewritten = request.reinvocation.is_requested();
        let (object, admitted_old) = (request.object, request.old);
        write.warnings.extend(request.warnings);
        if !scales {
            *old = admitted_old.ok_or_else(lost_old_object)?;
            return Ok((object, rewritten));
        }
        if rewritten {
            apply_scale(write, &mut new, &object)?;
        }
        Ok((new, rewritten))
    }

    /// Runs the validating plugins; returns the object. After an error, `old` is null.
    async fn validate_admission(
        &self,
        write: &mut Write,
        mode: Mode,
        mut new: Value,
        old: &mut Value,
    ) -> Result<Value, ApiError> {
        let name = write.name.clone();
        let scales = mode == Mode::Scale;
        let (object, former) = if scales {
            (
                scale_of(&write.resource, &new),
                scale_of(&write.resource, old),
            )
        } else {
            (new.take(), old.take())
        };
        let request = write.admission_request(Operation::Update, &name, object, Some(former));
        self.run_validating(&request).await?;
        let (object, admitted_old) = (request.object, request.old);
        write.warnings.extend(request.warnings);
        if scales {
            return Ok(new);
        }
        *old = admitted_old.ok_or_else(lost_old_object)?;
        Ok(object)
    }

    async fn compare_and_swap(
        &self,
        write: &mut Write,
        update: &Update<'_>,
        key: &str,
        mut new: Value,
        mut old: Value,
        revision: i64,
    ) -> Result<Outcome, ApiError> {
        let name = write.name.clone();
        if update.mode.is_checked() {
            let subresource = update.mode.subresource(write).to_owned();
            let disabled = &self.options.disabled_fields;
            let mut errors = validate_update(disabled, write, &subresource, &new, &old).await;
            errors.extend(self.check_admin_access(write, &new, Some(&old)));
            write.reject_invalid(&name, errors)?;
            add_object_warnings(write, &subresource, &new, Some(&old));
            new = self
                .validate_admission(write, update.mode, new, &mut old)
                .await?;
        }
        meta::set_revision(&mut new, revision);
        if write.dry_run {
            encode_readable(&write.resource, &new).map_err(|e| unreadable_error(&e))?;
            return Ok(Outcome::Done(new));
        }
        // As upstream, an update that changes nothing writes nothing: no event wakes the watchers.
        // Except for an older version in the store: storage migration rewrites it that way.
        if new == old && !self.is_outdated(write, key, revision).await? {
            return Ok(Outcome::Unchanged(new));
        }
        self.store_change(write, key, new, revision).await
    }

    /// Returns whether the object of a revision is stored in another version than the storage
    /// version.
    async fn is_outdated(&self, write: &Write, key: &str, revision: i64) -> Result<bool, ApiError> {
        let cache = self.write_cache(write)?;
        let kind = cache.kind();
        let object_key = kind.object_key(&write.namespace, &write.name);
        if let Some(entry) = cache.get(&object_key).filter(|e| e.revision == revision) {
            return Ok(entry.is_outdated());
        }
        let stored = self.store.read_key(key).await;
        let Some(stored) = stored.map_err(|e| store_error(&e))? else {
            return Ok(false);
        };
        Ok(Entry::new(kind, &object_key, &stored.value, stored.revision).is_outdated())
    }

    async fn store_change(
        &self,
        write: &Write,
        key: &str,
        mut new: Value,
        revision: i64,
    ) -> Result<Outcome, ApiError> {
        // The last finalizer was removed: this update is the end of an earlier delete.
        if ends_deletion(write, &new) {
            let removed = self.store.delete(key, revision).await;
            if removed.is_ok() {
                self.options
                    .services
                    .release_deleted(self, &write.resource, &new)
                    .await;
            }
            return self.swap_outcome(removed, |_| new);
        }
        let kind = self.write_cache(write)?.kind().clone();
        // The store's revision is the resourceVersion; a stored copy would be wrong at once.
        new.metadata_mut().remove("resourceVersion");
        let converted = convert_to_store(&write.resource, &kind.resource, &new).await?;
        let stored =
            encode_readable(&kind.resource, &converted).map_err(|e| unreadable_error(&e))?;
        let written = self
            .store
            .update(key, stored.into(), revision, self.key_ttl(write))
            .await;
        self.swap_outcome(written, |revision| {
            meta::set_revision(&mut new, revision);
            new
        })
    }

    fn swap_outcome(
        &self,
        result: Result<i64, StoreError>,
        object: impl FnOnce(i64) -> Value,
    ) -> Result<Outcome, ApiError> {
        match result {
            Ok(revision) => Ok(Outcome::Done(object(revision))),
            Err(StoreError::Conflict(_)) => Ok(Outcome::Conflict),
            Err(e) => Err(store_error(&e)),
        }
    }
}

/// Fails closed: without its former state, an object would pass the checks of immutable fields.
fn lost_old_object() -> ApiError {
    ApiError::internal("an admission plugin removed the old object")
}

/// Checks name, UID and resourceVersion of the new object against the current one.
fn check_identity(
    write: &Write,
    update: &Update<'_>,
    new: &mut Value,
    old: &Value,
    revision: i64,
) -> Result<(), ApiError> {
    if new.name().is_empty() {
        let name = old.name().to_owned();
        new.set_meta_str("name", &name);
    } else if new.name() != write.name {
        return Err(name_mismatch(new.name(), &write.name));
    }
    if !new.namespace().is_empty() && new.namespace() != write.namespace {
        let text =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(text));
    }
    // PUT of an object that was deleted and created again must not overwrite the new one.
    if update.replaces && !new.uid().is_empty() && new.uid() != old.uid() {
        let why = format!(
            "Precondition failed: UID in precondition: {}, UID in object meta: {}",
            new.uid(),
            old.uid()
        );
        return Err(
            ApiError::new(Reason::Conflict, write.conflict_error(&why).message)
                .with_details(status_details(write)),
        );
    }
    match meta::revision_of(new)? {
        0 if update.replaces && !allows_unconditional_update(&write.resource) => {
            Err(version_required(write))
        }
        0 => Ok(()),
        wanted if wanted == revision => Ok(()),
        _ => Err(ApiError::stale(
            &write.resource.group,
            &write.resource.plural,
            &write.name,
        )),
    }
}

/// Returns whether an update without a resourceVersion replaces the latest version of the object.
fn allows_unconditional_update(resource: &Resource) -> bool {
    // As upstream's strategy of custom resources.
    if resource.is_custom() {
        return false;
    }
    match &*resource.group {
        "admissionregistration.k8s.io"
        | "apiextensions.k8s.io"
        | "apiregistration.k8s.io"
        | "coordination.k8s.io"
        | "internal.apiserver.k8s.io"
        | "node.k8s.io"
        | "storagemigration.k8s.io" => false,
        "certificates.k8s.io" => resource.plural == "certificatesigningrequests",
        "policy" => resource.plural != "poddisruptionbudgets",
        "resource.k8s.io" => resource.plural != "resourcepoolstatusrequests",
        "storage.k8s.io" => {
            ["storageclasses", "volumeattributesclasses"].contains(&&*resource.plural)
        }
        _ => true,
    }
}

fn version_required(write: &Write) -> ApiError {
    let cause = Cause {
        reason: "FieldValueInvalid".into(),
        message: "Invalid value: 0x0: must be specified for an update".into(),
        field: "metadata.resourceVersion".into(),
    };
    // Upstream names the resource here, not the kind.
    ApiError::invalid(
        &write.resource.group,
        &write.resource.plural,
        &write.name,
        vec![cause],
    )
}

fn status_details(write: &Write) -> api_meta::Details {
    api_meta::Details {
        name: write.name.clone(),
        group: write.resource.group.clone().into_owned(),
        kind: write.resource.plural.clone().into_owned(),
        ..Default::default()
    }
}

/// Returns whether nothing holds an object whose deletion was requested any longer.
pub(crate) fn ends_deletion(write: &Write, object: &Value) -> bool {
    let grace = object
        .metadata()
        .and_then(|m| m.get("deletionGracePeriodSeconds"))
        .and_then(Value::as_i64)
        .unwrap_or(0);
    // The namespace controller removes this finalizer after it has deleted the content.
    let held_as_namespace = write.resource.plural == "namespaces"
        && write.resource.group.is_empty()
        && object
            .pointer("/spec/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|f| !f.is_empty());
    object.is_being_deleted() && grace == 0 && object.finalizers().is_empty() && !held_as_namespace
}
