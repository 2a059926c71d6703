//! Resources that no policy applies to.

/// Returns whether policies are not evaluated for a resource: they could otherwise lock out their
/// own repair, or the reviews by which components authenticate and authorize.
pub fn is_exempt(group: &str, resource: &str) -> bool {
    match group {
        "admissionregistration.k8s.io" => matches!(
            resource,
            "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings"
        ),
        // The list of upstream's `exclusion.Excluded`. Other resources that are not stored, such as
        // `pods/exec`, are not exempt.
        "authentication.k8s.io" => matches!(resource, "selfsubjectreviews" | "tokenreviews"),
        "authorization.k8s.io" => matches!(
            resource,
            "localsubjectaccessreviews"
                | "selfsubjectaccessreviews"
                | "selfsubjectrulesreviews"
                | "subjectaccessreviews"
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_exempt;

    #[test]
    fn policies_and_reviews_are_exempt() {
        for (group, resource, expect) in [
            (
                "admissionregistration.k8s.io",
                "validatingadmissionpolicies",
                true,
            ),
            (
                "admissionregistration.k8s.io",
                "mutatingadmissionpolicybindings",
                true,
            ),
            (
                "admissionregistration.k8s.io",
                "validatingwebhookconfigurations",
                false,
            ),
            ("authentication.k8s.io", "tokenreviews", true),
            ("authorization.k8s.io", "subjectaccessreviews", true),
            ("example.com", "tokenreviews", false),
            ("", "pods", false),
        ] {
            assert_eq!(is_exempt(group, resource), expect, "{group} {resource}");
        }
    }
}
