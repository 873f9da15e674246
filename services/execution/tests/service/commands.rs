//! The program itself, as operators run it.

use std::path::Path;
use std::process::{Command, Output};

use db::outbox::{self, OutboxMessage};
use execution::Execution;
use service::Service as _;

fn execution(file: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_execution"));
    command.args(arguments).arg("--config").arg(file).output().unwrap()
}

#[tokio::test]
async fn an_operator_finds_a_message_that_was_given_up_and_sets_it_going() {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    db::migrate::run(&pool, Execution::migrator().unwrap()).await.unwrap();
    let dir = testkit::scratch_dir();
    let file = dir.path().join("execution.toml");
    let others: String = ["signer-gateway", "confirmation", "intent"]
        .iter()
        .map(|name| format!("[clients.{name}]\nurl = 'http://127.0.0.1:9'\n"))
        .collect();
    let text = format!("[server]\nlisten = '127.0.0.1:0'\n[database]\nurl = '{}'\n{others}", database.url());
    std::fs::write(&file, text).unwrap();
    assert!(execution(&file, &["outbox-list"]).stdout.is_empty());

    let mut tx = db::begin(&pool).await.unwrap();
    let message = OutboxMessage::new("job/7", "confirmation.PutWatch", "");
    let message = outbox::enqueue_in(&mut tx, &message).await.unwrap().to_string();
    tx.commit().await.unwrap();
    let refused = execution(&file, &["outbox-requeue", &message]);
    assert_eq!(refused.status.code(), Some(1), "it is not parked yet");
    sqlx::query("UPDATE outbox_lane SET parked_at = now(), last_error = 'unknown chain'")
        .execute(&pool)
        .await
        .unwrap();

    let listed = String::from_utf8(execution(&file, &["outbox-list"]).stdout).unwrap();
    for part in [message.as_str(), "confirmation.PutWatch", "aggregate=job/7", "unknown chain"] {
        assert!(listed.contains(part), "{part} is not in {listed}");
    }
    assert!(execution(&file, &["outbox-requeue", &message]).status.success());
    assert!(outbox::parked(&pool, 1).await.unwrap().is_empty());
    assert!(execution(&file, &["outbox-list"]).stdout.is_empty());

    sqlx::query("UPDATE outbox_lane SET parked_at = now(), last_error = 'again'")
        .execute(&pool)
        .await
        .unwrap();
    assert_eq!(execution(&file, &["outbox-requeue"]).status.code(), Some(2), "which one, or all");
    let all = String::from_utf8(execution(&file, &["outbox-requeue", "--all"]).stdout).unwrap();
    assert_eq!(all, "1 lanes are delivered again\n");
    assert!(outbox::parked(&pool, 1).await.unwrap().is_empty());
}
