//! The schema of every built-in API type, as data.
//!
//! One structure describes a type for all its uses: JSON names and Go's rules for leaving fields out, protobuf numbers,
//! list semantics for strategic merge and server-side apply, enums and required members for OpenAPI. The facts are
//! in `data/`, written by `tools/extract` from the published Go modules; nothing parses Go or proto at run time.

mod load;
mod model;

pub use load::schema;
pub use model::{Enum, Field, ListKind, Message, MessageId, Omit, Schema, Shape, Type};
