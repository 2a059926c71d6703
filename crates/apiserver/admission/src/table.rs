//! The plugins in order, with their defaults.

use crate::context::Context;
use crate::{
    absent, certificates, claim_status, default_classes, limit_ranger, namespace_lifecycle,
    node_restriction, pod_groups, pod_resize, pod_security, pods, priority, quota, runtime_class,
    service_account, storage, unenforced,
};
use apiserver_request::Admission;
use std::sync::Arc;

/// `--enable-admission-plugins` and `--disable-admission-plugins`.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Plugins enabled in addition to the default ones.
    pub enable: Vec<String>,
    /// Disabled plugins.
    pub disable: Vec<String>,
    /// A component of the cluster enforces NetworkPolicies.
    pub network_policies_enforced: bool,
}

/// A reason why the plugin flags are rejected.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// Not a plugin of upstream.
    #[error("admission plugin {0:?} is unknown; known are {1}")]
    Unknown(String, String),
    /// The plugin would restrict or change requests, and is not implemented.
    #[error("admission plugin {0:?} cannot be enabled: {1}")]
    NotImplemented(String, &'static str),
}

type Make = fn(&Context) -> Arc<dyn Admission>;

struct Row {
    name: &'static str,
    on: bool,
    make: Make,
}

const fn table_row(name: &'static str, on: bool, make: Make) -> Row {
    Row { name, on, make }
}

// The order is upstream's. ResourceQuota is last, so that a request which another plugin rejects is
// not charged.
const TABLE: [Row; 27] = [
    table_row("NamespaceLifecycle", true, |c| {
        Arc::new(namespace_lifecycle::NamespaceLifecycle(c.clone()))
    }),
    table_row("LimitRanger", true, |c| {
        Arc::new(limit_ranger::LimitRanger(c.clone()))
    }),
    table_row("ServiceAccount", true, |c| {
        Arc::new(service_account::ServiceAccount(c.clone()))
    }),
    table_row("NodeRestriction", true, |c| {
        Arc::new(node_restriction::NodeRestriction(c.clone()))
    }),
    table_row("TaintNodesByCondition", true, |_| {
        Arc::new(pods::TaintNodesByCondition)
    }),
    table_row("AlwaysPullImages", false, |_| {
        Arc::new(pods::AlwaysPullImages)
    }),
    table_row("PodSecurity", true, |c| {
        Arc::new(pod_security::PodSecurity(c.clone()))
    }),
    table_row("Priority", true, |c| {
        Arc::new(priority::Priority(c.clone()))
    }),
    table_row("DefaultTolerationSeconds", true, |_| {
        Arc::new(pods::DefaultTolerationSeconds)
    }),
    table_row("DefaultStorageClass", true, |c| {
        Arc::new(default_classes::DefaultStorageClass(c.clone()))
    }),
    table_row("StorageObjectInUseProtection", true, |_| {
        Arc::new(storage::InUseProtection)
    }),
    table_row("PersistentVolumeClaimResize", true, |c| {
        Arc::new(storage::ClaimResize(c.clone()))
    }),
    table_row("RuntimeClass", true, |c| {
        Arc::new(runtime_class::RuntimeClass(c.clone()))
    }),
    table_row("CertificateApproval", true, |c| {
        Arc::new(certificates::CertificateApproval(c.clone()))
    }),
    table_row("CertificateSigning", true, |c| {
        Arc::new(certificates::CertificateSigning(c.clone()))
    }),
    table_row("ClusterTrustBundleAttest", true, |c| {
        Arc::new(certificates::TrustBundleAttest(c.clone()))
    }),
    table_row("CertificateSubjectRestriction", true, |_| {
        Arc::new(certificates::SubjectRestriction)
    }),
    table_row("DefaultIngressClass", true, |c| {
        Arc::new(default_classes::DefaultIngressClass(c.clone()))
    }),
    table_row("DenyServiceExternalIPs", false, |_| {
        Arc::new(pods::DenyServiceExternalIps)
    }),
    table_row("PodGroupWorkloadExists", true, |c| {
        Arc::new(pod_groups::PodGroupWorkloadExists(c.clone()))
    }),
    table_row("NodeDeclaredFeatureValidator", true, |c| {
        Arc::new(pod_resize::NodeDeclaredFeatureValidator(c.clone()))
    }),
    table_row("PodResizeValidator", true, |c| {
        Arc::new(pod_resize::PodResizeValidator(c.clone()))
    }),
    table_row("MutatingAdmissionPolicy", true, |c| {
        c.policies.mutating.clone()
    }),
    table_row("MutatingAdmissionWebhook", true, |c| {
        c.webhooks.mutating.clone()
    }),
    table_row("ValidatingAdmissionPolicy", true, |c| {
        c.policies.validating.clone()
    }),
    table_row("ValidatingAdmissionWebhook", true, |c| {
        c.webhooks.validating.clone()
    }),
    table_row("ResourceQuota", true, |c| {
        Arc::new(quota::ResourceQuota::new(c.clone()))
    }),
];

