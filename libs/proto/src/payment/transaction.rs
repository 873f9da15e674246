//! What is to be signed, as execution asks for it and the signer reads it.

use payment::{
    Action, AssetRef, Binding, BlockReference, ContractCall, GasFee, Price, Transfer, VoidProof, Window,
};
use types::{Address, AddressFormat, JobId, RawAmount};

use super::{FieldError, value};
use crate::signer::v1 as pb;
use crate::signer::v1::sign_transaction_request::Parameters;
use crate::signer::v1::tx_intent::Action as Intent;

/// What a signing request says about the transaction itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionRequest {
    pub action: Action,
    pub binding: Binding,
    pub price: Price,
    /// The chain's own number, on chains where it is signed with every transaction.
    pub network_id: Option<u64>,
}

/// Reads the intent first and its parameters afterwards, and names the first field that is wrong.
pub fn read_transaction(
    intent: Option<pb::TxIntent>,
    parameters: Option<Parameters>,
) -> Result<TransactionRequest, FieldError> {
    let intent = intent.and_then(|intent| intent.action);
    let action = read_action(intent.ok_or_else(|| FieldError::missing("tx_intent.action"))?)?;
    let sender = action.sender();
    match parameters.ok_or_else(|| FieldError::missing("parameters"))? {
        Parameters::Evm(evm) => Ok(TransactionRequest {
            action,
            binding: Binding::Nonce { sender, nonce: evm.nonce },
            price: Price::Gas { limit: evm.gas_limit, fee: read_gas_fee(&evm)? },
            network_id: Some(evm.chain_id),
        }),
        Parameters::Tron(tron) => Ok(TransactionRequest {
            action,
            binding: Binding::Window { sender, window: read_window(&tron)? },
            price: Price::FeeLimit { sun: not_negative("tron.fee_limit_sun", tron.fee_limit_sun)? },
            network_id: None,
        }),
    }
}

/// The intent and the parameters of a transaction.
///
/// # Errors
/// When action, binding and price are not of one family of chains, or a number does not fit.
pub fn write_transaction(request: &TransactionRequest) -> Result<(pb::TxIntent, Parameters), FieldError> {
    let TransactionRequest { action, binding, price, network_id } = request;
    let format = action.sender().format();
    let parameters = match (format, binding, price) {
        (AddressFormat::Evm, Binding::Nonce { nonce, .. }, Price::Gas { limit, fee }) => {
            let chain_id = network_id.ok_or_else(|| FieldError::missing("evm.chain_id"))?;
            Parameters::Evm(write_gas(chain_id, *nonce, *limit, *fee))
        }
        (AddressFormat::Tron, Binding::Window { window, .. }, Price::FeeLimit { sun }) => {
            Parameters::Tron(write_window(window, *sun)?)
        }
        (AddressFormat::Evm | AddressFormat::Tron, _, _) => {
            return Err(FieldError::new("parameters", "are not of the chain's family"));
        }
    };
    Ok((pb::TxIntent { action: Some(write_action(action, format)?) }, parameters))
}

fn read_action(intent: Intent) -> Result<Action, FieldError> {
    let (evm, tron) = (AddressFormat::Evm, AddressFormat::Tron);
    Ok(match intent {
        Intent::NativeTransfer(it) => pay(evm, None, &it.to, &it.amount_wei, &it.from)?,
        Intent::Erc20Transfer(it) => pay(evm, Some(&it.contract_address), &it.to, &it.amount, &it.from)?,
        Intent::SendTrx(it) => pay(tron, None, &it.to, &it.amount_sun, &it.from)?,
        Intent::Trc20Transfer(it) => pay(tron, Some(&it.contract_address), &it.to, &it.amount, &it.from)?,
        Intent::Cancellation(it) => Action::Cancel { sender: address("from", evm, &it.from)? },
        Intent::ContractCall(it) => Action::Call(ContractCall {
            contract: address("contract_address", evm, &it.contract_address)?,
            sender: address("from", evm, &it.from)?,
            data: it.data,
        }),
    })
}

fn pay(
    format: AddressFormat,
    contract: Option<&String>,
    to: &str,
    amount: &str,
    from: &str,
) -> Result<Action, FieldError> {
    let contract = contract.map(|text| address("contract_address", format, text)).transpose()?;
    Ok(Action::Pay(Transfer {
        asset: AssetRef::of_contract(contract),
        to: address("to", format, to)?,
        amount: value("tx_intent.amount", amount)?,
        from: address("from", format, from)?,
    }))
}

fn address(name: &str, format: AddressFormat, text: &str) -> Result<Address, FieldError> {
    Address::parse(format, text).map_err(|error| FieldError::new(format!("tx_intent.{name}"), error))
}

