//! The service as a whole, over gRPC, with its workers running.

use std::time::Duration;

use execution::Execution;
use proto::execution::v1 as pb;
use proto::execution::v1::catalogue_service_client::CatalogueServiceClient;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use proto::execution::v1::wallet_service_client::WalletServiceClient;
use testkit::Mining;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::chain;
use crate::signer::{FakeSigner, KEYS};
use crate::world::fresh_address;

struct Stack {
    running: service::Running<Execution>,
    client: rpc::Client,
    anvil: testkit::Chain,
    database: testkit::Database,
}

async fn stack() -> Stack {
    let anvil = chain::start(Mining::Instant).await;
    let database = testkit::postgres().await;
    let signer = FakeSigner::default().start().await;
    let (key, hash) = rpc::auth::new_key();
    // Nobody listens at the other services; messages wait, and payments go on.
    let config = format!(
        r#"
        sign_timeout_ms = 2000
        [server]
        listen = "127.0.0.1:0"
        [database]
        url = "{}"
        [clients.signer-gateway]
        url = "{signer}"
        [clients.confirmation]
        url = "http://127.0.0.1:9"
        [clients.intent]
        url = "http://127.0.0.1:9"
        [[auth.keys]]
        name = "everybody"
        sha256 = "{hash}"
        roles = ["operator", "auditor", "service:intent", "service:confirmation"]
        "#,
        database.url()
    );
    let pool = database.pool().await;
    db::migrate::run(&pool, <Execution as service::Service>::migrator().unwrap()).await.unwrap();
    let running = service::launch::<Execution>(&config).await.unwrap();
    let client = rpc::connect_lazy(&rpc::ClientConfig::new(running.url()).with_key(key)).unwrap();
    Stack { running, client, anvil, database }
}

fn chain_of(url: String) -> pb::Chain {
    pb::Chain {
        name: "bsc".into(),
        kind: pb::ChainKind::Evm.into(),
        network_id: 56,
        nodes: vec![url],
        finality: pb::FinalityRule::Depth.into(),
        depth: 2,
        dynamic_fees: true,
        max_gas_price: "500000000000".into(),
        max_fee: "1000000000000000000".into(),
        bump_after_seconds: 30,
        enabled: true,
        native_asset: "BNB".into(),
    }
}

async fn set_up(stack: &Stack) {
    let mut catalogue = CatalogueServiceClient::new(stack.client.clone());
    let chain = Some(chain_of(stack.anvil.url()));
    catalogue.put_chain(pb::PutChainRequest { chain }).await.unwrap();
    let asset = pb::Asset {
        symbol: "BNB".into(),
        chain: "bsc".into(),
        is_native: true,
        decimals: 18,
        enabled: true,
        ..Default::default()
    };
    catalogue.put_asset(pb::PutAssetRequest { asset: Some(asset) }).await.unwrap();
    let wallet = pb::OperationWallet {
        chain: "bsc".into(),
        address: KEYS[0].1.into(),
        role: pb::WalletRole::HotWallet.into(),
        wallet_group_id: types::WalletGroupId::new().to_string(),
        derivation_index: 0,
        ..Default::default()
    };
    let mut wallets = WalletServiceClient::new(stack.client.clone());
    wallets.put_operation_wallet(pb::PutOperationWalletRequest { wallet: Some(wallet) }).await.unwrap();
    let refresh = pb::RefreshBalancesRequest { chain: "bsc".into(), addresses: Vec::new() };
    wallets.refresh_balances(refresh).await.unwrap();
}

