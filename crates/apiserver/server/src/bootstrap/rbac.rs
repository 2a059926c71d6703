//! The default RBAC roles and bindings.

use super::{create_object, find_object, find_resource};
use crate::server::Server;
use api_meta::{ApiError, Meta};
use apiserver_authz::bootstrap::{Write as RoleWrite, bootstrap_objects, reconcile_object};
use apiserver_registry::{DeleteOptions, Mode, Update, Write};
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::Value;

const GROUP: &str = "rbac.authorization.k8s.io";
// Bounds the writes that wait for the store beside those of clients.
const AT_ONCE: usize = 32;

/// Creates missing objects and adds missing rules and subjects. Roles come before bindings; each
/// group is written concurrently.
pub async fn ensure_rbac(server: &Server) -> Result<(), ApiError> {
    let (roles, bindings): (Vec<_>, Vec<_>) =
        bootstrap_objects(|gate| server.feature_gates.is_enabled(gate))
            .into_iter()
            .partition(|(plural, _)| plural.ends_with("roles"));
    for part in [roles, bindings] {
        let each: Vec<_> = part
            .into_iter()
            .map(|(plural, object)| ensure_role(server, plural, object).boxed())
            .collect();
        stream::iter(each)
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<()>>()
            .await?;
    }
    Ok(())
}

async fn ensure_role(
    server: &Server,
    plural: &'static str,
    desired: Value,
) -> Result<(), ApiError> {
    let resource = find_resource(GROUP, plural)?;
    let (namespace, name) = (desired.namespace().to_owned(), desired.name().to_owned());
    match reconcile_object(
        find_object(server, resource, &namespace, &name).as_ref(),
        &desired,
    ) {
        None => Ok(()),
        Some(RoleWrite::Create(object)) => {
            create_object(server, resource, &namespace, object).await
        }
        Some(RoleWrite::Update(object)) => {
            let mut write = Write::internal(resource, &namespace, &name);
            let change = move |_: &Value| Ok(object.clone());
            server
                .registry
                .update(
                    &mut write,
                    &Update {
                        change: &change,
                        replaces: false,
                        mode: Mode::Full,
                    },
                )
                .await
                .map(|_| ())
        }
        // roleRef is immutable, so that a changed one needs a new object.
        Some(RoleWrite::Recreate(object)) => {
            let mut write = Write::internal(resource, &namespace, &name);
            server
                .registry
                .delete(&mut write, &DeleteOptions::default())
                .await?;
            create_object(server, resource, &namespace, object).await
        }
    }
}
