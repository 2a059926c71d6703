//! The plugins in their order, and which are on.

use crate::context::Context;
use crate::{
    certificates, default_classes, limit_ranger, namespace_lifecycle, node_restriction, pod_security, pods, priority,
    quota, runtime_class, service_account, storage,
};
use apiserver_request::Admission;
use std::sync::Arc;

/// `--enable-admission-plugins` and `--disable-admission-plugins`.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// On beside the default ones.
    pub enable: Vec<String>,
    /// Off.
    pub disable: Vec<String>,
}

/// A name that is no plugin.
#[derive(Debug, thiserror::Error)]
#[error("admission plugin {0:?} is unknown; known are {1}")]
pub struct UnknownPlugin(pub String, pub String);

type Make = fn(&Context) -> Arc<dyn Admission>;

struct Row {
    name: &'static str,
    on: bool,
    make: Make,
}

const fn row(name: &'static str, on: bool, make: Make) -> Row {
    Row { name, on, make }
}

const TABLE: [Row; 19] = [
    row("NamespaceLifecycle", true, |c| Arc::new(namespace_lifecycle::NamespaceLifecycle(c.clone()))),
    row("LimitRanger", true, |c| Arc::new(limit_ranger::LimitRanger(c.clone()))),
    row("ServiceAccount", true, |c| Arc::new(service_account::ServiceAccount(c.clone()))),
    row("NodeRestriction", true, |c| Arc::new(node_restriction::NodeRestriction(c.clone()))),
    row("TaintNodesByCondition", true, |_| Arc::new(pods::TaintNodesByCondition)),
    row("AlwaysPullImages", false, |_| Arc::new(pods::AlwaysPullImages)),
    row("PodSecurity", true, |c| Arc::new(pod_security::PodSecurity(c.clone()))),
    row("Priority", true, |c| Arc::new(priority::Priority(c.clone()))),
    row("DefaultTolerationSeconds", true, |_| Arc::new(pods::DefaultTolerationSeconds)),
    row("DefaultStorageClass", true, |c| Arc::new(default_classes::DefaultStorageClass(c.clone()))),
    row("StorageObjectInUseProtection", true, |_| Arc::new(storage::InUseProtection)),
    row("PersistentVolumeClaimResize", true, |c| Arc::new(storage::ClaimResize(c.clone()))),
    row("RuntimeClass", true, |c| Arc::new(runtime_class::RuntimeClass(c.clone()))),
    row("CertificateApproval", true, |c| Arc::new(certificates::CertificateApproval(c.clone()))),
    row("CertificateSigning", true, |c| Arc::new(certificates::CertificateSigning(c.clone()))),
    row("CertificateSubjectRestriction", true, |_| Arc::new(certificates::SubjectRestriction)),
    row("DefaultIngressClass", true, |c| Arc::new(default_classes::DefaultIngressClass(c.clone()))),
    row("DenyServiceExternalIPs", false, |_| Arc::new(pods::DenyServiceExternalIps)),
    row("ResourceQuota", true, |c| Arc::new(quota::ResourceQuota::new(c.clone()))),
];

/// Plugins of the stock server that this one does not have yet: accepted in flags, without effect.
const ABSENT: [&str; 8] = [
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionWebhook",
    "MutatingAdmissionPolicy",
    "ValidatingAdmissionPolicy",
    "ClusterTrustBundleAttest",
    "PodTopologyLabels",
    "NodeDeclaredFeatureValidator",
    "OwnerReferencesPermissionEnforcement",
];

/// The names of all plugins, with whether each is on by default.
pub fn known_plugins() -> Vec<(&'static str, bool)> {
    TABLE.iter().map(|r| (r.name, r.on)).collect()
}

/// The plugins that the options ask for, in order. The registry runs `admit` of all, then `validate` of all.
pub fn plugins(options: &Options, context: &Context) -> Result<Vec<Arc<dyn Admission>>, UnknownPlugin> {
    let known = |name: &String| TABLE.iter().any(|r| r.name == name) || ABSENT.contains(&name.as_str());
    if let Some(name) = options.enable.iter().chain(&options.disable).find(|n| !known(n)) {
        let names: Vec<&str> = TABLE.iter().map(|r| r.name).collect();
        return Err(UnknownPlugin(name.clone(), names.join(", ")));
    }
    let named = |list: &[String], row: &Row| list.iter().any(|n| n == row.name);
    let on = |row: &&Row| (row.on || named(&options.enable, row)) && !named(&options.disable, row);
    let mut all: Vec<Arc<dyn Admission>> = vec![Arc::new(certificates::Requester)];
    all.extend(TABLE.iter().filter(on).map(|row| (row.make)(context)));
    Ok(all)
}
