//! Computes the number of replicas that a metric needs.
//!
//! Pods without a usable sample count with an assumed usage, so that they damp a change and never
//! reverse it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api_semantics::resources::{
    Options, ResourceList, has_pod_level_requests, is_sidecar, pod_requests,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscaler};
use k8s_openapi::api::core::v1::{Container, Pod};

use controllers_runtime::{Meta, pods as pod_state};

use super::config::Config;
use super::quantity;

/// A pod's value of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Value in thousandths.
    pub value: i64,
    /// End of the time in which the value was measured.
    pub at: Timestamp,
    /// Length of that time.
    pub window: SignedDuration,
}

/// Samples by pod name.
pub type Samples = BTreeMap<String, Sample>;

/// Deviations of the ratio from 1 that do not change the size.
#[derive(Clone, Copy, Debug)]
pub struct Tolerances {
    down: f64,
    up: f64,
}

impl Tolerances {
    /// Returns those of the behavior, or else the general one.
    pub fn of_autoscaler(scaler: &HorizontalPodAutoscaler, general: f64) -> Self {
        let behavior = scaler.spec.behavior.as_ref();
        let tolerance = |rules: Option<&HPAScalingRules>| {
            let own = rules.and_then(|rules| quantity::to_f64(rules.tolerance.as_ref()?));
            own.unwrap_or(general)
        };
        Self {
            down: tolerance(behavior.and_then(|b| b.scale_down.as_ref())),
            up: tolerance(behavior.and_then(|b| b.scale_up.as_ref())),
        }
    }

    fn contains(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// Everything but the metric that a computation depends on.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// All pods that the target's selector matches.
    pub pods: &'a [Arc<Pod>],
    /// The target's `spec.replicas`.
    pub current: i32,
    /// The target's `status.replicas`.
    pub observed: i32,
    /// Tolerances of the ratio.
    pub tolerances: Tolerances,
    /// The controller's settings.
    pub config: &'a Config,
    /// The time.
    pub now: Timestamp,
}

/// The size that a metric needs, and the metric's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of replicas.
    pub replicas: i32,
    /// Usage in percent of the requests, for a target in percent.
    pub utilization: Option<i32>,
    /// Value in thousandths, an average over pods unless the target is a total.
    pub usage: i64,
}

/// Target of a metric with a value for each pod.
#[derive(Clone, Copy, Debug)]
pub enum Goal<'a> {
    /// Percent of the requests of a container, or of the pod without one.
    Utilization(i32, Option<&'a str>),
    /// Average in thousandths.
    Average(i64),
}

/// Pods without a usable sample.
#[derive(Debug, Default, PartialEq, Eq)]
struct Groups {
    ready: usize,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

impl Context<'_> {
    fn group_pods(&self, samples: &Samples, resource: &str) -> Groups {
        let mut groups = Groups::default();
        for pod in self.pods {
            let name = pod.name().to_owned();
            let phase = pod_state::phase(pod);
            if pod.is_deleting() || phase == "Failed" {
                groups.ignored.insert(name);
            } else if phase == "Pending" {
                groups.unready.insert(name);
            } else if let Some(sample) = samples.get(&name) {
                // Only the CPU usage of a starting process says nothing about its later load.
                if resource == "cpu" && self.is_unready(pod, sample) {
                    groups.unready.insert(name);
                } else {
                    groups.ready += 1;
                }
            } else {
                groups.missing.insert(name);
            }
        }
        groups
    }

    fn is_unready(&self, pod: &Pod, sample: &Sample) -> bool {
        let started = pod.status.as_ref().and_then(|s| s.start_time.as_ref());
        let (Some(ready), Some(started)) = (pod_state::condition(pod, "Ready"), started) else {
            return true;
        };
        let changed = ready.last_transition_time.as_ref();
        let changed = changed.map_or(Timestamp::MIN, |time| time.0);
        let is_false = ready.status == "False";
        if add_time(started.0, self.config.cpu_initialization_period) > self.now {
            // A sample that began before the last transition contains the start of the process.
            let whole = changed.checked_add(sample.window).unwrap_or(Timestamp::MAX);
            is_false || sample.at < whole
        } else {
            // The pod has never been ready.
            is_false && add_time(started.0, self.config.initial_readiness_delay) > changed
        }
    }

