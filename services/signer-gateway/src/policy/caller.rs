//! Who calls, and for what its roles let it request signatures. The contract lets two services do so; neither may request what
//! is the other's business, so that a stolen key of one does not reach the other's payments.

use ::rpc::{Caller, Role};

use crate::signing::Purpose;

/// Pays: withdrawals, sweeps, top-ups.
const EXECUTION: &str = "execution";
/// Calls contracts for on-chain duties.
const WORKER_CONTROL: &str = "worker-control";

/// A caller, reduced to what the rules need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningCaller {
    name: String,
    payments: bool,
    duties: bool,
}

impl SigningCaller {
    pub fn new(caller: &Caller) -> Self {
        let is = |service: &str| caller.has(&Role::Service(service.to_owned()));
        Self { name: caller.name.clone(), payments: is(EXECUTION), duties: is(WORKER_CONTROL) }
    }

    /// A caller of a simulation: a service simulates as itself, a person as whichever service may request it.
    pub fn simulating(caller: &Caller) -> Self {
        match Self::new(caller) {
            Self { name, payments: false, duties: false } => Self { name, payments: true, duties: true },
            service => service,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn may_request(&self, purpose: &Purpose) -> bool {
        match purpose {
            Purpose::Withdrawal { .. } | Purpose::Sweep { .. } | Purpose::TopUp { .. } => self.payments,
            Purpose::Duty { .. } => self.duties,
        }
    }
}
