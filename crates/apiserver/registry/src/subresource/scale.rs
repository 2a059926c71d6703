//! Reads and writes of Scales.

use crate::registry::Registry;
use crate::scale_view::{check_scale, scale_of, set_replicas};
use crate::update::{Mode, Update};
use crate::write::Write;
use api_meta::{ApiError, Meta};
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
        let through = move |object: &Value| {
            let scale = change(&scale_of(&resource, object))?;
            check_scale(&name, &scale)?;
            let mut object = object.clone();
            set_replicas(&resource, &mut object, &scale);
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
