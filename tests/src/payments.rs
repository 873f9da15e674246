//! Withdrawals requested and approved as customers and approvers do.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ed25519_dalek::{Signer, SigningKey};
use futures::future::try_join_all;
use proto::intent::v1 as pb;
use proto::intent::v1::intent_service_client::IntentServiceClient;
use rpc::Client;
use types::{Address, AddressFormat, Payment, PaymentDigest, approval_message};

use crate::stack::{Destinations, Stack};

/// Long enough for leases to run out on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(180);

const VALID: Duration = Duration::from_secs(3_600);

/// A withdrawal under way, with a destination that no other payment has.
#[derive(Debug, Clone)]
pub struct Ordered {
    pub id: String,
    pub asset: String,
    pub amount_raw: String,
    pub destination: Address,
}

#[derive(Debug, Clone)]
pub struct Customer {
    requester: IntentServiceClient<Client>,
    approvers: Vec<(String, SigningKey, IntentServiceClient<Client>)>,
    destinations: Destinations,
}

impl Customer {
    pub fn of(stack: &Stack) -> Result<Self> {
        let requester = IntentServiceClient::new(stack.client("intent", "requester")?);
        let approver = |name: &str| -> Result<_> {
            let key = SigningKey::from_bytes(&stack.approver_seed(name)?);
            Ok((name.to_owned(), key, IntentServiceClient::new(stack.client("intent", name)?)))
        };
        let approvers = ["approver-1", "approver-2"].into_iter().map(approver).collect::<Result<_>>()?;
        Ok(Self { requester, approvers, destinations: stack.destinations.clone() })
    }

    /// Requests a withdrawal and approves it. Calls are repeated while the service is away: both are idempotent.
    pub async fn order(&self, asset: &str, amount: &str) -> Result<Ordered> {
        self.order_traced(asset, amount, None).await
    }

    /// As [`Customer::order`], as part of the caller's own trace.
    pub async fn order_traced(
        &self,
        asset: &str,
        amount: &str,
        traceparent: Option<&str>,
    ) -> Result<Ordered> {
        let destination = Address::from_body(AddressFormat::Evm, rand::random());
        self.order_to("bsc", destination, (asset, amount), traceparent).await
    }

    /// As [`Customer::order`], on any chain and to a destination of the caller's choice.
    pub async fn order_to(
        &self,
        chain: &str,
        destination: Address,
        payment: (&str, &str),
        traceparent: Option<&str>,
    ) -> Result<Ordered> {
        let (order, created) = self.request(chain, destination, payment, traceparent).await?;
        self.approve(&created, VALID, traceparent).await?;
        Ok(order)
    }

    /// Requests a withdrawal that nobody has approved yet.
    pub async fn request(
        &self,
        chain: &str,
        destination: Address,
        (asset, amount): (&str, &str),
        traceparent: Option<&str>,
    ) -> Result<(Ordered, pb::Withdrawal)> {
        self.destinations.note(&destination);
        let request = pb::CreateWithdrawalRequest {
            idempotency_key: uuid::Uuid::now_v7().to_string(),
            user_id: uuid::Uuid::now_v7().to_string(),
            chain: chain.to_owned(),
            asset: asset.to_owned(),
            amount: amount.to_owned(),
            destination: destination.to_string(),
            ..Default::default()
        };
        let created = retried(|| async {
            self.requester.clone().create_withdrawal(in_trace(request.clone(), traceparent)?).await
        });
        let created = created.await?.withdrawal.context("the answer holds no withdrawal")?;
        let [id, asset, amount_raw] = [&created.id, &created.asset, &created.amount_raw].map(String::clone);
        Ok((Ordered { id, asset, amount_raw, destination }, created))
    }

    /// The approvals of both approvers; returns when they expire.
    pub async fn approve(
        &self,
        withdrawal: &pb::Withdrawal,
        valid: Duration,
        traceparent: Option<&str>,
    ) -> Result<i64> {
        let expires = chrono::Utc::now().timestamp() + i64::try_from(valid.as_secs())?;
        for (name, key, client) in &self.approvers {
            let request = approval(withdrawal, name, key, expires)?;
            retried(|| async {
                client.clone().approve_withdrawal(in_trace(request.clone(), traceparent)?).await
            })
            .await?;
        }
        Ok(expires)
    }

