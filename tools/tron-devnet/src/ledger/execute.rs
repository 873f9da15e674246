//! Executes one transaction on a world: fees, validation, effect, receipt.
//!
//! Fees are charged in this order: memo, bandwidth, contract. A refused transaction never enters a block and changes nothing; a failed
//! call enters a block and costs its fee.

use alloy_primitives::{U256, b256};

use super::resource::{BandwidthCharge, EnergyCharge};
use super::token::{Effect, Movement};
use super::{Account, Prices, World};
use crate::crypto::Address;
use crate::wire::{Operation, SignedTx, TransferContract, TriggerSmartContract};

const TRANSFER_TOPIC: alloy_primitives::B256 =
    b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

/// Why a transaction may not enter a block on this state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    Validate(String),
    #[error("account resource insufficient")]
    Resources,
}

/// How a call ended; the names and numbers are those of `contractRet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum ContractResult {
    Success = 1,
    Revert = 2,
    OutOfEnergy = 10,
}

#[derive(Clone, Debug)]
pub struct Log {
    pub address: Address,
    pub topics: Vec<[u8; 32]>,
    pub data: Vec<u8>,
}

/// What a transaction did, as its receipt shows it.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub ending: ContractResult,
    pub contract: Option<Address>,
    pub bandwidth: BandwidthCharge,
    pub energy: EnergyCharge,
    pub fee_sun: i64,
    pub output: Vec<u8>,
    pub message: Option<String>,
    pub logs: Vec<Log>,
    pub movements: Vec<Movement>,
}

#[derive(Clone, Copy, Debug)]
pub struct ExecutionContext<'a> {
    pub prices: &'a Prices,
    pub now_ms: i64,
}

pub fn execute(world: &mut World, tx: &SignedTx, at: ExecutionContext<'_>) -> Result<Outcome, Refusal> {
    let call = tx.call.as_ref().ok_or_else(|| Refusal::Validate("No contract!".into()))?;
    if let Operation::Other(kind) = call {
        return Err(Refusal::Validate(format!("contract type {kind} is unknown to the devnet")));
    }
    let owner = call.owner().ok_or_else(|| Refusal::Validate("Invalid ownerAddress!".into()))?;
    let mut payer = world
        .accounts
        .get(&owner)
        .cloned()
        .ok_or_else(|| Refusal::Validate(format!("account [{owner}] does not exist")))?;
    let memo_fee_sun = if tx.raw.data.is_empty() { 0 } else { at.prices.memo_fee_sun };
    payer.pay(memo_fee_sun).ok_or(Refusal::Resources)?;
    let opens_account = match call {
        Operation::Transfer(transfer) => Address::from_bytes(&transfer.to_address)
            .is_some_and(|to| !world.accounts.contains_key(&to) && !world.tokens.contains_key(&to)),
        Operation::Trigger(_) | Operation::Other(_) => false,
    };
    let bandwidth = payer
        .charge_bandwidth(tx.bandwidth(), opens_account, at.prices, at.now_ms)
        .ok_or(Refusal::Resources)?;
    payer.last_operation_ms = at.now_ms;
    let mut outcome = match call {
        Operation::Transfer(transfer) => transfer_trx(world, owner, payer, transfer, at)?,
        Operation::Trigger(trigger) => {
            trigger_contract(world, owner, payer, (trigger, tx.raw.fee_limit), at)?
        }
        Operation::Other(_) => {
            return Err(Refusal::Validate("contract type is unknown to the devnet".into()));
        }
    };
    outcome.bandwidth = bandwidth;
    outcome.fee_sun += memo_fee_sun + bandwidth.fee_sun;
    Ok(outcome)
}

/// The checks of a TRX transfer before anything is charged. Returns the fee for opening an account.
pub fn validate_transfer(
    world: &World,
    payer: Option<&Account>,
    transfer: &TransferContract,
    prices: &Prices,
) -> Result<i64, Refusal> {
    let refuse = |text: &str| Err(Refusal::Validate(text.to_owned()));
    if Address::from_bytes(&transfer.owner_address).is_none() {
        return refuse("Invalid ownerAddress!");
    }
    let Some(to) = Address::from_bytes(&transfer.to_address) else {
        return refuse("Invalid toAddress!");
    };
    if transfer.owner_address == transfer.to_address {
        return refuse("Cannot transfer TRX to yourself.");
    }
    let Some(payer) = payer else {
        return refuse("Validate TransferContract error, no OwnerAccount.");
    };
    if transfer.amount <= 0 {
        return refuse("Amount must be greater than 0.");
    }
    if world.tokens.contains_key(&to) {
        return refuse("Cannot transfer TRX to a smartContract.");
    }
    let fee_sun = if world.accounts.contains_key(&to) { 0 } else { prices.activation_fee_sun };
    match transfer.amount.checked_add(fee_sun) {
        None => refuse("long overflow"),
        Some(needed) if payer.balance_sun < needed => {
            refuse("Validate TransferContract error, balance is not sufficient.")
        }
        Some(_) => Ok(fee_sun),
    }
}

