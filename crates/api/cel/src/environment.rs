//! Declarations: variables, functions, types and constants.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::ast::{Expr, ExprKind};
use crate::function::Overload;
use crate::library::Library;
use crate::parser::Settings;
use crate::types::Type;
use crate::value::Value;

/// Resolves object types.
pub trait TypeProvider: Send + Sync {
    /// Returns the type of a field; `None` if the object type has no such field.
    ///
    /// Names are identifiers: a field `foo-bar` is asked for as `foo__dash__bar`.
    fn find_field(&self, type_name: &str, field: &str) -> Option<Type>;

    /// Reports whether the object type exists.
    fn has_type(&self, type_name: &str) -> bool;

    /// Returns the type that an identifier names (`Object.spec`), if objects of it can be created.
    fn find_type(&self, _name: &str) -> Option<Type> {
        None
    }
}

/// A declared identifier.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// The qualified name.
    pub name: String,
    /// The type.
    pub value_type: Type,
    /// The value of a constant or type.
    pub value: Option<Value<'static>>,
}

/// A function with the overloads of all libraries.
#[derive(Debug, Clone)]
pub struct Declared {
    /// The qualified name.
    pub name: Arc<str>,
    /// The overloads.
    pub overloads: Vec<Arc<Overload>>,
}

/// The declarations of an environment.
#[derive(Clone, Default)]
pub struct Declarations {
    /// The namespace in which names are looked up first.
    pub container: String,
    /// The settings of the parser.
    pub settings: Settings,
    /// A list or map literal must have elements of one type.
    pub homogeneous_literals: bool,
    /// The literal arguments of `duration`, `timestamp` and `matches` are checked.
    pub checks_literals: bool,
    identifiers: HashMap<String, Declaration>,
    functions: HashMap<String, Declared>,
    provider: Option<Arc<dyn TypeProvider>>,
}

impl fmt::Debug for Declarations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Declarations")
            .field("identifiers", &self.identifiers.len())
            .finish()
    }
}

impl Declarations {
    /// Adds the declarations of a library.
    pub fn add_library(&mut self, library: Library) {
        for function in library.functions {
            let declared = self
                .functions
                .entry(function.name.to_owned())
                .or_insert_with(|| Declared {
                    name: function.name.into(),
                    overloads: Vec::new(),
                });
            for overload in function.overloads {
                declared
                    .overloads
                    .retain(|existing| existing.id != overload.id);
                declared.overloads.push(Arc::new(overload));
            }
        }
        for declared in library.types {
            let name = declared.runtime_name().to_owned();
            self.add_constant(
                &name,
                Type::type_of(declared.clone()),
                Value::Type(declared),
            );
        }
        for constant in library.constants {
            self.add_constant(constant.name, constant.value_type, constant.value);
        }
        self.settings.macros.extend(library.macros);
    }

    /// Declares a constant.
    pub fn add_constant(&mut self, name: &str, value_type: Type, value: Value<'static>) {
        let declaration = Declaration {
            name: name.to_owned(),
            value_type,
            value: Some(value),
        };
        self.identifiers.insert(name.to_owned(), declaration);
    }

    /// Declares a variable.
    pub fn add_variable(&mut self, name: &str, value_type: Type) {
        let declaration = Declaration {
            name: name.to_owned(),
            value_type,
            value: None,
        };
        self.identifiers.insert(name.to_owned(), declaration);
    }

    /// Sets the provider of object types.
    pub fn set_provider(&mut self, provider: Arc<dyn TypeProvider>) {
        self.provider = Some(provider);
    }

    /// Finds a declared identifier.
    pub fn find_identifier(&self, name: &str) -> Option<Declaration> {
        self.candidates(name).find_map(|candidate| {
            if let Some(found) = self.identifiers.get(&candidate) {
                return Some(found.clone());
            }
            let found = self.provider.as_ref()?.find_type(&candidate)?;
            let value_type = Type::type_of(found.clone());
            Some(Declaration {
                name: candidate,
                value_type,
                value: Some(Value::Type(found)),
            })
        })
    }

    /// Finds a function.
    pub fn find_function(&self, name: &str) -> Option<&Declared> {
        self.candidates(name)
            .find_map(|candidate| self.functions.get(&candidate))
    }

    /// Returns the type of a field of an object type.
    pub fn find_field(&self, type_name: &str, field: &str) -> Option<Type> {
        self.provider.as_ref()?.find_field(type_name, field)
    }

    /// Reports whether an object type is known.
    pub fn has_type(&self, type_name: &str) -> bool {
        self.provider
            .as_ref()
            .is_some_and(|provider| provider.has_type(type_name))
    }

    /// Returns the names that `name` can mean, the most deeply nested in the container first.
    fn candidates(&self, name: &str) -> impl Iterator<Item = String> {
        let (absolute, name) = match name.strip_prefix('.') {
            Some(name) => (true, name.to_owned()),
            None => (false, name.to_owned()),
        };
        let mut prefix = (!absolute && !self.container.is_empty()).then(|| self.container.clone());
        let mut last = Some(name.clone());
        // Names are resolved from the innermost namespace outwards (cel-spec, name resolution).
        std::iter::from_fn(move || match prefix.take() {
            Some(current) => {
                prefix = current
                    .rsplit_once('.')
                    .map(|(parent, _)| parent.to_owned());
                Some(format!("{current}.{name}"))
            }
            None => last.take(),
        })
    }
}

/// Returns `a.b.c` for a chain of selections from an identifier.
pub fn qualified_name(expr: &Expr) -> Option<String> {
    let mut fields: Vec<&String> = Vec::new();
    let mut current = expr;
    loop {
        match &current.kind {
            ExprKind::Ident(name) => {
                let mut qualified = name.clone();
                for field in fields.iter().rev() {
                    qualified.push('.');
                    qualified.push_str(field);
                }
                return Some(qualified);
            }
            // A presence test asks for a field, so it is never a part of a name.
            ExprKind::Select(select) if !select.test_only => {
                fields.push(&select.field);
                current = &select.operand;
            }
            _ => return None,
        }
    }
}
