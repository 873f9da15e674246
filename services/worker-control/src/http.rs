//! The API as JSON over HTTP: `GET /health` for anybody, `GET /workers` and `/workers/{id}` for operators and auditors, `POST
//! /workers/{id}/restart` and `DELETE /workers/{id}` for operators. Callers send the same API keys as over gRPC.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use serde_json::{Value, json};
use worker::WorkerId;

use crate::fleet::view::WorkerView;
use crate::fleet::{Fleet, FleetError};
use crate::orchestrator::WorkerCommand;

pub(crate) fn health(fleet: Fleet) -> Router {
    Router::new().route("/health", get(healthy)).with_state(fleet)
}

/// The routes of callers who may read.
pub(crate) fn reading(fleet: Fleet) -> Router {
    Router::new().route("/workers", get(list)).route("/workers/{id}", get(one)).with_state(fleet)
}

/// The routes of callers who may change something.
pub(crate) fn acting(fleet: Fleet) -> Router {
    Router::new()
        .route("/workers/{id}/restart", post(restart))
        .route("/workers/{id}", delete(remove))
        .with_state(fleet)
}

async fn healthy(State(fleet): State<Fleet>) -> Response {
    let view = fleet.view();
    let orchestrator = &view.orchestrator;
    let body = json!({
        "status": if orchestrator.leading { "ok" } else { "not leading" },
        "leading": orchestrator.leading,
        "epoch": orchestrator.epoch,
        "incarnation": orchestrator.incarnation,
        "started_at": orchestrator.started_at.to_rfc3339(),
        "last_round_ms": u64::try_from(orchestrator.last_round.as_millis()).unwrap_or(u64::MAX),
        "running": view.running(),
        "configured": view.workers.len(),
    });
    let code = if orchestrator.leading { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(body)).into_response()
}

async fn list(State(fleet): State<Fleet>) -> Json<Value> {
    let workers: Vec<Value> = fleet.view().workers.values().map(|worker| show(worker)).collect();
    Json(json!({ "workers": workers }))
}

async fn one(State(fleet): State<Fleet>, Path(id): Path<String>) -> Response {
    respond(&id, async |id: WorkerId| fleet.get(&id)).await
}

async fn restart(State(fleet): State<Fleet>, Path(id): Path<String>) -> Response {
    respond(&id, async |id| fleet.command(WorkerCommand::Restart, id).await).await
}

async fn remove(State(fleet): State<Fleet>, Path(id): Path<String>) -> Response {
    respond(&id, async |id| fleet.command(WorkerCommand::Remove, id).await).await
}

async fn respond(
    id: &str,
    act: impl AsyncFnOnce(WorkerId) -> Result<Arc<WorkerView>, FleetError>,
) -> Response {
    let Ok(id) = id.parse() else {
        return refuse(StatusCode::NOT_FOUND, &format!("there is no worker {id}"));
    };
    let error = match act(id).await {
        Ok(worker) => return Json(show(&worker)).into_response(),
        Err(error) => error,
    };
    let code = match &error {
        FleetError::Unknown(_) => StatusCode::NOT_FOUND,
        FleetError::DefinedInFile(_) | FleetError::RemovableInFileOnly(_) => StatusCode::CONFLICT,
        FleetError::Invalid(_) => StatusCode::BAD_REQUEST,
        FleetError::File(_) | FleetError::NoFile => StatusCode::PRECONDITION_FAILED,
        FleetError::NotLeading | FleetError::Store(_) | FleetError::Redis(_) | FleetError::Stopped => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    refuse(code, &error.to_string())
}

fn refuse(code: StatusCode, text: &str) -> Response {
    (code, Json(json!({ "error": text }))).into_response()
}

fn show(worker: &WorkerView) -> Value {
    // A state that is not JSON is shown as text.
    let state = match worker.state.as_str() {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
    };
    json!({
        "id": worker.spec.id.as_str(),
        "status": <&str>::from(worker.status),
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