fn withdrawal(to: &str) -> pb::EnqueueWithdrawalRequest {
    pb::EnqueueWithdrawalRequest {
        on_behalf_of: String::new(),
        withdrawal_id: types::WithdrawalId::new().to_string(),
        chain: "bsc".into(),
        asset: "BNB".into(),
        amount_raw: "1000000000000000".into(),
        destination: to.into(),
        priority: "high".into(),
        requested_by: "alice".into(),
        approvals: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawal_over_grpc_is_broadcast_by_the_services_own_workers() {
    let stack = stack().await;
    set_up(&stack).await;
    let mut jobs = ExecutionServiceClient::new(stack.client.clone());
    let to = fresh_address();
    let id = jobs.enqueue_withdrawal(withdrawal(&to)).await.unwrap().into_inner().job_id;
    let get = || pb::GetJobRequest { key: Some(pb::get_job_request::Key::JobId(id.clone())) };
    let job = testkit::wait_for_value("the job is confirming", Duration::from_secs(20), || async {
        let job = jobs.clone().get_job(get()).await.unwrap().into_inner().job.unwrap();
        (job.status() == pb::JobStatus::Confirming).then_some(job)
    })
    .await;
    assert_eq!((job.amount.as_str(), job.attempts.len()), ("0.001", 1));
    assert_eq!(chain::payments_to(&stack.anvil, &to).await.len(), 1);
    let listed = jobs.list_jobs(pb::ListJobsRequest { page_size: 1, ..Default::default() }).await.unwrap();
    assert_eq!(listed.into_inner().jobs.len(), 1);
    let statistics = jobs.get_statistics(pb::GetStatisticsRequest::default()).await.unwrap().into_inner();
    assert_eq!(statistics.counts.len(), 1);
    stack.running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_named_and_pages_go_on() {
    let stack = stack().await;
    let mut catalogue = CatalogueServiceClient::new(stack.client.clone());
    let bad = pb::Chain {
        nodes: vec!["ftp://x".into(), "http://x".into(), "http://x".into()],
        depth: 0,
        max_fee: "-1".into(),
        ..chain_of(String::new())
    };
    let refused = catalogue.put_chain(pb::PutChainRequest { chain: Some(bad) }).await.unwrap_err();
    for field in ["chain.nodes[0]", "chain.nodes[2]", "chain.depth", "chain.max_fee"] {
        assert!(refused.message().contains(field), "{refused:?}");
    }
    set_up(&stack).await;
    let mut changed = chain_of(stack.anvil.url());
    changed.network_id = 57;
    let refused = catalogue.put_chain(pb::PutChainRequest { chain: Some(changed) }).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    let mut jobs = ExecutionServiceClient::new(stack.client.clone());
    for _ in 0..5 {
        jobs.enqueue_withdrawal(withdrawal(&fresh_address())).await.unwrap();
    }
    let (mut seen, mut token) = (0, String::new());
    loop {
        let request = pb::ListJobsRequest { page_size: 2, page_token: token, ..Default::default() };
        let page = jobs.list_jobs(request).await.unwrap().into_inner();
        seen += page.jobs.len();
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, 5);
    let ages = pb::GetStatisticsRequest {
        window: Some(prost_types::Duration { seconds: 400_000_000_000, nanos: 0 }),
    };
    let refused = jobs.get_statistics(ages).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("window"), "{refused}");
    let torn = pb::CancelJobRequest { job_id: types::JobId::new().to_string(), reason: "a\0b".to_owned() };
    let refused = jobs.cancel_job(torn).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("reason"), "{refused}");
    let mut wallets = WalletServiceClient::new(stack.client.clone());
    let refused = wallets.list_user_wallets(pb::ListUserWalletsRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    stack.running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_has_a_health_name_from_when_it_is_added_until_it_is_gone() {
    let stack = stack().await;
    let health = HealthClient::new(stack.client.clone());
    let status = |name: &'static str| {
        let mut health = health.clone();
        async move {
            let request = HealthCheckRequest { service: name.to_owned() };
            health
                .check(request)
                .await
                .map(|answer| answer.into_inner().status())
                .map_err(|error| error.code())
        }
    };
    assert_eq!(status("chain/bsc").await, Err(Code::NotFound));
    set_up(&stack).await;
    let limit = Duration::from_secs(20);
    testkit::wait_for("its name", limit, || async {
        status("chain/bsc").await == Ok(ServingStatus::Serving)
    })
    .await;
    let mut catalogue = CatalogueServiceClient::new(stack.client.clone());
    let away = pb::Chain { name: "away".into(), ..chain_of("http://127.0.0.1:9".into()) };
    catalogue.put_chain(pb::PutChainRequest { chain: Some(away) }).await.unwrap();
    let failing = || async { status("chain/away").await == Ok(ServingStatus::NotServing) };
    testkit::wait_for("another's, which fails", limit, failing).await;
    assert_eq!(status("chain/bsc").await, Ok(ServingStatus::Serving), "each for itself");
    let pool = stack.database.pool().await;
    sqlx::query("DELETE FROM chains WHERE name = 'away'").execute(&pool).await.unwrap();
    let gone = || async { status("chain/away").await == Err(Code::NotFound) };
    testkit::wait_for("its name to be gone", limit, gone).await;
    stack.running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_approvals_over_grpc_are_checked_and_may_come_twice() {
    let stack = stack().await;
    set_up(&stack).await;
    let mut jobs = ExecutionServiceClient::new(stack.client.clone());
    let enqueued = withdrawal(&fresh_address());
    let proof = pb::ApprovalProof {
        approver: "bob".into(),
        signature: vec![7; 64],
        expires_at: Some(proto::time::timestamp(chrono::Utc::now() + chrono::TimeDelta::hours(1))),
    };
    let renewal = pb::RenewApprovalsRequest {
        withdrawal_id: enqueued.withdrawal_id.clone(),
        approvals: vec![proof],
        revision: 4,
    };
    let early = jobs.renew_approvals(renewal.clone()).await.unwrap_err();
    assert_eq!(early.code(), Code::NotFound);
    let id = jobs.enqueue_withdrawal(enqueued).await.unwrap().into_inner().job_id;
    for _ in 0..2 {
        assert_eq!(jobs.renew_approvals(renewal.clone()).await.unwrap().into_inner().job_id, id);
    }
    let bad = pb::RenewApprovalsRequest { approvals: Vec::new(), revision: 0, ..renewal };
    let refused = jobs.renew_approvals(bad).await.unwrap_err();
    for field in ["approvals", "revision"] {
        assert!(refused.message().contains(field), "{refused:?}");
    }
    stack.running.stop().await.unwrap();
}
