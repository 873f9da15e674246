//! Sign requests through the real gateway over gRPC: each a payment of its own with two valid approvals, each judged, signed,
//! and durable with its guard and audit records before it is answered. Once as calls of their own, 64 in flight, and once as
//! execution asks, 64 in a call. The limit beside them is one durable insert for each request by 64 clients, on the same
//! server.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use ed25519_dalek::{Signer as _, SigningKey};
use futures::future::try_join_all;
use proto::signer::v1 as pb;
use proto::signer::v1::signer_service_client::SignerServiceClient;
use types::{
    Address, AddressFormat, AssetSymbol, ChainName, JobId, Payment, PaymentDigest, RawAmount, WithdrawalId,
    approval_message,
};

use crate::Mode;
use crate::gateway::{APPROVERS, CHAIN_ID, Gateway, approver};
use crate::pgbench::{Extent, Load};
use crate::server::{self, Server};
use crate::table::{Goal, Row, Unit, median};

const IN_FLIGHT: u32 = 64;
/// Connections to the gateway: a single one would be served by a single core.
const CONNECTIONS: u32 = 4;
/// Who asks for many at once: as many as execution has loops for two chains.
const CALLERS: usize = 4;
const WALLETS: u32 = 8;
/// Prepared for each second, because approving takes time too; about what two cores can answer.
const REQUESTS_PER_SECOND: usize = 8_000;
const AMOUNT: u128 = 1_000_000_000_000_000;

pub(crate) async fn rows(server: &Server, dir: &Path, mode: Mode) -> Result<Vec<Row>> {
    let seconds = mode.pick(1, 8);
    let span = Duration::from_secs(seconds.into());
    let commits = server.database("commits").await?;
    let pool = Server::pool(&commits, 2).await?;
    sqlx::raw_sql(
        "CREATE TABLE entry (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, content bytea NOT NULL)",
    )
    .execute(&pool)
    .await?;
    let mut gateway = Box::pin(Gateway::start(server, dir)).await?;
    let mut factory = Box::pin(RequestFactory::new(&gateway)).await?;
    for style in [Style::Single, Style::Batch] {
        let few = factory.requests(IN_FLIGHT as usize * 4)?;
        Box::pin(rate(&gateway, few, span, style)).await.context("warming up")?;
    }
    let (mut raw, mut alone, mut together) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..mode.rounds() {
        server::settle(&pool).await?;
        raw.push(ceiling(server, &commits, seconds).await?);
        for (style, rates) in [(Style::Single, &mut alone), (Style::Batch, &mut together)] {
            let prepared = factory.requests(REQUESTS_PER_SECOND * seconds as usize)?;
            server::settle(&pool).await?;
            rates.push(Box::pin(rate(&gateway, prepared, span, style)).await?);
        }
    }
    Box::pin(verify(&gateway)).await?;
    gateway.stop().await?;
    let raw = median(&raw);
    let row = |what, rates: &[f64]| {
        Row::new(what, Unit::PerSecond).ours(median(rates)).raw(raw).goal(Goal::OfRaw(1.0))
    };
    Ok(vec![
        Row::new("durable commit, 64 clients", Unit::PerSecond).raw(raw),
        row("sign request, guard and audit durable, a call each", &alone),
        row("sign request, guard and audit durable, 64 in a call", &together),
    ])
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Each by a call of its own.
    Single,
    /// Many in a call, as execution does.
    Batch,
}

/// One durable commit for each insert.
async fn ceiling(server: &Server, database: &str, seconds: u32) -> Result<f64> {
    let script = "INSERT INTO entry (content) VALUES (decode(repeat('ab', 200), 'hex'));\n";
    let extent = Extent::Seconds(seconds);
    server.pgbench.rate(&Load { database, script, clients: IN_FLIGHT, extent, variables: &[] }).await
}

/// Signs these, until all are signed or the time is over; returns how many a second.
async fn rate(
    gateway: &Gateway,
    requests: Vec<pb::SignTransactionRequest>,
    span: Duration,
    style: Style,
) -> Result<f64> {
    let clients = (0..CONNECTIONS).map(|_| gateway.as_execution()).collect::<Result<Vec<_>>>()?;
    let (callers, in_a_call) = match style {
        Style::Single => (IN_FLIGHT as usize, 1),
        Style::Batch => (CALLERS, IN_FLIGHT as usize),
    };
    let mut shares: Vec<Vec<Vec<_>>> = vec![Vec::new(); callers];
    for (index, call) in requests.chunks(in_a_call).enumerate() {
        shares[index % callers].push(call.to_vec());
    }
    let began = Instant::now();
    let callers = shares.into_iter().zip(clients.iter().cycle()).map(|(share, client)| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut signed = 0;
            for call in share {
                if began.elapsed() >= span {
                    break;
                }
                signed += match style {
                    Style::Single => single(client.clone(), call).await?,
                    Style::Batch => batch(client.clone(), call).await?,
                };
            }
            anyhow::Ok(signed)
        })
    });
    let signed = try_join_all(callers).await?.into_iter().sum::<Result<u32>>()?;
    Ok(f64::from(signed) / began.elapsed().as_secs_f64())
}

