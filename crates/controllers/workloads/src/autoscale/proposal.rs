//! Computes the size that each metric of an autoscaler proposes, and the metric's status.

use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricStatus, MetricIdentifier, MetricSpec,
    MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricStatus, PodsMetricStatus,
    ResourceMetricStatus,
};

use super::metrics::{Reading, Source, describe_selector};
use super::quantity::{from_millis, of_resource, to_millis};
use super::replicas::{Context, Goal, Size};

/// The size that a metric needs.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// Number of replicas.
    pub replicas: i32,
    /// Description of the metric, for messages.
    pub metric: String,
    /// The metric's status.
    pub status: MetricStatus,
}

/// The reason why a metric has no size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Reason of the condition and of the event.
    pub reason: &'static str,
    /// Problem.
    pub problem: String,
    /// Problem with the metric's name.
    pub summary: String,
}

/// Computes the proposal of one metric.
///
/// # Errors
/// The metric can't be read or has no usable values.
pub fn propose_size(
    context: &Context<'_>,
    spec: &MetricSpec,
    reading: &Result<Reading, String>,
) -> Result<Proposal, Failure> {
    let Some(source) = Source::of_spec(spec) else {
        let problem = format!("unknown metric source type {:?}", spec.type_);
        return Err(Failure {
            reason: "InvalidMetricSourceType",
            summary: problem.clone(),
            problem,
        });
    };
    let (reason, prefix) = match source {
        Source::Resource(s) => (
            "FailedGetResourceMetric",
            format!("failed to get {} resource metric value", s.name),
        ),
        Source::Container(s) => (
            "FailedGetContainerResourceMetric",
            format!("failed to get {} container metric value", s.container),
        ),
        Source::Pods(_) => (
            "FailedGetPodsMetric",
            "failed to get pods metric value".to_owned(),
        ),
        Source::Object(_) => (
            "FailedGetObjectMetric",
            "failed to get object metric value".to_owned(),
        ),
        Source::External(s) => (
            "FailedGetExternalMetric",
            format!("failed to get {} external metric value", s.metric.name),
        ),
    };
    let size = compute_size(context, source, reading);
    let (size, metric) = size.map_err(|problem| Failure {
        reason,
        summary: format!("{prefix}: {problem}"),
        problem,
    })?;
    Ok(Proposal {
        replicas: size.replicas,
        metric,
        status: build_status(spec, source, size),
    })
}

/// Returns the size and the metric's description.
fn compute_size(
    context: &Context<'_>,
    source: Source<'_>,
    reading: &Result<Reading, String>,
) -> Result<(Size, String), String> {
    match source {
        Source::Resource(s) => size_by_usage(context, &s.name, &s.target, None, reading),
        Source::Container(s) => {
            size_by_usage(context, &s.name, &s.target, Some(&s.container), reading)
        }
        Source::Pods(s) => {
            let target = s.target.average_value.as_ref().and_then(to_millis);
            let target =
                target.ok_or("invalid pods metric source: no average value target was set")?;
            let size = size_by_pods(context, Goal::Average(target), "", reading)?;
            Ok((size, format!("pods metric {}", s.metric.name)))
        }
        Source::Object(s) => {
            let average = s
                .target
                .average_value
                .as_ref()
                .filter(|_| s.target.type_ == "AverageValue");
            let value = s
                .target
                .value
                .as_ref()
                .filter(|_| s.target.type_ == "Value");
            if let Some(target) = value.and_then(to_millis) {
                let size = context.size_by_total(require_total(reading)?, target)?;
                let kind = &s.described_object.kind;
                Ok((size, format!("{kind} metric {}", s.metric.name)))
            } else {
                let size = size_by_share(context, average.and_then(to_millis), reading, "object")?;
                // Upstream names this metric so.
                Ok((size, describe_external(&s.metric)))
            }
        }
        Source::External(s) => {
            let average = s.target.average_value.as_ref().and_then(to_millis);
            let value = s.target.value.as_ref().and_then(to_millis);
            let size = match value.filter(|_| average.is_none()) {
                Some(target) => context.size_by_total(require_total(reading)?, target)?,
                None => size_by_share(context, average, reading, "external")?,
            };
            Ok((size, describe_external(&s.metric)))
        }
    }
}

