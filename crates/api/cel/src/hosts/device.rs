//! The variable of device selectors (dynamic resource allocation).

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::cost::Range;
use crate::estimate::SizeEstimates;
use crate::library::Library;
use crate::macros::BIND;
use crate::program::Environment;
use crate::types::Type;
use crate::value::{Key, Map, Text, Value};

use super::create_base;
use super::shape::{Shape, ShapeTypes};

/// Variable: the device.
pub const DEVICE: &str = "device";
/// Longest selector in bytes.
pub const MAX_SELECTOR: usize = 10 * 1024;
/// Cost limit of one evaluation.
pub const SELECTOR_LIMIT: u64 = 1_000_000;

/// Longest domain of an attribute in bytes, and longest name of a driver.
const MAX_DOMAIN: u64 = 63;
/// Longest name of an attribute without its domain.
const MAX_NAME: u64 = 32;
/// Longest text of an attribute.
const MAX_ATTRIBUTE: u64 = 64;
/// Attributes and capacities of a device together.
const MAX_ENTRIES: u64 = 32;

/// Type of [`DEVICE`]. The shape is for the checker only: quantities and versions are no JSON.
static DEVICE_SHAPE: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let nested = || Shape::map(Shape::map(Shape::any()));
    Shape::object(
        "kubernetes.DRADevice",
        [
            ("driver", Shape::text()),
            ("allowMultipleAllocations", Shape::flag()),
            ("attributes", nested()),
            ("capacity", Shape::map(Shape::map(Shape::quantity()))),
        ],
    )
});

/// Creates the environment of device selectors.
pub fn create_device_environment(minor: u16) -> Environment {
    // Upstream's base has no `cel.bind`. The environment of device selectors adds it.
    let bind = Library {
        name: "cel.lib.ext.cel.bindings",
        macros: vec![BIND],
        ..Library::default()
    };
    create_base(minor)
        .with_library(bind)
        .with_variable(DEVICE, DEVICE_SHAPE.value_type())
        .with_provider(Arc::new(ShapeTypes::new([&*DEVICE_SHAPE])))
}

/// Values of a device by domain and name.
pub type DeviceValues = BTreeMap<String, BTreeMap<String, Value<'static>>>;

/// Creates the value of [`DEVICE`]. Versions and quantities are values of their libraries.
pub fn create_device(
    driver: &str,
    allows_multiple: bool,
    attributes: DeviceValues,
    capacity: DeviceValues,
) -> Value<'static> {
    let key = |name: &str| Key::String(Text::Shared(name.into()));
    let nested = |values: DeviceValues| {
        let domains = values.into_iter().map(|(domain, values)| {
            let values = values
                .into_iter()
                .map(|(name, value)| (key(&name), value))
                .collect();
            (key(&domain), Value::map(values))
        });
        let empty = Arc::new(Value::map(BTreeMap::new()));
        // Expressions read a domain without asking whether the device has it.
        Value::Map(Map::WithDefault(Arc::new(domains.collect()), empty))
    };
    Value::map(BTreeMap::from([
        (key("driver"), Value::string(driver)),
        (
            key("allowMultipleAllocations"),
            Value::Bool(allows_multiple),
        ),
        (key("attributes"), nested(attributes)),
        (key("capacity"), nested(capacity)),
    ]))
}

/// Sizes that the API guarantees for devices.
#[derive(Debug, Clone, Copy)]
pub struct DeviceSizes;

impl SizeEstimates for DeviceSizes {
    fn estimate_size(&self, path: &[String], _: &Type) -> Option<Range> {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        // The limits are those of API validation (`DeviceMaxDomainLength` and its neighbours).
        let max = match path.as_slice() {
            [DEVICE, "driver"] => MAX_DOMAIN,
            [DEVICE, "allowMultipleAllocations"] => 1,
            [DEVICE, "attributes" | "capacity"] => MAX_ENTRIES,
            [DEVICE, "attributes" | "capacity", "@keys"] => MAX_DOMAIN,
            [DEVICE, "attributes" | "capacity", "@values"] => MAX_ENTRIES,
            [DEVICE, "attributes" | "capacity", "@values", "@keys"] => MAX_NAME,
            [DEVICE, "attributes", "@values", _] => MAX_ATTRIBUTE,
            _ => return None,
        };
        Some(Range::new(0, max))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::budget::Budget;
    use crate::hosts::STORED_EXPRESSIONS;
    use crate::library::{quantity, semver};

    fn values(entries: Vec<(&str, Value<'static>)>) -> DeviceValues {
        let inner = entries
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        BTreeMap::from([("dra.example.com".to_owned(), inner)])
    }

    #[test]
    fn selectors_read_attributes_and_capacity() {
        let attributes = values(vec![
            ("model", Value::string("a")),
            ("version", semver::create_value("1.2.3").unwrap()),
        ]);
        let capacity = values(vec![("memory", quantity::create_value("2Gi").unwrap())]);
        let device = create_device("dra.example.com", false, attributes, capacity);
        let environment = create_device_environment(STORED_EXPRESSIONS);
        for source in [
            "device.driver == 'dra.example.com' && !device.allowMultipleAllocations",
            "device.attributes['dra.example.com'].model == 'a'",
            "device.attributes['dra.example.com'].version.isGreaterThan(semver('1.0.0'))",
            "device.capacity['dra.example.com'].memory.compareTo(quantity('1Gi')) > 0",
            "cel.bind(dra, device.attributes['dra.example.com'], dra.model != 'b')",
            "device.attributes['unknown'].size() == 0 && device.capacity['unknown'].size() == 0",
            "!('unknown' in device.attributes) && !has(device.attributes['unknown'].model)",
            "device.attributes['unknown'].?model.orValue('none') == 'none'",
            "!device.attributes.exists(domain, domain == 'unknown')",
        ] {
            let program = environment.compile(source).unwrap();
            let mut budget = Budget::new(SELECTOR_LIMIT);
            let result = program
                .evaluate(&[(DEVICE, device.clone())], &mut budget)
                .unwrap();
            assert!(matches!(result, Value::Bool(true)), "{source}");
        }
        assert!(environment.compile("device.other").is_err());
    }

    #[test]
    fn sizes_of_a_device_are_bounded() {
        let environment = create_device_environment(STORED_EXPRESSIONS);
        for source in [
            "device.driver.startsWith('a')",
            "device.attributes.all(domain, domain.size() < 9)",
            "device.attributes.exists(domain, device.attributes[domain].size() > 1)",
        ] {
            let cost = environment
                .compile(source)
                .unwrap()
                .estimate_cost(&DeviceSizes);
            assert!(cost.max < 1_000, "{source} {cost:?}");
        }
    }
}
