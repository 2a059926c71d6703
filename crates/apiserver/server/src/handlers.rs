//! The handlers of the API's verbs.

pub mod apply;
pub mod delete;
pub mod options;
pub mod patch;
pub mod read;
pub mod subresource;
pub mod watch;
pub mod watch_rules;
pub mod watch_stream;
pub mod write;
