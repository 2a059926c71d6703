//! The gRPC client of the load generator.

pub mod unary;
pub mod wire;
