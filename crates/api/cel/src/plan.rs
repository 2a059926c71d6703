//! From a checked expression to the steps of an evaluation.
//!
//! The steps have the run-time costs of cel-go: a chain of selections costs 1 for its start and 1
//! for each selection, literals cost nothing, and neither does a conditional. Where that depends on
//! the place of a step, the cost is in the step.

mod constants;
mod node;

use self::constants::{fold_conversion, fold_list, fold_map, fold_membership};
pub use self::node::{Body, CallStep, Fold, Indexing, Mode, Node, Selection};
use crate::ast::{Comprehension, Expr, ExprId, ExprKind, Select};
use crate::check::{Checked, Reference};
use crate::cost::SELECT_COST;
use crate::error::EvalError;
use crate::macros::{MAP_INSERT, NOT_STRICTLY_FALSE};
use crate::regex::compile_pattern;
use crate::value::{Text, Value};

/// Plans the evaluation of a checked expression.
///
/// A conversion of a literal that fails is an error now, as `int("x")`.
pub fn plan(checked: &Checked) -> Result<Node, EvalError> {
    Planner {
        checked,
        locals: Vec::new(),
    }
    .plan(&checked.expr)
}

struct Planner<'c> {
    checked: &'c Checked,
    locals: Vec<String>,
}

/// Functions whose second argument is a pattern, which is compiled early to report its errors
/// early.
const PATTERN_FUNCTIONS: [&str; 3] = ["matches", "find", "findAll"];

/// Functions that cost 1 if only the values tell which overload is called.
const COSTS_BY_OVERLOAD: [&str; 14] = [
    "_+_",
    "_<_",
    "_<=_",
    "_>_",
    "_>=_",
    "@in",
    "bytes",
    "string",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "sort",
    "@sortByAssociatedKeys",
];