    /// Returns the size for a metric of each pod.
    ///
    /// # Errors
    /// No pod has a usable sample, or a request is missing. The text is for users.
    pub fn size_by_pods(
        &self,
        mut samples: Samples,
        goal: Goal<'_>,
        resource: &str,
    ) -> Result<Size, String> {
        if self.pods.is_empty() {
            return Err("no pods returned by selector while calculating replica count".to_owned());
        }
        let groups = self.group_pods(&samples, resource);
        samples.retain(|pod, _| !groups.ignored.contains(pod) && !groups.unready.contains(pod));
        if samples.is_empty() {
            return Err(
                "did not receive metrics for targeted pods (pods might be unready)".to_owned(),
            );
        }
        let requests = match goal {
            Goal::Utilization(_, container) => self.list_requests(container, resource)?,
            Goal::Average(_) => BTreeMap::new(),
        };
        let (ratio, utilization, usage) = measure(&samples, goal, &requests)?;
        let replicas = self.scale_by_ratio(ratio, samples, &groups, goal, &requests)?;
        Ok(Size {
            replicas,
            utilization,
            usage,
        })
    }

    fn scale_by_ratio(
        &self,
        ratio: f64,
        mut samples: Samples,
        groups: &Groups,
        goal: Goal<'_>,
        requests: &BTreeMap<String, i64>,
    ) -> Result<i32, String> {
        let up_with_unready = !groups.unready.is_empty() && ratio > 1.0;
        if !up_with_unready && groups.missing.is_empty() {
            return Ok(match self.tolerances.contains(ratio) {
                true => self.current,
                false => (ratio * groups.ready as f64).ceil() as i32,
            });
        }
        let mut assume = |pod: &String, value: i64| {
            let (at, window) = (self.now, SignedDuration::ZERO);
            samples.insert(pod.clone(), Sample { value, at, window });
        };
        // At a ratio of exactly 1, nothing is assumed.
        for pod in groups.missing.iter().filter(|_| ratio != 1.0) {
            let value = match goal {
                _ if ratio > 1.0 => 0,
                Goal::Average(target) => target,
                Goal::Utilization(target, _) => {
                    let request = requests.get(pod).copied().unwrap_or_default();
                    request.saturating_mul(i64::from(target.max(100))) / 100
                }
            };
            assume(pod, value);
        }
        for pod in groups.unready.iter().filter(|_| up_with_unready) {
            assume(pod, 0);
        }
        let (damped, _, _) = measure(&samples, goal, requests)?;
        let turned = (ratio < 1.0 && damped > 1.0) || (ratio > 1.0 && damped < 1.0);
        if self.tolerances.contains(damped) || turned {
            return Ok(self.current);
        }
        let replicas = (damped * samples.len() as f64).ceil() as i32;
        let turned =
            (damped < 1.0 && replicas > self.current) || (damped > 1.0 && replicas < self.current);
        Ok(if turned { self.current } else { replicas })
    }

    fn list_requests(
        &self,
        container: Option<&str>,
        resource: &str,
    ) -> Result<BTreeMap<String, i64>, String> {
        let request = |pod: &Arc<Pod>| {
            let amount = requested_amount(pod, container, resource)?;
            Ok((pod.name().to_owned(), amount))
        };
        self.pods.iter().map(request).collect()
    }

    /// Returns the size for a total value.
    ///
    /// # Errors
    /// The selector matches no pods. The text is for users.
    pub fn size_by_total(&self, usage: i64, target: i64) -> Result<Size, String> {
        let ratio = usage as f64 / target as f64;
        let replicas = if self.current == 0 {
            ratio.ceil() as i32
        } else if self.tolerances.contains(ratio) {
            self.current
        } else {
            (ratio * self.count_ready()? as f64).ceil() as i32
        };
        Ok(Size {
            replicas,
            utilization: None,
            usage,
        })
    }