fn size_by_usage(
    context: &Context<'_>,
    name: &str,
    target: &MetricTarget,
    container: Option<&str>,
    reading: &Result<Reading, String>,
) -> Result<(Size, String), String> {
    if let Some(average) = target.average_value.as_ref().and_then(to_millis) {
        let size = size_by_pods(context, Goal::Average(average), name, reading);
        let size = size.map_err(|e| format!("failed to get {name} usage: {e}"))?;
        return Ok((size, format!("{name} resource")));
    }
    let percent = target.average_utilization.ok_or(
        "invalid resource metric source: neither an average utilization target nor an average \
         value (usage) target was set",
    )?;
    let size = size_by_pods(
        context,
        Goal::Utilization(percent, container),
        name,
        reading,
    );
    let size = size.map_err(|e| format!("failed to get {name} utilization: {e}"))?;
    let kind = if container.is_some() {
        "container resource"
    } else {
        "resource"
    };
    Ok((
        size,
        format!("{name} {kind} utilization (percentage of request)"),
    ))
}

fn size_by_pods(
    context: &Context<'_>,
    goal: Goal<'_>,
    resource: &str,
    reading: &Result<Reading, String>,
) -> Result<Size, String> {
    match reading {
        Ok(Reading::Pods(samples)) => context.size_by_pods(samples.clone(), goal, resource),
        Ok(Reading::Total(_)) => Err("the metric has no values of pods".to_owned()),
        Err(problem) => Err(problem.clone()),
    }
}

fn size_by_share(
    context: &Context<'_>,
    target: Option<i64>,
    reading: &Result<Reading, String>,
    kind: &str,
) -> Result<Size, String> {
    let target = target.ok_or_else(|| {
        format!(
            "invalid {kind} metric source: neither a value target nor an average value target was set"
        )
    })?;
    Ok(context.size_by_share(require_total(reading)?, target))
}

fn require_total(reading: &Result<Reading, String>) -> Result<i64, String> {
    match reading {
        Ok(Reading::Total(total)) => Ok(*total),
        Ok(Reading::Pods(_)) => Err("the metric has no total".to_owned()),
        Err(problem) => Err(problem.clone()),
    }
}

fn describe_external(metric: &MetricIdentifier) -> String {
    let selector = describe_selector(metric.selector.as_ref());
    format!("external metric {}({selector})", metric.name)
}

fn build_status(spec: &MetricSpec, source: Source<'_>, size: Size) -> MetricStatus {
    let mut status = MetricStatus {
        type_: spec.type_.clone(),
        ..MetricStatus::default()
    };
    let usage = |name: &str| MetricValueStatus {
        average_utilization: size.utilization,
        average_value: Some(of_resource(name, size.usage)),
        value: None,
    };
    let amount = |is_total: bool| {
        let value = Some(from_millis(size.usage));
        let (value, average_value) = if is_total {
            (value, None)
        } else {
            (None, value)
        };
        MetricValueStatus {
            average_utilization: None,
            average_value,
            value,
        }
    };
    match source {
        Source::Resource(s) => {
            status.resource = Some(ResourceMetricStatus {
                name: s.name.clone(),
                current: usage(&s.name),
            });
        }
        Source::Container(s) => {
            status.container_resource = Some(ContainerResourceMetricStatus {
                name: s.name.clone(),
                container: s.container.clone(),
                current: usage(&s.name),
            });
        }
        Source::Pods(s) => {
            status.pods = Some(PodsMetricStatus {
                metric: s.metric.clone(),
                current: amount(false),
            });
        }
        Source::Object(s) => {
            status.object = Some(ObjectMetricStatus {
                metric: s.metric.clone(),
                described_object: s.described_object.clone(),
                current: amount(s.target.type_ == "Value"),
            });
        }
        Source::External(s) => {
            status.external = Some(ExternalMetricStatus {
                metric: s.metric.clone(),
                current: amount(s.target.average_value.is_none()),
            });
        }
    }
    status
}
