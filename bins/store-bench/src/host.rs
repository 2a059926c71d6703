//! The servers under test and the machine on which they run.

pub mod disk;
pub mod server;
pub mod stops;