fn write_action(action: &Action, format: AddressFormat) -> Result<Intent, FieldError> {
    Ok(match action {
        Action::Pay(transfer) => write_transfer(transfer, format),
        Action::Cancel { sender } if format == AddressFormat::Evm => {
            Intent::Cancellation(pb::Cancellation { from: sender.to_string() })
        }
        Action::Call(call) if format == AddressFormat::Evm => Intent::ContractCall(pb::ContractCall {
            from: call.sender.to_string(),
            contract_address: call.contract.to_string(),
            data: call.data.clone(),
        }),
        Action::Cancel { .. } | Action::Call(_) => {
            return Err(FieldError::new(
                "tx_intent.action",
                format!("{} is not of this chain", action.name()),
            ));
        }
    })
}

fn write_transfer(transfer: &Transfer, format: AddressFormat) -> Intent {
    let (from, to, amount) =
        (transfer.from.to_string(), transfer.to.to_string(), transfer.amount.to_string());
    match (format, transfer.asset.contract().map(|contract| contract.to_string())) {
        (AddressFormat::Evm, None) => {
            Intent::NativeTransfer(pb::NativeTransfer { from, to, amount_wei: amount })
        }
        (AddressFormat::Evm, Some(contract_address)) => {
            Intent::Erc20Transfer(pb::Erc20Transfer { from, to, amount, contract_address })
        }
        (AddressFormat::Tron, None) => Intent::SendTrx(pb::SendTrx { from, to, amount_sun: amount }),
        (AddressFormat::Tron, Some(contract_address)) => {
            Intent::Trc20Transfer(pb::Trc20Transfer { from, to, amount, contract_address })
        }
    }
}

fn read_gas_fee(evm: &pb::EvmParameters) -> Result<GasFee, FieldError> {
    let wei = |field, text: &str| {
        let amount: RawAmount = value(field, text)?;
        amount.to_u128().ok_or_else(|| FieldError::new(field, "is too large"))
    };
    match (evm.gas_price.is_empty(), evm.max_fee_per_gas.is_empty(), evm.max_priority_fee_per_gas.is_empty())
    {
        (false, true, true) => Ok(GasFee::Legacy { gas_price: wei("evm.gas_price", &evm.gas_price)? }),
        (true, false, false) => Ok(GasFee::Dynamic {
            max_fee: wei("evm.max_fee_per_gas", &evm.max_fee_per_gas)?,
            max_priority: wei("evm.max_priority_fee_per_gas", &evm.max_priority_fee_per_gas)?,
        }),
        _ => Err(FieldError::new(
            "evm",
            "needs either gas_price, or max_fee_per_gas and max_priority_fee_per_gas",
        )),
    }
}

fn write_gas(chain_id: u64, nonce: u64, gas_limit: u64, fee: GasFee) -> pb::EvmParameters {
    let unpriced = pb::EvmParameters { chain_id, nonce, gas_limit, ..pb::EvmParameters::default() };
    match fee {
        GasFee::Legacy { gas_price } => pb::EvmParameters { gas_price: gas_price.to_string(), ..unpriced },
        GasFee::Dynamic { max_fee, max_priority } => pb::EvmParameters {
            max_fee_per_gas: max_fee.to_string(),
            max_priority_fee_per_gas: max_priority.to_string(),
            ..unpriced
        },
    }
}

fn read_window(tron: &pb::TronParameters) -> Result<Window, FieldError> {
    let number_end = tron.ref_block_bytes.as_slice().try_into();
    let hash_middle = tron.ref_block_hash.as_slice().try_into();
    Ok(Window {
        reference: BlockReference {
            number_end: number_end.map_err(|_| FieldError::new("tron.ref_block_bytes", "must be 2 bytes"))?,
            hash_middle: hash_middle
                .map_err(|_| FieldError::new("tron.ref_block_hash", "must be 8 bytes"))?,
        },
        expiration_ms: not_negative("tron.expiration_ms", tron.expiration_ms)?,
        made_ms: not_negative("tron.timestamp_ms", tron.timestamp_ms)?,
    })
}

fn write_window(window: &Window, fee_limit_sun: u64) -> Result<pb::TronParameters, FieldError> {
    let small = |field: &str, value: u64| {
        i64::try_from(value).map_err(|_| FieldError::new(field, format!("{value} is too large")))
    };
    Ok(pb::TronParameters {
        ref_block_bytes: window.reference.number_end.to_vec(),
        ref_block_hash: window.reference.hash_middle.to_vec(),
        expiration_ms: small("tron.expiration_ms", window.expiration_ms)?,
        timestamp_ms: small("tron.timestamp_ms", window.made_ms)?,
        fee_limit_sun: small("tron.fee_limit_sun", fee_limit_sun)?,
    })
}

fn not_negative(field: &str, value: i64) -> Result<u64, FieldError> {
    u64::try_from(value).map_err(|_| FieldError::new(field, "must not be negative"))
}

/// Reads the proof that earlier transactions of a job can never pay, and the job it names.
pub fn read_void_attestation(wire: pb::VoidAttestation) -> Result<(JobId, VoidProof), FieldError> {
    let field = |name: &str| format!("authorization.void_attestation.{name}");
    let attested_at = wire.attested_at.ok_or_else(|| FieldError::missing(field("attested_at")))?;
    let job = value(&field("job_id"), &wire.job_id)?;
    let tx_hashes = wire.tx_hashes.iter().map(|text| value(&field("tx_hashes"), text));
    let tx_hashes = tx_hashes.collect::<Result<_, _>>()?;
    let attested_at =
        crate::time::datetime(&attested_at).map_err(|error| FieldError::new(field("attested_at"), error))?;
    Ok((job, VoidProof { tx_hashes, signature: wire.signature, attested_at }))
}

