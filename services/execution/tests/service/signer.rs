//! A signer for tests: real keys, real signatures, idempotent on its key, with a guard and a fence; scriptable to lose
//! replies, to refuse, to hang, and to sign something else.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use alloy::consensus::{SignableTransaction, TxEip1559, TxEnvelope, TxLegacy};
use alloy::eips::eip2718::Encodable2718;
use alloy_primitives::{Address, Bytes, Signature, TxKind, U256};
use proto::signer::v1 as pb;
use proto::signer::v1::signer_service_server::{SignerService, SignerServiceServer};
use proto::signer::v1::{sign_transaction_request::Parameters, tx_intent::Action};
use secp256k1::{Message, Secp256k1, SecretKey};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// The first accounts of the development mnemonic: rich on a private chain, worthless elsewhere.
pub(crate) const KEYS: [(&str, &str); 3] = [
    (
        "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
        "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
    ),
    (
        "59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
        "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
    ),
    (
        "5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
        "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
    ),
];

/// What happens to a request to sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Script {
    Sign,
    /// Signs, and the reply never arrives.
    LoseReply,
    /// Does nothing and says that it is away.
    Away,
    Refuse(&'static str),
    /// A limit over time.
    LimitWindow,
    /// Never answers.
    Hang,
    /// Pays somebody else.
    Betray,
}

#[derive(Debug, Default)]
struct Book {
    script: VecDeque<Script>,
    always: Option<Script>,
    signed: HashMap<String, (pb::SignTransactionRequest, pb::SignTransactionResponse)>,
    fences: HashMap<String, u64>,
    slots: HashMap<String, u64>,
    /// Which job has which nonce of which key.
    owners: HashMap<(u32, u64), String>,
    /// The most offered by a payment at a job's nonce, and whether the nonce is being closed.
    bids: HashMap<(String, u64), (u128, bool)>,
    requests: u64,
    counts_approvals: bool,
    sealed: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct FakeSigner {
    book: Arc<Mutex<Book>>,
}

impl FakeSigner {
    /// Serves on a port of its own for as long as the runtime lives.
    pub(crate) async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = SignerServiceServer::new(self.clone());
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        format!("http://{address}")
    }

    /// What happens to the next requests, one by one; afterwards it signs.
    pub(crate) fn script(&self, steps: impl IntoIterator<Item = Script>) {
        self.book.lock().unwrap().script.extend(steps);
    }

    /// What happens to every request from now on.
    pub(crate) fn always(&self, step: Option<Script>) {
        self.book.lock().unwrap().always = step;
    }

    pub(crate) fn requests(&self) -> u64 {
        self.book.lock().unwrap().requests
    }

    /// How many different transactions were ever signed.
    pub(crate) fn signatures(&self) -> usize {
        self.book.lock().unwrap().signed.len()
    }

    /// From now on a payment needs an approval that has not expired.
    pub(crate) fn count_approvals(&self) {
        self.book.lock().unwrap().counts_approvals = true;
    }

    /// Remembers a payment at this nonce that the caller has forgotten.
    pub(crate) fn spend(&self, index: u32, nonce: u64) {
        self.book.lock().unwrap().owners.insert((index, nonce), "another job".to_owned());
    }

    fn next(&self) -> Script {
        let mut book = self.book.lock().unwrap();
        book.requests += 1;
        book.script.pop_front().or_else(|| book.always.clone()).unwrap_or(Script::Sign)
    }

