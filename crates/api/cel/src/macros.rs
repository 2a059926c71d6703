//! The macros of the language: `has`, the comprehensions with one and two variables, `cel.bind`,
//! and those of optional values.

use crate::ast::{
    ACCUMULATOR, Comprehension, Expr, ExprFactory, ExprId, ExprKind, Macro, MacroError, Select,
    Unexpanded,
};
use crate::value::Value;
use crate::walk::visit;

/// The function that keeps a comprehension going until its result is certain.
pub const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
/// The function that adds an entry to the map of a comprehension.
pub const MAP_INSERT: &str = "cel.@mapInsert";
/// The variable of a comprehension that has no loop.
pub const UNUSED: &str = "#unused";

/// A target of `optMap` with more parts than this is not copied.
const MAX_COPIED: usize = 64;

type Expansion = Result<Expr, Unexpanded>;

/// The macros that every environment has.
pub const STANDARD: [Macro; 8] = [
    Macro {
        name: "has",
        receiver: false,
        arguments: Some(1),
        expand: expand_has,
    },
    receiver("all", 2, expand_all),
    receiver("exists", 2, expand_exists),
    receiver("exists_one", 2, expand_exists_one),
    receiver("existsOne", 2, expand_exists_one),
    receiver("map", 2, expand_map),
    receiver("map", 3, expand_map),
    receiver("filter", 2, expand_filter),
];

/// The comprehensions with two variables, since Kubernetes 1.32.
pub const TWO_VARIABLES: [Macro; 10] = [
    receiver("all", 3, expand_all),
    receiver("exists", 3, expand_exists),
    receiver("exists_one", 3, expand_exists_one),
    receiver("existsOne", 3, expand_exists_one),
    receiver("transformList", 3, expand_transform_list),
    receiver("transformList", 4, expand_transform_list),
    receiver("transformMap", 3, expand_transform_map),
    receiver("transformMap", 4, expand_transform_map),
    receiver("transformMapEntry", 3, expand_transform_map_entry),
    receiver("transformMapEntry", 4, expand_transform_map_entry),
];

/// The macros of optional values, since Kubernetes 1.28.
pub const OPTIONAL: [Macro; 2] = [
    receiver("optMap", 2, expand_opt_map),
    receiver("optFlatMap", 2, expand_opt_flat_map),
];

/// `cel.bind`, which Kubernetes does not enable.
pub const BIND: Macro = receiver("bind", 3, expand_bind);

const fn receiver(name: &'static str, arguments: usize, expand: crate::ast::Expand) -> Macro {
    Macro {
        name,
        receiver: true,
        arguments: Some(arguments),
        expand,
    }
}

fn fail<T>(id: ExprId, message: &str) -> Result<T, Unexpanded> {
    Err(Unexpanded::Error(MacroError {
        id,
        message: message.to_owned(),
    }))
}

fn read_variable(expr: &Expr, message: &str) -> Result<String, Unexpanded> {
    match &expr.kind {
        // A variable with this name would hide the accumulator, and the loop would compute
        // something else.
        ExprKind::Ident(name) if name == ACCUMULATOR || name == "__result__" => fail(
            expr.id,
            "iteration variable overwrites accumulator variable",
        ),
        ExprKind::Ident(name) => Ok(name.clone()),
        _ => fail(expr.id, message),
    }
}

/// The range, the variables and the other arguments of a macro.
struct Loop {
    range: Expr,
    variable: String,
    variable2: Option<String>,
    rest: Vec<Expr>,
}

const SIMPLE_NAME: &str = "argument must be a simple name";

fn read_loop(
    target: Option<Expr>,
    arguments: Vec<Expr>,
    variables: usize,
    message: &str,
) -> Result<Loop, Unexpanded> {
    // Without a receiver it may be a function of the same name, which the type check looks up.
    let Some(range) = target else {
        return Err(Unexpanded::Call(None, arguments));
    };
    let mut rest = arguments;
    let mut names: Vec<(ExprId, String)> = Vec::new();
    for expr in rest.drain(..variables.min(rest.len())) {
        names.push((expr.id, read_variable(&expr, message)?));
    }
    let mut names = names.into_iter();
    let Some((_, variable)) = names.next() else {
        return Err(Unexpanded::Call(Some(range), rest));
    };
    let second = names.next();
    // One of them would hide the other, so the key or the value could not be read.
    if let Some((id, name)) = &second
        && *name == variable
    {
        return fail(*id, &format!("duplicate variable name: {variable}"));
    }
    Ok(Loop {
        range,
        variable,
        variable2: second.map(|(_, name)| name),
        rest,
    })
}