pub fn write_void_attestation(job: JobId, proof: &VoidProof) -> pb::VoidAttestation {
    pb::VoidAttestation {
        job_id: job.to_string(),
        tx_hashes: proof.tx_hashes.iter().map(ToString::to_string).collect(),
        signature: proof.signature.clone(),
        attested_at: Some(crate::time::timestamp(proof.attested_at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter of its checksum is wrong.
    const MISTYPED: &str = "0x7e5F4552091A69125d5DfCb7b8C2659029395Bdf";
    const OTHER: &str = "0x00000000000000000000000000000000000000bb";
    const TRON: &str = "TWer2Ygk5TEheHp3TPuYeqxmB6SsGZmaL6";

    fn requests() -> Vec<TransactionRequest> {
        let (evm, tron): (Address, Address) = (OTHER.parse().unwrap(), TRON.parse().unwrap());
        let transfer =
            |at: Address, asset| Transfer { asset, from: at, to: at, amount: RawAmount::from(7_u64) };
        let gas = |fee| Price::Gas { limit: 21_000, fee };
        let fees = [GasFee::Legacy { gas_price: 5 }, GasFee::Dynamic { max_fee: u128::MAX, max_priority: 0 }];
        let evm_actions = [
            Action::Pay(transfer(evm, AssetRef::Native)),
            Action::Pay(transfer(evm, AssetRef::Token(evm))),
            Action::Cancel { sender: evm },
            Action::Call(ContractCall { sender: evm, contract: evm, data: vec![1, 2, 3] }),
        ];
        let window = Window {
            reference: BlockReference { number_end: [1, 2], hash_middle: [3; 8] },
            expiration_ms: 60_000,
            made_ms: 1,
        };
        let with_nonce = evm_actions.into_iter().flat_map(|action| {
            fees.map(|fee| TransactionRequest {
                action: action.clone(),
                binding: Binding::Nonce { sender: evm, nonce: 9 },
                price: gas(fee),
                network_id: Some(56),
            })
        });
        let with_window = [AssetRef::Native, AssetRef::Token(tron)].map(|asset| TransactionRequest {
            action: Action::Pay(transfer(tron, asset)),
            binding: Binding::Window { sender: tron, window },
            price: Price::FeeLimit { sun: 100 },
            network_id: None,
        });
        with_nonce.chain(with_window).collect()
    }

    #[test]
    fn every_transaction_survives_the_conversion() {
        for request in requests() {
            let (intent, parameters) = write_transaction(&request).unwrap();
            assert_eq!(read_transaction(Some(intent), Some(parameters)), Ok(request));
        }
    }

    #[test]
    fn a_binding_of_another_family_is_not_written() {
        let all = requests();
        let (first, last) = (&all[0], &all[all.len() - 1]);
        let mixed = TransactionRequest { binding: last.binding, ..first.clone() };
        assert_eq!(write_transaction(&mixed).unwrap_err().field, "parameters");
        let cancel =
            TransactionRequest { action: Action::Cancel { sender: last.action.sender() }, ..last.clone() };
        assert_eq!(write_transaction(&cancel).unwrap_err().field, "tx_intent.action");
    }

    #[test]
    fn the_wrong_field_is_named() {
        let good = |to: &str, amount: &str| {
            let transfer =
                pb::NativeTransfer { from: OTHER.into(), to: to.into(), amount_wei: amount.into() };
            Some(pb::TxIntent { action: Some(Intent::NativeTransfer(transfer)) })
        };
        let evm = |change: fn(&mut pb::EvmParameters)| {
            let mut evm = pb::EvmParameters { gas_price: "1".into(), ..pb::EvmParameters::default() };
            change(&mut evm);
            Some(Parameters::Evm(evm))
        };
        let field = |intent, parameters| read_transaction(intent, parameters).unwrap_err().field;
        assert_eq!(field(None, None), "tx_intent.action");
        assert_eq!(field(good(OTHER, "1"), None), "parameters");
        assert_eq!(field(good(MISTYPED, "1"), None), "tx_intent.to", "a wrong checksum");
        assert_eq!(field(good(OTHER, "-1"), None), "tx_intent.amount");
        assert_eq!(field(good(OTHER, "1"), evm(|evm| evm.gas_price = "x".into())), "evm.gas_price");
        assert_eq!(field(good(OTHER, "1"), evm(|evm| evm.max_fee_per_gas = "1".into())), "evm");
        let tron = pb::TronParameters { ref_block_bytes: vec![0; 3], ..pb::TronParameters::default() };
        assert_eq!(field(good(OTHER, "1"), Some(Parameters::Tron(tron))), "tron.ref_block_bytes");
    }
}
