//! From a checked expression to the steps of an evaluation.
//!
//! The steps have the run-time costs of cel-go: a chain of selections costs 1 for its start and 1 for each
//! selection, literals cost nothing, and neither does a conditional. Where that depends on the place of a
//! step, the cost is in the step.

use std::sync::Arc;

use crate::ast::{Comprehension, Expr, ExprId, ExprKind, Select};
use crate::check::{Checked, Reference};
use crate::cost::{MAP_CREATE_COST, SELECT_COST};
use crate::error::EvalError;
use crate::function::Overload;
use crate::macros::{MAP_INSERT, NOT_STRICTLY_FALSE};
use crate::regex::compile_pattern;
use crate::types::Type;
use crate::value::{Key, Map, Text, Value};

/// A step of an evaluation.
#[derive(Debug, Clone)]
pub enum Node {
    /// A literal, or a computation with literals only.
    Constant(Value<'static>),
    /// A variable of the environment.
    Variable(String, u64),
    /// A variable of a comprehension, by its place on the stack.
    Local(usize, u64),
    /// A field of an object or map.
    Select(Box<Selection>),
    /// An element of a list or map.
    Index(Box<Indexing>),
    /// `a && b`.
    And(Box<(Node, Node)>),
    /// `a || b`.
    Or(Box<(Node, Node)>),
    /// `a ? b : c`.
    Conditional(Box<(Node, Node, Node)>),
    /// `a == b`, or `a != b` if negated.
    Equal(Box<[Node; 2]>, bool),
    /// `a in [literals]`.
    InConstants(Box<Node>, Value<'static>),
    /// `a.or(b)`, or `a.orValue(b)` if it unwraps.
    OptionalOr(Box<(Node, Node)>, bool),
    /// A call of a function.
    Call(Box<CallStep>),
    /// A list; elements may be marked as optional.
    List(Vec<(Node, bool)>),
    /// A map, or an object with fields; entries may be marked as optional.
    Map(Vec<(Node, Node, bool)>, u64),
    /// An object with the name of its type.
    Struct(Arc<str>, Vec<(Node, Node, bool)>),
    /// A comprehension.
    Fold(Box<Fold>),
}

/// A selection of a field.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The object or map.
    pub operand: Node,
    /// The name of the field.
    pub field: Text<'static>,
    /// The way to read the field.
    pub mode: Mode,
    /// The cost.
    pub cost: u64,
    /// The cost of the start of a chain of selections; an absent field has only this cost.
    pub start_cost: u64,
}

/// The ways to read a field or an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The value; absence is an error.
    Value,
    /// Presence.
    Presence,
    /// An optional value.
    Optional,
}

/// A selection of an element.
#[derive(Debug, Clone)]
pub struct Indexing {
    /// The list or map.
    pub operand: Node,
    /// The index or key.
    pub index: Node,
    /// The way to read the element.
    pub mode: Mode,
    /// The cost beyond that of operand and index.
    pub cost: u64,
    /// The cost of the start of a chain of selections; an absent element has only this cost.
    pub start_cost: u64,
    /// The part of the index's cost that an absent element does not have.
    pub refund: u64,
}

/// A call.
#[derive(Debug, Clone)]
pub struct CallStep {
    /// The name of the function.
    pub function: Arc<str>,
    /// The overloads of which the first that admits the values is called.
    pub overloads: Vec<Arc<Overload>>,
    /// The arguments, a receiver first.
    pub arguments: Vec<Node>,
    /// The cost is that of an overload, and not 1.
    pub has_cost: bool,
}

/// A comprehension.
#[derive(Debug, Clone)]
pub struct Fold {
    /// The list or map.
    pub range: Node,
    /// The comprehension has a variable for the key or index, and one for the value.
    pub has_two: bool,
    /// The place of the accumulator on the stack; the other variables follow.
    pub slot: usize,
    /// The first value of the accumulator.
    pub init: Node,
    /// The body of the loop.
    pub body: Body,
    /// The result.
    pub result: Node,
}

/// The body of a comprehension. The forms that macros create are known, so that lists and maps grow in place.
#[derive(Debug, Clone)]
pub enum Body {
    /// No loop: the accumulator is a variable (`cel.bind`).
    Bind,
    /// All elements satisfy the predicate.
    All(Node),
    /// An element satisfies the predicate.
    Exists(Node),
    /// Appends an element if the filter holds; with the cost of `accumulator + [element]`.
    Append(Option<Node>, Node, u64),
    /// Inserts entries if the filter holds: a key with a value, or those of a map.
    Insert(Option<Node>, Option<Node>, Node),
    /// Any other loop: a condition and a step.
    General(Node, Node),
}

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

/// Functions whose calls with a literal are computed once.
const CONVERSIONS: [&str; 10] = [
    "bool",
    "bytes",
    // The parser uses this kind where it has reported an error, so a checked expression has none.
    "double",
    "duration",
    "dyn",
    "int",
    "string",
    "timestamp",
    "type",
    "uint",
];