    fn sign(
        &self,
        request: &pb::SignTransactionRequest,
        betray: bool,
    ) -> Result<pb::SignTransactionResponse, Status> {
        let mut book = self.book.lock().unwrap();
        let seen = book.fences.entry(request.job_id.clone()).or_default();
        if request.lease_epoch < *seen {
            return Err(rpc::error::aborted("FENCE_STALE", "an older lease"));
        }
        *seen = request.lease_epoch;
        if let Some((known, answer)) = book.signed.get(&request.idempotency_key) {
            // Lease, approvals and attestations make no other transaction.
            let bare = |request: &pb::SignTransactionRequest| pb::SignTransactionRequest {
                lease_epoch: 0,
                authorization: None,
                ..request.clone()
            };
            return if bare(known) == bare(request) {
                Ok(answer.clone())
            } else {
                Err(Status::already_exists("another request under this key"))
            };
        }
        let Some(Parameters::Evm(evm)) = &request.parameters else {
            return Err(Status::invalid_argument("evm"));
        };
        let void = request
            .authorization
            .as_ref()
            .is_some_and(|authorization| authorization.void_attestation.is_some());
        match book.slots.get(&request.job_id) {
            Some(nonce) if *nonce != evm.nonce && !void => {
                return Err(rpc::error::failed_precondition("PAYMENT_GUARD_SECOND_NONCE", "a second nonce"));
            }
            Some(_) | None => {}
        }
        if book.counts_approvals && !has_approval(request) {
            return Err(rpc::error::permission_denied("APPROVALS_EXPIRED", "0 of 1 approvals hold"));
        }
        let place = (request.derivation_index, evm.nonce);
        if book.owners.get(&place).is_some_and(|owner| *owner != request.job_id) {
            return Err(rpc::error::failed_precondition("PAYMENT_GUARD_NONCE_SPENT", "a spent nonce"));
        }
        let cancels = matches!(
            request.tx_intent.as_ref().and_then(|intent| intent.action.as_ref()),
            Some(Action::Cancellation(_))
        );
        let price = if evm.gas_price.is_empty() { &evm.max_fee_per_gas } else { &evm.gas_price };
        let price: u128 = price.parse().map_err(|_| Status::invalid_argument("price"))?;
        let bid = book.bids.entry((request.job_id.clone(), evm.nonce)).or_insert((0, false));
        if !cancels && bid.1 {
            return Err(rpc::error::failed_precondition("PAYMENT_GUARD_CANCELLED", "it is being closed"));
        }
        if !cancels && price <= bid.0 {
            return Err(rpc::error::failed_precondition("PAYMENT_GUARD_FEE_NOT_HIGHER", "offers no more"));
        }
        *bid = (price, cancels);
        let answer = build(request, evm, betray)?;
        book.owners.insert(place, request.job_id.clone());
        book.slots.insert(request.job_id.clone(), evm.nonce);
        book.signed.insert(request.idempotency_key.clone(), (request.clone(), answer.clone()));
        Ok(answer)
    }
}

fn has_approval(request: &pb::SignTransactionRequest) -> bool {
    use pb::authorization::Kind;
    let now = chrono::Utc::now().timestamp();
    match request.authorization.as_ref().and_then(|authorization| authorization.kind.as_ref()) {
        Some(Kind::Withdrawal(it)) => it
            .approvals
            .iter()
            .any(|approval| approval.expires_at.as_ref().is_some_and(|at| at.seconds > now)),
        _ => true,
    }
}

fn build(
    request: &pb::SignTransactionRequest,
    evm: &pb::EvmParameters,
    betray: bool,
) -> Result<pb::SignTransactionResponse, Status> {
    let (secret, from) = KEYS[request.derivation_index as usize];
    let action = request.tx_intent.as_ref().and_then(|intent| intent.action.as_ref());
    let (to, value, input) = match action.ok_or_else(|| Status::invalid_argument("action"))? {
        Action::NativeTransfer(it) => (it.to.clone(), it.amount_wei.parse().unwrap(), Bytes::new()),
        Action::Erc20Transfer(it) => {
            let mut data = hex::decode("a9059cbb").unwrap();
            data.extend_from_slice(&[0; 12]);
            data.extend_from_slice(it.to.parse::<Address>().unwrap().as_slice());
            data.extend_from_slice(&it.amount.parse::<U256>().unwrap().to_be_bytes::<32>());
            (it.contract_address.clone(), U256::ZERO, data.into())
        }
        Action::Cancellation(it) => (it.from.clone(), U256::ZERO, Bytes::new()),
        _ => return Err(Status::unimplemented("not in tests")),
    };
    let to = if betray { KEYS[2].1.to_owned() } else { to };
    let to = TxKind::Call(to.parse().unwrap());
    let (nonce, gas_limit) = (evm.nonce, evm.gas_limit);
    let raw = if evm.gas_price.is_empty() {
        let tx = TxEip1559 {
            chain_id: evm.chain_id,
            nonce,
            gas_limit,
            max_fee_per_gas: evm.max_fee_per_gas.parse().unwrap(),
            max_priority_fee_per_gas: evm.max_priority_fee_per_gas.parse().unwrap(),
            to,
            value,
            access_list: alloy::eips::eip2930::AccessList::default(),
            input,
        };
        let signature = seal(secret, tx.signature_hash().0);
        TxEnvelope::from(tx.into_signed(signature)).encoded_2718()
    } else {
        let gas_price = evm.gas_price.parse().unwrap();
        let tx = TxLegacy { chain_id: Some(evm.chain_id), nonce, gas_price, gas_limit, to, value, input };
        let signature = seal(secret, tx.signature_hash().0);
        TxEnvelope::from(tx.into_signed(signature)).encoded_2718()
    };
    let hash = alloy_primitives::keccak256(&raw);
    Ok(pb::SignTransactionResponse {
        raw_transaction: raw,
        tx_hash: hash.to_string(),
        from_address: from.to_owned(),
        replayed: false,
    })
}

