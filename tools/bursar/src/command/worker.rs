//! `bursar worker`: the workers under the orchestrator, how they are, and what an operator can do about them.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use anyhow::{Context, Result};
use chrono::Utc;
use clap::{Args, Subcommand};
use proto::workercontrol::v1 as pb;

use crate::client::Connection;
use crate::output::{self, Output};
use crate::reconnect::{self, Remaining};

const MESSAGE: &str = "bursar.workercontrol.v1.Worker";

#[derive(Debug, Args)]
pub struct Worker {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List workers and how they are
    List,
    /// Show one worker with the state it published
    Show { id: String },
    /// Start a worker that was stopped or given up
    Start { id: String },
    /// Stop a worker and keep it stopped
    Stop { id: String },
    /// Start a worker anew, at once
    Restart { id: String },
    /// End a worker that was added over the API, and forget it
    Remove { id: String },
    /// Follow all workers as they change
    Watch,
    /// Read the worker file again
    Reload,
}

impl Worker {
    pub async fn run(self, connection: &Connection, out: Output) -> Result<()> {
        let mut client = connection.workers("operator")?;
        let worker = match self.action {
            Action::List => {
                let workers = client.list_workers(pb::ListWorkersRequest {}).await?.into_inner().workers;
                return if out.json { output::json_list(MESSAGE, &workers) } else { table(workers.iter()) };
            }
            Action::Watch => return watch(connection, out).await,
            Action::Reload => {
                let changes = client.reload_config(pb::ReloadConfigRequest {}).await?.into_inner();
                return reloaded(&changes, out);
            }
            Action::Show { id } => client.get_worker(pb::GetWorkerRequest { id }).await?.into_inner().worker,
            Action::Start { id } => {
                let spec = Some(pb::WorkerSpec { id, ..Default::default() });
                client.start_worker(pb::StartWorkerRequest { spec }).await?.into_inner().worker
            }
            Action::Stop { id } => {
                client.stop_worker(pb::StopWorkerRequest { id }).await?.into_inner().worker
            }
            Action::Restart { id } => {
                client.restart_worker(pb::RestartWorkerRequest { id }).await?.into_inner().worker
            }
            Action::Remove { id } => {
                client.remove_worker(pb::RemoveWorkerRequest { id }).await?.into_inner().worker
            }
        };
        let worker = worker.context("the answer holds no worker")?;
        if out.json { output::json(MESSAGE, &worker) } else { show(&worker) }
    }
}

/// Redraws the table on a terminal; anywhere else each change is a line. A restart of the service begins with all workers again.
async fn watch(connection: &Connection, out: Output) -> Result<()> {
    let mut client = connection.workers("operator")?;
    let live = !out.json && std::io::stdout().is_terminal();
    reconnect::follow(async || {
        let mut stream = client.watch_workers(pb::WatchWorkersRequest {}).await?.into_inner();
        // Begun anew with each stream: workers that ended meanwhile are not in the new one.
        let mut workers: BTreeMap<String, pb::Worker> = BTreeMap::new();
        while let Some(change) = stream.message().await? {
            let worker = change.worker.context("the change holds no worker")?;
            if live {
                redraw(&mut workers, worker, change.removed)?;
            } else {
                print_change(&worker, change.removed, out)?;
            }
        }
        Ok(Remaining::More)
    })
    .await
}

fn print_change(worker: &pb::Worker, removed: bool, out: Output) -> Result<()> {
    if out.json {
        let mut line = output::value(MESSAGE, worker)?;
        if removed {
            line["removed"] = true.into();
        }
        return output::print(&line.to_string());
    }
    let mut cells = cells(worker);
    if removed {
        cells[1] = "removed".to_owned();
    }
    output::print(cells.join("  ").trim_end())
}

fn redraw(workers: &mut BTreeMap<String, pb::Worker>, worker: pb::Worker, removed: bool) -> Result<()> {
    if removed {
        workers.remove(&id_of(&worker));
    } else {
        workers.insert(id_of(&worker), worker);
    }
    let mut screen = std::io::stdout();
    // Home, and clear what was below.
    write!(screen, "\x1b[H\x1b[2J")?;
    table(workers.values())?;
    output::print(&format!("\n{}  Ctrl-C ends", Utc::now().format("%H:%M:%S")))?;
    Ok(screen.flush()?)
}

fn table<'a>(workers: impl Iterator<Item = &'a pb::Worker>) -> Result<()> {
    let head = ["WORKER", "STATUS", "PID", "STARTS", "FAILURES", "HEARD", "NEXT START", "LAST ERROR"];
    output::table(head, workers.map(cells))
}

fn cells(worker: &pb::Worker) -> [String; 8] {
    let time = |at: &Option<prost_types::Timestamp>| proto::time::datetime(at.as_ref()?).ok();
    let heard = time(&worker.heartbeat_at).map(|at| (Utc::now() - at).num_seconds());
    let next = time(&worker.next_start_at).map(|at| (at - Utc::now()).num_seconds());
    let pid = if worker.pid == 0 { String::new() } else { worker.pid.to_string() };
    [
        id_of(worker),
        status(worker.status()),
        pid,
        worker.starts.to_string(),
        worker.failures.to_string(),
        heard.map(|seconds| format!("{} ago", output::span(seconds))).unwrap_or_default(),
        next.map(|seconds| format!("in {}", output::span(seconds))).unwrap_or_default(),
        worker.last_error.clone(),
    ]
}

fn show(worker: &pb::Worker) -> Result<()> {
    let [id, status, pid, starts, failures, heard, next, error] = cells(worker);
    let spec = worker.spec.clone().unwrap_or_default();
    let interval = spec.interval.as_ref().and_then(|interval| proto::time::span(interval).ok());
    let interval = interval.map(|span| format!("{} s", span.as_secs_f64())).unwrap_or_default();
    let mut rows = vec![
        ("worker", id),
        ("status", status),
        ("enabled", if spec.enabled { "yes" } else { "no" }.to_owned()),
        ("command", spec.command.join(" ")),
        ("interval", interval),
        ("pid", pid),
        ("incarnation", worker.incarnation.clone()),
        ("starts", starts),
        ("failures", failures),
        ("heard", heard),
        ("next start", next),
        ("last error", error),
        ("state", worker.state_json.clone()),
    ];
    rows.retain(|(_, value)| !value.is_empty());
    output::fields(&rows)
}

fn reloaded(changes: &pb::ReloadConfigResponse, out: Output) -> Result<()> {
    if out.json {
        return output::json("bursar.workercontrol.v1.ReloadConfigResponse", changes);
    }
    let names = |ids: &[String]| if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
    output::fields(&[
        ("added", names(&changes.added)),
        ("removed", names(&changes.removed)),
        ("changed", names(&changes.changed)),
    ])
}

fn id_of(worker: &pb::Worker) -> String {
    worker.spec.as_ref().map(|spec| spec.id.clone()).unwrap_or_default()
}

fn status(status: pb::WorkerStatus) -> String {
    output::enum_name(status.as_str_name(), "WORKER_STATUS_")
}