/// Functions whose second argument is a pattern, which is compiled early to report its errors early.
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
        match (function, arguments.len()) {
            ("_&&_" | "_||_" | "_==_" | "_!=_" | "_[_]" | "_[?_]" | "_?._", 2) => {
                let right = arguments.pop();
                if let (Some(left), Some(right)) = (arguments.pop(), right) {
                    return plan_operator(function, left, right);
                }
            }
            // The right side is evaluated only if the left one is absent, so this is no ordinary
            // call.
            ("or" | "orValue", 2) if self.is_optional_call(id) => {
                let right = arguments.pop();
                if let (Some(left), Some(right)) = (arguments.pop(), right) {
                    return Ok(Node::OptionalOr(
                        Box::new((left, right)),
                        function == "orValue",
                    ));
                }
            }
            ("_?_:_", 3) => {
                let (no, yes) = (arguments.pop(), arguments.pop());
                if let (Some(condition), Some(mut yes), Some(mut no)) = (arguments.pop(), yes, no) {
                    // cel-go makes a chain in a branch part of one conditional attribute, so that
                    // its start has no cost.
                    waive_start(&mut yes);
                    waive_start(&mut no);
                    return Ok(Node::Conditional(Box::new((condition, yes, no))));
                }
            }
            _ => {}
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

fn fold_list(elements: Vec<(Node, bool)>) -> Node {
    let mut values = Vec::with_capacity(elements.len());
    // cel-go creates a list of constants once, when it optimizes the program. An optional element
    // may be absent, so it stays a step.
    for (element, optional) in &elements {
        match element {
            Node::Constant(value) if !optional => values.push(value.clone()),
            _ => return Node::List(elements),
        }
    }
    Node::Constant(Value::list(values))
}

fn fold_map(entries: Vec<(Node, Node, bool)>) -> Result<Node, EvalError> {
    let is_constant = |(key, value, optional): &(Node, Node, bool)| {
        matches!((key, value), (Node::Constant(_), Node::Constant(_))) && !optional
    };
    if !entries.iter().all(is_constant) {
        return Ok(Node::Map(entries, MAP_CREATE_COST));
    }
    let mut map = std::collections::BTreeMap::new();
    for entry in &entries {
        if let (Node::Constant(key), Node::Constant(value), _) = entry {
            let key = Key::from_literal(key)?;
            // A repeated key would fail in every evaluation, so it is an error of the compilation.
            if map.insert(key, value.clone()).is_some() {
                return Err(EvalError::message("Failed with repeated key"));
            }
        }
    }
    Ok(Node::Constant(Value::Map(Map::Values(Arc::new(map)))))
}

/// Plans `a in [1, 2]` as a test without a cost.
fn fold_membership(arguments: &mut Vec<Node>) -> Option<Node> {
    let Some(Node::Constant(constants @ Value::List(list))) = arguments.last() else {
        return None;
    };
    // No value is in an empty list: as in cel-go, the left side is not even evaluated.
    if list.is_empty() {
        return Some(Node::Constant(Value::Bool(false)));
    }
    // cel-go builds a hash set of the constants, which bytes, lists and maps can't be in.
    let is_simple = |value: Value<'_>| {
        matches!(
            value.type_of(),
            Type::Bool | Type::Int | Type::Uint | Type::Double | Type::String | Type::Null
        )
    };
    if !list.iter().all(is_simple) {
        return None;
    }
    let constants = constants.clone();
    arguments.truncate(1);
    Some(Node::InConstants(Box::new(arguments.pop()?), constants))
}

fn fold_conversion(call: CallStep) -> Result<Node, EvalError> {
    // cel-go converts a constant when it optimizes the program, and reports the error there.
    if CONVERSIONS.contains(&&*call.function)
        && let [Node::Constant(value)] = call.arguments.as_slice()
    {
        let arguments = [value.clone()];
        let overload = call
            .overloads
            .iter()
            .find(|overload| overload.admits(&arguments));
        let overload = overload.ok_or_else(|| no_overload(&call.function, &arguments))?;
        return (overload.implementation)(&arguments).map(Node::Constant);
    }
    Ok(Node::Call(Box::new(call)))
}

/// Creates the error of a call that no overload admits. Operators do not name the types.
pub fn no_overload(function: &str, arguments: &[Value<'_>]) -> EvalError {
    if function == "size" {
        return EvalError::message("no such overload: size");
    }
    if function.starts_with(['_', '@', '!', '-'])
        || matches!(function, "contains" | "startsWith" | "endsWith" | "matches")
    {
        return EvalError::NoSuchOverload;
    }
    let types: Vec<Type> = arguments.iter().map(Value::type_of).collect();
    let types: Vec<&str> = types.iter().map(Type::runtime_name).collect();
    EvalError::message(format!(
        "no such overload: {function}({})",
        types.join(", ")
    ))
}
