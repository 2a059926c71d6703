//! Media types that requests accept.

/// Media types to accept. A server that returns metadata only distinguishes lists from objects by
/// them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accept {
    /// For objects, including those in watch events.
    pub(crate) object: &'static str,
    /// For lists.
    pub(crate) list: &'static str,
}

impl Accept {
    pub(crate) const JSON: Self = Self {
        object: "application/json",
        list: "application/json",
    };
    pub(crate) const METADATA: Self = Self {
        object: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        list: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    };
}
