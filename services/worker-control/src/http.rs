//! The API as JSON over HTTP: `GET /health` for anybody, `GET /workers` and `/workers/{id}` for operators and auditors, `POST
//! /workers/{id}/restart` and `DELETE /workers/{id}` for operators. Callers send the same API keys as over gRPC.

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use serde_json::{Value, json};

use crate::fleet::{Fleet, FleetError, Status, WorkerView};

/// Open to anybody: whether workers are being looked after.
pub(crate) fn health(fleet: Fleet) -> Router {
    Router::new().route("/health", get(healthy)).with_state(fleet)
}

/// For those who may look.
pub(crate) fn reading(fleet: Fleet) -> Router {
    Router::new().route("/workers", get(list)).route("/workers/{id}", get(one)).with_state(fleet)
}

/// For those who may act.
pub(crate) fn acting(fleet: Fleet) -> Router {
    Router::new()
        .route("/workers/{id}/restart", post(restart))
        .route("/workers/{id}", delete(remove))
        .with_state(fleet)
}

async fn healthy(State(fleet): State<Fleet>) -> Response {
    let view = fleet.view();
    let how = &view.orchestrator;
    let body = json!({
        "status": if how.leading { "ok" } else { "not leading" },
        "leading": how.leading,
        "epoch": how.epoch,
        "incarnation": how.incarnation,
        "started_at": how.started_at.to_rfc3339(),
        "last_round_ms": u64::try_from(how.last_round.as_millis()).unwrap_or(u64::MAX),
        "running": view.running(),
        "configured": view.workers.len(),
    });
    let code = if how.leading { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(body)).into_response()
}

async fn list(State(fleet): State<Fleet>) -> Json<Value> {
    let workers: Vec<Value> = fleet.view().workers.values().map(|worker| show(worker)).collect();
    Json(json!({ "workers": workers }))
}

async fn one(State(fleet): State<Fleet>, Path(id): Path<String>) -> Response {
    let found = match id.parse() {
        Ok(id) => fleet.get(&id),
        Err(_) => return refuse(StatusCode::NOT_FOUND, &format!("there is no worker {id}")),
    };
    answer(found)
}

async fn restart(State(fleet): State<Fleet>, Path(id): Path<String>) -> Response {
    match id.parse() {
        Ok(id) => answer(fleet.restart(id).await),
        Err(_) => refuse(StatusCode::NOT_FOUND, &format!("there is no worker {id}")),
    }
}

async fn remove(State(fleet): State<Fleet>, Path(id): Path<String>) -> Response {
    match id.parse() {
        Ok(id) => answer(fleet.remove(id).await),
        Err(_) => refuse(StatusCode::NOT_FOUND, &format!("there is no worker {id}")),
    }
}

fn answer(result: Result<std::sync::Arc<WorkerView>, FleetError>) -> Response {
    match result {
        Ok(worker) => Json(show(&worker)).into_response(),
        Err(error) => {
            let code = match &error {
                FleetError::Unknown(_) => StatusCode::NOT_FOUND,
                FleetError::InFile(_) | FleetError::OfFile(_) => StatusCode::CONFLICT,
                FleetError::Invalid(_) => StatusCode::BAD_REQUEST,
                FleetError::File(_) | FleetError::NoFile => StatusCode::PRECONDITION_FAILED,
                FleetError::NotLeading
                | FleetError::Store(_)
                | FleetError::Redis(_)
                | FleetError::Stopped => StatusCode::SERVICE_UNAVAILABLE,
            };
            refuse(code, &error.to_string())
        }
    }
}

fn refuse(code: StatusCode, text: &str) -> Response {
    (code, Json(json!({ "error": text }))).into_response()
}

fn show(worker: &WorkerView) -> Value {
    // What a worker published is shown as it is; what is no JSON is shown as text.
    let state = match worker.state.as_str() {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
    };
    json!({
        "id": worker.spec.id.as_str(),
        "status": name(worker.status),
        "enabled": worker.wanted,
        "command": worker.spec.command,
        "interval_sec": worker.spec.interval.map(|span| span.as_secs_f64()),
        "pid": worker.pid,
        "incarnation": worker.incarnation,
        "starts": worker.starts,
        "failures": worker.failures,
        "heartbeat_at": worker.heartbeat_at.map(|at| at.to_rfc3339()),
        "next_start_at": worker.next_start_at.map(|at| at.to_rfc3339()),
        "last_error": worker.last_error,
        "state": state,
    })
}

fn name(status: Status) -> &'static str {
    match status {
        Status::Starting => "starting",
        Status::Running => "running",
        Status::Silent => "silent",
        Status::BackingOff => "backing_off",
        Status::GivenUp => "given_up",
        Status::Stopped => "stopped",
        Status::Stopping => "stopping",
    }
}