impl Planner<'_> {
    fn plan(&mut self, expr: &Expr) -> Result<Node, EvalError> {
        match &expr.kind {
            // The parser uses this kind where it has reported an error, so a checked expression has
            // none.
            ExprKind::Unspecified => Err(EvalError::message("unsupported expression")),
            ExprKind::Literal(value) => Ok(Node::Constant(value.clone())),
            ExprKind::Ident(name) => self.plan_ident(expr.id, name),
            ExprKind::Select(select) => {
                let mode = if select.test_only {
                    Mode::Presence
                } else {
                    Mode::Value
                };
                self.plan_select(select, mode)
            }
            ExprKind::Call(call) => {
                let target = call.target.as_deref();
                let mut arguments = Vec::with_capacity(call.arguments.len() + 1);
                for argument in target.into_iter().chain(&call.arguments) {
                    arguments.push(self.plan(argument)?);
                }
                self.plan_call(expr.id, &call.function, arguments)
            }
            ExprKind::List(list) => {
                let mut elements = Vec::with_capacity(list.elements.len());
                for (index, element) in list.elements.iter().enumerate() {
                    elements.push((self.plan(element)?, list.optional.contains(&index)));
                }
                Ok(fold_list(elements))
            }
            ExprKind::Map(entries) => {
                let mut nodes = Vec::with_capacity(entries.len());
                for entry in entries {
                    let key = self.plan(&entry.key)?;
                    nodes.push((key, self.plan(&entry.value)?, entry.optional));
                }
                fold_map(nodes)
            }
            ExprKind::Struct(literal) => {
                let mut nodes = Vec::with_capacity(literal.fields.len());
                for field in &literal.fields {
                    let key = Node::Constant(Value::string(field.name.as_str()));
                    nodes.push((key, self.plan(&field.value)?, field.optional));
                }
                // A leading dot marks a name that is not relative to a container.
                Ok(Node::Struct(
                    literal.name.trim_start_matches('.').into(),
                    nodes,
                ))
            }
            ExprKind::Comprehension(fold) => self.plan_fold(fold),
        }
    }

    fn plan_ident(&self, id: ExprId, name: &str) -> Result<Node, EvalError> {
        match self.checked.reference(id) {
            Some(Reference::Constant(value)) => Ok(Node::Constant(value.clone())),
            Some(Reference::Variable(name)) => Ok(Node::Variable(name.clone(), SELECT_COST)),
            // The innermost variable of a name hides the outer ones.
            _ => match self.locals.iter().rposition(|local| local == name) {
                Some(slot) => Ok(Node::Local(slot, SELECT_COST)),
                None => Err(EvalError::NoSuchAttribute(name.to_owned())),
            },
        }
    }

    fn plan_select(&mut self, select: &Select, mode: Mode) -> Result<Node, EvalError> {
        let mut operand = self.plan(&select.operand)?;
        // cel-go subtracts the start of the chain for a presence test, because Kubernetes sets
        // `PresenceTestHasCost(false)`.
        if mode == Mode::Presence {
            waive_start(&mut operand);
        }
        // A selection from a computed value starts a chain of its own, a relative attribute in
        // cel-go.
        let is_relative = !is_attribute(&operand) && mode != Mode::Presence;
        let start_cost = if is_relative { SELECT_COST } else { 0 };
        let field = Text::Shared(select.field.as_str().into());
        Ok(Node::Select(Box::new(Selection {
            operand,
            field,
            mode,
            cost: SELECT_COST,
            start_cost,
        })))
    }

    fn plan_call(
        &mut self,
        id: ExprId,
        function: &str,
        mut arguments: Vec<Node>,
    ) -> Result<Node, EvalError> {
        if let Some(step) = self.plan_special_call(id, function, &mut arguments)? {
            return Ok(step);
        }
        let Some(Reference::Overloads(name, overloads)) = self.checked.reference(id) else {
            return Err(EvalError::NoSuchOverload);
        };
        // As in cel-go, which optimizes a search among constants to a test without a cost.
        if let [overload] = overloads.as_slice()
            && overload.id == "in_list"
            && let Some(node) = fold_membership(&mut arguments)
        {
            return Ok(node);
        }
        // Upstream compiles a constant pattern once, so an invalid one fails before the first
        // evaluation.
        if PATTERN_FUNCTIONS.contains(&function)
            && let Some(Node::Constant(Value::String(pattern))) = arguments.get(1)
        {
            compile_pattern(pattern)?;
        }
        // cel-go's plan has no overload id if several overloads remain. Its cost table is keyed by
        // id, so such a call costs the default of 1.
        let has_cost = overloads.len() == 1 || !COSTS_BY_OVERLOAD.contains(&&**name);
        let call = CallStep {
            function: name.clone(),
            overloads: overloads.clone(),
            arguments,
            has_cost,
        };
        fold_conversion(call)
    }

    /// Plans a call that does not evaluate all of its arguments, or whose cost depends on its
    /// place.
    fn plan_special_call(
        &self,
        id: ExprId,
        function: &str,
        arguments: &mut Vec<Node>,
    ) -> Result<Option<Node>, EvalError> {
        match (function, arguments.len()) {
            ("_&&_" | "_||_" | "_==_" | "_!=_" | "_[_]" | "_[?_]" | "_?._", 2) => {
                let right = arguments.pop();
                if let (Some(left), Some(right)) = (arguments.pop(), right) {
                    return plan_operator(function, left, right).map(Some);
                }
            }
            // The right side is evaluated only if the left one is absent, so this is no ordinary
            // call.
            ("or" | "orValue", 2) if self.is_optional_call(id) => {
                let right = arguments.pop();
                if let (Some(left), Some(right)) = (arguments.pop(), right) {
                    let is_value = function == "orValue";
                    return Ok(Some(Node::OptionalOr(Box::new((left, right)), is_value)));
                }
            }
            ("_?_:_", 3) => {
                let (no, yes) = (arguments.pop(), arguments.pop());
                if let (Some(condition), Some(mut yes), Some(mut no)) = (arguments.pop(), yes, no) {
                    // cel-go makes a chain in a branch part of one conditional attribute, so that
                    // its start has no cost.
                    waive_start(&mut yes);
                    waive_start(&mut no);
                    return Ok(Some(Node::Conditional(Box::new((condition, yes, no)))));
                }
            }
            _ => {}
        }
        Ok(None)
    }

    fn is_optional_call(&self, id: ExprId) -> bool {
        matches!(self.checked.reference(id), Some(Reference::Overloads(_, overloads))
            if overloads.iter().any(|overload| overload.id.starts_with("optional_or")))
    }

    fn plan_fold(&mut self, fold: &Comprehension) -> Result<Node, EvalError> {
        // Range and initial value are planned first, because the loop's variables are not in scope
        // there.
        let range = self.plan(&fold.range)?;
        let init = self.plan(&fold.init)?;
        let slot = self.locals.len();
        self.locals.push(fold.accumulator.clone());
        // `cel.bind` expands to a loop over an empty list whose result reads the accumulator.
        let is_bind = matches!(&fold.range.kind, ExprKind::List(list) if list.elements.is_empty());
        let body = if is_bind {
            Body::Bind
        } else {
            self.locals.push(fold.variable.clone());
            self.locals.extend(fold.variable2.clone());
            let body = self.plan_body(fold)?;
            // The result may read the accumulator, but not the variables of the loop.
            self.locals.truncate(slot + 1);
            body
        };
        let result = self.plan(&fold.result)?;
        self.locals.truncate(slot);
        let has_two = fold.variable2.is_some();
        Ok(Node::Fold(Box::new(Fold {
            range,
            has_two,
            slot,
            init,
            body,
            result,
        })))
    }

    fn plan_body(&mut self, fold: &Comprehension) -> Result<Body, EvalError> {
        let is_accumulator =
            |expr: &Expr| matches!(&expr.kind, ExprKind::Ident(name) if *name == fold.accumulator);
        let condition = as_call(&fold.condition);
        let is_quantifier = condition.is_some_and(|(name, _)| name == NOT_STRICTLY_FALSE);
        match as_call(&fold.step) {
            Some(("_&&_", [first, predicate])) if is_quantifier && is_accumulator(first) => {
                return Ok(Body::All(self.plan(predicate)?));
            }
            Some(("_||_", [first, predicate])) if is_quantifier && is_accumulator(first) => {
                return Ok(Body::Exists(self.plan(predicate)?));
            }
            _ => {}
        }
        // Macros with a filter keep the accumulator as it is for the elements that do not match.
        let (filter, step) = match as_call(&fold.step) {
            Some(("_?_:_", [filter, step, last])) if is_accumulator(last) => (Some(filter), step),
            _ => (None, &fold.step),
        };
        let is_endless = matches!(&fold.condition.kind, ExprKind::Literal(Value::Bool(true)));
        // General evaluation would copy the list or map for each element.
        match (as_call(step), &fold.init.kind) {
            (Some(("_+_", [first, added])), ExprKind::List(_))
                if is_endless && is_accumulator(first) =>
            {
                if let ExprKind::List(list) = &added.kind
                    && let [element] = list.elements.as_slice()
                    && list.optional.is_empty()
                {
                    let filter = filter.map(|filter| self.plan(filter)).transpose()?;
                    let element = self.plan(element)?;
                    let is_constant = matches!(element, Node::Constant(_));
                    // The accumulator and the call of `_+_` cost 1 each. A list of a constant is a
                    // constant itself.
                    let cost = if is_constant {
                        2
                    } else {
                        2 + crate::cost::LIST_CREATE_COST
                    };
                    return Ok(Body::Append(filter, element, cost));
                }
            }
            (Some((MAP_INSERT, [first, rest @ ..])), ExprKind::Map(_))
                if is_endless && is_accumulator(first) =>
            {
                let filter = filter.map(|filter| self.plan(filter)).transpose()?;
                match rest {
                    [entries] => return Ok(Body::Insert(filter, None, self.plan(entries)?)),
                    [key, value] => {
                        let key = self.plan(key)?;
                        return Ok(Body::Insert(filter, Some(key), self.plan(value)?));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        let condition = self.plan(&fold.condition)?;
        Ok(Body::General(condition, self.plan(&fold.step)?))
    }
}

fn as_call(expr: &Expr) -> Option<(&str, &[Expr])> {
    match &expr.kind {
        ExprKind::Call(call) if call.target.is_none() => Some((&call.function, &call.arguments)),
        _ => None,
    }
}

fn plan_operator(function: &str, left: Node, right: Node) -> Result<Node, EvalError> {
    let both = |left, right| Box::new((left, right));
    let start_cost = if is_attribute(&left) { 0 } else { SELECT_COST };
    Ok(match function {
        "_&&_" => Node::And(both(left, right)),
        "_||_" => Node::Or(both(left, right)),
        "_==_" => Node::Equal(Box::new([left, right]), false),
        "_!=_" => Node::Equal(Box::new([left, right]), true),
        "_?._" => {
            let Node::Constant(Value::String(field)) = right else {
                return Err(EvalError::NoSuchOverload);
            };
            Node::Select(Box::new(Selection {
                operand: left,
                field,
                mode: Mode::Optional,
                cost: SELECT_COST,
                start_cost,
            }))
        }
        _ => {
            let mode = if function == "_[?_]" {
                Mode::Optional
            } else {
                Mode::Value
            };
            let is_chain = is_attribute(&right) && !matches!(right, Node::Conditional(_));
            Node::Index(Box::new(Indexing {
                operand: left,
                index: right,
                mode,
                cost: if is_chain { 0 } else { SELECT_COST },
                start_cost,
                refund: if is_chain { SELECT_COST } else { 0 },
            }))
        }
    })
}

/// Reports whether a step is a chain of selections, or a choice of such chains.
fn is_attribute(node: &Node) -> bool {
    matches!(
        node,
        Node::Variable(..)
            | Node::Local(..)
            | Node::Select(_)
            | Node::Index(_)
            | Node::Conditional(_)
    )
}

/// Removes the cost of the start of a chain of selections.
fn waive_start(node: &mut Node) {
    match node {
        Node::Variable(_, cost) | Node::Local(_, cost) => *cost = 0,
        Node::Select(selection) if is_attribute(&selection.operand) => {
            waive_start(&mut selection.operand);
        }
        Node::Select(selection) => selection.start_cost = 0,
        Node::Index(indexing) if is_attribute(&indexing.operand) => {
            waive_start(&mut indexing.operand);
        }
        Node::Index(indexing) => indexing.start_cost = 0,
        _ => {}
    }
}