    /// So many at once, half of them in the native asset and half in a token.
    pub async fn order_some(&self, count: usize) -> Result<Vec<Ordered>> {
        let orders = (0..count).map(|n| {
            let (asset, amount) = if n % 2 == 0 { ("BNB", "0.001") } else { ("USDT", "1.25") };
            self.order(asset, amount)
        });
        try_join_all(orders).await
    }

    pub async fn status(&self, id: &str) -> Result<pb::Withdrawal> {
        let request = pb::GetWithdrawalRequest { id: id.to_owned() };
        let found = retried(|| async { self.requester.clone().get_withdrawal(request.clone()).await });
        found.await?.withdrawal.context("the answer holds no withdrawal")
    }

    /// Waits until the withdrawal has ended, one way or the other.
    pub async fn ended(&self, id: &str, patience: Duration) -> Result<pb::Withdrawal> {
        let what = format!("withdrawal {id} to end");
        let ended = testkit::wait_for_value(&what, patience, || async {
            let found = self.status(id).await;
            let waiting = found.as_ref().is_ok_and(|w| {
                use pb::WithdrawalStatus as S;
                matches!(w.status(), S::Pending | S::Approved | S::Queued)
            });
            (!waiting).then_some(found)
        });
        ended.await
    }

    /// Waits until the withdrawal is completed; any other end is a failure of the test.
    pub async fn completed(&self, id: &str, patience: Duration) -> Result<pb::Withdrawal> {
        let found = self.ended(id, patience).await?;
        let status = found.status();
        ensure!(
            status == pb::WithdrawalStatus::Completed,
            "withdrawal {id} ended as {}: {}",
            status.as_str_name(),
            found.failure_reason
        );
        Ok(found)
    }

    /// Waits for one after the other: hundreds of them asking at once would slow down what they wait for. Patience is with each:
    /// on a busy machine all of them together may take long, as long as they move.
    pub async fn all_completed(&self, orders: &[Ordered]) -> Result<()> {
        for order in orders {
            self.completed(&order.id, PATIENCE).await?;
        }
        Ok(())
    }

    /// Waits until the withdrawal shows why it does not move; the reason.
    pub async fn blocked(&self, id: &str) -> Result<String> {
        let what = format!("withdrawal {id} to say what it waits for");
        let reason = testkit::wait_for_value(&what, PATIENCE, || async {
            let found = self.status(id).await.ok()?;
            (!found.blocked_reason.is_empty()).then_some(found.blocked_reason)
        });
        Ok(reason.await)
    }
}

fn in_trace<T>(message: T, traceparent: Option<&str>) -> Result<tonic::Request<T>, tonic::Status> {
    let mut request = tonic::Request::new(message);
    if let Some(text) = traceparent {
        let value = text.parse().map_err(|_| tonic::Status::invalid_argument("traceparent"))?;
        request.metadata_mut().insert("traceparent", value);
    }
    Ok(request)
}

fn approval(
    w: &pb::Withdrawal,
    name: &str,
    key: &SigningKey,
    expires: i64,
) -> Result<pb::ApproveWithdrawalRequest> {
    let (chain, asset) = (w.chain.parse()?, w.asset.parse()?);
    let digest = PaymentDigest::compute(&Payment {
        id: w.id.parse()?,
        chain: &chain,
        asset: &asset,
        destination: &w.destination.parse()?,
        amount: w.amount_raw.parse()?,
    });
    Ok(pb::ApproveWithdrawalRequest {
        id: w.id.clone(),
        signature: key.sign(&approval_message(digest, name, expires)).to_bytes().to_vec(),
        expires_at: Some(prost_types::Timestamp { seconds: expires, nanos: 0 }),
    })
}

/// Repeats a call while the service cannot be reached, because the test kills services and starts them again.
pub async fn retried<T, F>(call: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
{
    let answer = testkit::wait_for_value("the service to answer", PATIENCE, || async {
        match call().await {
            Err(status) if is_transient(&status) => None,
            other => Some(other),
        }
    });
    Ok(answer.await?.into_inner())
}

fn is_transient(status: &tonic::Status) -> bool {
    use tonic::Code;
    matches!(
        status.code(),
        Code::Unavailable | Code::Unknown | Code::DeadlineExceeded | Code::Cancelled | Code::Internal
    )
}
