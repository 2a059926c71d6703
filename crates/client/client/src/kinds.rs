//! The kinds that this crate decodes and encodes.

use crate::decode::{Decode, Encode};
use crate::json::{from_slice, from_tree};
use crate::list::List;
use crate::object::{DynamicObject, PartialObject};
use crate::watch_event::{WatchEvent, decode_line};
use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, authentication::v1 as authentication,
    authorization::v1 as authorization, autoscaling::v2 as autoscaling_v2, batch::v1 as batch,
    certificates::v1 as certificates, certificates::v1beta1 as certificates_v1beta1,
    coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery,
    networking::v1 as networking, node::v1 as node, policy::v1 as policy, rbac::v1 as rbac,
    resource::v1 as resource, storage::v1 as storage,
    storagemigration::v1beta1 as storagemigration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde_json::{Error, Value};

macro_rules! decode_and_encode {
    ($($kind:ty),* $(,)?) => {$(
        impl Decode for $kind {
            fn decode_object(bytes: &[u8]) -> Result<Self, Error> {
                from_slice(bytes)
            }

            fn decode_tree(tree: &Value) -> Result<Self, Error> {
                from_tree(tree)
            }

            fn decode_list(bytes: &[u8], kind: &str) -> Result<List<Self>, Error> {
                List::decode_page(bytes, kind)
            }

            fn decode_items(
                bytes: &[u8],
                kind: &str,
                receive: &mut dyn FnMut(Self),
            ) -> Result<List<Self>, Error> {
                List::decode_items(bytes, kind, receive)
            }

            fn decode_event(line: &[u8]) -> Result<WatchEvent<Self>, Error> {
                decode_line(line)
            }
        }

        impl Encode for $kind {
            fn encode_object(&self) -> Result<Vec<u8>, Error> {
                serde_json::to_vec(self)
            }
        }
    )*};
}

// A kind that is missing here does not compile where it is used: add it.
decode_and_encode! {
    DynamicObject, PartialObject, Status, admission::ValidatingAdmissionPolicy, apps::ControllerRevision, apps::DaemonSet,
    apps::Deployment, apps::ReplicaSet, apps::StatefulSet, authentication::TokenRequest, authentication::TokenReview,
    authorization::SubjectAccessReview, autoscaling_v2::HorizontalPodAutoscaler, batch::CronJob,
    batch::Job, certificates::CertificateSigningRequest,
    certificates_v1beta1::PodCertificateRequest, coordination::Lease, core::ConfigMap,
    core::Endpoints, core::Event, core::Namespace, core::Node, core::PersistentVolume,
    core::PersistentVolumeClaim, core::Pod, core::PodTemplate, core::ReplicationController, core::ResourceQuota,
    core::Secret, core::Service, core::ServiceAccount, discovery::EndpointSlice,
    networking::IPAddress,
    networking::Ingress, networking::IngressClass,
    networking::NetworkPolicy, networking::ServiceCIDR, node::RuntimeClass,
    policy::PodDisruptionBudget, rbac::ClusterRole,
    rbac::ClusterRoleBinding, rbac::Role, rbac::RoleBinding, resource::DeviceClass,
    resource::ResourceClaim, resource::ResourceClaimTemplate, resource::ResourceSlice, storage::StorageClass,
    storage::VolumeAttributesClass, storagemigration::StorageVersionMigration,
}
