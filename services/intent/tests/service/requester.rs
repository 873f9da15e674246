//! The requester: the key that called, and the person it acted for. Neither may approve.

use proto::intent::v1 as pb;
use tonic::Code;

use crate::support::{config, create, fields, reason, stack, stack_with};

fn on_behalf_of(name: &str, key: &str) -> pb::CreateWithdrawalRequest {
    pb::CreateWithdrawalRequest { on_behalf_of: name.to_owned(), ..create(key) }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_is_the_requester_and_whom_it_names_cannot_approve_either() {
    let stack = stack().await;
    let withdrawal = stack.create(on_behalf_of("ann", "order-1")).await.unwrap();
    assert_eq!((withdrawal.requested_by.as_str(), withdrawal.on_behalf_of.as_str()), ("alice", "ann"));
    let refused = stack.approve(&withdrawal, "ann").await.unwrap_err();
    assert_eq!(
        (reason(&refused).as_str(), refused.code()),
        ("APPROVER_IS_REQUESTER", Code::PermissionDenied)
    );
    for name in ["bob", "cid"] {
        stack.approve(&withdrawal, name).await.unwrap();
    }
    stack.handed_over(1).await;
    let message = stack.execution.enqueued().remove(0);
    assert_eq!((message.requested_by.as_str(), message.on_behalf_of.as_str()), ("alice", "ann"));
    // Naming somebody else does not make one's own key an approver: bob's key asks for cid, and bob is refused too.
    let own = stack.create_as("bob", on_behalf_of("cid", "order-2")).await.unwrap();
    for name in ["bob", "cid"] {
        assert_eq!(reason(&stack.approve(&own, name).await.unwrap_err()), "APPROVER_IS_REQUESTER", "{name}");
    }
    stack.approve(&own, "ann").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_refuse_it_as_well() {
    let stack = stack().await;
    stack.create(on_behalf_of("ann", "order-1")).await.unwrap();
    let approve = |on_behalf_of: &str| {
        format!(
            "INSERT INTO approvals SELECT id, 'ann', requested_by, decode(repeat('00', 64), 'hex'), \
             now() + interval '1 hour', now(), '{on_behalf_of}' FROM withdrawal_requests"
        )
    };
    for (named, constraint) in [("ann", "approvals_not_by_principal"), ("", "approvals_on_behalf_of")] {
        let error = sqlx::query(sqlx::AssertSqlSafe(approve(named))).execute(&stack.pool).await.unwrap_err();
        assert_eq!(db::constraint(&error), Some(constraint), "{named:?}");
    }
    let error = sqlx::query("UPDATE withdrawal_requests SET on_behalf_of = ''").execute(&stack.pool).await;
    assert_eq!(db::constraint(&error.unwrap_err()), Some("withdrawal_requests_payload_fixed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whom_it_is_for_belongs_to_the_payload_of_a_key() {
    let stack = stack().await;
    let first = stack.create(on_behalf_of("ann", "order-1")).await.unwrap();
    assert_eq!(stack.create(on_behalf_of("ann", "order-1")).await.unwrap().id, first.id);
    let other = stack.create(on_behalf_of("cid", "order-1")).await.unwrap_err();
    assert_eq!((other.code(), reason(&other).as_str()), (Code::AlreadyExists, "IDEMPOTENCY_KEY_REUSED"));
    assert!(other.message().contains("on_behalf_of"), "{other}");
    for bad in [" ann", "a\nb", &"x".repeat(129)] {
        let refused = stack.create(on_behalf_of(bad, "order-2")).await.unwrap_err();
        assert_eq!(
            (refused.code(), fields(&refused)),
            (Code::InvalidArgument, vec!["on_behalf_of".to_owned()])
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_names_of_one_person_are_one_approver_and_one_requester() {
    let policy = "[policy]\ndefault_required_approvals = 2\n";
    let base = stack_with(policy).await;
    let text = config(base.database.url(), &base.execution.url(), policy)
        .replace("[approvers.cid]\n", "[approvers.cid]\nperson = 'ann'\n");
    let running = service::launch::<intent::Intent>(&text).await.unwrap();
    let stack = crate::support::Stack { running, ..base };
    let withdrawal = stack.create(create("order-1")).await.unwrap();
    stack.approve(&withdrawal, "ann").await.unwrap();
    let twin = stack.approve(&withdrawal, "cid").await.unwrap_err();
    assert_eq!(reason(&twin), "APPROVAL_ALREADY_GIVEN", "one person counts once");
    assert_eq!(stack.approve(&withdrawal, "bob").await.unwrap().status(), pb::WithdrawalStatus::Approved);
    let own = stack.create(on_behalf_of("ann", "order-2")).await.unwrap();
    assert_eq!(reason(&stack.approve(&own, "cid").await.unwrap_err()), "APPROVER_IS_REQUESTER");
}
