//! Jobs and cron jobs.

use api_meta::time;
use serde_json::{Value, json};

use super::{TEMPLATE, workload_cells};
use crate::printer::{
    AGE, CONTAINERS, IMAGES, NAME, Printer, SELECTOR, boolean_column, integer_column, text_column,
};
use crate::view::{View, seconds_between};

pub(crate) static JOB: Printer = Printer {
    columns: &[
        NAME,
        text_column("Status", "How far the job is."),
        text_column("Completions", "Pods that succeeded, of those wanted."),
        text_column("Duration", "How long the job has run, or took."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |view| {
        let first = [
            view.name(),
            json!(job_status(view)),
            json!(job_completions(view)),
            json!(job_duration(view)),
        ];
        workload_cells(first, view, Some(view.selector("/spec/selector")))
    },
};

fn job_status(view: &View<'_>) -> &'static str {
    let is = |kind: &str| view.condition_is_true(kind);
    match () {
        // Final conditions first: they stay while the job is deleted.
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if view.has("/metadata/deletionTimestamp") => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn job_completions(view: &View<'_>) -> String {
    let succeeded = view.int("/status/succeeded");
    if view.has("/spec/completions") {
        return format!("{succeeded}/{}", view.int("/spec/completions"));
    }
    match view.int("/spec/parallelism") {
        // Without completions, the success of any pod completes the job.
        parallelism if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn job_duration(view: &View<'_>) -> String {
    let start = time::parse(view.text("/status/startTime"));
    // A job that still runs shows the time until now.
    // Only success sets completionTime, so that, as upstream, a failed job's duration keeps
    // growing.
    let end = time::parse(view.text("/status/completionTime")).unwrap_or(view.now);
    start
        .map(|start| time::human_duration(seconds_between(start, end)))
        .unwrap_or_default()
}

pub(crate) static CRON_JOB: Printer = Printer {
    columns: &[
        NAME,
        text_column("Schedule", "When jobs are made, in cron's format."),
        text_column("Timezone", "Time zone of the schedule."),
        boolean_column("Suspend", "Whether no jobs are made."),
        integer_column("Active", "Jobs that are running."),
        text_column("Last Schedule", "Time since a job was made last."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |view| {
        let last = "/status/lastScheduleTime";
        // A schedule that never fired has no time.
        let last = if view.has(last) {
            view.since(last)
        } else {
            "<none>".to_owned()
        };
        let mut cells = vec![
            view.name(),
            json!(view.text("/spec/schedule")),
            json!(view.text_or("/spec/timeZone", "<none>")),
            suspended_cell(view),
            json!(view.count("/status/active")),
            json!(last),
            view.age(),
        ];
        cells.extend(view.containers(&format!("/spec/jobTemplate{TEMPLATE}")));
        // Usually `<none>`: the selector is generated for each job.
        cells.push(json!(view.selector("/spec/jobTemplate/spec/selector")));
        cells
    },
};

fn suspended_cell(view: &View<'_>) -> Value {
    json!(match view.at("/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    })
}
