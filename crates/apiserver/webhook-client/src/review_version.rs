//! The versions of the objects that webhooks review.

/// A version of AdmissionReview, ConversionReview or SubjectAccessReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `v1`
    V1,
    /// `v1beta1`
    V1beta1,
}

impl ReviewVersion {
    /// Returns the version of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1beta1),
            _ => None,
        }
    }

    /// Returns the `apiVersion` in a group.
    pub fn api_version(self, group: &str) -> String {
        let name = match self {
            ReviewVersion::V1 => "v1",
            ReviewVersion::V1beta1 => "v1beta1",
        };
        format!("{group}/{name}")
    }
}
