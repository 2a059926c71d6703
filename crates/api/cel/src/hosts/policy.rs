//! Expressions of admission policies and match conditions: the type that each must have, and the
//! variables that a policy composes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::environment::TypeProvider;
use crate::program::{Environment, Program};
use crate::source::CompileError;
use crate::types::Type;

use super::admission::{
    AdmissionVariables, ObjectTypes, VARIABLES, VARIABLES_TYPE, create_admission,
};

/// The purpose of an expression of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A match condition or a validation.
    Condition,
    /// A message of a validation.
    Message,
    /// The value of an audit annotation.
    AuditAnnotation,
    /// A variable, of any type.
    Variable,
    /// A mutation by a partial object.
    ApplyConfiguration,
    /// A mutation by a list of operations.
    JsonPatch,
}

impl Purpose {
    /// Returns the types that the result may have; none for any.
    fn result_types(self) -> Vec<Type> {
        match self {
            Purpose::Condition => vec![Type::Bool],
            Purpose::Message => vec![Type::String],
            // With null, the audit event lacks the annotation.
            Purpose::AuditAnnotation => vec![Type::String, Type::Null],
            Purpose::Variable => Vec::new(),
            Purpose::ApplyConfiguration => vec![Type::object("Object")],
            Purpose::JsonPatch => vec![Type::list(Type::object("JSONPatch"))],
        }
    }

    fn has_authorizer(self) -> bool {
        self != Purpose::Message
    }

    fn has_patches(self) -> bool {
        matches!(self, Purpose::ApplyConfiguration | Purpose::JsonPatch)
    }
}

/// The reason why an expression of a policy can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// The expression is invalid, or of the wrong type.
    #[error("{0}")]
    Invalid(String),
    /// The expression is valid, but a computation with its literals fails.
    #[error("{0}")]
    Instantiation(String),
}

/// Compiles the expressions of one policy.
#[derive(Default)]
pub struct PolicyCompiler {
    has_params: bool,
    objects: Option<ObjectTypes>,
    variables: BTreeMap<String, Type>,
    // Creating an environment takes long, and it depends on these three values only.
    environments: RefCell<BTreeMap<(u16, bool, bool), Environment>>,
}

impl PolicyCompiler {
    /// Creates a compiler without composed variables, as match conditions of webhooks need it.
    pub fn new(has_params: bool) -> Self {
        PolicyCompiler {
            has_params,
            ..PolicyCompiler::default()
        }
    }

    /// Creates a compiler that knows the types of the objects, for a check without a request.
    pub fn with_types(has_params: bool, objects: ObjectTypes) -> Self {
        PolicyCompiler {
            objects: Some(objects),
            ..PolicyCompiler::new(has_params)
        }
    }

    /// Checks an expression, whatever the type of its result.
    ///
    /// # Errors
    /// The expression is invalid. One whose literals fail to compute is not: the types are right.
    pub fn check_types(&self, source: &str, minor: u16) -> Result<(), CompileError> {
        let compiled = self.environment(Purpose::Variable, minor).compile(source);
        match compiled {
            Err(error) if !error.is_instantiation => Err(error),
            _ => Ok(()),
        }
    }

    /// Compiles an expression in the environment of Kubernetes 1.`minor`.
    ///
    /// # Errors
    /// The expression is invalid or its result has the wrong type; with upstream's text.
    pub fn compile(
        &self,
        purpose: Purpose,
        source: &str,
        minor: u16,
    ) -> Result<Program, ExpressionError> {
        let environment = self.environment(purpose, minor);
        let program = environment.compile(source).map_err(|error| {
            if error.is_instantiation {
                ExpressionError::Instantiation(format!("program instantiation failed: {error}"))
            } else {
                ExpressionError::Invalid(format!("compilation failed: {error}"))
            }
        })?;
        check_result(&purpose.result_types(), program.output_type())?;
        Ok(program)
    }

    /// Compiles a variable and declares it for the expressions that follow. One that does not
    /// compile is declared too, so that its error is reported once.
    ///
    /// # Errors
    /// As `compile`.
    pub fn compile_variable(
        &mut self,
        name: &str,
        source: &str,
        minor: u16,
    ) -> Result<Program, ExpressionError> {
        let compiled = self.compile(Purpose::Variable, source, minor);
        let declared = match &compiled {
            Ok(program) => declared_type(program.output_type()),
            Err(_) => Type::Dyn,
        };
        self.variables.insert(name.to_owned(), declared);
        // The cached environments lack the new variable.
        self.environments.get_mut().clear();
        compiled
    }

    fn environment(&self, purpose: Purpose, minor: u16) -> Environment {
        let key = (minor, purpose.has_authorizer(), purpose.has_patches());
        let mut environments = self.environments.borrow_mut();
        environments
            .entry(key)
            .or_insert_with(|| self.create_environment(purpose, minor))
            .clone()
    }

    fn create_environment(&self, purpose: Purpose, minor: u16) -> Environment {
        let types = VariableTypes(self.variables.clone());
        let variables: Option<Arc<dyn TypeProvider>> = if self.variables.is_empty() {
            None
        } else {
            Some(Arc::new(types))
        };
        let environment = create_admission(
            minor,
            AdmissionVariables {
                params: self.has_params,
                authorizer: purpose.has_authorizer(),
                patches: purpose.has_patches(),
                variables,
                objects: self.objects.clone(),
            },
        );
        // Each is also a variable of its own, so that it is evaluated only when it is used.
        environment.with(|declarations| {
            for (name, value_type) in &self.variables {
                declarations.add_variable(&qualify_variable(name), value_type.clone());
            }
        })
    }
}

