//! The estimate of the cost of an expression, before it is evaluated.

mod scopes;

use std::collections::HashMap;

use crate::ast::{Call, Comprehension, Expr, ExprId, ExprKind, MapEntry, Select};
use crate::check::{Checked, Reference};
use crate::cost::{
    Argument, CallEstimate, CallSite, LIST_CREATE_COST, MAP_CREATE_COST, Range, SELECT_COST,
    STRING_TRAVERSAL_FACTOR, STRUCT_CREATE_COST,
};
use crate::function::Overload;
use crate::types::Type;
use crate::value::Value;
use scopes::{EntrySize, Local, Scopes, union_entries};

/// Sizes that a schema knows.
pub trait SizeEstimates {
    /// Returns the size of the values at a path; `None` if nothing bounds it.
    ///
    /// A path starts with a variable. Its other parts are names of fields, `@items`, `@keys`,
    /// `@values` or `@indices`. It is empty if the value does not come from a variable.
    fn estimate_size(&self, path: &[String], value_type: &Type) -> Option<Range>;
}

/// No knowledge of sizes.
#[derive(Debug, Clone, Copy)]
pub struct UnknownSizes;

impl SizeEstimates for UnknownSizes {
    fn estimate_size(&self, _: &[String], _: &Type) -> Option<Range> {
        None
    }
}

/// Estimates the cost of a checked expression.
pub fn estimate(checked: &Checked, sizes: &dyn SizeEstimates) -> Range {
    // Keyed by expression, because the calls above need the sizes and paths that are found below
    // them.
    let mut estimator = Estimator {
        checked,
        sizes,
        paths: HashMap::new(),
        computed: HashMap::new(),
        entries: HashMap::new(),
        scopes: Scopes::default(),
    };
    estimator.cost(&checked.expr)
}

struct Estimator<'c> {
    checked: &'c Checked,
    sizes: &'c dyn SizeEstimates,
    paths: HashMap<ExprId, Vec<String>>,
    computed: HashMap<ExprId, Range>,
    entries: HashMap<ExprId, EntrySize>,
    scopes: Scopes,
}

