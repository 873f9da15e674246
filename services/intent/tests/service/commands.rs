//! The program itself, as operators run it.

use std::path::Path;
use std::process::Output;

use db::outbox;
use tokio::process::Command;
use tonic::Status;

use crate::support::execution::NextCall;
use crate::support::{PATIENCE, config, stack};

async fn intent(file: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_intent"));
    command.args(arguments).arg("--config").arg(file).output().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_finds_a_parked_message_and_sets_it_going() {
    let stack = stack().await;
    let dir = testkit::scratch_dir();
    let file = dir.path().join("intent.toml");
    std::fs::write(&file, config(stack.database.url(), &stack.execution.url(), "")).unwrap();
    stack.execution.next(NextCall::Refuse(Status::invalid_argument("unknown wallet")));
    let withdrawal = stack.approved("order-1").await;
    let parked = testkit::wait_for_value("the parked message", PATIENCE, || async {
        outbox::parked(&stack.pool, 1).await.unwrap().pop()
    })
    .await;
    let listed = intent(&file, &["outbox-list"]).await;
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(text.contains(&withdrawal.id) && text.contains("unknown wallet"), "{text}");
    let message = parked.message_id.to_string();
    assert!(intent(&file, &["outbox-requeue", &message]).await.status.success());
    stack.handed_over(1).await;
    let again = intent(&file, &["outbox-requeue", &message]).await;
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8(again.stderr).unwrap().contains("no parked message"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_migrates_and_checks_its_configuration() {
    let database = testkit::postgres().await;
    let dir = testkit::scratch_dir();
    let file = dir.path().join("intent.toml");
    std::fs::write(&file, config(database.url(), "http://127.0.0.1:1", "")).unwrap();
    assert!(intent(&file, &["check-config"]).await.status.success());
    let unmigrated = intent(&file, &["outbox-list"]).await;
    assert_eq!(unmigrated.status.code(), Some(1));
    for _ in 0..2 {
        assert!(intent(&file, &["migrate"]).await.status.success());
    }
    assert!(intent(&file, &["outbox-list"]).await.status.success());
    std::fs::write(&file, "[policy]\nquorum = 1\n").unwrap();
    let wrong = intent(&file, &["check-config"]).await;
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8(wrong.stderr).unwrap().contains("policy.quorum"));
}
