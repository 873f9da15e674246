//! The program itself, as operators run it.

use std::path::Path;
use std::process::{Command, Output};

use db::outbox::{self, OutboxMessage};

fn confirmation(file: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_confirmation"));
    command.args(arguments).arg("--config").arg(file).output().unwrap()
}

#[tokio::test]
async fn an_operator_finds_a_message_that_was_given_up_and_sets_it_going() {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    db::migrate::run(&pool, &confirmation::MIGRATOR).await.unwrap();
    let dir = testkit::scratch_dir();
    let file = dir.path().join("confirmation.toml");
    let text = format!(
        "[server]\nlisten = '127.0.0.1:0'\n[database]\nurl = '{}'\n[attestation]\nkey = '{}'\n\
         [clients.execution]\nurl = 'http://127.0.0.1:9'\n[clients.intent]\nurl = 'http://127.0.0.1:9'\n",
        database.url(),
        "07".repeat(32)
    );
    std::fs::write(&file, text).unwrap();
    let mut tx = db::begin(&pool).await.unwrap();
    let message = OutboxMessage::new("job/7", "execution.RecordVerdict", "");
    let message = outbox::enqueue_in(&mut tx, &message).await.unwrap().to_string();
    tx.commit().await.unwrap();
    sqlx::query("UPDATE outbox_lane SET parked_at = now(), last_error = 'no such job'")
        .execute(&pool)
        .await
        .unwrap();
    let listed = String::from_utf8(confirmation(&file, &["outbox-list"]).stdout).unwrap();
    for part in [message.as_str(), "execution.RecordVerdict", "aggregate=job/7", "no such job"] {
        assert!(listed.contains(part), "{part} is not in {listed}");
    }
    assert!(confirmation(&file, &["outbox-requeue", &message]).status.success());
    assert!(outbox::parked(&pool, 1).await.unwrap().is_empty());
}
