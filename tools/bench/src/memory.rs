//! Resident memory of each service: idle, and with a long queue that nobody works off.
//!
//! The queue is filled as it would be in earnest: withdrawals are requested and approved while the operator has the chain
//! switched off. A switched-off chain takes no new requests, so the last approvals are what is given meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use proto::execution::v1 as execution_pb;
use proto::execution::v1::catalogue_service_client::CatalogueServiceClient;
use proto::execution::v1::execution_service_client::ExecutionServiceClient;
use proto::intent::v1 as pb;

use crate::customer::{Customer, spread};
use crate::stack::{SERVICES, Stack};
use crate::table::{Goal, Row, Unit};

const LIMIT_MIB: f64 = 64.0;
/// How much more memory may be in use with the whole queue than with a tenth of it: nothing grows with its length.
const GROWTH: f64 = 1.2;
const IN_FLIGHT: usize = 64;
const PATIENCE: Duration = Duration::from_secs(900);

/// Mebibytes of each service now, in the order of [`SERVICES`].
pub(crate) fn read(stack: &Stack) -> Result<Vec<f64>> {
    SERVICES.into_iter().map(|service| resident(stack.pid(service)?)).collect()
}

/// Rows for the idle services and, if `jobs` is not 0, for a queue of that many.
pub(crate) async fn rows(stack: &Stack, idle: Vec<f64>, jobs: usize) -> Result<Vec<Row>> {
    let row = |what: String, now: f64| Row::new(what, Unit::Mebibytes).ours(now).goal(Goal::Below(LIMIT_MIB));
    let idle_rows = SERVICES.into_iter().zip(idle);
    let mut rows: Vec<Row> =
        idle_rows.map(|(service, now)| row(format!("memory of {service}, idle"), now)).collect();
    if jobs > 0 {
        let filled = Box::pin(fill(stack, jobs)).await?;
        let queued = filled.queued;
        let both = SERVICES.into_iter().zip(filled.full).zip(filled.tenth);
        rows.extend(both.map(|((service, full), tenth)| {
            let what = format!("memory of {service}, {queued} jobs queued (beside it: a tenth of them)");
            row(what, full).raw(tenth).goal(Goal::AtMostRaw(GROWTH))
        }));
    }
    Ok(rows)
}

/// What a queue has cost, in the order of [`SERVICES`].
struct Filled {
    /// How many wait in the end: a few may have been worked off before every worker knew that the chain is off.
    queued: u64,
    tenth: Vec<f64>,
    full: Vec<f64>,
}

/// All are requested first, so that the requests weigh alike in both readings and only the queue has grown between them.
async fn fill(stack: &Stack, jobs: usize) -> Result<Filled> {
    let customer = Customer::of(stack)?;
    let requester = customer.clone();
    let request = move |()| {
        let customer = requester.clone();
        async move {
            let created = Box::pin(customer.create()).await?;
            Box::pin(customer.approve(&created, 0)).await?;
            anyhow::Ok(created)
        }
    };
    let mut created = Box::pin(spread(vec![(); jobs], IN_FLIGHT, request)).await?;
    Box::pin(switch_off(stack)).await?;
    let rest = created.split_off(jobs / 10);
    Box::pin(queue(&customer, created)).await?;
    let tenth = read(stack)?;
    Box::pin(queue(&customer, rest)).await?;
    let full = read(stack)?;
    let mut execution = ExecutionServiceClient::new(stack.client("execution", "operator")?);
    let counted = execution.get_statistics(execution_pb::GetStatisticsRequest::default()).await?.into_inner();
    let waiting = counted.counts.iter().filter(|count| count.status() == execution_pb::JobStatus::Pending);
    Ok(Filled { queued: waiting.map(|count| count.count).sum(), tenth, full })
}

/// Gives these their last approval and waits until all of them are queued.
async fn queue(customer: &Customer, withdrawals: Vec<pb::Withdrawal>) -> Result<()> {
    let approver = customer.clone();
    let approve = move |withdrawal: pb::Withdrawal| {
        let customer = approver.clone();
        async move { Box::pin(customer.approve(&withdrawal, 1)).await }
    };
    Box::pin(spread(withdrawals, IN_FLIGHT, approve)).await?;
    let deadline = Instant::now() + PATIENCE;
    while Box::pin(customer.any(&[pb::WithdrawalStatus::Approved])).await? {
        ensure!(Instant::now() < deadline, "not all jobs are queued after {} s", PATIENCE.as_secs());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

async fn switch_off(stack: &Stack) -> Result<()> {
    let mut catalogue = CatalogueServiceClient::new(stack.client("execution", "operator")?);
    let chains = catalogue.list_chains(execution_pb::ListChainsRequest::default()).await?.into_inner().chains;
    for chain in chains {
        let chain = Some(execution_pb::Chain { enabled: false, ..chain });
        catalogue
            .put_chain(execution_pb::PutChainRequest { chain })
            .await
            .context("cannot switch the chain off")?;
    }
    Ok(())
}

pub(crate) fn resident(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("a service is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes / 1024.0)
}