    /// Returns the size for a total value with a target for each pod.
    pub fn size_by_share(&self, usage: i64, target: i64) -> Size {
        let (total, observed) = (usage as f64, f64::from(self.observed));
        let ratio = total / (target as f64 * observed);
        let replicas = match self.tolerances.contains(ratio) {
            true => self.observed,
            false => (total / target as f64).ceil() as i32,
        };
        Size {
            replicas,
            utilization: None,
            // Without replicas the division gives infinity, which saturates.
            usage: (total / observed).ceil() as i64,
        }
    }

    fn count_ready(&self) -> Result<usize, String> {
        if self.pods.is_empty() {
            return Err(
                "unable to calculate ready pods: no pods returned by selector while \
                        calculating replica count"
                    .to_owned(),
            );
        }
        let is_ready =
            |pod: &&Arc<Pod>| pod_state::phase(pod) == "Running" && pod_state::is_ready(pod);
        Ok(self.pods.iter().filter(is_ready).count())
    }
}

/// Returns the ratio of usage to goal, the usage in percent, and the average.
fn measure(
    samples: &Samples,
    goal: Goal<'_>,
    requests: &BTreeMap<String, i64>,
) -> Result<(f64, Option<i32>, i64), String> {
    let average = |total: i128, count: usize| {
        let average = total / i128::try_from(count.max(1)).unwrap_or(i128::MAX);
        i64::try_from(average).unwrap_or(i64::MAX)
    };
    match goal {
        Goal::Average(target) => {
            let total = samples.values().map(|s| i128::from(s.value)).sum();
            let usage = average(total, samples.len());
            Ok((usage as f64 / target as f64, None, usage))
        }
        Goal::Utilization(target, _) => {
            let (mut used, mut asked, mut count) = (0, 0, 0);
            for (pod, sample) in samples {
                // A sample of an unknown pod has no request to compare with.
                let Some(request) = requests.get(pod) else {
                    continue;
                };
                used += i128::from(sample.value);
                asked += i128::from(*request);
                count += 1;
            }
            if asked == 0 {
                return Err("no metrics returned matched known pods".to_owned());
            }
            let percent = i32::try_from(used * 100 / asked).unwrap_or(i32::MAX);
            let ratio = f64::from(percent) / f64::from(target);
            Ok((ratio, Some(percent), average(used, count)))
        }
    }
}

fn add_time(at: Timestamp, duration: std::time::Duration) -> Timestamp {
    at.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// Returns the request of a container, or of the pod: its pod-level request, if it has such, or
/// else the sum over containers and sidecars. Each of them must have a request.
fn requested_amount(pod: &Pod, container: Option<&str>, name: &str) -> Result<i64, String> {
    // KEP-2837: pod-level requests replace the sum over containers.
    if container.is_none() && has_pod_level_requests(pod) {
        let request = pod_requests(pod, &Options::default()).get(name);
        return request
            .map(|q| q.milli_value())
            .ok_or_else(|| format!("missing pod-level request for {name} in Pod {}", pod.name()));
    }
    let spec = pod.spec.as_ref();
    let containers = spec.into_iter().flat_map(|spec| &spec.containers);
    let sidecars = spec
        .into_iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let mut all = containers.chain(sidecars.filter(|c| is_sidecar(c)));
    let request = |c: &Container| {
        let requests = c.resources.as_ref().and_then(|r| r.requests.as_ref());
        // Utilization is relative to requests, so a single container without one leaves it
        // undefined.
        let request = ResourceList::new(requests).get(name);
        request.map(|q| q.milli_value()).ok_or_else(|| {
            let pod = pod.name();
            format!(
                "missing request for {name} in container {} of Pod {pod}",
                c.name
            )
        })
    };
    match container {
        None => all.map(request).sum(),
        Some(wanted) => all
            .find(|c| c.name == wanted)
            .map(request)
            .unwrap_or_else(|| {
                Err(format!(
                    "container {wanted} not found in Pod {}",
                    pod.name()
                ))
            }),
    }
}

#[cfg(test)]
mod tests;
