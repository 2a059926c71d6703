//! Requests for the state of pools of devices.

use serde_json::{Value, json};

use crate::printer::{NAME, Printer, integer_column, text_column};
use crate::view::{View, text_of};

pub(crate) static POOL_STATUS: Printer = Printer {
    columns: &[
        NAME,
        text_column("Driver", "Driver whose pools are requested."),
        text_column("Total", "Devices of all pools."),
        text_column("Available", "Devices that can be allocated."),
        text_column("Allocated", "Devices that are allocated."),
        text_column("Unavailable", "Devices that can't be allocated."),
        text_column("Errors", "Pools whose slices are invalid."),
        integer_column("Pools", "Pools that match."),
        text_column("Status", "Progress of the request."),
        text_column("Completed", "Time since the request was completed."),
    ],
    cells: |view| {
        let outcome = find_outcome(view);
        let kind = outcome.map_or("Pending", |condition| text_of(condition.get("type")));
        let counts = match view.has("/status") && kind != "Failed" {
            true => sum_pools(view).map(|count| count.to_string()),
            false => [const { String::new() }; 5].map(|_| "-".to_owned()),
        };
        let (count, shown) = (view.int("/status/poolCount"), view.count("/status/pools"));
        let is_cut = usize::try_from(count).is_ok_and(|count| count > shown);
        let state = match kind == "Complete" && is_cut {
            true => format!("Complete ({shown}/{count} pools)"),
            false => kind.to_owned(),
        };
        let completed = match outcome {
            Some(condition) if kind == "Complete" => {
                view.ago(text_of(condition.get("lastTransitionTime")))
            }
            _ => "<none>".to_owned(),
        };
        let mut cells = vec![view.name(), json!(view.text("/spec/driver"))];
        cells.extend(counts.map(Value::from));
        cells.extend([json!(count), json!(state), json!(completed)]);
        cells
    },
};

/// Returns the first true condition that ends the request.
fn find_outcome<'a>(view: &View<'a>) -> Option<&'a Value> {
    view.list("/status/conditions").iter().find(|condition| {
        let kind = text_of(condition.get("type"));
        text_of(condition.get("status")) == "True" && ["Complete", "Failed"].contains(&kind)
    })
}

/// Returns the devices of all pools (total, available, allocated, unavailable) and the pools with
/// an error.
fn sum_pools(view: &View<'_>) -> [i64; 5] {
    let mut sums = [0; 5];
    for pool in view.list("/status/pools") {
        let count = |field: &str| pool.get(field).and_then(Value::as_i64).unwrap_or(0);
        let counts = [
            count("totalDevices"),
            count("availableDevices"),
            count("allocatedDevices"),
            count("unavailableDevices"),
            i64::from(pool.get("validationError").is_some()),
        ];
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum = count.saturating_add(*sum);
        }
    }
    sums
}
