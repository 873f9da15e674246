//! What these tests have in common.

use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use proto::confirmation::v1 as co;
use proto::confirmation::v1::confirmation_service_client::ConfirmationServiceClient;
use proto::execution::v1 as ex;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use proto::execution::v1::wallet_service_client::WalletServiceClient;
use rpc::Client;
use testkit::FaultProxy;
use tests::judge::job_of;
use tests::ledger::Node;
use tests::payments::{Customer, Ordered, PATIENCE, again};
use tests::pool::{self, Borrowed};

/// A customer comes this often while something is being broken.
pub(crate) const PACE: Duration = Duration::from_millis(300);

/// Bytes are sent again after a second instead of fifteen, so that a test need not wait for them.
pub(crate) const IMPATIENT: &[(&str, &str)] = &[("BURSAR_EXECUTION__WORKERS__RESEND_AFTER_MS", "1000")];

/// A stack with its customer, its node and the way into its services.
pub(crate) struct Scene {
    pub(crate) stack: Borrowed,
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

    /// Starts execution again with other settings.
    pub(crate) async fn execution_with(&self, settings: &[(&str, &str)]) -> Result<()> {
        // In good order: what a killed one was about to deliver would wait for its lease.
        self.stack.end("execution", Signal::SIGTERM)?;
        self.stack.start_again("execution", settings)?;
        self.stack.serving("execution").await
    }

    pub(crate) async fn job(&self, order: &Ordered) -> Result<ex::Job> {
        job_of(&self.execution, ex::get_job_request::Key::WithdrawalId(order.id.clone())).await
    }

    /// Waits until the job of an order is as asked.
    pub(crate) async fn job_when(
        &self,
        order: &Ordered,
        what: &str,
        is_so: impl Fn(&ex::Job) -> bool,
    ) -> Result<ex::Job> {
        let what = format!("the job of {} to be {what}", order.id);
        let found = testkit::wait_for_value(&what, PATIENCE, || async {
            // Not there yet is no error: the message that brings it may be under way.
            self.job(order).await.ok().filter(|job| is_so(job))
        });
        Ok(found.await)
    }

    /// Waits until execution has stored and sent the bytes of an order.
    pub(crate) async fn sent(&self, order: &Ordered) -> Result<ex::Job> {
        self.job_when(order, "sent", |job| job.status() == ex::JobStatus::Confirming).await
    }

    /// Waits until confirmation says so of an order's watch.
    pub(crate) async fn watch_when(
        &self,
        job: &ex::Job,
        what: &str,
        is_so: impl Fn(&co::Watch) -> bool,
    ) -> Result<co::Watch> {
        let what = format!("the watch of {} to be {what}", job.id);
        let found = testkit::wait_for_value(&what, PATIENCE, || async {
            let mut client = self.confirmation.clone();
            let answer = client.get_watch(co::GetWatchRequest { job_id: job.id.clone() }).await.ok()?;
            answer.into_inner().watch.filter(|watch| is_so(watch))
        });
        Ok(found.await)
    }

    pub(crate) async fn lanes(&self) -> Result<Vec<ex::Lane>> {
        let answer = again(|| {
            let mut client = self.execution.clone();
            async move { client.list_lanes(ex::ListLanesRequest::default()).await }
        });
        Ok(answer.await?.lanes)
    }

    /// The wallets that pay on the development chain, whether they have a lane yet or not.
    pub(crate) async fn wallets(&self) -> Result<Vec<String>> {
        let client = WalletServiceClient::new(self.stack.client("execution", "operator")?);
        let answer = again(|| {
            let mut client = client.clone();
            let request = ex::ListOperationWalletsRequest { chain: "bsc".to_owned(), ..Default::default() };
            async move { client.list_operation_wallets(request).await }
        });
        let wallets: Vec<String> = answer.await?.wallets.into_iter().map(|wallet| wallet.address).collect();
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

    /// Blocks pass on the node.
    pub(crate) async fn blocks_pass(&self, count: u64) -> Result<()> {
        let until = self.node.height().await? + count;
        testkit::wait_for("blocks to pass", PATIENCE, || async {
            self.node.height().await.is_ok_and(|height| height >= until)
        })
        .await;
        Ok(())
    }

    pub(crate) fn done(self) {
        self.stack.hand_on();
    }
}
