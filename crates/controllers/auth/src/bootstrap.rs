//! Bootstrap tokens: the cluster-info ConfigMap is signed with each of them, and the Secrets of
//! expired ones are deleted.

mod cleaner;
mod signer;

pub use cleaner::add_token_cleaner;
pub use signer::{add_bootstrap_signer, reconcile_cluster_info};

use api_bootstrap::{SECRET_NAMESPACE, SECRET_TYPE};
use client::ListParams;
use controllers_runtime::{Kind, Setup};
use k8s_openapi::api::core::v1::Secret;

/// Declares the informer of the tokens' Secrets. The other Secrets of a cluster may be many, and no
/// controller should hold more of them than it needs.
fn declare_token_secrets(setup: &mut Setup) -> Kind<'_, Secret> {
    let only = ListParams::default().with_fields(format!(
        "metadata.namespace={SECRET_NAMESPACE},type={SECRET_TYPE}"
    ));
    setup.informers.for_selected::<Secret>(only)
}
