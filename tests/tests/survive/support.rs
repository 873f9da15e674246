//! What these tests have in common.

use std::time::Duration;

use anyhow::{Result, ensure};
use proto::confirmation::v1 as confirmation_pb;
use proto::confirmation::v1::confirmation_service_client::ConfirmationServiceClient;
use proto::execution::v1 as execution_pb;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use proto::execution::v1::wallet_service_client::WalletServiceClient;
use rpc::Client;
use testkit::{Fault, FaultProxy};
use tests::judge::{job_of, judge};
use tests::ledger::Node;
use tests::load::{BOTH, under_load};
use tests::payments::{Customer, Ordered, PATIENCE, retried};
use tests::pool::{self, PooledStack};

/// A customer comes this often while something is being broken.
pub(crate) const PACE: Duration = Duration::from_millis(300);

/// Bytes are sent again after a second instead of fifteen, so that a test need not wait for them.
pub(crate) const IMPATIENT: &[(&str, &str)] = &[("BURSAR_EXECUTION__WORKERS__RESEND_AFTER_MS", "1000")];

pub(crate) const SEND: &str = "eth_sendRawTransaction";

pub(crate) fn refusal(message: &str) -> Fault {
    Fault::RpcError { code: -32000, message: message.to_owned() }
}

/// A stack with its customer, its node and the way into its services.
pub(crate) struct Scene {
    pub(crate) stack: PooledStack,
    pub(crate) customer: Customer,
    pub(crate) node: Node,
    pub(crate) execution: ExecutionServiceClient<Client>,
    pub(crate) confirmation: ConfirmationServiceClient<Client>,
}

impl Scene {
    pub(crate) async fn new() -> Result<Self> {
        let stack = pool::stack().await?;
        Ok(Self {
            customer: Customer::of(&stack)?,
            node: Node::new(&stack.part("bsc")?.url)?,
            execution: ExecutionServiceClient::new(stack.client("execution", "operator")?),
            confirmation: ConfirmationServiceClient::new(stack.client("confirmation", "operator")?),
            stack,
        })
    }

    /// Puts a proxy between the services and their only node.
    pub(crate) async fn behind_proxy(&self) -> Result<FaultProxy> {
        let proxy = FaultProxy::http(self.node.address()).await;
        pool::nodes(&self.stack, vec![proxy.url()]).await?;
        // Execution has taken it over, too, once it reads the wallets' balances there.
        testkit::wait_for("execution to use the proxy", PATIENCE, || async {
            proxy.calls("eth_getBalance") > 0
        })
        .await;
        Ok(proxy)
    }

    /// No price is raised because a busy machine took its time: for tests that count what was signed.
    pub(crate) async fn never_raise(&self) -> Result<()> {
        pool::change_chain(&self.stack, |chain| chain.bump_after_seconds = 3_600).await
    }

    pub(crate) async fn execution_with(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.stack.replace("execution", settings)?;
        self.stack.serving("execution").await
    }

    pub(crate) async fn job(&self, order: &Ordered) -> Result<execution_pb::Job> {
        job_of(&self.execution, execution_pb::get_job_request::Key::WithdrawalId(order.id.clone())).await
    }

    /// Waits until the job of an order is as asked.
    pub(crate) async fn job_when(
        &self,
        order: &Ordered,
        what: &str,
        is_so: impl Fn(&execution_pb::Job) -> bool,
    ) -> Result<execution_pb::Job> {
        let what = format!("the job of {} to be {what}", order.id);
        let found = testkit::wait_for_value(&what, PATIENCE, || async {
            // Not there yet is no error: the message that brings it may be under way.
            self.job(order).await.ok().filter(|job| is_so(job))
        });
        Ok(found.await)
    }

    pub(crate) async fn sent(&self, order: &Ordered) -> Result<execution_pb::Job> {
        self.job_when(order, "sent", |job| job.status() == execution_pb::JobStatus::Confirming).await
    }

    /// Waits until confirmation says so of an order's watch.
    pub(crate) async fn watch_when(
        &self,
        job: &execution_pb::Job,
        what: &str,
        is_so: impl Fn(&confirmation_pb::Watch) -> bool,
    ) -> Result<confirmation_pb::Watch> {
        let what = format!("the watch of {} to be {what}", job.id);
        let found = testkit::wait_for_value(&what, PATIENCE, || async {
            let mut client = self.confirmation.clone();
            let answer =
                client.get_watch(confirmation_pb::GetWatchRequest { job_id: job.id.clone() }).await.ok()?;
            answer.into_inner().watch.filter(|watch| is_so(watch))
        });
        Ok(found.await)
    }

    pub(crate) async fn lanes(&self) -> Result<Vec<execution_pb::Lane>> {
        let all = execution_pb::ListLanesRequest::default();
        Ok(retried(|| async { self.execution.clone().list_lanes(all.clone()).await }).await?.lanes)
    }

    /// The wallets that pay on the development chain, whether they have a lane yet or not.
    pub(crate) async fn wallets(&self) -> Result<Vec<String>> {
        let client = WalletServiceClient::new(self.stack.client("execution", "operator")?);
        let request =
            execution_pb::ListOperationWalletsRequest { chain: "bsc".to_owned(), ..Default::default() };
        let listed = retried(|| async { client.clone().list_operation_wallets(request.clone()).await });
        let wallets: Vec<String> = listed.await?.wallets.into_iter().map(|wallet| wallet.address).collect();
        ensure!(!wallets.is_empty(), "nobody pays on this chain");
        Ok(wallets)
    }

    /// No wallet holds a nonce that the chain has not used.
    pub(crate) async fn no_nonce_taken(&self) -> Result<()> {
        for lane in self.lanes().await? {
            let used = self.node.nonce(&lane.address).await?;
            ensure!(lane.next_nonce <= used && lane.open_nonces.is_empty(), "a nonce was taken: {lane:?}");
        }
        Ok(())
    }

    pub(crate) async fn blocks_pass(&self, count: u64) -> Result<()> {
        let until = self.node.height().await? + count;
        testkit::wait_for("blocks to pass", PATIENCE, || async {
            self.node.height().await.is_ok_and(|height| height >= until)
        })
        .await;
        Ok(())
    }

    /// Has customers order payments while `breaking` runs, and waits until all of them and those of `breaking` are paid.
    pub(crate) async fn pay_during(
        &self,
        breaking: impl Future<Output = Result<Vec<Ordered>>>,
    ) -> Result<Vec<Ordered>> {
        let (mut paid, meanwhile) = under_load(&self.customer, BOTH, PACE, breaking).await?;
        paid.extend(meanwhile);
        self.customer.all_completed(&paid).await?;
        Ok(paid)
    }

    /// Whatever happened, nothing was signed a second time.
    pub(crate) async fn signed_once(&self, orders: &[Ordered]) -> Result<()> {
        for order in orders {
            let job = self.job(order).await?;
            ensure!(job.attempts.len() == 1, "{} was signed {} times", job.id, job.attempts.len());
        }
        Ok(())
    }

    /// Judges the stack and leaves it to the next test.
    pub(crate) async fn judged(self, orders: &[Ordered]) -> Result<()> {
        judge(&self.stack, &self.customer, orders).await?;
        self.stack.hand_on();
        Ok(())
    }

    pub(crate) fn done(self) {
        self.stack.hand_on();
    }
}
