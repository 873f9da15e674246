//! A stack that retries quickly, payments to fresh addresses, and one scene for all tests of TRON.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::StreamExt as _;
use proto::execution::v1 as pb;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use proto::intent::v1::WithdrawalStatus;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tests::judge::job_of;
use tests::load;
use tests::payments::{Customer, Ordered};
use tests::report::say;
use tests::stack::Stack;
use tests::tron::{Devnet, judge, token, tune};
use types::{Address, AddressFormat};

const CUSTOMERS: usize = 24;
/// A customer comes this often while something is being broken.
const PACE: Duration = Duration::from_millis(400);
/// How long everything may take to be paid once nothing breaks any more.
pub(crate) const AFTERWARDS: Duration = Duration::from_secs(150);

/// Short, so that the ends of windows are seen.
pub(crate) const SHORT_MS: u32 = 8_000;
/// Longer than anything takes on a busy machine: nothing needs a second signature.
pub(crate) const LONG_MS: u32 = 300_000;

/// What may go wrong with the answer to sent bytes, whether the node has taken them or not.
pub(crate) const SENT: &[&str] = &[
    "accept_timeout",
    "accept_502",
    "truncated",
    "other_error",
    "timeout",
    "bad_gateway",
    "rate_limit",
    "p2p_failed",
    "lost",
    "forgotten",
    "busy",
    "no_connection",
    "unsolidified",
];

/// A stack with its customer, its network, and everything that was ordered: payments that must have been made, or be proven
/// never to be.
pub(crate) struct Scene {
    pub(crate) stack: Arc<Stack>,
    pub(crate) customer: Customer,
    pub(crate) devnet: Devnet,
    /// The token's contract.
    pub(crate) token: String,
    pub(crate) dice: StdRng,
    pub(crate) orders: Vec<Ordered>,
}

impl Scene {
    pub(crate) async fn new(stack: Stack, seed: u64) -> Result<Self> {
        Ok(Self {
            customer: Customer::of(&stack)?,
            devnet: Devnet::of(&stack)?,
            token: token(&stack).await?,
            dice: StdRng::seed_from_u64(seed),
            orders: Vec::new(),
            stack: Arc::new(stack),
        })
    }

    pub(crate) async fn order(&mut self, count: usize) -> Result<Vec<Ordered>> {
        let orders = order_some(&self.customer, &mut self.dice, count).await?;
        self.orders.extend(orders.iter().cloned());
        Ok(orders)
    }

    pub(crate) async fn order_one(&mut self, asset: &str, amount: &str) -> Result<Ordered> {
        let to = stranger(&mut self.dice);
        let order = self.customer.order_to("tron", to, (asset, amount), None).await?;
        self.orders.push(order.clone());
        Ok(order)
    }

    /// Orders payments and waits until they are made.
    pub(crate) async fn pay(&mut self, count: usize) -> Result<Vec<Ordered>> {
        let orders = self.order(count).await?;
        self.customer.all_completed(&orders).await?;
        Ok(orders)
    }

    /// Breaks something while customers keep ordering, and waits until all of them are paid.
    pub(crate) async fn during<T>(&mut self, breaking: impl Future<Output = Result<T>>) -> Result<T> {
        let (broken, orders) = while_ordering(&self.customer, &mut self.dice, breaking).await?;
        self.customer.all_completed(&orders).await?;
        self.orders.extend(orders);
        Ok(broken)
    }

    pub(crate) async fn job(&self, order: &Ordered) -> Result<pb::Job> {
        let client = ExecutionServiceClient::new(self.stack.client("execution", "auditor")?);
        job_of(&client, pb::get_job_request::Key::WithdrawalId(order.id.clone())).await
    }

    /// Every payment was made once, and nothing was signed twice.
    pub(crate) async fn judged(self) -> Result<()> {
        let tally = judge(&self.stack, &self.customer, &self.devnet, &self.orders, &[]).await?;
        ensure!(tally.completed == self.orders.len(), "{tally:?}");
        say(format_args!("{tally:?}; double payments: 0"));
        Ok(())
    }
}

/// A stack whose services retry quickly, with windows of this length.
pub(crate) async fn quick_stack(window_ms: u32) -> Result<Stack> {
    let stack = Stack::start()?;
    let settings = format!(
        "window_ms = {window_ms}\nnode_timeout_ms = 1500\nworkers = {{ lease_ms = 4000, resend_after_ms = 1500 }}\n\
         [retry]\nwithdrawal = {{ base_ms = 300, cap_ms = 1000, max_tries = 40 }}\n\
         wait = {{ base_ms = 200, cap_ms = 1000 }}"
    );
    tune(&stack.config("execution"), &settings)?;
    tune(
        &stack.config("confirmation"),
        "[follow]\nvoid_check_ms = 500\nretry_ms = 300\nlease_ms = 3000\nnode_timeout_ms = 1500",
    )?;
    for service in ["execution", "confirmation"] {
        stack.kill(service)?;
        stack.start_again(service, &[])?;
        stack.serving(service).await?;
    }
    Ok(stack)
}

pub(crate) fn stranger(dice: &mut StdRng) -> Address {
    Address::from_body(AddressFormat::Tron, dice.random())
}

/// So many payments, half of them in TRX and half in the token, each to a stranger.
pub(crate) async fn order_some(customer: &Customer, dice: &mut StdRng, count: usize) -> Result<Vec<Ordered>> {
    let wanted: Vec<(Address, &str)> =
        (0..count).map(|n| (stranger(dice), if n % 2 == 0 { "TRX" } else { "USDT" })).collect();
    let orders = wanted.into_iter().map(|(to, asset)| customer.order_to("tron", to, (asset, "1.25"), None));
    futures::stream::iter(orders).buffer_unordered(CUSTOMERS).collect::<Vec<_>>().await.into_iter().collect()
}

/// Orders payments by turns in TRX and in the token, each to a stranger, for as long as `breaking` takes.
pub(crate) async fn while_ordering<T>(
    customer: &Customer,
    dice: &mut StdRng,
    breaking: impl Future<Output = Result<T>>,
) -> Result<(T, Vec<Ordered>)> {
    let mut assets = ["TRX", "USDT"].into_iter().cycle();
    let order = || {
        let (customer, to, asset) = (customer.clone(), stranger(dice), assets.next().unwrap_or("TRX"));
        async move { customer.order_to("tron", to, (asset, "2.5"), None).await }
    };
    load::while_ordering(order, PACE, breaking).await
}

/// Waits until the last of these has reached execution.
pub(crate) async fn enqueued(customer: &Customer, orders: &[Ordered]) -> Result<()> {
    for order in orders {
        testkit::wait_for("a withdrawal to be queued", AFTERWARDS, || async {
            customer.status(&order.id).await.is_ok_and(|shown| shown.status() != WithdrawalStatus::Approved)
        })
        .await;
    }
    Ok(())
}

pub(crate) async fn customer_knows(customer: &Customer, orders: &[Ordered]) -> Result<()> {
    for order in orders {
        customer.ended(&order.id, AFTERWARDS).await?;
    }
    Ok(())
}
