//! Plugins over fakes.
