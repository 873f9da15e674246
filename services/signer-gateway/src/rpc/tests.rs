//! The canonical text of a request, which is stored and compared byte by byte: it must never change for a request that was
//! signed before.

use proto::signer::v1 as pb;
use proto::signer::v1::sign_transaction_request::Parameters;
use proto::signer::v1::tx_intent::Action;

use super::parse;

const JOB: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const GROUP: &str = "01890a5d-ac96-774b-bcce-b302099a8058";
const HOT: &str = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";
const TO: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
const TOKEN: &str = "0x5FbDB2315678afecb367f032d93F642f64180aa3";

fn canonical(chain: &str, action: Action, parameters: Parameters, kind: pb::authorization::Kind) -> String {
    let request = pb::SignTransactionRequest {
        idempotency_key: format!("{JOB}/1"),
        chain: chain.to_owned(),
        wallet_group_id: GROUP.to_owned(),
        derivation_index: 3,
        tx_intent: Some(pb::TxIntent { action: Some(action) }),
        parameters: Some(parameters),
        authorization: Some(pb::Authorization { kind: Some(kind), void_attestation: None }),
        job_id: JOB.to_owned(),
        lease_epoch: 1,
    };
    let request = parse::signing_request(request).expect("readable");
    request.texts(&request.payment()).canonical
}

fn sweep(asset: &str) -> pb::authorization::Kind {
    let asset = asset.to_owned();
    pb::authorization::Kind::Sweep(pb::SweepAuthorization { job_id: JOB.to_owned(), asset })
}

fn duty() -> pb::authorization::Kind {
    pb::authorization::Kind::Duty(pb::DutyAuthorization { duty_id: "claim-7".to_owned() })
}

fn evm(dynamic: bool) -> Parameters {
    let text = |number: &str, set| if set { number.to_owned() } else { String::new() };
    Parameters::Evm(pb::EvmParameters {
        chain_id: 56,
        nonce: 7,
        gas_limit: 65_000,
        max_fee_per_gas: text("5000000000", dynamic),
        max_priority_fee_per_gas: text("1000000000", dynamic),
        gas_price: text("3000000000", !dynamic),
    })
}

fn head(chain: &str, payment: &str, asset: &str, action: &str) -> String {
    format!(
        "{{\"chain\":\"{chain}\",\"wallet_group_id\":\"{GROUP}\",\"derivation_index\":3,\"job_id\":\"{JOB}\",\
         \"payment\":\"{payment}\",\"asset\":{asset},\"action\":\"{action}\""
    )
}

#[test]
fn the_canonical_text_of_evm_requests_is_pinned() {
    let (from, to, amount) = (HOT.to_owned(), TO.to_owned(), "100".to_owned());
    let contract_address = TOKEN.to_owned();
    let token = Action::Erc20Transfer(pb::Erc20Transfer { from, to, amount, contract_address });
    let sweep_of = format!("sweep/{JOB}");
    let dynamic = "\"chain_id\":56,\"nonce\":7,\"gas_limit\":65000,\"max_fee_per_gas\":\"5000000000\",\
                   \"max_priority_fee_per_gas\":\"1000000000\"}";
    let legacy = "\"chain_id\":56,\"nonce\":7,\"gas_limit\":65000,\"gas_price\":\"3000000000\"}";
    assert_eq!(
        canonical("bsc", token, evm(true), sweep("USDT")),
        format!(
            "{},\"from\":\"{HOT}\",\"to\":\"{TO}\",\"amount\":\"100\",\"contract_address\":\"{TOKEN}\",{dynamic}",
            head("bsc", &sweep_of, "\"USDT\"", "token_transfer")
        )
    );
    let (from, to, amount_wei) = (HOT.to_owned(), TO.to_owned(), "100".to_owned());
    let native = Action::NativeTransfer(pb::NativeTransfer { from, to, amount_wei });
    assert_eq!(
        canonical("bsc", native, evm(false), sweep("BNB")),
        format!(
            "{},\"from\":\"{HOT}\",\"to\":\"{TO}\",\"amount\":\"100\",{legacy}",
            head("bsc", &sweep_of, "\"BNB\"", "transfer")
        )
    );
    let cancellation = Action::Cancellation(pb::Cancellation { from: HOT.to_owned() });
    assert_eq!(
        canonical("bsc", cancellation, evm(true), sweep("BNB")),
        format!("{},\"from\":\"{HOT}\",{dynamic}", head("bsc", &sweep_of, "\"BNB\"", "cancellation"))
    );
    let (from, contract_address) = (HOT.to_owned(), TOKEN.to_owned());
    let call = Action::ContractCall(pb::ContractCall { from, contract_address, data: vec![1, 2, 3, 4] });
    assert_eq!(
        canonical("bsc", call, evm(true), duty()),
        format!(
            "{},\"from\":\"{HOT}\",\"contract_address\":\"{TOKEN}\",\"data_sha256\":\
             \"9f64a747e1b97f131fabb6b447296c9b6f0201e79fb3c5356e6c77e89b6a806a\",{dynamic}",
            head("bsc", "duty/claim-7", "null", "contract_call")
        )
    );
}

#[test]
fn the_canonical_text_of_tron_requests_is_pinned() {
    let (from, to) = ("TWer2Ygk5TEheHp3TPuYeqxmB6SsGZmaL6", "TPjjvMwjPoDC32V2dGDYTkLH4E5LAtBZ6C");
    let contract = "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t";
    let parameters = Parameters::Tron(pb::TronParameters {
        ref_block_bytes: vec![0x26, 0x6b],
        ref_block_hash: vec![0xf6, 0xb6, 0xd3, 0x92, 0xf6, 0x54, 0xdc, 0x2e],
        expiration_ms: 1_777_445_367_000,
        timestamp_ms: 1_777_445_307_123,
        fee_limit_sun: 100_000_000,
    });
    let numbers = "\"ref_block_bytes\":\"266b\",\"ref_block_hash\":\"f6b6d392f654dc2e\",\
                   \"expiration_ms\":1777445367000,\"timestamp_ms\":1777445307123,\"fee_limit_sun\":100000000}";
    let sweep_of = format!("sweep/{JOB}");
    let amount_sun = "1000000".to_owned();
    let trx = Action::SendTrx(pb::SendTrx { from: from.to_owned(), to: to.to_owned(), amount_sun });
    assert_eq!(
        canonical("tron", trx, parameters.clone(), sweep("TRX")),
        format!(
            "{},\"from\":\"{from}\",\"to\":\"{to}\",\"amount\":\"1000000\",{numbers}",
            head("tron", &sweep_of, "\"TRX\"", "transfer")
        )
    );
    let token = Action::Trc20Transfer(pb::Trc20Transfer {
        from: from.to_owned(),
        to: to.to_owned(),
        amount: "5".to_owned(),
        contract_address: contract.to_owned(),
    });
    assert_eq!(
        canonical("tron", token, parameters, sweep("USDT")),
        format!(
            "{},\"from\":\"{from}\",\"to\":\"{to}\",\"amount\":\"5\",\"contract_address\":\"{contract}\",{numbers}",
            head("tron", &sweep_of, "\"USDT\"", "token_transfer")
        )
    );
}
