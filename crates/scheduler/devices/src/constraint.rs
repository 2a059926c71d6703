//! Constraints between the devices of a claim.

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};

/// A constraint of a claim.
#[derive(Clone, Debug)]
pub(crate) struct Constraint {
    /// Requests that it applies to; all if empty.
    pub(crate) requests: Vec<String>,
    /// Fully qualified name.
    pub(crate) attribute: String,
    /// The values must differ instead of being equal.
    pub(crate) distinct: bool,
}

impl Constraint {
    /// Returns whether the constraint applies to a request or its chosen subrequest.
    fn applies(&self, request: &str, choice: &str) -> bool {
        self.requests.is_empty() || self.requests.iter().any(|r| r == request || r == choice)
    }
}

/// A constraint and the values of the devices that were chosen.
#[derive(Debug)]
pub(crate) struct Tracked<'a> {
    constraint: &'a Constraint,
    values: Vec<&'a DeviceAttribute>,
}

impl<'a> Tracked<'a> {
    pub(crate) fn new(constraint: &'a Constraint) -> Self {
        Self {
            constraint,
            values: Vec::new(),
        }
    }

    /// Adds a device. Returns false if the constraint does not allow it.
    pub(crate) fn add(
        &mut self,
        request: &str,
        choice: &str,
        driver: &str,
        device: &'a Device,
    ) -> bool {
        if !self.constraint.applies(request, choice) {
            return true;
        }
        let Some(value) = find_attribute(device, driver, &self.constraint.attribute) else {
            return false;
        };
        // A value of an unknown type can be compared with nothing.
        let Some(is_same) = comparison(value) else {
            return false;
        };
        let allowed = if self.constraint.distinct {
            !self.values.iter().any(|other| is_same(other))
        } else {
            self.values.first().is_none_or(|first| is_same(first))
        };
        if allowed {
            self.values.push(value);
        }
        allowed
    }

    /// Removes the device that was added last.
    pub(crate) fn remove(&mut self, request: &str, choice: &str) {
        if self.constraint.applies(request, choice) {
            self.values.pop();
        }
    }
}

fn find_attribute<'a>(device: &'a Device, driver: &str, name: &str) -> Option<&'a DeviceAttribute> {
    let attributes = device.attributes.as_ref()?;
    attributes.get(name).or_else(|| {
        // A name without a domain belongs to the driver.
        let (domain, id) = name.split_once('/')?;
        attributes.get(id).filter(|_| domain == driver)
    })
}

type Comparison<'a> = Box<dyn Fn(&DeviceAttribute) -> bool + 'a>;

fn comparison(value: &DeviceAttribute) -> Option<Comparison<'_>> {
    if value.string.is_some() {
        Some(Box::new(|other| other.string == value.string))
    } else if value.int.is_some() {
        Some(Box::new(|other| other.int == value.int))
    } else if value.bool.is_some() {
        Some(Box::new(|other| other.bool == value.bool))
    } else if value.version.is_some() {
        // A semantic version has one text only.
        Some(Box::new(|other| other.version == value.version))
    } else {
        None
    }
}
