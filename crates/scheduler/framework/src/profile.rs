//! A profile: the plugins of one scheduler name, by extension point.

use std::sync::Arc;

use serde_json::Value;

use crate::event::{ClusterEvent, EventKind};
use crate::plugin::{
    Bind, Filter, Permit, PostBind, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore,
    QueueSort, Reserve, Score,
};
use crate::pod::PodInfo;
use crate::snapshot::Cluster;

/// A plugin: its construction and registration.
pub trait Plugin: Send + Sync + Sized + 'static {
    /// Name in configuration, messages and metrics.
    const NAME: &'static str;

    /// Creates the plugin from its arguments (`null` if none are configured) and its view of the
    /// cluster.
    ///
    /// # Errors
    /// A sentence that names the argument.
    fn new(args: &Value, cluster: &Arc<dyn Cluster>) -> Result<Self, String>;

    /// Registers the plugin with each extension point that it implements.
    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints);

    /// Returns the kinds of events that may help a pod rejected by this plugin;
    /// [`Plugin::queueing_hint`] gets no others.
    fn events_to_register(&self) -> &'static [EventKind] {
        EventKind::ALL
    }

    /// Returns whether an event may help a pod rejected by this plugin (queueing hint). True when
    /// in doubt.
    fn queueing_hint(&self, _pod: &PodInfo, _event: &ClusterEvent) -> bool {
        true
    }
}

/// A plugin at an extension point, with its name and weight.
pub struct Weighted<P: ?Sized> {
    /// Name.
    pub name: &'static str,
    /// Weight of scores; 1 at other points.
    pub weight: i64,
    /// The plugin.
    pub plugin: Arc<P>,
}

type Hint = dyn Fn(&PodInfo, &ClusterEvent) -> bool + Send + Sync;

struct Hints {
    name: &'static str,
    kinds: &'static [EventKind],
    hint: Box<Hint>,
}

macro_rules! points {
    ($($(#[$doc:meta])* $field:ident: $point:ident),* $(,)?) => {
        /// Plugins by extension point, in order.
        #[derive(Default)]
        pub struct ExtensionPoints {
            $($(#[$doc])* pub $field: Vec<Weighted<dyn $point>>,)*
            hints: Vec<Hints>,
        }

        impl ExtensionPoints {
            $(
                $(#[$doc])*
                pub fn $field<P: Plugin + $point>(&mut self, plugin: &Arc<P>) {
                    let plugin: Arc<dyn $point> = plugin.clone() as Arc<dyn $point>;
                    self.$field.push(Weighted { name: P::NAME, weight: 1, plugin });
                }
            )*

            /// Removes plugins from the points for which `keep` (point, plugin) returns false.
            pub fn retain_plugins(&mut self, keep: impl Fn(&'static str, &'static str) -> bool) {
                $(self.$field.retain(|entry| keep(stringify!($field), entry.name));)*
            }

            /// Returns whether a plugin implements a point.
            pub fn has_plugin(&self, point: &str, plugin: &str) -> bool {
                $(point == stringify!($field) && self.$field.iter().any(|entry| entry.name == plugin) ||)* false
            }
        }
    };
}

points! {
    /// Admission to the queue.
    pre_enqueue: PreEnqueue,
    /// Order of the queue.
    queue_sort: QueueSort,
    /// Preparation of filters.
    pre_filter: PreFilter,
    /// Filters.
    filter: Filter,
    /// Reaction to an unschedulable pod.
    post_filter: PostFilter,
    /// Preparation of scores.
    pre_score: PreScore,
    /// Scores.
    score: Score,
    /// Reservations after the choice.
    reserve: Reserve,
    /// Permission to bind.
    permit: Permit,
    /// Work before binding.
    pre_bind: PreBind,
    /// Binding.
    bind: Bind,
    /// After binding.
    post_bind: PostBind,
}

impl ExtensionPoints {
    /// Adds a plugin at all its extension points.
    pub fn add_plugin<P: Plugin>(&mut self, plugin: P) {
        let plugin = Arc::new(plugin);
        // The hint must outlive this call and see the plugin's arguments, hence a closure and not a
        // function pointer.
        let hinting = plugin.clone();
        let hint =
            Box::new(move |pod: &PodInfo, event: &ClusterEvent| hinting.queueing_hint(pod, event));
        self.hints.push(Hints {
            name: P::NAME,
            kinds: plugin.events_to_register(),
            hint,
        });
        plugin.register_extension_points(self);
    }

    /// Sets the weight of a plugin's scores.
    pub fn set_weight(&mut self, name: &str, weight: i64) {
        for entry in self.score.iter_mut().filter(|entry| entry.name == name) {
            entry.weight = weight;
        }
    }

    /// Returns whether an event may help a pod rejected by the named plugin.
    pub fn queueing_hint(&self, name: &str, pod: &PodInfo, event: &ClusterEvent) -> bool {
        let known = self.hints.iter().find(|known| known.name == name);
        // A plugin that is not known here has been disabled since it rejected the pod. In doubt the
        // pod is retried.
        known.is_none_or(|known| (known.hint)(pod, event))
    }

    /// Returns whether the named plugin listens for an event. Called once per event;
    /// [`ExtensionPoints::queueing_hint`] is called per pod.
    pub fn listens_for(&self, name: &str, event: &ClusterEvent) -> bool {
        let known = self.hints.iter().find(|known| known.name == name);
        known.is_none_or(|known| known.kinds.iter().any(|kind| event.is_of_kind(*kind)))
    }
}

/// Plugins and options of one scheduler name.
pub struct Profile {
    /// `spec.schedulerName` of its pods.
    pub name: String,
    /// Plugins.
    pub points: ExtensionPoints,
    /// Percentage of nodes to find before scoring; 0 for adaptive.
    pub percentage_of_nodes_to_score: u32,
}