fn seal(secret: &str, digest: [u8; 32]) -> Signature {
    let key: [u8; 32] = hex::decode(secret).unwrap().try_into().unwrap();
    let key = SecretKey::from_byte_array(key).unwrap();
    let signature = Secp256k1::new().sign_ecdsa_recoverable(Message::from_digest(digest), &key);
    let (id, bytes) = signature.serialize_compact();
    Signature::from_bytes_and_parity(&bytes, i32::from(id) == 1)
}

macro_rules! absent {
    ($($name:ident: $request:ident -> $response:ident),* $(,)?) => {
        #[tonic::async_trait]
        impl SignerService for FakeSigner {
            async fn sign_transaction(
                &self,
                request: Request<pb::SignTransactionRequest>,
            ) -> Result<Response<pb::SignTransactionResponse>, Status> {
                let request = request.into_inner();
                match self.next() {
                    Script::Sign => self.sign(&request, false).map(Response::new),
                    Script::Betray => self.sign(&request, true).map(Response::new),
                    Script::LoseReply => {
                        self.sign(&request, false)?;
                        Err(Status::unavailable("the connection broke"))
                    }
                    Script::Away => Err(Status::unavailable("away")),
                    Script::Refuse(reason) => Err(rpc::error::permission_denied(reason, "refused by a rule")),
                    Script::LimitWindow => Err(rpc::error::resource_exhausted(
                        "LIMIT_WINDOW",
                        "a limit over time is reached",
                        std::time::Duration::from_secs(60),
                    )),
                    Script::Hang => std::future::pending().await,
                }
            }

            async fn sign_transactions(
                &self,
                request: Request<pb::SignTransactionsRequest>,
            ) -> Result<Response<pb::SignTransactionsResponse>, Status> {
                use pb::sign_transactions_outcome::Outcome;
                let mut outcomes = Vec::new();
                for item in request.into_inner().items {
                    let request = item.request.ok_or_else(|| Status::invalid_argument("request"))?;
                    let outcome = match self.sign_transaction(Request::new(request)).await {
                        Ok(signed) => Outcome::Signed(signed.into_inner()),
                        Err(status) => Outcome::Refused(pb::SignTransactionsRefusal {
                            code: status.code().into(),
                            message: status.message().to_owned(),
                            details: status.details().to_vec(),
                        }),
                    };
                    outcomes.push(pb::SignTransactionsOutcome { outcome: Some(outcome) });
                }
                Ok(Response::new(pb::SignTransactionsResponse { outcomes }))
            }

            async fn get_status(
                &self,
                _: Request<pb::GetStatusRequest>,
            ) -> Result<Response<pb::GetStatusResponse>, Status> {
                let book = self.book.lock().unwrap();
                if book.always == Some(Script::Away) {
                    return Err(Status::unavailable("away"));
                }
                Ok(Response::new(pb::GetStatusResponse { sealed: book.sealed, ..Default::default() }))
            }

            $(async fn $name(
                &self,
                _: Request<pb::$request>,
            ) -> Result<Response<pb::$response>, Status> {
                Err(Status::unimplemented("not in tests"))
            })*
        }
    };
}

absent! {
    simulate_policy: SimulatePolicyRequest -> SimulatePolicyResponse,
    create_wallet_group: CreateWalletGroupRequest -> CreateWalletGroupResponse,
    import_wallet_group: ImportWalletGroupRequest -> ImportWalletGroupResponse,
    list_wallet_groups: ListWalletGroupsRequest -> ListWalletGroupsResponse,
    derive_addresses: DeriveAddressesRequest -> DeriveAddressesResponse,
    register_operation_wallet: RegisterOperationWalletRequest -> RegisterOperationWalletResponse,
    list_operation_wallets: ListOperationWalletsRequest -> ListOperationWalletsResponse,
    unseal: UnsealRequest -> UnsealResponse,
    seal: SealRequest -> SealResponse,
    freeze: FreezeRequest -> FreezeResponse,
    unfreeze: UnfreezeRequest -> UnfreezeResponse,
    list_audit: ListAuditRequest -> ListAuditResponse,
    verify_audit: VerifyAuditRequest -> VerifyAuditResponse,
}