impl Estimator<'_> {
    fn cost(&mut self, expr: &Expr) -> Range {
        match &expr.kind {
            // A literal is created when the program is compiled, so an evaluation costs nothing.
            ExprKind::Unspecified | ExprKind::Literal(_) => Range::ZERO,
            ExprKind::Ident(name) => {
                let path = match self.scopes.find(name) {
                    Some(local) => local.path.clone(),
                    None => vec![name.clone()],
                };
                self.paths.insert(expr.id, path);
                Range::fixed(SELECT_COST)
            }
            ExprKind::Select(select) => self.cost_select(expr.id, select),
            ExprKind::Call(call) => self.cost_call(expr, call),
            ExprKind::List(list) => self.cost_list(expr.id, &list.elements),
            ExprKind::Map(entries) => self.cost_map(expr.id, entries),
            ExprKind::Struct(literal) => {
                let fields: Vec<&Expr> = literal.fields.iter().map(|field| &field.value).collect();
                let sum = self.cost_all(fields);
                sum.add(Range::fixed(STRUCT_CREATE_COST))
            }
            ExprKind::Comprehension(fold) => self.cost_comprehension(expr.id, fold),
        }
    }

    fn cost_all<'x>(&mut self, exprs: impl IntoIterator<Item = &'x Expr>) -> Range {
        exprs
            .into_iter()
            .fold(Range::ZERO, |sum, expr| sum.add(self.cost(expr)))
    }

    fn cost_select(&mut self, id: ExprId, select: &Select) -> Range {
        let operand = self.cost(&select.operand);
        // Kubernetes configures cel-go so that `has()` costs nothing.
        if select.test_only {
            return operand;
        }
        let mut path = self.path_of(&select.operand);
        path.push(select.field.clone());
        self.paths.insert(id, path);
        // Other operands, for instance dynamic ones, add nothing upstream.
        let has_cost = matches!(
            self.checked.type_of(select.operand.id),
            Type::Map(..) | Type::Struct(_) | Type::Param(_)
        );
        if has_cost {
            operand.add(Range::fixed(SELECT_COST))
        } else {
            operand
        }
    }

    fn cost_list(&mut self, id: ExprId, elements: &[Expr]) -> Range {
        let mut sum = Range::ZERO;
        let mut item: Option<Range> = None;
        for element in elements {
            sum = sum.add(self.cost(element));
            let size = self.size_or_unknown(element);
            // The size of an element is unknown until evaluation, so all of them are covered by one
            // range.
            item = Some(item.map_or(size, |item| item.union(size)));
        }
        let value = item.unwrap_or(Range::ZERO);
        self.entries.insert(
            id,
            EntrySize {
                is_list: true,
                key: Range::fixed(1),
                value,
            },
        );
        sum.add(Range::fixed(LIST_CREATE_COST))
    }

    fn cost_map(&mut self, id: ExprId, entries: &[MapEntry]) -> Range {
        let mut sum = Range::ZERO;
        let (mut keys, mut values): (Option<Range>, Option<Range>) = (None, None);
        for entry in entries {
            sum = sum.add(self.cost(&entry.key)).add(self.cost(&entry.value));
            let (key, value) = (
                self.size_or_unknown(&entry.key),
                self.size_or_unknown(&entry.value),
            );
            keys = Some(keys.map_or(key, |keys| keys.union(key)));
            values = Some(values.map_or(value, |values| values.union(value)));
        }
        let (key, value) = (keys.unwrap_or(Range::ZERO), values.unwrap_or(Range::ZERO));
        self.entries.insert(
            id,
            EntrySize {
                is_list: false,
                key,
                value,
            },
        );
        sum.add(Range::fixed(MAP_CREATE_COST))
    }

    fn cost_comprehension(&mut self, id: ExprId, fold: &Comprehension) -> Range {
        // The range is visited before the variables exist, because it can't refer to them.
        let mut sum = self.cost(&fold.range).add(self.cost(&fold.init));
        let accumulator = Local {
            path: self.path_of(&fold.init),
            size: self.compute_size(&fold.init),
            entries: self.entries_of(&fold.init),
        };
        let depth = self.scopes.push(&fold.accumulator, accumulator);
        // `cel.bind` is a comprehension without elements. The general rule would count its body
        // zero times.
        if is_bind(fold) {
            sum = sum.add(self.cost(&fold.result));
            self.scopes.truncate(depth);
            self.copy_sizes(id, &fold.result);
            return sum;
        }
        self.push_variables(fold);
        let condition = self.cost(&fold.condition);
        let step = self.cost(&fold.step);
        // The result may use the accumulator, but no longer the loop's variables.
        self.scopes.truncate(depth + 1);
        sum = sum.add(self.cost(&fold.result));
        self.scopes.truncate(depth);
        // A list without a limit in the schema counts as endless, so nested loops soon exceed each
        // limit.
        let count = self.size_or_unknown(&fold.range);
        sum = sum.add(count.multiply(step.add(condition)));
        match &fold.init.kind {
            // `all` and `exists` have a boolean as the result, and `map` and `filter` at most one
            // element for each step.
            ExprKind::Literal(_) => {
                if let Some(size) = self.compute_size(&fold.init) {
                    self.computed.insert(id, size);
                }
            }
            ExprKind::List(_) | ExprKind::Map(_) => {
                self.computed.insert(id, count);
                if let Some(entries) = self.entries_of(&fold.step) {
                    self.entries.insert(id, entries);
                }
            }
            _ => {}
        }
        sum
    }

    fn push_variables(&mut self, fold: &Comprehension) {
        let entries = self.entries_of(&fold.range);
        let path = self.path_of(&fold.range);
        let is_list = match &entries {
            Some(entries) => entries.is_list,
            None => matches!(self.checked.type_of(fold.range.id), Type::List(_)),
        };
        let local = |part: &str, size: Option<Range>| {
            let mut path = path.clone();
            path.push(part.to_owned());
            Local {
                path,
                size,
                entries: None,
            }
        };
        let key_size = entries.as_ref().map(|entries| entries.key);
        let value_size = entries.as_ref().map(|entries| entries.value);
        // These names can't be fields of a schema in CEL, so paths stay unambiguous.
        let value_part = if is_list { "@items" } else { "@values" };
        match &fold.variable2 {
            Some(second) => {
                let key_part = if is_list { "@indices" } else { "@keys" };
                self.scopes.push(&fold.variable, local(key_part, key_size));
                self.scopes.push(second, local(value_part, value_size));
            }
            None if is_list => {
                self.scopes
                    .push(&fold.variable, local("@items", value_size));
            }
            None => {
                self.scopes.push(&fold.variable, local("@keys", key_size));
            }
        }
    }

    fn cost_call(&mut self, expr: &Expr, call: &Call) -> Range {
        // The value is unchanged, so its size must not be lost. Otherwise `dyn()` would make each
        // estimate unlimited.
        if call.function == "dyn"
            && let Some(argument) = call.arguments.first()
        {
            let cost = self.cost(argument);
            self.copy_sizes(expr.id, argument);
            return cost.add(Range::fixed(1));
        }
        let costs: Vec<Range> = call
            .arguments
            .iter()
            .map(|argument| self.cost(argument))
            .collect();
        let arguments = call
            .arguments
            .iter()
            .map(|argument| self.describe(argument))
            .collect();
        let target_cost = call.target.as_deref().map(|target| self.cost(target));
        let target = call.target.as_deref().map(|target| self.describe(target));
        let site = CallSite { target, arguments };
        let checked = self.checked;
        // A call that was not resolved was reported by the type check and is never evaluated.
        let Some(Reference::Overloads(function, overloads)) = checked.reference(expr.id) else {
            return Range::ZERO;
        };
        if &**function == "_?._" {
            let sum = costs
                .iter()
                .fold(Range::fixed(1), |sum, cost| sum.add(*cost));
            return sum;
        }
        // A dynamic argument leaves several overloads, of which any may run.
        let mut total: Option<Range> = None;
        let mut result_size: Option<Range> = None;
        for overload in overloads {
            let found = self.cost_overload(expr, call, overload, &site, &costs);
            total = Some(total.map_or(found.cost, |total| total.union(found.cost)));
            if let Some(size) = found.result_size {
                result_size = Some(result_size.map_or(size, |result| result.union(size)));
            }
            if let Some((element, size)) = self.find_element(overload, call) {
                self.paths.insert(expr.id, element);
                result_size = size;
            }
            if result_size.is_none() {
                result_size = self.compute_size(expr);
            }
        }
        if let Some(size) = result_size {
            self.computed.insert(expr.id, size);
        }
        target_cost
            .unwrap_or(Range::ZERO)
            .add(total.unwrap_or(Range::ZERO))
    }

    /// Returns the path and the size of the element that an index selects.
    fn find_element(
        &self,
        overload: &Overload,
        call: &Call,
    ) -> Option<(Vec<String>, Option<Range>)> {
        let part = match overload.id {
            "index_list" => "@items",
            "index_map" => "@values",
            _ => return None,
        };
        let operand = call.arguments.first()?;
        let mut path = self.path_of(operand);
        path.push(part.to_owned());
        Some((path, self.entries_of(operand).map(|entries| entries.value)))
    }

    fn cost_overload(
        &mut self,
        expr: &Expr,
        call: &Call,
        overload: &Overload,
        site: &CallSite,
        costs: &[Range],
    ) -> CallEstimate {
        let sum = costs.iter().fold(Range::ZERO, |sum, cost| sum.add(*cost));
        match (overload.id, costs, call.arguments.as_slice()) {
            // The right side may be skipped, so the least cost is that of the left side alone.
            ("logical_or" | "logical_and", [left, right], _) => {
                return CallEstimate::new(Range::new(left.min, left.add(*right).max));
            }
            // Only one branch is evaluated, unlike in a sum of the arguments.
            ("conditional", [condition, yes, no], [_, if_true, if_false]) => {
                let size = self
                    .size_or_unknown(if_true)
                    .union(self.size_or_unknown(if_false));
                self.join_entries(expr.id, if_true, if_false);
                return CallEstimate::sized(condition.add(yes.union(*no)), size);
            }
            ("add_string" | "add_bytes", _, [left, right]) => {
                self.join_entries(expr.id, left, right);
            }
            ("add_list", _, [left, right]) => {
                self.join_entries(expr.id, left, right);
                let size = self.size_or_unknown(left).add(self.size_or_unknown(right));
                return CallEstimate::sized(Range::fixed(1).add(sum), size);
            }
            // Equality has one overload for all types, so its cost can't be declared there.
            ("equals", _, _) | ("not_equals", _, _) => {
                return CallEstimate::new(estimate_equality(overload.id, site).add(sum));
            }
            _ => {}
        }
        match overload.estimate.and_then(|estimate| estimate(site)) {
            Some(found) => CallEstimate {
                cost: found.cost.add(sum),
                result_size: found.result_size,
            },
            None => CallEstimate::new(Range::fixed(1).add(sum)),
        }
    }

    fn join_entries(&mut self, id: ExprId, left: &Expr, right: &Expr) {
        if let Some(joined) = union_entries(self.entries_of(left), self.entries_of(right)) {
            self.entries.insert(id, joined);
        }
    }

    fn describe(&mut self, expr: &Expr) -> Argument {
        let result_type = self.checked.type_of(expr.id).clone();
        let known_size = self.compute_size(expr);
        let mut path = self.path_of(expr);
        // The accumulator is no field of the object, so the schema says nothing about it.
        if path
            .first()
            .is_some_and(|root| root == crate::ast::ACCUMULATOR)
        {
            path.clear();
        }
        let known_element_size = match result_type.parameters().first() {
            Some(element) => {
                if !path.is_empty() {
                    path.push("@items".to_owned());
                }
                self.sizes.estimate_size(&path, element)
            }
            None => None,
        };
        let literal = match &expr.kind {
            ExprKind::Literal(value) => Some(value.clone()),
            _ => None,
        };
        Argument {
            result_type,
            known_size,
            known_element_size,
            literal,
        }
    }

    fn path_of(&self, expr: &Expr) -> Vec<String> {
        if let ExprKind::Ident(name) = &expr.kind
            && let Some(local) = self.scopes.find(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn entries_of(&self, expr: &Expr) -> Option<EntrySize> {
        if let Some(entries) = self.entries.get(&expr.id) {
            return Some(*entries);
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.scopes.find(name)?.entries,
            _ => None,
        }
    }

    fn copy_sizes(&mut self, id: ExprId, from: &Expr) {
        if let Some(size) = self.compute_size(from) {
            self.computed.insert(id, size);
        }
        if let Some(entries) = self.entries_of(from) {
            self.entries.insert(id, entries);
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Range {
        self.compute_size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn compute_size(&mut self, expr: &Expr) -> Option<Range> {
        // A size from the expression itself is more exact than that of the schema, so it comes
        // first.
        if let Some(size) = self.computed.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(expr) {
            return Some(Range::fixed(size));
        }
        let value_type = self.checked.type_of(expr.id);
        let path = self.path_of(expr);
        if let Some(size) = self.sizes.estimate_size(&path, value_type) {
            self.computed.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(value_type) {
            return Some(Range::fixed(1));
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.scopes.find(name)?.size,
            _ => None,
        }
    }
}

fn is_bind(fold: &Comprehension) -> bool {
    matches!(&fold.range.kind, ExprKind::List(list) if list.elements.is_empty())
        && matches!(fold.condition.kind, ExprKind::Literal(Value::Bool(false)))
        && fold.accumulator != crate::ast::ACCUMULATOR
}

fn literal_size(expr: &Expr) -> Option<u64> {
    match &expr.kind {
        ExprKind::Literal(Value::String(text)) => Some(text.chars().count() as u64),
        ExprKind::Literal(Value::Bytes(bytes)) => Some(bytes.len() as u64),
        ExprKind::Literal(_) => Some(1),
        ExprKind::List(list) => Some(list.elements.len() as u64),
        ExprKind::Map(entries) => Some(entries.len() as u64),
        _ => None,
    }
}

fn is_scalar(value_type: &Type) -> bool {
    match value_type {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            true
        }
        other => other.optional_inner().is_some_and(is_scalar),
    }
}

/// Library types of which a comparison always costs 1.
const CHEAP_TYPES: [&str; 8] = [
    "net.IP",
    "net.CIDR",
    "kubernetes.Quantity",
    "kubernetes.Semver",
    "kubernetes.authorization.Authorizer",
    "kubernetes.authorization.PathCheck",
    "kubernetes.authorization.GroupCheck",
    "kubernetes.authorization.ResourceCheck",
];

fn estimate_equality(id: &str, site: &CallSite) -> Range {
    let [left, right] = site.arguments.as_slice() else {
        return Range::fixed(1);
    };
    if id == "equals" && left.result_type == right.result_type {
        // Upstream charges only `==` for these types in this way and falls through for `!=`.
        match left.result_type.runtime_name() {
            name if CHEAP_TYPES.contains(&name) => return Range::fixed(1),
            "kubernetes.authorization.Decision" => return Range::fixed(1),
            "kubernetes.NamedFormat" => return Range::new(1, 64).scale(STRING_TRAVERSAL_FACTOR),
            "kubernetes.URL" => {
                let max = right.known_size.map_or(1, |size| size.max);
                return Range::new(1, max).scale(STRING_TRAVERSAL_FACTOR);
            }
            _ => {}
        }
    }
    // A comparison ends at the shorter operand, at the latest.
    let max = left.size().max.min(right.size().max);
    Range::new(u64::from(max > 0), max).scale(STRING_TRAVERSAL_FACTOR)
}