/// Returns the names of all plugins, and whether each is on by default.
pub fn known_plugins() -> Vec<(&'static str, bool)> {
    TABLE.iter().map(|r| (r.name, r.on)).collect()
}

/// Returns the plugins that the options enable, in order. The registry runs `admit` of all, then
/// `validate` of all.
///
/// # Errors
/// An unknown name, or a deliberately enabled plugin that is not implemented.
pub fn build_plugins(
    options: &Options,
    context: &Context,
) -> Result<Vec<Arc<dyn Admission>>, PluginError> {
    check_names(options)?;
    // Only a log line, because installers pass explicit lists with these plugins.
    for name in &options.enable {
        if let Some(consequence) = absent::consequence_of_absence(name) {
            tracing::warn!(plugin = %name, "admission plugin enabled but not implemented: {consequence}");
        }
    }
    let named = |list: &[String], row: &Row| list.iter().any(|n| n == row.name);
    let on = |row: &&Row| (row.on || named(&options.enable, row)) && !named(&options.disable, row);
    // Not in the table: no flag can disable them.
    let mut all: Vec<Arc<dyn Admission>> = vec![
        Arc::new(certificates::Requester),
        Arc::new(certificates::PodCertificateSigning(context.clone())),
        Arc::new(claim_status::ClaimStatus(context.clone())),
        Arc::new(unenforced::UnenforcedWarnings {
            network_policies_enforced: options.network_policies_enforced,
        }),
    ];
    all.extend(TABLE.iter().filter(on).map(|row| (row.make)(context)));
    Ok(all)
}

fn check_names(options: &Options) -> Result<(), PluginError> {
    let known = |name: &String| TABLE.iter().any(|r| r.name == name) || absent::is_absent(name);
    // Disabled names are checked as well: a misspelled one would leave its plugin on.
    if let Some(name) = options
        .enable
        .iter()
        .chain(&options.disable)
        .find(|n| !known(n))
    {
        let names: Vec<&str> = TABLE.iter().map(|r| r.name).collect();
        return Err(PluginError::Unknown(name.clone(), names.join(", ")));
    }
    let refused = |name: &String| {
        absent::rejection_reason(name).map(|why| PluginError::NotImplemented(name.clone(), why))
    };
    match options
        .enable
        .iter()
        // A plugin that is also disabled does not run, so that it may be missing.
        .filter(|name| !options.disable.contains(name))
        .find_map(refused)
    {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(enable: &str, disable: &str) -> Result<(), PluginError> {
        let split = |names: &str| names.split_terminator(',').map(str::to_owned).collect();
        check_names(&Options {
            enable: split(enable),
            disable: split(disable),
            ..Options::default()
        })
    }

    #[test]
    fn plugin_lists_of_installers_are_accepted() {
        for enable in [
            "",
            "NodeRestriction",
            "DefaultStorageClass,DefaultTolerationSeconds,LimitRanger,MutatingAdmissionWebhook,NamespaceLifecycle,\
             NodeRestriction,ResourceQuota,RuntimeClass,ServiceAccount,ValidatingAdmissionPolicy,\
             ValidatingAdmissionWebhook,PersistentVolumeLabel",
        ] {
            assert!(check(enable, "").is_ok(), "{enable}");
        }
    }

    #[test]
    fn plugin_that_would_restrict_is_refused_with_the_reason() {
        let error =
            check("OwnerReferencesPermissionEnforcement", "").map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("not implemented")));
        assert!(check("EventRateLimit", "").is_err());
        assert!(check("", "OwnerReferencesPermissionEnforcement").is_ok());
        assert!(matches!(
            check("Nonsense", ""),
            Err(PluginError::Unknown(..))
        ));
    }
}
