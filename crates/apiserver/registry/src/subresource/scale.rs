//! Reads and writes of Scales.

use crate::registry::Registry;
use crate::scale_view::{check_scale, replicas_paths, scale_of, set_replicas};
use crate::update::{Mode, Update};
use crate::write::Write;
use api_kinds::Resource;
use api_meta::{ApiError, Meta};
use apiserver_fields::{set_object_owners, set_scale_owners};
use serde_json::Value;

impl Registry {
    /// Handles PUT or PATCH of a Scale; `change` computes the new Scale from the current one.
    /// Returns the Scale as stored.
    pub async fn update_scale(
        &self,
        write: &mut Write,
        change: &(dyn Fn(&Value) -> Result<Value, ApiError> + Send + Sync),
        replaces: bool,
    ) -> Result<Value, ApiError> {
        let name = write.name.clone();
        let resource = write.resource.clone();
        let described = resource.clone();
        let applies = write.applies;
        let paths = {
            let served = self.caches.served();
            replicas_paths(&described, served.resources().served())
        };
        let through = move |object: &Value| {
            let mut scale = scale_of(&resource, object);
            if applies {
                set_scale_owners(&mut scale, object, &paths);
            }
            let scale = change(&scale)?;
            check_scale(&name, &scale)?;
            check_uid(&resource, &scale, object)?;
            let mut object = object.clone();
            set_replicas(&resource, &mut object, &scale);
            if applies {
                set_object_owners(&mut object, &scale, &paths, &resource.api_version());
            }
            // The precondition of the Scale is one on the object.
            object.set_meta_str("resourceVersion", scale.resource_version());
            Ok(object)
        };
        self.update(
            write,
            &Update {
                change: &through,
                replaces,
                mode: Mode::Scale,
            },
        )
        .await
        .map(|object| scale_of(&described, &object))
    }
}

/// Checks that a Scale with a UID is that of this object, not of an earlier one of the same name.
fn check_uid(resource: &Resource, scale: &Value, object: &Value) -> Result<(), ApiError> {
    if scale.uid().is_empty() || scale.uid() == object.uid() {
        return Ok(());
    }
    let why = format!(
        "Precondition failed: UID in precondition: {}, UID in object meta: {}",
        scale.uid(),
        object.uid()
    );
    let plural = format!("{}/scale", resource.plural);
    Err(ApiError::conflict(
        &resource.group,
        &plural,
        object.name(),
        &why,
    ))
}