/// Returns the name by which an evaluation asks for a composed variable.
pub fn qualify_variable(name: &str) -> String {
    format!("{VARIABLES}.{name}")
}

/// The fields of the variable `variables`.
struct VariableTypes(BTreeMap<String, Type>);

impl TypeProvider for VariableTypes {
    fn find_field(&self, type_name: &str, field: &str) -> Option<Type> {
        let known = type_name == VARIABLES_TYPE;
        known.then(|| self.0.get(field).cloned()).flatten()
    }

    fn has_type(&self, type_name: &str) -> bool {
        type_name == VARIABLES_TYPE
    }
}

/// Returns the type under which a variable is declared. Types of libraries are dynamic, as
/// upstream.
fn declared_type(output: &Type) -> Type {
    match output {
        Type::Null
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Duration
        | Type::Timestamp => output.clone(),
        // Types nest as deep as the expression that the checker has accepted.
        Type::List(element) => Type::list(declared_type(element)),
        Type::Map(key, value) => Type::map(declared_type(key), declared_type(value)),
        _ => Type::Dyn,
    }
}

fn check_result(allowed: &[Type], found: &Type) -> Result<(), ExpressionError> {
    if allowed.is_empty() || allowed.contains(found) {
        return Ok(());
    }
    let names: Vec<String> = allowed.iter().map(declared_name).collect();
    let found = declared_name(found);
    let message = match names.as_slice() {
        [one] => format!("must evaluate to {one} but got {found}"),
        many => format!(
            "must evaluate to one of [{}] but got {found}",
            many.join(" ")
        ),
    };
    Err(ExpressionError::Invalid(message))
}

/// Returns the declared name of a type with its parameters: `list(int)`.
fn declared_name(named: &Type) -> String {
    let parameters: Vec<String> = named.parameters().into_iter().map(declared_name).collect();
    if parameters.is_empty() {
        return named.runtime_name().to_owned();
    }
    format!("{}({})", named.runtime_name(), parameters.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::hosts::{NEW_EXPRESSIONS, STORED_EXPRESSIONS};

    fn check(purpose: Purpose, source: &str) -> Result<(), String> {
        let compiled = PolicyCompiler::new(false).compile(purpose, source, STORED_EXPRESSIONS);
        compiled.map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn result_has_the_type_of_its_purpose() {
        use Purpose::{
            ApplyConfiguration, AuditAnnotation, Condition, JsonPatch, Message, Variable,
        };
        for (purpose, source, expect) in [
            (Condition, "true", ""),
            (Condition, "1", "must evaluate to bool but got int"),
            (Condition, "object.x", "must evaluate to bool but got dyn"),
            (Condition, "[1]", "must evaluate to bool but got list(int)"),
            (Message, "'a' + string(object.x)", ""),
            (Message, "true", "must evaluate to string but got bool"),
            (AuditAnnotation, "null", ""),
            (AuditAnnotation, "'x'", ""),
            (
                AuditAnnotation,
                "1",
                "must evaluate to one of [string null_type] but got int",
            ),
            (Variable, "{'a': [1]}", ""),
            (
                ApplyConfiguration,
                "Object{spec: Object.spec{replicas: 1}}",
                "",
            ),
            (
                ApplyConfiguration,
                "true",
                "must evaluate to Object but got bool",
            ),
            (JsonPatch, "[JSONPatch{op: 'remove', path: '/a'}]", ""),
            (
                JsonPatch,
                "'x'",
                "must evaluate to list(JSONPatch) but got string",
            ),
        ] {
            let found = check(purpose, source).err().unwrap_or_default();
            assert_eq!(found, expect, "{source}");
        }
    }

    #[test]
    fn error_of_the_compiler_is_shown_with_its_place() {
        let error = check(Purpose::Condition, "object.x ==").unwrap_err();
        assert!(
            error.starts_with("compilation failed: ERROR: <input>:1:"),
            "{error}"
        );
        let error = check(
            Purpose::Message,
            "authorizer.path('/x').check('get').reason()",
        );
        assert!(
            error
                .unwrap_err()
                .contains("undeclared reference to 'authorizer'")
        );
    }

    #[test]
    fn variables_are_known_to_the_expressions_after_them() {
        let mut compiler = PolicyCompiler::new(true);
        let compile = |compiler: &PolicyCompiler, source: &str| {
            compiler.compile(Purpose::Condition, source, NEW_EXPRESSIONS)
        };
        assert!(compile(&compiler, "variables.a == 1").is_err());
        compiler
            .compile_variable("a", "params.x + 1", NEW_EXPRESSIONS)
            .unwrap();
        compiler
            .compile_variable("b", "[string(variables.a)]", NEW_EXPRESSIONS)
            .unwrap();
        compiler
            .compile_variable("broken", "1 +", NEW_EXPRESSIONS)
            .unwrap_err();
        for (source, expect) in [
            ("variables.a == 1", true),
            ("variables.b[0].startsWith('1') && has(variables.a)", true),
            ("variables.b == 1", false),
            ("variables.broken", false),
            ("variables.broken == 1", true),
            ("variables.other == 1", false),
        ] {
            assert_eq!(compile(&compiler, source).is_ok(), expect, "{source}");
        }
        let program = compile(&compiler, "variables.b.size() > 0").unwrap();
        assert!(program.uses_variable(&qualify_variable("b")));
        assert!(!program.uses_variable(&qualify_variable("a")));
    }
}
