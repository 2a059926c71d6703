//! Selectors: expressions about a device, compiled once and cached.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api_cel::budget::Budget;
use api_cel::hosts::STORED_EXPRESSIONS;
use api_cel::hosts::device::{
    DEVICE, DeviceValues, SELECTOR_LIMIT, create_device, create_device_environment,
};
use api_cel::library::{quantity, semver};
use api_cel::program::{Environment, Program};
use api_cel::value::Value;
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use parking_lot::Mutex;

/// Largest number of cached programs. Tenants write expressions of up to 10 KiB, so that the number
/// bounds the memory.
const MAX_CACHED: usize = 64;

/// A compiled selector, or the error of its compilation.
pub(crate) type Compiled = Result<Program, String>;

/// The environment of selectors, and the compiled ones.
pub struct Selectors {
    environment: Environment,
    cached: Mutex<HashMap<String, Arc<Compiled>>>,
}

impl std::fmt::Debug for Selectors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Selectors")
    }
}

impl Default for Selectors {
    fn default() -> Self {
        Self {
            environment: create_device_environment(STORED_EXPRESSIONS),
            cached: Mutex::default(),
        }
    }
}

impl Selectors {
    pub(crate) fn compile(&self, expression: &str) -> Arc<Compiled> {
        if let Some(known) = self.cached.lock().get(expression) {
            return known.clone();
        }
        // Not under the lock. Two threads may compile the same expression, which costs only time.
        let compiled = self.environment.compile(expression);
        let compiled = Arc::new(compiled.map_err(|error| error.to_string()));
        let mut cached = self.cached.lock();
        if cached.len() >= MAX_CACHED {
            // The few expressions of the DeviceClasses in use are compiled again at once.
            cached.clear();
        }
        cached.insert(expression.to_owned(), compiled.clone());
        compiled
    }
}

/// Returns the value of the variable `device`.
///
/// # Errors
/// An attribute or capacity has no value that a selector can read.
pub(crate) fn device_value(driver: &str, device: &Device) -> Result<Value<'static>, String> {
    let mut attributes = DeviceValues::new();
    for (name, attribute) in device.attributes.iter().flatten() {
        let value = attribute_value(attribute).map_err(|e| format!("attribute {name}: {e}"))?;
        insert(&mut attributes, name, driver, value);
    }
    let mut capacity = DeviceValues::new();
    for (name, amount) in device.capacity.iter().flatten() {
        let value = quantity::create_value(&amount.value.0);
        let value = value.map_err(|error| format!("capacity {name}: {error}"))?;
        insert(&mut capacity, name, driver, value);
    }
    let allows_multiple = device.allow_multiple_allocations.unwrap_or(false);
    Ok(create_device(driver, allows_multiple, attributes, capacity))
}

fn insert(values: &mut DeviceValues, name: &str, driver: &str, value: Value<'static>) {
    let (domain, id) = name.split_once('/').unwrap_or((driver, name));
    let of_domain: &mut BTreeMap<_, _> = values.entry(domain.to_owned()).or_default();
    of_domain.insert(id.to_owned(), value);
}

fn attribute_value(attribute: &DeviceAttribute) -> Result<Value<'static>, String> {
    if let Some(number) = attribute.int {
        return Ok(Value::Int(number));
    }
    if let Some(flag) = attribute.bool {
        return Ok(Value::Bool(flag));
    }
    if let Some(text) = &attribute.string {
        return Ok(Value::string(text.as_str()));
    }
    let version = attribute.version.as_deref();
    let version = version.ok_or_else(|| "unsupported attribute value".to_owned())?;
    semver::create_value(version).map_err(|error| error.to_string())
}

/// Evaluates a selector. `shared` bounds the work of all evaluations for a node.
///
/// # Errors
/// The expression failed, for instance because the device lacks an attribute.
pub(crate) fn matches_device(
    program: &Program,
    device: &Value<'static>,
    shared: &mut Budget,
) -> Result<bool, String> {
    let mut budget = shared.split_evaluation(SELECTOR_LIMIT);
    let result = program.evaluate(&[(DEVICE, device.clone())], &mut budget);
    shared.absorb_work(&budget);
    match result {
        Ok(Value::Bool(matches)) => Ok(matches),
        Ok(_) => Err("the result is not a boolean".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
