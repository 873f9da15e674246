//! What operators can ask for, over gRPC, HTTP and by signal.

use nix::sys::signal::Signal;
use proto::workercontrol::v1 as pb;
use proto::workercontrol::v1::WorkerStatus;
use testkit::wait_for;
use tonic::Code;

use crate::kit::{PATIENCE, Process, TestFleet};

pub(crate) fn spec(fleet: &TestFleet, id: &str, mode: &str) -> pb::WorkerSpec {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/service/worker.sh");
    let starts = fleet.dir.path().join("starts").display().to_string();
    pb::WorkerSpec {
        id: id.to_owned(),
        command: vec!["sh".to_owned(), script.to_owned()],
        environment: [("MODE".to_owned(), mode.to_owned()), ("STARTS".to_owned(), starts)].into(),
        interval: None,
        enabled: true,
    }
}

#[tokio::test]
async fn a_hangup_takes_what_was_added_removed_and_changed_and_leaves_the_rest_alone() {
    let (fleet, first) =
        TestFleet::started(&[("same", "steady"), ("removed", "steady"), ("changed", "steady")]).await;
    let same = first.runs("same").await.pid;
    let changed = first.runs("changed").await.pid;
    first.runs("removed").await;
    fleet.workers(&fleet.shell(&[("same", "steady"), ("changed", "forks"), ("added", "steady")]));
    first.signal(Signal::SIGHUP);
    first.runs("added").await;
    first.worker_is("changed", "renewed", |w| w.pid != changed && w.status() == WorkerStatus::Running).await;
    let mut client = first.client();
    wait_for("the removed one to be gone", PATIENCE, || {
        let mut client = client.clone();
        async move {
            let gone = client.get_worker(pb::GetWorkerRequest { id: "removed".to_owned() }).await;
            gone.is_err_and(|status| status.code() == Code::NotFound)
        }
    })
    .await;
    assert_eq!(first.runs("same").await.pid, same);

    // A bad file is refused as a whole, with every mistake named.
    fleet.workers(
        "[[workers]]\nid = 'a b'\ncommand = ['x']\n[[workers]]\nid = 'fine'\ncommand = ['x']\nwhat = 1\n",
    );
    first.signal(Signal::SIGHUP);
    first.says("configuration refused, the old one stays").await;
    let refused = client.reload_config(pb::ReloadConfigRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    for said in [refused.message().to_owned(), first.said()] {
        for mistake in ["workers[0].id", "workers[1].what"] {
            assert!(said.contains(mistake), "{mistake} is not in {said}");
        }
    }
    assert_eq!(first.runs("same").await.pid, same, "the old ones stay");

    fleet.workers(&fleet.shell(&[("same", "steady")]));
    let changes = client.reload_config(pb::ReloadConfigRequest {}).await.unwrap().into_inner();
    assert_eq!((changes.removed, changes.added), (vec!["added".to_owned(), "changed".to_owned()], vec![]));
}

#[tokio::test]
async fn a_worker_added_over_the_api_outlives_the_orchestrator_and_a_stop_stays_a_stop() {
    let (fleet, mut first) = TestFleet::started(&[("of-file", "steady")]).await;
    let mut client = first.client();
    let request = pb::StartWorkerRequest { spec: Some(spec(&fleet, "of-api", "steady")) };
    client.start_worker(request.clone()).await.unwrap();
    let shown = first.runs("of-api").await.spec.unwrap().environment;
    assert!(shown.contains_key("MODE") && shown.values().all(|value| value == "(hidden)"), "{shown:?}");
    client.start_worker(request).await.unwrap();
    assert_eq!(fleet.starts("of-api").len(), 1, "the same again changes nothing");
    // What an answer shows is not what it hides: sent back, it would replace the values by a word.
    let back = first.worker("of-api").await.spec;
    let refused = client.start_worker(pb::StartWorkerRequest { spec: back }).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    for name in ["MODE", "STARTS"] {
        let told = format!("spec.environment: {name} is `(hidden)`");
        assert!(refused.message().contains(&told), "{refused}");
    }
    first.runs("of-api").await;
    assert_eq!(fleet.starts("of-api").len(), 1, "what is refused changes nothing");
    first.stop_worker("of-file").await;
    first.has_status("of-file", WorkerStatus::Stopped).await;
    first.stop().await;

    let second = fleet.start("second").await;
    second.runs("of-api").await;
    assert_eq!(second.worker("of-file").await.status(), WorkerStatus::Stopped);
    let by_id = pb::WorkerSpec { id: "of-file".to_owned(), ..Default::default() };
    second.client().start_worker(pb::StartWorkerRequest { spec: Some(by_id) }).await.unwrap();
    second.runs("of-file").await;

    // Two places that name one worker would fight over it.
    let request = pb::StartWorkerRequest { spec: Some(spec(&fleet, "of-file", "steady")) };
    let refused = second.client().start_worker(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    fleet.workers(&fleet.shell(&[("of-file", "steady"), ("of-api", "steady")]));
    let refused = second.client().reload_config(pb::ReloadConfigRequest {}).await.unwrap_err();
    assert!(refused.message().contains("of-api"), "{refused}");
}

#[tokio::test]
async fn a_worker_that_was_added_can_be_removed_for_good_and_one_of_the_file_only_there() {
    let (fleet, mut first) = TestFleet::started(&[("of-file", "steady")]).await;
    let mut client = first.client();
    let request = pb::StartWorkerRequest { spec: Some(spec(&fleet, "of-api", "stubborn")) };
    client.start_worker(request.clone()).await.unwrap();
    let before = first.runs("of-api").await;
    let mut changes = client.watch_workers(pb::WatchWorkersRequest {}).await.unwrap().into_inner();

    let remove = |id: &str| pb::RemoveWorkerRequest { id: id.to_owned() };
    let refused = client.remove_worker(remove("of-file")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("remove it there and reload"), "{refused}");
    assert_eq!(client.remove_worker(remove("nobody")).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.remove_worker(remove("a/b")).await.unwrap_err().code(), Code::InvalidArgument);

    let stopping = client.remove_worker(remove("of-api")).await.unwrap().into_inner().worker.unwrap();
    assert_eq!((stopping.status(), stopping.pid), (WorkerStatus::Stopping, before.pid));
    let gone = loop {
        let change = changes.message().await.unwrap().unwrap();
        if change.removed {
            break change.worker.unwrap();
        }
    };
    assert_eq!(gone.spec.as_ref().map(|spec| spec.id.as_str()), Some("of-api"));
    assert_eq!((gone.status(), gone.pid, gone.incarnation.as_str()), (WorkerStatus::Stopped, 0, ""));
    assert!(!crate::kit::alive(before.pid));
    assert_eq!(client.remove_worker(remove("of-api")).await.unwrap_err().code(), Code::NotFound);
    wait_for("its keys to go", PATIENCE, || async {
        let id = "of-api".parse().unwrap();
        fleet.text(fleet.keys.lock(&id)).await.is_none() && fleet.record("of-api").await.is_empty()
    })
    .await;
    // It can come back as if it had never been there, and goes by HTTP as well.
    client.start_worker(request).await.unwrap();
    first.runs("of-api").await;
    let url = |id: &str| format!("http://127.0.0.1:{}/workers/{id}", first.http);
    let http = reqwest::Client::new();
    assert_eq!(http.delete(url("of-api")).send().await.unwrap().status(), 401);
    let key = format!("Bearer {}", Process::key());
    for (id, code) in [("of-file", 409), ("nobody", 404), ("of-api", 200)] {
        let answer = http.delete(url(id)).header("authorization", &key).send().await.unwrap();
        assert_eq!(answer.status(), code, "{id}");
    }
    first.stop().await;
    let second = fleet.start("second").await;
    second.runs("of-file").await;
    let all = second.client().list_workers(pb::ListWorkersRequest {}).await.unwrap().into_inner().workers;
    assert_eq!(all.len(), 1, "it is forgotten: {all:?}");
}

#[tokio::test]
async fn a_reload_reads_the_file_that_the_configuration_names_now() {
    let (fleet, first) = TestFleet::started(&[("old", "steady")]).await;
    first.runs("old").await;
    let other = fleet.dir.path().join("other.toml");
    std::fs::write(&other, fleet.shell(&[("new", "steady")])).unwrap();
    let config = fleet.dir.path().join("first.toml");
    let text = std::fs::read_to_string(&config).unwrap().replace("workers.toml", "other.toml");
    std::fs::write(&config, text).unwrap();
    first.signal(Signal::SIGHUP);
    first.runs("new").await;
    std::fs::write(&other, fleet.shell(&[("new", "steady"), ("newer", "steady")])).unwrap();
    let changes = first.client().reload_config(pb::ReloadConfigRequest {}).await.unwrap().into_inner();
    assert_eq!((changes.added, changes.removed), (vec!["newer".to_owned()], vec![]));
}

#[tokio::test]
async fn bad_input_is_refused_by_field_and_changes_nothing() {
    let fleet = TestFleet::new().await;
    let first = fleet.start("first").await;
    let mut client = first.client();
    let bad = pb::WorkerSpec {
        id: "x".to_owned(),
        command: vec![String::new()],
        environment: [("WORKER_PAIR_ID".to_owned(), "y".to_owned())].into(),
        ..Default::default()
    };
    let refused = client.start_worker(pb::StartWorkerRequest { spec: Some(bad) }).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("spec.command") && refused.message().contains("spec.environment"));
    let mut bad =
        pb::WorkerSpec { id: "a/b".to_owned(), command: vec!["x".to_owned()], ..Default::default() };
    bad.interval = Some(proto::time::duration(chrono::TimeDelta::seconds(-1)));
    let refused = client.start_worker(pb::StartWorkerRequest { spec: Some(bad) }).await.unwrap_err();
    assert!(
        refused.message().contains("spec.id") && refused.message().contains("spec.interval"),
        "{refused}"
    );
    for id in ["", "../etc", "nobody"] {
        let expected = if id == "nobody" { Code::NotFound } else { Code::InvalidArgument };
        let request = pb::StopWorkerRequest { id: id.to_owned() };
        assert_eq!(client.stop_worker(request).await.unwrap_err().code(), expected, "{id:?}");
        let request = pb::RestartWorkerRequest { id: id.to_owned() };
        assert_eq!(client.restart_worker(request).await.unwrap_err().code(), expected, "{id:?}");
    }
    let all = client.list_workers(pb::ListWorkersRequest {}).await.unwrap().into_inner();
    assert_eq!(all.workers, []);
}

#[tokio::test]
async fn a_watcher_sees_every_worker_and_then_each_change() {
    let (_fleet, first) = TestFleet::started(&[("a", "steady"), ("b", "steady")]).await;
    first.runs("a").await;
    let mut changes = first.client().watch_workers(pb::WatchWorkersRequest {}).await.unwrap().into_inner();
    let mut seen = Vec::new();
    while !(seen.contains(&"a".to_owned()) && seen.contains(&"b".to_owned())) {
        let worker = changes.message().await.unwrap().unwrap().worker.unwrap();
        seen.push(worker.spec.unwrap().id);
    }
    first.stop_worker("a").await;
    let mut statuses = Vec::new();
    while statuses.last() != Some(&WorkerStatus::Stopped) {
        let worker = changes.message().await.unwrap().unwrap().worker.unwrap();
        if worker.spec.as_ref().unwrap().id == "a" {
            statuses.push(worker.status());
        }
    }
}

#[tokio::test]
async fn the_same_is_told_as_json_over_http_to_those_who_may_know() {
    let (_fleet, first) = TestFleet::started(&[("a", "steady")]).await;
    let before = first.runs("a").await.pid;
    let base = format!("http://127.0.0.1:{}", first.http);
    let http = reqwest::Client::new();
    let get = async |path: &str, key: Option<&str>| {
        let request = http.get(format!("{base}{path}"));
        let request =
            key.into_iter().fold(request, |r, key| r.header("authorization", format!("Bearer {key}")));
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let (code, health) = get("/health", None).await;
    assert_eq!(code, 200, "{health}");
    let health: serde_json::Value = serde_json::from_str(&health).unwrap();
    assert_eq!((&health["status"], &health["running"]), (&"ok".into(), &1.into()));
    assert_eq!(get("/workers", None).await.0, 401);
    assert_eq!(get("/workers", Some("wrong")).await.0, 401);
    let (code, workers) = get("/workers", Some(Process::key())).await;
    let workers: serde_json::Value = serde_json::from_str(&workers).unwrap();
    assert_eq!((code, &workers["workers"][0]["id"]), (200, &"a".into()));
    let (_, worker) = get("/workers/a", Some(Process::key())).await;
    let worker: serde_json::Value = serde_json::from_str(&worker).unwrap();
    assert_eq!((&worker["status"], &worker["state"]["mode"]), (&"running".into(), &"steady".into()));
    assert_eq!(get("/workers/nobody", Some(Process::key())).await.0, 404);
    let restart = http.post(format!("{base}/workers/a/restart"));
    assert_eq!(restart.try_clone().unwrap().send().await.unwrap().status(), 401);
    let restart = restart.header("authorization", format!("Bearer {}", Process::key()));
    assert_eq!(restart.send().await.unwrap().status(), 200);
    first.has_other_pid("a", before).await;
}
