//! Create.

use crate::allocators::ServiceAllocation;
use crate::errors::{store_error, unreadable_error};
use crate::meta;
use crate::owners::{Stage, remove_duplicate_owners};
use crate::registry::Registry;
use crate::strategy::{
    add_object_warnings, as_stored, default_object, prepare_create, validate_create,
};
use crate::write::Write;
use api_meta::{ApiError, Meta, Reason};
use apiserver_convert::{convert_to_store, encode_readable};
use apiserver_request::Operation;
use apiserver_storage::StoreError;
use serde_json::Value;

/// Attempts to find a free name for `generateName`: with eight, a million objects may share a
/// prefix.
const NAME_ATTEMPTS: usize = 8;

impl Registry {
    /// Creates an object of `write.resource`'s version; returns it as stored.
    ///
    /// As upstream, the mutating phase of admission runs once, before a name is generated. A
    /// generated name that exists is generated again, and the validating phase is repeated.
    pub async fn create(&self, write: &mut Write, mut object: Value) -> Result<Value, ApiError> {
        check_identity(write, &object)?;
        meta::set_system_metadata(&mut object, &write.namespace)?;
        default_object(write, &mut object);
        prepare_create(&self.options.disabled_fields, write, &mut object);
        // An apply has merged the ownership already. Tracking it again would record an update.
        if !write.applies {
            remove_duplicate_owners(write, Stage::Request, &mut object);
            self.track_fields(write, None, &mut object).await;
        }
        let name = object.name().to_owned();
        let mut object = Box::pin(self.admit_create(write, &name, object)).await?;
        remove_duplicate_owners(write, Stage::Admitted, &mut object);
        let is_generated = !object.meta_str("generateName").is_empty();
        let created = match is_generated && object.name().is_empty() {
            true => Box::pin(self.create_with_new_name(write, object)).await,
            false => Box::pin(self.create_admitted(write, object)).await,
        };
        created.map_err(|error| match error.reason {
            Reason::AlreadyExists if is_generated => no_free_name(error),
            _ => error,
        })
    }

    /// Creates an object under a generated name that is free, if one is found.
    async fn create_with_new_name(
        &self,
        write: &mut Write,
        object: Value,
    ) -> Result<Value, ApiError> {
        // Each attempt validates again, and its warnings must not be repeated.
        let warnings = write.warnings.len();
        for _ in 1..NAME_ATTEMPTS {
            let mut attempt = object.clone();
            meta::generate_name(&mut attempt);
            match self.create_admitted(write, attempt).await {
                Err(error) if error.reason == Reason::AlreadyExists => {
                    write.warnings.truncate(warnings)
                }
                done => return done,
            }
        }
        let mut last = object;
        meta::generate_name(&mut last);
        self.create_admitted(write, last).await
    }

    /// Creates an object that has passed the mutating phase of admission.
    async fn create_admitted(
        &self,
        write: &mut Write,
        mut object: Value,
    ) -> Result<Value, ApiError> {
        let name = object.name().to_owned();
        // Admission may add fields, so defaults and the strategy are applied again.
        default_object(write, &mut object);
        prepare_create(&self.options.disabled_fields, write, &mut object);
        // After admission, which may change a Service, and before validation, which checks its
        // addresses.
        let allocation = self
            .options
            .services
            .allocate_for(self, write, &mut object, None)
            .await?;
        let done = Box::pin(self.insert_object(write, &name, object)).await;
        self.settle_allocation(allocation, done.is_ok() && !write.dry_run)
            .await;
        done
    }

    async fn admit_create(
        &self,
        write: &mut Write,
        name: &str,
        object: Value,
    ) -> Result<Value, ApiError> {
        let mut request = write.admission_request(Operation::Create, name, object, None);
        self.run_mutating(&mut request).await?;
        let (object, warnings) = (request.object, request.warnings);
        write.warnings.extend(warnings);
        Ok(object)
    }

    async fn insert_object(
        &self,
        write: &mut Write,
        name: &str,
        object: Value,
    ) -> Result<Value, ApiError> {
        let mut errors = validate_create(write, &object).await;
        errors.extend(self.check_admin_access(write, &object, None));
        write.reject_invalid(name, errors)?;
        add_object_warnings(write, "", &object, None);
        let request = write.admission_request(Operation::Create, name, object, None);
        self.run_validating(&request).await?;
        let (mut object, warnings) = (request.object, request.warnings);
        write.warnings.extend(warnings);
        as_stored(write, &mut object);
        let cache = self.write_cache(write)?;
        let kind = cache.kind();
        // Also of a dry run: a conversion that fails would fail the real create.
        let converted = convert_to_store(&write.resource, &kind.resource, &object).await?;
        let stored =
            encode_readable(&kind.resource, &converted).map_err(|e| unreadable_error(&e))?;
        // Nothing is written, so the cache has to show whether the name exists. It may lag behind,
        // as a real create may lose a race.
        if write.dry_run {
            return match cache.get(&kind.object_key(&write.namespace, name)) {
                Some(_) => Err(ApiError::already_exists(
                    &write.resource.group,
                    &write.resource.plural,
                    name,
                )),
                None => Ok(object),
            };
        }
        let key = self.caches.store_key(kind, &write.namespace, name);
        match self
            .store
            .create(&key, stored.into(), self.key_ttl(write))
            .await
        {
            Ok(revision) => {
                meta::set_revision(&mut object, revision);
                Ok(object)
            }
            Err(StoreError::Exists) => Err(self.exists_error(write, &key, name).await),
            Err(e) => Err(store_error(&e)),
        }
    }

    /// Builds a 409; it also reports whether the existing object is being deleted.
    async fn exists_error(&self, write: &Write, key: &str, name: &str) -> ApiError {
        let mut error =
            ApiError::already_exists(&write.resource.group, &write.resource.plural, name);
        // For the message only: if this read fails, the 409 is still right.
        let present = self.live_entry(write, key, name).await.ok().flatten();
        if present.is_some_and(|(object, _)| object.is_being_deleted()) {
            error.message = format!("object is being deleted: {}", error.message);
        }
        error
    }

    async fn settle_allocation(&self, allocation: ServiceAllocation, keep: bool) {
        if !keep {
            self.options
                .services
                .release_allocated(self, allocation)
                .await;
        }
    }
}

/// Checks that the body's name and namespace match the path.
fn check_identity(write: &Write, object: &Value) -> Result<(), ApiError> {
    let namespace = object.namespace();
    if !namespace.is_empty() && namespace != write.namespace {
        let text =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(text));
    }
    if !write.name.is_empty() && !object.name().is_empty() && object.name() != write.name {
        return Err(name_mismatch(object.name(), &write.name));
    }
    Ok(())
}

/// Adds to the 409 that another attempt may find a free name.
fn no_free_name(mut error: ApiError) -> ApiError {
    error
        .message
        .push_str(", the server was not able to generate a unique name for the object");
    if let Some(details) = &mut error.details {
        details.retry_after_seconds = 1;
    }
    error
}

pub(crate) fn name_mismatch(object: &str, url: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the name of the object ({object}) does not match the name on the URL ({url})"
    ))
}
