//! Assignability of types with type parameters.

use std::collections::HashMap;
use std::sync::Arc;

use crate::types::{OPTIONAL, Type};

/// The meanings of the type parameters of an expression.
#[derive(Debug, Default)]
pub struct Substitutions {
    bindings: HashMap<Arc<str>, Type>,
    /// Earlier bindings, to undo an attempt that failed.
    trail: Vec<(Arc<str>, Option<Type>)>,
    count: usize,
}

impl Substitutions {
    /// Creates a type parameter that occurs nowhere else.
    pub fn new_param(&mut self) -> Type {
        // Fresh names keep the parameters of two calls apart, even of one function.
        let name = format!("_var{}", self.count);
        self.count += 1;
        Type::Param(name.into())
    }

    fn bind(&mut self, param: &Arc<str>, to: Type) {
        let previous = self.bindings.insert(param.clone(), to);
        self.trail.push((param.clone(), previous));
    }

    fn attempt(&mut self, test: impl FnOnce(&mut Self) -> bool) -> bool {
        let start = self.trail.len();
        // A failed overload may have bound parameters on its way, which the next one must not see.
        let holds = test(self);
        while !holds && self.trail.len() > start {
            if let Some((name, previous)) = self.trail.pop() {
                match previous {
                    Some(previous) => self.bindings.insert(name, previous),
                    None => self.bindings.remove(&name),
                };
            }
        }
        if start == 0 {
            self.trail.clear();
        }
        holds
    }

