//! The state that plugins keep during one attempt.
//!
//! Values are stored by type, so no two plugins can collide, and can be cloned: trying out the
//! removal of pods works on a copy.

use std::any::{Any, TypeId};
use std::collections::{HashMap, HashSet};

trait Value: Any + Send + Sync {
    fn clone_boxed(&self) -> Box<dyn Value>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any + Clone + Send + Sync> Value for T {
    fn clone_boxed(&self) -> Box<dyn Value> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// The values of one attempt.
#[derive(Default)]
pub struct CycleState {
    values: HashMap<TypeId, Box<dyn Value>>,
    /// Filters skipped by the PreFilter of the same plugin.
    pub skip_filters: HashSet<&'static str>,
    /// Scores skipped by the PreScore of the same plugin.
    pub skip_scores: HashSet<&'static str>,
}

impl Clone for CycleState {
    fn clone(&self) -> Self {
        Self {
            // Copies the inner value, not the box: a box is a value, too.
            // The copy must be deep: preemption removes pods from a copy while the original serves
            // the other nodes.
            values: self
                .values
                .iter()
                .map(|(key, value)| (*key, (**value).clone_boxed()))
                .collect(),
            skip_filters: self.skip_filters.clone(),
            skip_scores: self.skip_scores.clone(),
        }
    }
}

impl CycleState {
    /// Stores a value, replacing an earlier one of its type.
    pub fn store_value<T: Any + Clone + Send + Sync>(&mut self, value: T) {
        self.values.insert(TypeId::of::<T>(), Box::new(value));
    }

    /// Returns the value of a type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        (**self.values.get(&TypeId::of::<T>())?)
            .as_any()
            .downcast_ref()
    }

    /// Returns the value of a type for changing it.
    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        (**self.values.get_mut(&TypeId::of::<T>())?)
            .as_any_mut()
            .downcast_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_of_a_copied_state_does_not_change_the_original() {
        let mut state = CycleState::default();
        state.store_value(5_i32);
        let mut copy = state.clone();
        if let Some(value) = copy.get_mut::<i32>() {
            *value = 6;
        }
        assert_eq!(
            (state.get::<i32>(), copy.get::<i32>()),
            (Some(&5), Some(&6))
        );
    }
}
