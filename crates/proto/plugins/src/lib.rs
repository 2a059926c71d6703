//! gRPC code of the kubelet's plugins, generated from `/proto/plugins` by
//! `tests/layers/tests/generated`.

#![allow(
    missing_docs,
    clippy::all,
    rust_2018_idioms,
    clippy::unwrap_used,
    clippy::expect_used
)]

/// Registration of plugins.
pub mod registration {
    include!("generated/pluginregistration.rs");
}

/// Plugins of drivers of devices.
pub mod dra {
    /// The service and its messages.
    pub mod v1 {
        include!("generated/k8s.io.kubelet.pkg.apis.dra.v1.rs");
    }

    /// The earlier name of the service.
    pub mod v1beta1 {
        include!("generated/k8s.io.kubelet.pkg.apis.dra.v1beta1.rs");
    }
}
