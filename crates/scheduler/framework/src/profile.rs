//! A profile: the plugins of one scheduler name, by extension point.

use std::sync::Arc;

use crate::event::ClusterEvent;
use crate::plugin::{
    Bind, Filter, Permit, Plugin, PostBind, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, Reserve,
    Score,
};
use crate::pod::PodInfo;

/// A plugin at a point, with its name and weight.
pub struct Weighted<P: ?Sized> {
    /// Name.
    pub name: &'static str,
    /// Weight of scores; 1 elsewhere.
    pub weight: i64,
    /// The plugin.
    pub plugin: Arc<P>,
}

type Hint = Box<dyn Fn(&PodInfo, &ClusterEvent) -> bool + Send + Sync>;

macro_rules! points {
    ($($(#[$doc:meta])* $field:ident: $point:ident),* $(,)?) => {
        /// Plugins by extension point, in order.
        #[derive(Default)]
        pub struct Points {
            $($(#[$doc])* pub $field: Vec<Weighted<dyn $point>>,)*
            hints: Vec<(&'static str, Hint)>,
        }

        impl Points {
            $(
                $(#[$doc])*
                pub fn $field<P: Plugin + $point>(&mut self, plugin: &Arc<P>) {
                    let plugin: Arc<dyn $point> = Arc::clone(plugin) as Arc<dyn $point>;
                    self.$field.push(Weighted { name: P::NAME, weight: 1, plugin });
                }
            )*

            /// Drops plugins from the points that `keep` (point, plugin) refuses.
            pub fn retain(&mut self, keep: impl Fn(&'static str, &'static str) -> bool) {
                $(self.$field.retain(|entry| keep(stringify!($field), entry.name));)*
            }
        }
    };
}

points! {
    /// Before the queue.
    pre_enqueue: PreEnqueue,
    /// Order of the queue.
    queue_sort: QueueSort,
    /// Before filters.
    pre_filter: PreFilter,
    /// Filters.
    filter: Filter,
    /// When no node will do.
    post_filter: PostFilter,
    /// Before scores.
    pre_score: PreScore,
    /// Scores.
    score: Score,
    /// After the choice.
    reserve: Reserve,
    /// Before binding.
    permit: Permit,
    /// Work before binding.
    pre_bind: PreBind,
    /// Binding.
    bind: Bind,
    /// After binding.
    post_bind: PostBind,
}

impl Points {
    /// Adds a plugin everywhere that it takes part.
    pub fn add<P: Plugin>(&mut self, plugin: P) {
        let plugin = Arc::new(plugin);
        let hinting = Arc::clone(&plugin);
        self.hints.push((P::NAME, Box::new(move |pod, event| hinting.hint(pod, event))));
        plugin.extend(self);
    }

    /// Sets the weight of a plugin's scores.
    pub fn weigh(&mut self, name: &str, weight: i64) {
        for entry in self.score.iter_mut().filter(|entry| entry.name == name) {
            entry.weight = weight;
        }
    }

    /// Whether a change may help a pod that the named plugin rejected.
    pub fn hint(&self, name: &str, pod: &PodInfo, event: &ClusterEvent) -> bool {
        let known = self.hints.iter().find(|(known, _)| *known == name);
        known.is_none_or(|(_, hint)| hint(pod, event))
    }
}

/// Plugins and options of one scheduler name.
pub struct Profile {
    /// `spec.schedulerName` of its pods.
    pub name: String,
    /// Plugins.
    pub points: Points,
    /// Share of nodes to find before scoring, in percent; 0 for adaptive.
    pub percentage_of_nodes_to_score: u32,
}
