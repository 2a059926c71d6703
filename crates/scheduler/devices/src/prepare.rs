//! Claims as the search reads them: classes resolved, selectors compiled.

use std::sync::Arc;

use api_meta::Quantity;
use k8s_openapi::api::resource::v1::{
    CapacityRequirements, DeviceClass, DeviceRequest, DeviceSelector, DeviceToleration,
    ResourceClaim,
};

use crate::capacity::Amounts;
use crate::constraint::Constraint;
use crate::failure::Problem;
use crate::limits::Limits;
use crate::selectors::{Compiled, Selectors};

/// A claim to allocate.
#[derive(Debug)]
pub(crate) struct PreparedClaim {
    pub(crate) claim: Arc<ResourceClaim>,
    pub(crate) requests: Vec<PreparedRequest>,
    pub(crate) constraints: Vec<Constraint>,
}

/// A request with its alternatives in the order of preference.
#[derive(Debug)]
pub(crate) struct PreparedRequest {
    pub(crate) name: String,
    pub(crate) choices: Vec<Choice>,
}

/// Number of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exactly(usize),
    All,
}

/// One alternative of a request.
#[derive(Debug)]
pub(crate) struct Choice {
    /// `request`, or `request/subrequest`.
    pub(crate) name: String,
    pub(crate) class: Arc<DeviceClass>,
    pub(crate) selectors: Vec<Selector>,
    pub(crate) mode: Mode,
    pub(crate) admin_access: bool,
    pub(crate) tolerations: Vec<DeviceToleration>,
    pub(crate) capacity: Amounts,
}

/// A compiled selector, with its place for messages.
#[derive(Debug)]
pub(crate) struct Selector {
    pub(crate) place: String,
    pub(crate) compiled: Arc<Compiled>,
}

/// The fields that requests and subrequests share.
struct Asked<'a> {
    name: String,
    class: &'a str,
    selectors: &'a [DeviceSelector],
    mode: Option<&'a str>,
    count: Option<i64>,
    admin_access: bool,
    tolerations: &'a [DeviceToleration],
    capacity: Option<&'a CapacityRequirements>,
}

/// Resolves classes and compiles selectors.
pub(crate) struct Preparation<'a> {
    pub(crate) find_class: &'a dyn Fn(&str) -> Option<Arc<DeviceClass>>,
    pub(crate) selectors: &'a Selectors,
    pub(crate) limits: &'a Limits<'a>,
}

