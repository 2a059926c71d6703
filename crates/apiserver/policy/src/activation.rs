//! The variables of an evaluation.

use api_cel::cost::PER_CALL_LIMIT;
use api_cel::hosts::admission::{
    AUTHORIZER, NAMESPACE_OBJECT, NAMESPACE_SHAPE, OBJECT, OLD_OBJECT, PARAMS, REQUEST,
    REQUEST_RESOURCE, REQUEST_SHAPE, VARIABLES,
};
use api_cel::hosts::policy::{ExpressionError, PolicyCompiler, qualify_variable};
use api_cel::library::authorizer::{
    AuthorizerCheck, CheckResource, create_authorizer, create_request_resource,
};
use api_cel::value::{Key, Text};
use api_cel::{Budget, EvalError, Program, Value as CelValue, Variables};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A variable that needs more variables on its way than this has them evaluated first, so that no
/// policy can exhaust the stack.
// Lazy evaluation nests one interpreter for each variable on the way, and validation does not limit
// the length of such a chain.
const MAX_LAZY_DEPTH: usize = 2;

/// The input of a request, in the version that a policy or webhook asked for.
#[derive(Clone)]
pub struct Input<'v> {
    /// `request`
    pub request: &'v Value,
    /// `object`, or null.
    pub object: &'v Value,
    /// `oldObject`, or null.
    pub old_object: &'v Value,
    /// `namespaceObject`, or null.
    pub namespace: &'v Value,
    /// `params`, or null.
    pub params: &'v Value,
    /// Checks of `authorizer`.
    pub check: Arc<dyn AuthorizerCheck>,
    /// `authorizer.requestResource`
    pub resource: CheckResource,
}

/// The composed variables of a policy, compiled.
#[derive(Default)]
pub struct ComposedVariables(Vec<ComposedVariable>);

struct ComposedVariable {
    name: String,
    qualified: String,
    program: Result<Program, ExpressionError>,
    /// Indices of all variables that this one needs, directly or not, in order.
    needs: Vec<usize>,
    depth: usize,
}

impl ComposedVariables {
    /// Compiles the variables of a policy and declares them.
    pub fn compile(variables: &[Value], compiler: &mut PolicyCompiler, minor: u16) -> Self {
        let mut all: Vec<ComposedVariable> = Vec::new();
        for variable in variables {
            let name = api_meta::tree::text(variable, "name");
            let source = api_meta::tree::text(variable, "expression");
            let program = compiler.compile_variable(name, source, minor);
            let (needs, depth) = match &program {
                Ok(program) => find_needs(program, &all),
                Err(_) => (Vec::new(), 0),
            };
            // Of several with one name the last is effective.
            all.push(ComposedVariable {
                name: name.to_owned(),
                qualified: qualify_variable(name),
                program,
                needs,
                depth,
            });
        }
        ComposedVariables(all)
    }
}

// Only earlier variables can be needed: a variable is declared after its own expression is
// compiled, as upstream's `CompileAndStoreVariable` does.
fn find_needs(program: &Program, earlier: &[ComposedVariable]) -> (Vec<usize>, usize) {
    let mut needed = vec![false; earlier.len()];
    let mut depth = 0;
    for (index, variable) in earlier.iter().enumerate() {
        // `has(variables.x)` evaluates the whole map.
        if program.uses_variable(&variable.qualified) || program.uses_variable(VARIABLES) {
            depth = depth.max(variable.depth + 1);
            for place in variable.needs.iter().chain([&index]) {
                if let Some(flag) = needed.get_mut(*place) {
                    *flag = true;
                }
            }
        }
    }
    let needs = (0..earlier.len()).filter(|place| needed.get(*place) == Some(&true));
    (needs.collect(), depth)
}

/// The variables of the expressions of one kind; each composed variable is evaluated once.
pub struct Activation<'a, 'v> {
    input: &'a Input<'v>,
    composed: &'a ComposedVariables,
    has_authorizer: bool,
    values: RefCell<BTreeMap<usize, Result<CelValue<'v>, EvalError>>>,
    composed_cost: Cell<u64>,
    /// Number of variables that the present expression can use: a variable can use those before it.
    usable: Cell<usize>,
}

impl<'a, 'v> Activation<'a, 'v> {
    /// Creates the variables. Not all expressions have an authorizer.
    pub fn new(
        input: &'a Input<'v>,
        composed: &'a ComposedVariables,
        has_authorizer: bool,
    ) -> Self {
        Activation {
            input,
            composed,
            has_authorizer,
            values: RefCell::default(),
            // Apart from the cost of the expression: upstream takes variables from the budget of
            // the policy, not from the `PerCallLimit` of the expression.
            composed_cost: Cell::new(0),
            usable: Cell::new(composed.0.len()),
        }
    }