    /// Reports whether a value of type `from` can be used as `to`, and binds type parameters if so.
    pub fn is_assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.attempt(|this| this.assign(from, to))
    }

    /// The same for lists of types.
    pub fn is_assignable_list(&mut self, from: &[Type], to: &[Type]) -> bool {
        self.attempt(|this| this.assign_all(from.iter(), to.iter()))
    }

    fn assign_all<'t>(
        &mut self,
        mut from: impl ExactSizeIterator<Item = &'t Type>,
        to: impl ExactSizeIterator<Item = &'t Type>,
    ) -> bool {
        from.len() == to.len()
            && to
                .zip(from.by_ref())
                .all(|(to, from)| self.assign(from, to))
    }

    fn assign(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Param(param) = to {
            let (valid, bound) = self.substitute_param(from, param, to);
            if valid || bound {
                return valid;
            }
        }
        if let Type::Param(param) = from {
            return self.substitute_param(to, param, from).0;
        }
        // A dynamic value is checked at run time. An error has been reported, so it must not cause
        // more of them.
        if is_dyn_or_error(from) || is_dyn_or_error(to) {
            return true;
        }
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::Nullable(from), Type::Nullable(to)) => self.assign(from, to),
            (other, Type::Nullable(inner)) | (Type::Nullable(inner), other) => other == &**inner,
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(from), Type::List(to)) => self.assign(from, to),
            (Type::Map(from_key, from_value), Type::Map(to_key, to_value)) => {
                self.assign(from_key, to_key) && self.assign(from_value, to_value)
            }
            (Type::Opaque(from_name, from), Type::Opaque(to_name, to)) => {
                from_name == to_name && self.assign_all(from.iter(), to.iter())
            }
            _ => from == to,
        }
    }

    /// Returns whether `param` can stand for `other`, and whether it already had a meaning.
    fn substitute_param(&mut self, other: &Type, param: &Arc<str>, as_type: &Type) -> (bool, bool) {
        if other == as_type {
            return (true, true);
        }
        if let Some(bound) = self.bindings.get(param).cloned() {
            if *other == bound {
                return (true, true);
            }
            // The more general type is kept, so that a list of `int` and `dyn` is a list of `dyn`.
            if self.assign(other, &bound) {
                let general = choose_most_general(other, &bound);
                if !self.refers_to(&general, param) {
                    self.bind(param, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        // A parameter inside its own meaning would make the type endless, and each later visit a
        // loop.
        if self.refers_to(other, param) {
            return (false, false);
        }
        self.bind(param, other.clone());
        (true, false)
    }

    fn refers_to(&self, within: &Type, param: &Arc<str>) -> bool {
        match within {
            Type::Param(name) if name == param => true,
            Type::Param(name) => self
                .bindings
                .get(name)
                .is_some_and(|bound| self.refers_to(bound, param)),
            other => other
                .parameters()
                .into_iter()
                .any(|inner| self.refers_to(inner, param)),
        }
    }

    /// Replaces type parameters by what they stand for; the others by `dyn` if `to_dyn`.
    pub fn resolve(&self, original: &Type, to_dyn: bool) -> Type {
        match original {
            Type::Param(name) => match self.bindings.get(name) {
                Some(bound) => self.resolve(bound, to_dyn),
                None if to_dyn => Type::Dyn,
                None => original.clone(),
            },
            Type::List(element) => Type::list(self.resolve(element, to_dyn)),
            Type::Map(key, value) => {
                Type::map(self.resolve(key, to_dyn), self.resolve(value, to_dyn))
            }
            Type::Opaque(name, params) if !params.is_empty() => {
                let params = params
                    .iter()
                    .map(|param| self.resolve(param, to_dyn))
                    .collect();
                Type::Opaque(name.clone(), params)
            }
            Type::Type(Some(inner)) => Type::type_of(self.resolve(inner, to_dyn)),
            other => other.clone(),
        }
    }
}

/// Replaces the type parameters of a signature by new ones.
pub fn instantiate(
    declared: &Type,
    substitutions: &mut Substitutions,
    fresh: &mut HashMap<Arc<str>, Type>,
) -> Type {
    match declared {
        // One signature shares its parameters: both arguments of `T == T` have one type.
        Type::Param(name) => fresh
            .entry(name.clone())
            .or_insert_with(|| substitutions.new_param())
            .clone(),
        Type::List(element) => Type::list(instantiate(element, substitutions, fresh)),
        Type::Map(key, value) => {
            let key = instantiate(key, substitutions, fresh);
            Type::map(key, instantiate(value, substitutions, fresh))
        }
        Type::Opaque(name, params) if !params.is_empty() => {
            let params = params
                .iter()
                .map(|param| instantiate(param, substitutions, fresh))
                .collect();
            Type::Opaque(name.clone(), params)
        }
        Type::Type(Some(inner)) => Type::type_of(instantiate(inner, substitutions, fresh)),
        other => other.clone(),
    }
}

/// Reports whether nothing is known of a value of the type.
pub fn is_dyn_or_error(checked: &Type) -> bool {
    matches!(checked, Type::Dyn | Type::Error)
}

fn is_nullable(checked: &Type) -> bool {
    matches!(
        checked,
        Type::Null
            | Type::Opaque(..)
            | Type::Struct(_)
            | Type::Duration
            | Type::Timestamp
            | Type::Nullable(_)
    )
}

/// Returns the type that admits more values.
pub fn choose_most_general(left: &Type, right: &Type) -> Type {
    if is_equal_or_less_specific(left, right) {
        left.clone()
    } else {
        right.clone()
    }
}

fn is_equal_or_less_specific(left: &Type, right: &Type) -> bool {
    match (left, right) {
        (Type::Dyn | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Param(_)) => false,
        (Type::Type(_), Type::Type(_)) => true,
        (Type::List(left), Type::List(right)) => is_equal_or_less_specific(left, right),
        (Type::Map(left_key, left_value), Type::Map(right_key, right_value)) => {
            is_equal_or_less_specific(left_key, right_key)
                && is_equal_or_less_specific(left_value, right_value)
        }
        (Type::Opaque(left_name, left), Type::Opaque(right_name, right)) => {
            left_name == right_name
                && left.len() == right.len()
                && left
                    .iter()
                    .zip(right.iter())
                    .all(|(l, r)| is_equal_or_less_specific(l, r))
        }
        _ => left == right,
    }
}

/// Returns the inner type of an optional type, or the type itself, and whether it was optional.
pub fn unwrap_optional(checked: &Type) -> (Type, bool) {
    match checked {
        Type::Opaque(name, params) if &**name == OPTIONAL => {
            (params.first().cloned().unwrap_or(Type::Dyn), true)
        }
        other => (other.clone(), false),
    }
}

/// Returns the number of nodes of a type, at most `limit`.
pub fn count_nodes(counted: &Type, limit: usize) -> usize {
    // Nested types can double with each step, so the count ends at the limit.
    let mut count = 1;
    for inner in counted.parameters() {
        if count >= limit {
            break;
        }
        count += count_nodes(inner, limit - count);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_takes_the_most_general_type() {
        let mut substitutions = Substitutions::default();
        let param = substitutions.new_param();
        assert!(substitutions.is_assignable(&Type::Int, &param));
        assert!(substitutions.is_assignable(&Type::Dyn, &param));
        assert_eq!(substitutions.resolve(&param, false), Type::Dyn);
    }

    #[test]
    fn failed_attempt_binds_nothing() {
        let mut substitutions = Substitutions::default();
        let param = substitutions.new_param();
        let from = [Type::Int, Type::String];
        assert!(!substitutions.is_assignable_list(&from, &[param.clone(), param.clone()]));
        assert_eq!(substitutions.resolve(&param, true), Type::Dyn);
        assert!(substitutions.is_assignable(&Type::String, &param));
    }

    #[test]
    fn parameter_does_not_contain_itself() {
        let mut substitutions = Substitutions::default();
        let param = substitutions.new_param();
        assert!(!substitutions.is_assignable(&Type::list(param.clone()), &param));
    }

    #[test]
    fn null_fits_objects_and_times_but_no_primitives() {
        let mut substitutions = Substitutions::default();
        for fits in [
            Type::Timestamp,
            Type::Duration,
            Type::object("x"),
            Type::optional(Type::Int),
        ] {
            assert!(substitutions.is_assignable(&Type::Null, &fits), "{fits}");
        }
        for other in [Type::Int, Type::String, Type::list(Type::Int)] {
            assert!(!substitutions.is_assignable(&Type::Null, &other), "{other}");
        }
    }
}