fn fold(
    factory: &mut dyn ExprFactory,
    source: Loop,
    init: Expr,
    condition: Expr,
    step: Expr,
    result: Expr,
) -> Expansion {
    Ok(factory.comprehension(Comprehension {
        range: source.range,
        variable: source.variable,
        variable2: source.variable2,
        accumulator: ACCUMULATOR.to_owned(),
        init,
        condition,
        step,
        result,
    }))
}

fn take_last(source: &mut Loop) -> Result<Expr, Unexpanded> {
    source.rest.pop().ok_or(Unexpanded::Call(None, Vec::new()))
}

fn expand_has(_: &mut dyn ExprFactory, _: Option<Expr>, mut arguments: Vec<Expr>) -> Expansion {
    match arguments.pop() {
        // Only a selection can be absent. The existence of any other expression is no question.
        Some(Expr {
            id,
            kind: ExprKind::Select(select),
        }) => Ok(Expr {
            id,
            kind: ExprKind::Select(Select {
                test_only: true,
                ..select
            }),
        }),
        Some(other) => fail(other.id, "invalid argument to has() macro"),
        None => Err(Unexpanded::Call(None, arguments)),
    }
}

fn expand_all(
    factory: &mut dyn ExprFactory,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Expansion {
    fold_predicate(factory, target, arguments, true)
}

fn expand_exists(
    factory: &mut dyn ExprFactory,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Expansion {
    fold_predicate(factory, target, arguments, false)
}

/// Expands to a loop that starts with `neutral` and ends at the first opposite value.
fn fold_predicate(
    factory: &mut dyn ExprFactory,
    target: Option<Expr>,
    arguments: Vec<Expr>,
    neutral: bool,
) -> Expansion {
    let variables = arguments.len().saturating_sub(1);
    let mut source = read_loop(target, arguments, variables, SIMPLE_NAME)?;
    let predicate = take_last(&mut source)?;
    // Expressions are created in this order, because their ids follow from it.
    let init = factory.literal(Value::Bool(neutral));
    let mut running = factory.ident(ACCUMULATOR);
    if !neutral {
        running = factory.call("!_", vec![running]);
    }
    let condition = factory.call(NOT_STRICTLY_FALSE, vec![running]);
    let accumulator = factory.ident(ACCUMULATOR);
    let operator = if neutral { "_&&_" } else { "_||_" };
    let step = factory.call(operator, vec![accumulator, predicate]);
    let result = factory.ident(ACCUMULATOR);
    fold(factory, source, init, condition, step, result)
}

fn expand_exists_one(
    factory: &mut dyn ExprFactory,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Expansion {
    let variables = arguments.len().saturating_sub(1);
    let mut source = read_loop(target, arguments, variables, SIMPLE_NAME)?;
    let predicate = take_last(&mut source)?;
    let init = factory.literal(Value::Int(0));
    // All elements are visited: a second match makes the result false.
    let condition = factory.literal(Value::Bool(true));
    let accumulator = factory.ident(ACCUMULATOR);
    let one = factory.literal(Value::Int(1));
    let increment = factory.call("_+_", vec![accumulator, one]);
    let step = keep_or(factory, Some(predicate), increment);
    let accumulator = factory.ident(ACCUMULATOR);
    let one = factory.literal(Value::Int(1));
    let result = factory.call("_==_", vec![accumulator, one]);
    fold(factory, source, init, condition, step, result)
}

/// Applies a step only if the filter holds.
fn keep_or(factory: &mut dyn ExprFactory, filter: Option<Expr>, step: Expr) -> Expr {
    match filter {
        None => step,
        Some(filter) => {
            let accumulator = factory.ident(ACCUMULATOR);
            factory.call("_?_:_", vec![filter, step, accumulator])
        }
    }
}

fn fold_list(
    factory: &mut dyn ExprFactory,
    source: Loop,
    filter: Option<Expr>,
    element: Expr,
) -> Expansion {
    let init = factory.list(Vec::new());
    let condition = factory.literal(Value::Bool(true));
    let accumulator = factory.ident(ACCUMULATOR);
    let added = factory.list(vec![element]);
    let append = factory.call("_+_", vec![accumulator, added]);
    let step = keep_or(factory, filter, append);
    let result = factory.ident(ACCUMULATOR);
    fold(factory, source, init, condition, step, result)
}

fn expand_map(
    factory: &mut dyn ExprFactory,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Expansion {
    let mut source = read_loop(target, arguments, 1, "argument is not an identifier")?;
    let transform = take_last(&mut source)?;
    let filter = source.rest.pop();
    fold_list(factory, source, filter, transform)
}

fn expand_filter(
    factory: &mut dyn ExprFactory,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Expansion {
    let mut source = read_loop(target, arguments, 1, "argument is not an identifier")?;
    let filter = take_last(&mut source)?;
    let element = factory.ident(&source.variable);
    fold_list(factory, source, Some(filter), element)
}

fn expand_transform_list(
    factory: &mut dyn ExprFactory,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Expansion {
    let mut source = read_loop(target, arguments, 2, SIMPLE_NAME)?;
    let transform = take_last(&mut source)?;
    let filter = source.rest.pop();
    fold_list(factory, source, filter, transform)
}

fn fold_map(
    factory: &mut dyn ExprFactory,
    source: Loop,
    filter: Option<Expr>,
    inserted: Vec<Expr>,
) -> Expansion {
    let init = factory.create(ExprKind::Map(Vec::new()));
    let condition = factory.literal(Value::Bool(true));
    let mut arguments = vec![factory.ident(ACCUMULATOR)];
    arguments.extend(inserted);
    let insert = factory.call(MAP_INSERT, arguments);
    let step = keep_or(factory, filter, insert);
    let result = factory.ident(ACCUMULATOR);
    fold(factory, source, init, condition, step, result)
}

fn expand_transform_map(
    factory: &mut dyn ExprFactory,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Expansion {
    let mut source = read_loop(target, arguments, 2, SIMPLE_NAME)?;
    let transform = take_last(&mut source)?;
    let filter = source.rest.pop();
    let key = factory.ident(&source.variable);
    fold_map(factory, source, filter, vec![key, transform])
}

fn expand_transform_map_entry(
    factory: &mut dyn ExprFactory,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Expansion {
    let mut source = read_loop(target, arguments, 2, SIMPLE_NAME)?;
    let transform = take_last(&mut source)?;
    let filter = source.rest.pop();
    fold_map(factory, source, filter, vec![transform])
}

/// Evaluates `result` with a variable that has the value of `init`.
fn bind(factory: &mut dyn ExprFactory, variable: String, init: Expr, result: Expr) -> Expr {
    let range = factory.list(Vec::new());
    let condition = factory.literal(Value::Bool(false));
    let step = factory.ident(&variable);
    factory.comprehension(Comprehension {
        range,
        variable: UNUSED.to_owned(),
        variable2: None,
        accumulator: variable,
        init,
        condition,
        step,
        result,
    })
}

fn expand_bind(
    factory: &mut dyn ExprFactory,
    target: Option<Expr>,
    mut arguments: Vec<Expr>,
) -> Expansion {
    // `bind` of any other receiver is an ordinary call.
    let is_cel = matches!(&target, Some(Expr { kind: ExprKind::Ident(name), .. }) if name == "cel");
    if !is_cel || arguments.len() != 3 {
        return Err(Unexpanded::Call(target, arguments));
    }
    let (Some(result), Some(init), Some(variable)) =
        (arguments.pop(), arguments.pop(), arguments.pop())
    else {
        return Err(Unexpanded::Call(target, arguments));
    };
    let ExprKind::Ident(name) = variable.kind else {
        return fail(
            variable.id,
            "cel.bind() variable names must be simple identifiers",
        );
    };
    Ok(bind(factory, name, init, result))
}

fn expand_opt_map(
    factory: &mut dyn ExprFactory,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Expansion {
    expand_optional(factory, target, arguments, true)
}

fn expand_opt_flat_map(
    factory: &mut dyn ExprFactory,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Expansion {
    expand_optional(factory, target, arguments, false)
}

fn expand_optional(
    factory: &mut dyn ExprFactory,
    target: Option<Expr>,
    mut arguments: Vec<Expr>,
    wraps: bool,
) -> Expansion {
    let (Some(body), Some(variable), Some(target)) = (arguments.pop(), arguments.pop(), target)
    else {
        return Err(Unexpanded::Call(None, arguments));
    };
    let name = match variable.kind {
        ExprKind::Ident(name) => name,
        _ if wraps => {
            return fail(
                variable.id,
                "optMap() variable name must be a simple identifier",
            );
        }
        _ => {
            return fail(
                variable.id,
                "optFlatMap() variable name must be a simple identifier",
            );
        }
    };
    // The target occurs twice in the expansion. Chains of these macros would double it each time,
    // so a large target is bound to a variable that no identifier can name.
    let mut count = 0;
    visit(&target, &mut |_| count += 1);
    let (bound, target) = match count <= MAX_COPIED {
        true => (None, target),
        false => (Some(target), factory.ident("@target")),
    };
    let condition_target = factory.copy(&target);
    let condition = factory.member_call(condition_target, "hasValue", Vec::new());
    let value = factory.member_call(target, "value", Vec::new());
    let result = bind(factory, name, value, body);
    let result = match wraps {
        true => factory.call("optional.of", vec![result]),
        false => result,
    };
    let none = factory.call("optional.none", Vec::new());
    let expanded = factory.call("_?_:_", vec![condition, result, none]);
    Ok(match bound {
        Some(target) => bind(factory, "@target".to_owned(), target, expanded),
        None => expanded,
    })
}
