//! Variables of comprehensions, and the sizes of what lists and maps hold.

use crate::cost::Range;

/// The sizes of the keys (or indices) and the values of a list or map.
#[derive(Debug, Clone, Copy)]
pub struct EntrySize {
    /// The value is a list.
    pub is_list: bool,
    /// The size of keys.
    pub key: Range,
    /// The size of values.
    pub value: Range,
}

/// Returns sizes that cover those of two values, if both are known.
pub fn union_entries(left: Option<EntrySize>, right: Option<EntrySize>) -> Option<EntrySize> {
    let (left, right) = (left?, right?);
    let (key, value) = (left.key.union(right.key), left.value.union(right.value));
    Some(EntrySize {
        is_list: left.is_list,
        key,
        value,
    })
}

/// A variable of a comprehension.
#[derive(Debug, Clone)]
pub struct Local {
    /// The path of its values.
    pub path: Vec<String>,
    /// The size, if it is known.
    pub size: Option<Range>,
    /// The sizes of its entries, if they are known.
    pub entries: Option<EntrySize>,
}

/// The variables in scope.
#[derive(Debug, Default)]
pub struct Scopes {
    locals: Vec<(String, Local)>,
}

impl Scopes {
    /// Adds a variable, and returns the number of variables before it.
    pub fn push(&mut self, name: &str, local: Local) -> usize {
        let depth = self.locals.len();
        self.locals.push((name.to_owned(), local));
        depth
    }

    /// Removes all but the first `depth` variables.
    pub fn truncate(&mut self, depth: usize) {
        self.locals.truncate(depth);
    }

    /// Finds the innermost variable of a name.
    pub fn find(&self, name: &str) -> Option<&Local> {
        self.locals
            .iter()
            .rev()
            .find(|(found, _)| found == name)
            .map(|(_, local)| local)
    }
}