impl Preparation<'_> {
    pub(crate) fn prepare_claim(
        &self,
        claim: &Arc<ResourceClaim>,
    ) -> Result<PreparedClaim, Problem> {
        let devices = claim.spec.devices.as_ref();
        let requests = devices.and_then(|devices| devices.requests.as_deref());
        let requests = requests.unwrap_or_default().iter();
        let name = describe_claim(claim);
        let requests = requests.map(|request| self.prepare_request(&name, request));
        let constraints = devices.and_then(|devices| devices.constraints.as_deref());
        let constraints = constraints.unwrap_or_default().iter().map(|given| {
            let distinct = given.distinct_attribute.as_ref();
            let attribute = given.match_attribute.as_ref().or(distinct);
            let unknown = || Problem::Unschedulable(format!("{name}: unknown constraint type"));
            Ok(Constraint {
                requests: given.requests.clone().unwrap_or_default(),
                attribute: attribute.ok_or_else(unknown)?.clone(),
                distinct: given.match_attribute.is_none(),
            })
        });
        Ok(PreparedClaim {
            claim: claim.clone(),
            requests: requests.collect::<Result<_, _>>()?,
            constraints: constraints.collect::<Result<_, _>>()?,
        })
    }

    fn prepare_request(
        &self,
        claim: &str,
        request: &DeviceRequest,
    ) -> Result<PreparedRequest, Problem> {
        let asked = list_choices(request);
        if asked.is_empty() {
            let name = &request.name;
            let text = format!("{claim}, request {name}: unknown request type");
            return Err(Problem::Unschedulable(text));
        }
        let choices = asked
            .into_iter()
            .map(|asked| self.prepare_choice(claim, asked));
        Ok(PreparedRequest {
            name: request.name.clone(),
            choices: choices.collect::<Result<_, _>>()?,
        })
    }

    fn prepare_choice(&self, claim: &str, asked: Asked<'_>) -> Result<Choice, Problem> {
        let request = format!("{claim}, request {}", asked.name);
        let class = (self.find_class)(asked.class).ok_or_else(|| {
            let (name, class) = (&asked.name, asked.class);
            Problem::Unschedulable(format!(
                "request {name}: device class {class} does not exist"
            ))
        })?;
        let unknown = |what: &str| Problem::Unschedulable(format!("{request}: unknown {what}"));
        let mode = match asked.mode.unwrap_or("ExactCount") {
            "All" => Mode::All,
            "ExactCount" => {
                let count = usize::try_from(asked.count.unwrap_or(1));
                Mode::Exactly(
                    count
                        .ok()
                        .filter(|count| *count > 0)
                        .ok_or_else(|| unknown("count"))?,
                )
            }
            _ => return Err(unknown("allocation mode")),
        };
        let of_class = class.spec.selectors.as_deref().unwrap_or_default();
        let class_name = class.metadata.name.as_deref().unwrap_or_default();
        let mut selectors = self.compile_all(&format!("class {class_name}"), of_class)?;
        selectors.extend(self.compile_all(&request, asked.selectors)?);
        let given = asked
            .capacity
            .and_then(|capacity| capacity.requests.as_ref());
        let capacity = given.into_iter().flatten().map(|(name, amount)| {
            let amount: Quantity = amount.0.parse().map_err(|_| unknown("capacity"))?;
            Ok((name.clone(), amount))
        });
        Ok(Choice {
            selectors,
            mode,
            admin_access: asked.admin_access,
            tolerations: asked.tolerations.to_vec(),
            capacity: capacity.collect::<Result<_, _>>()?,
            name: asked.name,
            class,
        })
    }

    fn compile_all(
        &self,
        owner: &str,
        selectors: &[DeviceSelector],
    ) -> Result<Vec<Selector>, Problem> {
        let compile = |(number, selector): (usize, &DeviceSelector)| {
            let place = format!("{owner}: selector #{number}");
            let unknown = || Problem::Unschedulable(format!("{place}: unknown selector type"));
            let cel = selector.cel.as_ref().ok_or_else(unknown)?;
            // Compilation costs more than most evaluations.
            self.limits.check_clock().map_err(|_| Problem::Expired)?;
            let compiled = self.selectors.compile(&cel.expression);
            if let Err(error) = &*compiled {
                return Err(Problem::Wrong(format!(
                    "{place}: CEL compile error: {error}"
                )));
            }
            Ok(Selector { place, compiled })
        };
        selectors.iter().enumerate().map(compile).collect()
    }
}

fn list_choices(request: &DeviceRequest) -> Vec<Asked<'_>> {
    if let Some(exactly) = &request.exactly {
        return vec![Asked {
            name: request.name.clone(),
            class: &exactly.device_class_name,
            selectors: exactly.selectors.as_deref().unwrap_or_default(),
            mode: exactly.allocation_mode.as_deref(),
            count: exactly.count,
            admin_access: exactly.admin_access.unwrap_or(false),
            tolerations: exactly.tolerations.as_deref().unwrap_or_default(),
            capacity: exactly.capacity.as_ref(),
        }];
    }
    let subrequests = request.first_available.iter().flatten();
    let asked = subrequests.map(|sub| Asked {
        name: format!("{}/{}", request.name, sub.name),
        class: &sub.device_class_name,
        selectors: sub.selectors.as_deref().unwrap_or_default(),
        mode: sub.allocation_mode.as_deref(),
        count: sub.count,
        admin_access: false,
        tolerations: sub.tolerations.as_deref().unwrap_or_default(),
        capacity: sub.capacity.as_ref(),
    });
    asked.collect()
}

/// Returns `claim namespace/name`.
pub(crate) fn describe_claim(claim: &ResourceClaim) -> String {
    let (namespace, name) = (&claim.metadata.namespace, &claim.metadata.name);
    format!(
        "claim {}/{}",
        namespace.as_deref().unwrap_or_default(),
        name.as_deref().unwrap_or_default()
    )
}