type SignerClient = SignerServiceClient<rpc::Client>;

async fn single(mut client: SignerClient, call: Vec<pb::SignTransactionRequest>) -> Result<u32> {
    let mut signed = 0;
    for request in call {
        check(&client.sign_transaction(request).await?.into_inner())?;
        signed += 1;
    }
    Ok(signed)
}

async fn batch(mut client: SignerClient, call: Vec<pb::SignTransactionRequest>) -> Result<u32> {
    let item = |request| pb::SignTransactionsItem { request: Some(request), traceparent: String::new() };
    let request = pb::SignTransactionsRequest { items: call.into_iter().map(item).collect() };
    let mut signed = 0;
    for outcome in client.sign_transactions(request).await?.into_inner().outcomes {
        match outcome.outcome {
            Some(pb::sign_transactions_outcome::Outcome::Signed(answer)) => check(&answer)?,
            other => bail!("nothing was signed: {other:?}"),
        }
        signed += 1;
    }
    Ok(signed)
}

fn check(answer: &pb::SignTransactionResponse) -> Result<()> {
    ensure!(!answer.replayed && !answer.raw_transaction.is_empty(), "nothing new was signed");
    Ok(())
}

/// Speed that broke the audit chain would be worth nothing.
async fn verify(gateway: &Gateway) -> Result<()> {
    let mut part = pb::VerifyAuditRequest::default();
    loop {
        let answer = gateway.as_operator()?.verify_audit(part.clone()).await?.into_inner();
        ensure!(answer.problem.is_empty(), "the audit chain is broken: {}", answer.problem);
        if answer.intact {
            return Ok(());
        }
        (part.after_sequence, part.after_hash) = (answer.next_sequence, answer.next_hash);
    }
}

/// Makes requests: distinct payments, each with approvals of its own, nonces in order.
struct RequestFactory {
    group: String,
    wallets: Vec<String>,
    approvers: Vec<(&'static str, SigningKey)>,
    chain: ChainName,
    asset: AssetSymbol,
    made: usize,
}

impl RequestFactory {
    async fn new(gateway: &Gateway) -> Result<RequestFactory> {
        let (group, wallets) = gateway.wallets(WALLETS).await?;
        let approvers = APPROVERS.into_iter().map(|name| (name, approver(name))).collect();
        Ok(RequestFactory {
            group,
            wallets,
            approvers,
            chain: "bsc".parse()?,
            asset: "BNB".parse()?,
            made: 0,
        })
    }

    fn requests(&mut self, count: usize) -> Result<Vec<pb::SignTransactionRequest>> {
        let expires_at = Utc::now() + TimeDelta::hours(1);
        let from = self.made;
        self.made += count;
        (from..self.made).map(|number| self.request(number, expires_at)).collect()
    }

    fn request(&self, number: usize, expires_at: DateTime<Utc>) -> Result<pb::SignTransactionRequest> {
        let (id, job) = (WithdrawalId::new(), JobId::new());
        let destination = Address::from_body(AddressFormat::Evm, rand::random());
        let amount = RawAmount::from(AMOUNT);
        let payment =
            Payment { id, chain: &self.chain, asset: &self.asset, destination: &destination, amount };
        let digest = PaymentDigest::compute(&payment);
        let approvals = self.approvers.iter().map(|(name, key)| pb::ApprovalProof {
            approver: (*name).to_owned(),
            signature: key.sign(&approval_message(digest, name, expires_at.timestamp())).to_bytes().to_vec(),
            expires_at: Some(proto::time::timestamp(expires_at)),
        });
        let withdrawal = pb::WithdrawalAuthorization {
            on_behalf_of: String::new(),
            withdrawal_id: id.to_string(),
            asset: self.asset.to_string(),
            requested_by: "requester".to_owned(),
            approvals: approvals.collect(),
        };
        let (wallet, nonce) = (number % self.wallets.len(), number / self.wallets.len());
        let transfer = pb::NativeTransfer {
            from: self.wallets[wallet].clone(),
            to: destination.to_string(),
            amount_wei: amount.to_string(),
        };
        Ok(pb::SignTransactionRequest {
            idempotency_key: format!("{job}/1"),
            chain: self.chain.to_string(),
            wallet_group_id: self.group.clone(),
            derivation_index: u32::try_from(wallet)?,
            tx_intent: Some(pb::TxIntent { action: Some(pb::tx_intent::Action::NativeTransfer(transfer)) }),
            parameters: Some(pb::sign_transaction_request::Parameters::Evm(pb::EvmParameters {
                chain_id: CHAIN_ID,
                nonce: u64::try_from(nonce)?,
                gas_limit: 21_000,
                max_fee_per_gas: "5000000000".to_owned(),
                max_priority_fee_per_gas: "1000000000".to_owned(),
                gas_price: String::new(),
            })),
            authorization: Some(pb::Authorization {
                kind: Some(pb::authorization::Kind::Withdrawal(withdrawal)),
                void_attestation: None,
            }),
            job_id: job.to_string(),
            lease_epoch: 1,
        })
    }
}
