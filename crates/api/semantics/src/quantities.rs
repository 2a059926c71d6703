//! Quantities in JSON trees.

use api_meta::Quantity;
use serde_json::Value;

/// Parses a quantity from a string or number.
pub fn parse_quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        // Manifests in YAML often have `cpu: 1`, which is a number.
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// Rounds the amounts of a resource list up to thousandths, as defaulting of every resource list
/// does. An amount that is no quantity remains for validation to report.
pub fn round_up_quantities(list: &mut Value) {
    for amount in list
        .as_object_mut()
        .into_iter()
        .flat_map(|m| m.values_mut())
    {
        let Some(exact) = parse_quantity(amount) else {
            continue;
        };
        let rounded = exact.round_up_to_milli();
        // The text of an amount that needs no rounding is kept: it may be another form.
        if rounded != exact {
            *amount = rounded.to_string().into();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use api_meta::quantity::Format;
    use serde_json::json;

    fn cases() -> Vec<Value> {
        serde_json::from_str(crate::cases::QUANTITIES).unwrap()
    }

    /// Returns text and amount of the cases that are quantities.
    fn valid_cases() -> Vec<(Value, Quantity)> {
        let valid = cases().into_iter().filter(|case| case["error"].is_null());
        valid
            .map(|case| {
                let quantity = parse_quantity(&case["text"]);
                let text = case["text"].clone();
                (
                    case,
                    quantity.unwrap_or_else(|| panic!("{text} is no quantity")),
                )
            })
            .collect()
    }

    #[test]
    fn text_that_is_no_quantity_is_rejected_with_upstreams_message() {
        for case in cases().iter().filter(|case| case["error"].is_string()) {
            let text = case["text"].as_str().unwrap();
            let error = text.parse::<Quantity>().unwrap_err();
            assert_eq!(case["error"], error.to_string(), "{text:?}");
        }
    }

    #[test]
    fn quantities_are_written_in_canonical_form() {
        for (case, quantity) in valid_cases() {
            assert_eq!(case["canonical"], quantity.to_string(), "{}", case["text"]);
        }
    }

    #[test]
    fn format_follows_from_the_suffix_and_the_size() {
        for (case, quantity) in valid_cases() {
            let format = match quantity.format() {
                Format::BinarySi => "BinarySI",
                Format::DecimalSi => "DecimalSI",
                Format::DecimalExponent => "DecimalExponent",
            };
            assert_eq!(case["format"], format, "{}", case["text"]);
        }
    }

    #[test]
    fn value_is_rounded_up_to_whole_units() {
        for (case, quantity) in valid_cases() {
            if let Some(value) = case["value"].as_i64() {
                assert_eq!(value, quantity.value(), "{}", case["text"]);
            }
        }
    }

    #[test]
    fn amounts_of_a_resource_list_are_rounded_up_to_thousandths() {
        for (case, _) in valid_cases() {
            let mut list = json!({"cpu": case["text"]});
            round_up_quantities(&mut list);
            let rounded = parse_quantity(&list["cpu"]).map(|q| q.to_string());
            assert_eq!(case["rounded"], rounded.unwrap(), "{}", case["text"]);
        }
    }

    #[test]
    fn amount_without_fraction_of_a_thousandth_keeps_its_text() {
        let list = json!({"cpu": "0.5", "memory": "1024Mi", "other": 3, "wrong": "x"});
        let mut rounded = list.clone();
        round_up_quantities(&mut rounded);
        assert_eq!(rounded, list);
    }

    #[test]
    fn numbers_are_quantities_and_other_types_are_not() {
        assert_eq!(parse_quantity(&json!(1.5)), "1500m".parse().ok());
        assert_eq!(parse_quantity(&json!(2)), "2".parse().ok());
        for value in [json!(null), json!(true), json!(["1"]), json!({})] {
            assert_eq!(parse_quantity(&value), None, "{value}");
        }
    }
}
