//! Whole withdrawals: requested, approved by two people, paid, confirmed at depth and shown as completed, with every
//! service, server and the node on this machine. And how long an approved one waits on an idle system until it is broadcast.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use chrono::{DateTime, Utc};
use proto::execution::v1 as execution_pb;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use proto::intent::v1 as pb;
use proto::intent::v1::intent_service_client::IntentServiceClient;
use rpc::Client;

use crate::Mode;
use crate::customer::{Customer, spread};
use crate::stack::Stack;
use crate::table::{Goal, Row, Unit, median};

const IN_FLIGHT: usize = 64;
const WARM_UP: usize = 250;
const PATIENCE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(50);

const OPEN: [pb::WithdrawalStatus; 3] =
    [pb::WithdrawalStatus::Pending, pb::WithdrawalStatus::Approved, pb::WithdrawalStatus::Queued];

/// One after the other, each alone on the system.
pub(crate) async fn latency(stack: &Stack, mode: Mode) -> Result<Vec<Row>> {
    let customer = Customer::of(stack)?;
    let mut jobs = ExecutionServiceClient::new(stack.client("execution", "operator")?);
    let mut waits = Vec::new();
    for number in 0..mode.pick(8, 21) {
        let ordered = Box::pin(customer.order()).await?;
        let broadcast_at = Box::pin(broadcast_at(&mut jobs, &ordered.id)).await?;
        let request = pb::GetWithdrawalRequest { id: ordered.id };
        let found = customer.requester().get_withdrawal(request).await?.into_inner().withdrawal;
        let approved_at = found.and_then(|found| found.approved_at).context("an approved one says when")?;
        let wait = broadcast_at - proto::time::datetime(&approved_at)?;
        // The first opens connections between the services.
        if number > 0 {
            waits.push(wait.as_seconds_f64() * 1000.0);
        }
    }
    drained(&customer).await?;
    let row = Row::new("approved to broadcast, idle system, median", Unit::Milliseconds);
    Ok(vec![row.ours(median(&waits)).goal(Goal::Below(50.0))])
}

async fn broadcast_at(jobs: &mut ExecutionServiceClient<Client>, withdrawal: &str) -> Result<DateTime<Utc>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // First a pause: asking would disturb what is being measured.
        tokio::time::sleep(POLL).await;
        let key = Some(execution_pb::get_job_request::Key::WithdrawalId(withdrawal.to_owned()));
        let answer = jobs.get_job(execution_pb::GetJobRequest { key }).await;
        let job = answer.ok().and_then(|answer| answer.into_inner().job);
        let sent = job.iter().flat_map(|job| &job.attempts).find_map(|attempt| attempt.broadcast_at);
        if let Some(at) = sent {
            return Ok(proto::time::datetime(&at)?);
        }
        ensure!(Instant::now() < deadline, "withdrawal {withdrawal} was not broadcast");
    }
}

/// Many at once; the clock runs from the first request until the last is completed.
pub(crate) async fn rate(stack: &Stack, mode: Mode) -> Result<Vec<Row>> {
    // On a slow machine fewer are ordered, so that the run ends in time.
    let (most, span) = mode.pick((1_000, Duration::from_secs(12)), (6_000, Duration::from_secs(60)));
    let customer = Customer::of(stack)?;
    let operator = IntentServiceClient::new(stack.client("intent", "operator")?);
    // The first of them open connections and have statements planned.
    Box::pin(order_many(&customer, WARM_UP, span)).await?;
    drained(&customer).await?;
    let before = Box::pin(completed(&operator)).await?;
    let began = Instant::now();
    let count = Box::pin(order_many(&customer, most, span)).await?;
    let ordered = began.elapsed().as_secs_f64();
    drained(&customer).await?;
    let seconds = began.elapsed().as_secs_f64();
    let paid = Box::pin(completed(&operator)).await? - before;
    ensure!(paid == count, "{paid} withdrawals of {count} were completed");
    eprintln!("    {count} withdrawals: ordered in {ordered:.1} s, completed in {seconds:.1} s");
    let row = Row::new("whole withdrawals, from request to completed", Unit::PerSecond);
    Ok(vec![row.ours(count as f64 / seconds).goal(Goal::AtLeast(300.0))])
}

/// Orders so many, or as many as the time allows; says how many.
async fn order_many(customer: &Customer, most: usize, span: Duration) -> Result<u64> {
    let (began, customer) = (Instant::now(), customer.clone());
    let order = move |()| {
        let customer = customer.clone();
        async move {
            let in_time = began.elapsed() < span;
            if in_time {
                Box::pin(customer.order()).await?;
            }
            Ok(u64::from(in_time))
        }
    };
    Ok(Box::pin(spread(vec![(); most], IN_FLIGHT, order)).await?.into_iter().sum())
}

async fn drained(customer: &Customer) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while Box::pin(customer.any(&OPEN)).await? {
        ensure!(Instant::now() < deadline, "withdrawals are still open after {} s", PATIENCE.as_secs());
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

async fn completed(operator: &IntentServiceClient<Client>) -> Result<u64> {
    let answer = operator.clone().get_statistics(pb::GetStatisticsRequest::default()).await?.into_inner();
    let counts = answer.by_status.iter().filter(|count| count.status() == pb::WithdrawalStatus::Completed);
    Ok(counts.map(|count| count.count).sum())
}
