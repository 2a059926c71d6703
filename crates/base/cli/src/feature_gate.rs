//! The form of `--feature-gates`: pairs `[kube:]NAME=BOOL`.

use thiserror::Error;

/// Upstream's name of the Kubernetes components, in pairs that name one.
const COMPONENT: &str = "kube";

/// A pair of `--feature-gates` that can't be parsed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FeatureGatePairError {
    /// The pair is for another component.
    #[error("component not registered: {0}")]
    Component(String),
    /// The pair has no `=`.
    #[error("missing bool value for {0}")]
    NoValue(String),
    /// The value is not a Boolean.
    #[error("invalid value of {name}={value}")]
    Value {
        /// The name of the gate.
        name: String,
        /// Its value.
        value: String,
    },
}

/// Parses a pair of `--feature-gates`.
///
/// # Errors
/// Another component, or a value that is not a Boolean.
pub fn parse_feature_gate(pair: &str) -> Result<(&str, bool), FeatureGatePairError> {
    let (component, pair) = pair.split_once(':').unwrap_or(("", pair));
    if !component.is_empty() && component != COMPONENT {
        return Err(FeatureGatePairError::Component(component.to_owned()));
    }
    let Some((name, value)) = pair.split_once('=') else {
        return Err(FeatureGatePairError::NoValue(pair.trim().to_owned()));
    };
    let (name, value) = (name.trim(), value.trim());
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok((name, true)),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok((name, false)),
        _ => Err(FeatureGatePairError::Value {
            name: name.to_owned(),
            value: value.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pair_has_an_optional_component() {
        for (pair, expect) in [
            ("A=true", Ok(("A", true))),
            (" A = 0 ", Ok(("A", false))),
            ("kube:A=T", Ok(("A", true))),
            (":A=False", Ok(("A", false))),
            ("x:A=true", Err("component not registered: x")),
            ("A", Err("missing bool value for A")),
            ("kube:A", Err("missing bool value for A")),
            ("A=", Err("invalid value of A=")),
            ("A=yes", Err("invalid value of A=yes")),
            ("A=true=1", Err("invalid value of A=true=1")),
        ] {
            let parsed = parse_feature_gate(pair).map_err(|error| error.to_string());
            assert_eq!(parsed, expect.map_err(str::to_owned), "{pair:?}");
        }
    }
}
