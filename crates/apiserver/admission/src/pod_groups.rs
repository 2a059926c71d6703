//! PodGroups: the Workload and the template that a group names.

use crate::context::{Context, forbidden_error, is_for, list_at, string_at};
use api_meta::{ApiError, Meta};
use apiserver_request::{Admission, AdmissionRequest, Operation};

const GROUP: &str = "scheduling.k8s.io";

/// Rejects a PodGroup whose Workload does not exist or lacks the group's template.
pub struct PodGroupWorkloadExists(pub Context);

#[async_trait::async_trait]
impl Admission for PodGroupWorkloadExists {
    fn name(&self) -> &'static str {
        "PodGroupWorkloadExists"
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        // The reference is immutable: an update must stay possible after the Workload is deleted.
        if !is_for(request, GROUP, "podgroups") || request.operation != Operation::Create {
            return Ok(());
        }
        let reference = "/spec/podGroupTemplateRef/workload";
        let text = |field: &str| string_at(&request.object, &format!("{reference}/{field}"));
        let (name, wanted) = (text("workloadName"), text("podGroupTemplateName"));
        if name.is_empty() {
            return Ok(());
        }
        let reject = |why: String| {
            let why = format!("PodGroup rejected: {why}");
            Err(forbidden_error(request, why))
        };
        let namespace = request.namespace;
        let found = self
            .0
            .find_object(GROUP, "workloads", namespace, name)
            .await?;
        let Some(workload) = found else {
            return reject(format!("Workload {name:?} not found"));
        };
        if workload.is_being_deleted() {
            return reject(format!("Workload {name:?} is being deleted"));
        }
        let mut templates = list_at(&workload, "/spec/podGroupTemplates").iter();
        if templates.any(|template| string_at(template, "/name") == wanted) {
            return Ok(());
        }
        reject(format!(
            "PodGroupTemplate {wanted:?} not found in Workload {name:?}"
        ))
    }
}