    /// Returns the cost of composed variables since the last call.
    pub fn take_composed_cost(&self) -> u64 {
        self.composed_cost.take()
    }

    fn usable_variables(&self) -> &'a [ComposedVariable] {
        self.composed.0.get(..self.usable.get()).unwrap_or_default()
    }

    fn find_composed(
        &self,
        name: &str,
        budget: &mut Budget,
    ) -> Option<Result<CelValue<'v>, EvalError>> {
        // `has(variables.x)` reads the map as a whole. The checker resolves a plain field to its
        // qualified name.
        if name == VARIABLES {
            return Some(Ok(self.collect_composed(budget)));
        }
        let (index, variable) = self
            .usable_variables()
            .iter()
            .enumerate()
            // The expression was compiled against the last declaration of the name.
            .rev()
            .find(|(_, variable)| variable.qualified == name)?;
        if variable.depth > MAX_LAZY_DEPTH {
            for needed in &variable.needs {
                // An error is kept for the expression that asks for the variable.
                let _ = self.evaluate_composed(*needed, budget);
            }
        }
        Some(self.evaluate_composed(index, budget))
    }

    fn evaluate_composed(
        &self,
        index: usize,
        budget: &mut Budget,
    ) -> Result<CelValue<'v>, EvalError> {
        if let Some(known) = self.values.borrow().get(&index) {
            // Errors are kept too, so that a failing variable is charged once.
            return known.clone();
        }
        let Some(variable) = self.composed.0.get(index) else {
            return Err(EvalError::NoSuchAttribute(VARIABLES.to_owned()));
        };
        let name = &variable.name;
        let value = match &variable.program {
            Err(error) => Err(EvalError::message(format!(
                "composited variable {name:?} fails to compile: {error}"
            ))),
            Ok(program) => {
                // A cost limit of its own, as each variable is a program with `PerCallLimit`
                // upstream. The work is shared, because it bounds the time of the request.
                let mut own = budget.split_evaluation(PER_CALL_LIMIT);
                // Without this, a variable that asks for all, or for its own name, would evaluate
                // itself without end.
                let usable = self.usable.replace(index);
                let result = program.evaluate(self, &mut own);
                self.usable.set(usable);
                let cost = self.composed_cost.get().saturating_add(own.used());
                self.composed_cost.set(cost);
                budget.absorb_work(&own);
                result.map_err(|error| {
                    EvalError::message(format!(
                        "composited variable {name:?} fails to evaluate: {error}"
                    ))
                })
            }
        };
        self.values.borrow_mut().insert(index, value.clone());
        value
    }

    /// Returns all variables as one value, for `has(variables.x)`.
    fn collect_composed(&self, budget: &mut Budget) -> CelValue<'v> {
        let mut entries = BTreeMap::new();
        // In order: none of them then evaluates another one of them.
        for (index, variable) in self.usable_variables().iter().enumerate() {
            // A failed variable is left out: an error of one must not fail expressions that test
            // for another.
            if let Ok(value) = self.evaluate_composed(index, budget) {
                let key = Key::String(Text::Shared(variable.name.as_str().into()));
                entries.insert(key, value);
            }
        }
        CelValue::map(entries)
    }
}

impl<'v> Variables<'v> for Activation<'_, 'v> {
    fn find(&self, name: &str, budget: &mut Budget) -> Option<Result<CelValue<'v>, EvalError>> {
        let input = self.input;
        let value = match name {
            // Without shapes, as upstream declares these three `dyn`: one policy matches many
            // kinds.
            OBJECT => CelValue::from_json(input.object, None),
            OLD_OBJECT => CelValue::from_json(input.old_object, None),
            PARAMS => CelValue::from_json(input.params, None),
            REQUEST => CelValue::from_json(input.request, Some(&**REQUEST_SHAPE)),
            NAMESPACE_OBJECT => CelValue::from_json(input.namespace, Some(&**NAMESPACE_SHAPE)),
            // The API documents `messageExpression` as without `authorizer`. Upstream evaluates
            // audit annotations without one, too.
            AUTHORIZER if self.has_authorizer => create_authorizer(input.check.clone()),
            REQUEST_RESOURCE if self.has_authorizer => {
                create_request_resource(input.check.clone(), input.resource.clone())
            }
            _ => return self.find_composed(name, budget),
        };
        Some(Ok(value))
    }
}