fn transfer_trx(
    world: &mut World,
    owner: Address,
    mut payer: Account,
    transfer: &TransferContract,
    at: ExecutionContext<'_>,
) -> Result<Outcome, Refusal> {
    let fee_sun = validate_transfer(world, Some(&payer), transfer, at.prices)?;
    let Some(to) = Address::from_bytes(&transfer.to_address) else {
        return Err(Refusal::Validate("Invalid toAddress!".into()));
    };
    payer.balance_sun -= transfer.amount + fee_sun;
    world.accounts.insert(owner, payer);
    world.credit(to, transfer.amount, at.now_ms);
    let amount = U256::from(transfer.amount.unsigned_abs());
    Ok(Outcome {
        ending: ContractResult::Success,
        contract: None,
        bandwidth: BandwidthCharge::default(),
        energy: EnergyCharge::default(),
        fee_sun,
        output: Vec::new(),
        message: None,
        logs: Vec::new(),
        movements: vec![Movement { token: None, from: owner, to, amount }],
    })
}

/// What the node checks of a call before running it: the contract's address.
pub fn validate_trigger(
    world: &World,
    trigger: &TriggerSmartContract,
    fee_limit_sun: i64,
    prices: &Prices,
) -> Result<Address, Refusal> {
    let refuse = |text: String| Err(Refusal::Validate(text));
    let contract = Address::from_bytes(&trigger.contract_address);
    let Some(contract) = contract.filter(|address| world.tokens.contains_key(address)) else {
        return refuse("No contract or not a smart contract".into());
    };
    if trigger.call_value < 0 {
        return refuse("callValue must be >= 0".into());
    }
    if !(0..=prices.max_fee_limit_sun).contains(&fee_limit_sun) {
        return refuse(format!("feeLimit must be >= 0 and <= {}", prices.max_fee_limit_sun));
    }
    Ok(contract)
}

fn trigger_contract(
    world: &mut World,
    owner: Address,
    mut payer: Account,
    (trigger, fee_limit_sun): (&TriggerSmartContract, i64),
    at: ExecutionContext<'_>,
) -> Result<Outcome, Refusal> {
    let contract = validate_trigger(world, trigger, fee_limit_sun, at.prices)?;
    if payer.balance_sun < trigger.call_value {
        let text = "Validate InternalTransfer error, balance is not sufficient.";
        return Err(Refusal::Validate(text.into()));
    }
    let Some(token) = world.tokens.get_mut(&contract) else {
        return Err(Refusal::Validate("No contract or not a smart contract".into()));
    };
    let effect = token.call(owner, trigger.call_value, &trigger.data);
    let allowance = payer.energy_allowance(fee_limit_sun, at.prices, at.now_ms);
    let out_of_energy = effect.energy > allowance;
    let ending = match (out_of_energy, effect.reverted) {
        (true, _) => ContractResult::OutOfEnergy,
        (false, true) => ContractResult::Revert,
        (false, false) => ContractResult::Success,
    };
    let energy = payer.charge_energy(effect.energy.min(allowance), at.prices, at.now_ms);
    let (mut logs, mut movements) = (Vec::new(), Vec::new());
    if ending == ContractResult::Success
        && let Some((to, amount)) = effect.transfer
    {
        token.apply(owner, to, amount);
        movements.push(Movement { token: Some(contract), from: owner, to, amount });
        logs.extend(transfer_log(contract, owner, &effect));
    }
    world.accounts.insert(owner, payer);
    let message = match ending {
        ContractResult::Success => None,
        ContractResult::Revert => Some("REVERT opcode executed".to_owned()),
        ContractResult::OutOfEnergy => Some(format!(
            "Not enough energy for 'SSTORE' operation executing: curInvokeEnergyLimit[{allowance}], \
             curOpEnergy[20000], usedEnergy[{allowance}]"
        )),
    };
    Ok(Outcome {
        ending,
        contract: Some(contract),
        bandwidth: BandwidthCharge::default(),
        energy,
        fee_sun: energy.fee_sun,
        output: if out_of_energy { Vec::new() } else { effect.output },
        message,
        logs,
        movements,
    })
}

/// The `Transfer` event of an effect, when it has one.
pub fn transfer_log(contract: Address, from: Address, effect: &Effect) -> Option<Log> {
    let (to, amount) = effect.transfer.filter(|_| effect.logged)?;
    let topic = |address: Address| {
        let mut topic = [0; 32];
        topic[12..].copy_from_slice(address.body());
        topic
    };
    Some(Log {
        address: contract,
        topics: vec![TRANSFER_TOPIC.0, topic(from), topic(to)],
        data: amount.to_be_bytes::<32>().to_vec(),
    })
}
