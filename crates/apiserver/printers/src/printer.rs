//! The definition of a printer.

use serde_json::Value;

use crate::view::View;

/// A `TableColumnDefinition`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// OpenAPI type: `string`, `integer`, `boolean`, `date`.
    pub ty: &'static str,
    /// OpenAPI format; `name` for the name column.
    pub format: &'static str,
    /// Description of the content.
    pub description: &'static str,
    /// 0 for columns of the normal view, more for `-o wide`.
    pub priority: i32,
}

/// Columns and cells of a kind.
pub(crate) struct Printer {
    pub(crate) columns: &'static [Column],
    pub(crate) cells: fn(&View<'_>) -> Vec<Value>,
}

/// Returns a text column.
pub(crate) const fn text_column(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        ty: "string",
        format: "",
        description,
        priority: 0,
    }
}

/// Returns a text column for `-o wide`.
pub(crate) const fn wide_column(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        ty: "string",
        format: "",
        description,
        priority: 1,
    }
}

/// Returns an integer column.
pub(crate) const fn integer_column(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        ty: "integer",
        format: "",
        description,
        priority: 0,
    }
}

/// Returns a boolean column.
pub(crate) const fn boolean_column(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        ty: "boolean",
        format: "",
        description,
        priority: 0,
    }
}

/// The name column.
pub(crate) const NAME: Column = Column {
    name: "Name",
    ty: "string",
    format: "name",
    description: "Unique within a namespace.",
    priority: 0,
};

/// The age column.
pub(crate) const AGE: Column = text_column("Age", "Time since the object was created.");

/// Columns of a pod template.
pub(crate) const CONTAINERS: Column =
    wide_column("Containers", "Names of the containers in the template.");
pub(crate) const IMAGES: Column =
    wide_column("Images", "Images of the containers in the template.");
pub(crate) const SELECTOR: Column = wide_column("Selector", "Labels that select the pods.");

/// Name and creation time: the printer of kinds without their own.
pub(crate) static DEFAULT: Printer = Printer {
    columns: &[
        NAME,
        Column {
            name: "Created At",
            ty: "date",
            format: "",
            description: "When the object was created.",
            priority: 0,
        },
    ],
    cells: |view| {
        vec![
            view.name(),
            Value::from(view.text("/metadata/creationTimestamp")),
        ]
    },
};

/// Name and age.
pub(crate) static NAME_AND_AGE: Printer = Printer {
    columns: &[NAME, AGE],
    cells: |view| vec![view.name(), view.age()],
};
