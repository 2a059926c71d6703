//! Objects between the client's version, the stored version and the store's bytes.

mod stored;

use api_kinds::Resource;
use serde_json::Value;

pub use stored::{StoredError, decode_stored, encode_stored};

/// The object of version `from` as version `to` of the same kind has it.
pub fn convert(from: &Resource, to: &Resource, mut object: Value) -> Value {
    if !std::ptr::eq(from, to) {
        api_kinds::convert(to, &mut object, &to.api_version());
        // Versions differ in which zero values they write.
        api_codec::json::canonicalize(to.message, &mut object);
    }
    object
}

/// The row of the version in which objects of this resource are stored.
pub fn storage_row(row: &'static Resource) -> &'static Resource {
    let Some(storage) = &row.storage else { return row };
    let (group, version) = storage.api_version.split_once('/').unwrap_or(("", storage.api_version));
    api_kinds::find(group, version, row.plural).unwrap_or(row)
}
