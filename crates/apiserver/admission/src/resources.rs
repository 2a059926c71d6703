//! Amounts of resources in JSON trees.

use api_meta::Quantity;
use api_semantics::quantities::parse_quantity;
use api_semantics::resources::ResourceList;
use serde_json::Value;
use std::collections::BTreeMap;

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// Parses a resource list.
pub fn parse_amounts(value: Option<&Value>) -> Amounts {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries
        .filter_map(|(k, v)| Some((k.clone(), parse_quantity(v)?)))
        .collect()
}

/// Adds `more` to `sum`.
pub fn add_amounts(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let total = sum.get(name).map_or(*amount, |have| have.plus(*amount));
        sum.insert(name.clone(), total);
    }
}

/// Converts a list to owned names.
pub fn to_owned_amounts(list: &ResourceList<'_>) -> Amounts {
    list.iter()
        .map(|(name, amount)| (name.to_owned(), amount))
        .collect()
}
