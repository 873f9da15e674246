//! Withdrawals requested and approved as customers and approvers do it, over gRPC.

use anyhow::{Context as _, Result};
use ed25519_dalek::{Signer as _, SigningKey};
use futures::future::try_join_all;
use proto::intent::v1 as pb;
use proto::intent::v1::intent_service_client::IntentServiceClient;
use rpc::Client;
use types::{Address, AddressFormat, Payment, PaymentDigest, approval_message};

use crate::stack::Stack;

pub(crate) const ASSET: &str = "BNB";
const AMOUNT: &str = "0.0001";
const APPROVERS: [&str; 2] = ["approver-1", "approver-2"];
const APPROVAL_SECONDS: i64 = 3600;

#[derive(Debug, Clone)]
struct Approver {
    name: &'static str,
    key: SigningKey,
    client: IntentServiceClient<Client>,
}

#[derive(Debug, Clone)]
pub(crate) struct Customer {
    requester: IntentServiceClient<Client>,
    approvers: Vec<Approver>,
}

impl Customer {
    pub(crate) fn of(stack: &Stack) -> Result<Customer> {
        let approver = |name| -> Result<Approver> {
            let key = SigningKey::from_bytes(&stack.approver_seed(name)?);
            Ok(Approver { name, key, client: IntentServiceClient::new(stack.client("intent", name)?) })
        };
        Ok(Customer {
            requester: IntentServiceClient::new(stack.client("intent", "requester")?),
            approvers: APPROVERS.into_iter().map(approver).collect::<Result<_>>()?,
        })
    }

    pub(crate) fn requester(&self) -> IntentServiceClient<Client> {
        self.requester.clone()
    }

    /// A withdrawal with a destination that no other has.
    pub(crate) async fn create(&self) -> Result<pb::Withdrawal> {
        let request = pb::CreateWithdrawalRequest {
            on_behalf_of: String::new(),
            idempotency_key: uuid::Uuid::now_v7().to_string(),
            user_id: uuid::Uuid::now_v7().to_string(),
            chain: "bsc".to_owned(),
            asset: ASSET.to_owned(),
            amount: AMOUNT.to_owned(),
            destination: Address::from_body(AddressFormat::Evm, rand::random()).to_string(),
            ..Default::default()
        };
        let answer = self.requester().create_withdrawal(request).await?.into_inner();
        answer.withdrawal.context("the answer holds no withdrawal")
    }

    /// The approval of the first or the second approver.
    pub(crate) async fn approve(&self, withdrawal: &pb::Withdrawal, which: usize) -> Result<()> {
        let approver = self.approvers.get(which).context("there are two approvers")?;
        let request = approver.approval(withdrawal)?;
        approver.client.clone().approve_withdrawal(request).await?;
        Ok(())
    }

    pub(crate) async fn order(&self) -> Result<pb::Withdrawal> {
        let created = self.create().await?;
        for which in 0..self.approvers.len() {
            self.approve(&created, which).await?;
        }
        Ok(created)
    }

    /// Whether any withdrawal stands at one of these.
    pub(crate) async fn any(&self, statuses: &[pb::WithdrawalStatus]) -> Result<bool> {
        let statuses = statuses.iter().map(|status| i32::from(*status)).collect();
        let request = pb::ListWithdrawalsRequest { statuses, page_size: 1, ..Default::default() };
        let page = self.requester().list_withdrawals(request).await?.into_inner();
        Ok(!page.withdrawals.is_empty())
    }
}

impl Approver {
    fn approval(&self, withdrawal: &pb::Withdrawal) -> Result<pb::ApproveWithdrawalRequest> {
        let digest = PaymentDigest::compute(&Payment {
            id: withdrawal.id.parse()?,
            chain: &withdrawal.chain.parse()?,
            asset: &withdrawal.asset.parse()?,
            destination: &withdrawal.destination.parse()?,
            amount: withdrawal.amount_raw.parse()?,
        });
        let expires = chrono::Utc::now().timestamp() + APPROVAL_SECONDS;
        Ok(pb::ApproveWithdrawalRequest {
            id: withdrawal.id.clone(),
            signature: self.key.sign(&approval_message(digest, self.name, expires)).to_bytes().to_vec(),
            expires_at: Some(prost_types::Timestamp { seconds: expires, nanos: 0 }),
        })
    }
}

/// Does `work` for each item, this many at a time, each by a task of its own; results come in any order.
pub(crate) async fn spread<T, U, F, Fut>(items: Vec<T>, at_once: usize, work: F) -> Result<Vec<U>>
where
    T: Send + 'static,
    U: Send + 'static,
    F: Fn(T) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<U>> + Send,
{
    let mut shares: Vec<Vec<T>> = Vec::new();
    shares.resize_with(at_once, Vec::new);
    for (index, item) in items.into_iter().enumerate() {
        shares[index % at_once].push(item);
    }
    let tasks = shares.into_iter().map(|share| {
        let work = work.clone();
        tokio::spawn(async move {
            let mut done = Vec::with_capacity(share.len());
            for item in share {
                done.push(work(item).await?);
            }
            anyhow::Ok(done)
        })
    });
    let mut all = Vec::new();
    for done in try_join_all(tasks).await? {
        all.extend(done?);
    }
    Ok(all)
}
