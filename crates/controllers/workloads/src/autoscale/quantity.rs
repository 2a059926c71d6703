//! Conversions of quantities in the API's type.

use api_meta::Quantity;
use api_meta::quantity::Format;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

/// Returns thousandths, rounded up; `None` if the text is not a quantity.
pub fn to_millis(quantity: &ApiQuantity) -> Option<i64> {
    Some(quantity.0.parse::<Quantity>().ok()?.milli_value())
}

/// Returns the amount as a number; `None` if the text is not a quantity.
pub fn to_f64(quantity: &ApiQuantity) -> Option<f64> {
    // A number without a suffix may be finer than a thousandth.
    let plain = quantity.0.parse().ok();
    plain.or_else(|| Some(to_millis(quantity)? as f64 / 1000.0))
}

/// Converts thousandths to a decimal quantity.
pub fn from_millis(millis: i64) -> ApiQuantity {
    ApiQuantity(Quantity::from_millis(millis).to_string())
}

/// Converts thousandths of a resource to a quantity; memory has binary suffixes.
pub fn of_resource(name: &str, millis: i64) -> ApiQuantity {
    // A binary quantity has no fraction, unless it is smaller than its smallest unit.
    if name != "memory" || (millis % 1000 != 0 && millis.abs() < 1024 * 1000) {
        return from_millis(millis);
    }
    let units = millis / 1000 + i64::from(millis % 1000 > 0);
    ApiQuantity(Quantity::from_units(units, Format::BinarySi).to_string())
}
