//! Signatures and keys on one core: the gateway's own code, libsecp256k1 alone, and a whole transaction beside alloy's.

use std::time::{Duration, Instant};

use alloy::consensus::{SignableTransaction as _, TxEip1559, TxEnvelope};
use alloy::eips::eip2718::Encodable2718 as _;
use alloy_primitives::{TxKind, U256};
use alloy_signer::SignerSync as _;
use alloy_signer_local::PrivateKeySigner;
use anyhow::{Context as _, Result};
use payment::{Action, AssetRef, Binding, GasFee, Price, Transfer};
use secp256k1::{Message, SECP256K1, SecretKey};
use signer_gateway::builder::{Parameters, Unsigned, scheme};
use signer_gateway::keys::{KeyRing, Seed, WalletKey, seed_from_phrase};
use types::{Address, AddressFormat, RawAmount, WalletGroupId};

use crate::Mode;
use crate::derivation::{Way, derive};
use crate::table::{Goal, Row, Unit, median};

/// A key of the development phrase; worthless.
const KEY: [u8; 32] = [0x59; 32];
/// The clock is read once for this many.
const ROUND: u64 = 64;
const MAX_FEE: u128 = 5_000_000_000;
const TIP: u128 = 1_000_000_000;
const GAS: u64 = 21_000;

pub(crate) fn rows(mode: Mode) -> Result<Vec<Row>> {
    let keys = Keys::new()?;
    let mut rows = signatures(&keys, mode)?;
    rows.extend(derivations(&keys, mode)?);
    Ok(rows)
}

fn signatures(keys: &Keys, mode: Mode) -> Result<Vec<Row>> {
    let span = Duration::from_millis(mode.pick(500, 2000));
    let (mut raw, mut ours, mut whole, mut alloy) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..mode.rounds() {
        raw.push(per_second(span, |n| keys.libsecp256k1(n))?);
        ours.push(per_second(span, |n| keys.gateway(n))?);
        whole.push(per_second(span, |n| keys.gateway_transaction(n))?);
        alloy.push(per_second(span, |n| keys.alloy_transaction(n))?);
    }
    let raw = median(&raw);
    Ok(vec![
        Row::new("signature, one core", Unit::PerSecond).ours(median(&ours)).raw(raw).goal(Goal::OfRaw(0.9)),
        Row::new("EIP-1559 transfer derived, built, signed, one core", Unit::PerSecond)
            .ours(median(&whole))
            .raw(raw)
            .peer("alloy, k256", median(&alloy))
            .goal(Goal::OfRaw(0.9))
            .goal(Goal::OfPeer(1.0)),
    ])
}

fn derivations(keys: &Keys, mode: Mode) -> Result<Vec<Row>> {
    let span = Duration::from_millis(mode.pick(250, 1000));
    let (mut level, mut cached, mut path, mut uncached) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut next = 0;
    for _ in 0..mode.rounds() {
        level.push(per_second(span, |n| derive(&KEY, Way::OneLevel, n))?);
        cached.push(per_second(span, |_| {
            next += 1;
            keys.next_wallet(next)
        })?);
        path.push(per_second(span, |n| derive(&KEY, Way::FullPath, n))?);
        uncached.push(per_second(span, |n| keys.whole_path(n))?);
    }
    let row = |what, ours: &[f64], raw: &[f64]| {
        Row::new(what, Unit::PerSecond).ours(median(ours)).raw(median(raw)).goal(Goal::OfRaw(0.9))
    };
    Ok(vec![
        row("HD key and address, account level cached, one core", &cached, &level),
        row("HD key and address, full path, one core", &uncached, &path),
    ])
}

fn per_second(span: Duration, mut once: impl FnMut(u64) -> Result<u8>) -> Result<f64> {
    let began = Instant::now();
    let mut done = 0;
    while began.elapsed() < span {
        for _ in 0..ROUND {
            // Whatever comes out is looked at, or the compiler might leave the work out.
            std::hint::black_box(once(done)?);
            done += 1;
        }
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

struct Keys {
    secret: SecretKey,
    seed: Seed,
    ring: KeyRing,
    group: WalletGroupId,
    wallet: WalletKey,
    alloy: PrivateKeySigner,
}

impl Keys {
    fn new() -> Result<Keys> {
        let (ring, group) = (KeyRing::new(vec![scheme(AddressFormat::Evm).coin]), WalletGroupId::new());
        let seed = seed_from_phrase(devstack::DEV_MNEMONIC, "")?;
        ring.insert(group, &seed, &ring.epoch())?;
        let wallet = ring.wallet(group, &scheme(AddressFormat::Evm), 0)?;
        let alloy = PrivateKeySigner::from_slice(&KEY)?;
        Ok(Keys { secret: SecretKey::from_byte_array(KEY)?, seed, ring, group, wallet, alloy })
    }

    fn libsecp256k1(&self, number: u64) -> Result<u8> {
        let signature = SECP256K1.sign_ecdsa_recoverable(Message::from_digest(digest(number)), &self.secret);
        Ok(signature.serialize_compact().1[0])
    }

    fn gateway(&self, number: u64) -> Result<u8> {
        Ok(self.wallet.sign(digest(number))?.compact[0])
    }

    fn gateway_transaction(&self, number: u64) -> Result<u8> {
        let wallet = self.ring.wallet(self.group, &scheme(AddressFormat::Evm), 0)?;
        let from = wallet.address();
        let to = Address::from_body(AddressFormat::Evm, [0x42; 20]);
        let amount = RawAmount::from(u128::from(number) + 1);
        let action = Action::Pay(Transfer { asset: AssetRef::Native, from, to, amount });
        let fee = GasFee::Dynamic { max_fee: MAX_FEE, max_priority: TIP };
        let parameters = Parameters {
            network_id: Some(56),
            binding: Binding::Nonce { sender: from, nonce: number },
            price: Price::Gas { limit: GAS, fee },
        };
        let signed = Unsigned::build(from, &action, &parameters)?.sign(&wallet)?;
        signed.raw.last().copied().context("a transaction has bytes")
    }

    /// A wallet that was not asked for before, from the account level in memory.
    fn next_wallet(&self, index: u32) -> Result<u8> {
        Ok(self.ring.wallet(self.group, &scheme(AddressFormat::Evm), index)?.address().bytes()[0])
    }

    /// A wallet from the seed, as if nothing were in memory.
    fn whole_path(&self, number: u64) -> Result<u8> {
        let index = u32::try_from(number % (1 << 30))?;
        let scheme = scheme(AddressFormat::Evm);
        Ok(scheme.address_of(&self.seed.branch(scheme.coin)?.leaf(index)?)?.bytes()[0])
    }

    fn alloy_transaction(&self, number: u64) -> Result<u8> {
        let unsigned = TxEip1559 {
            chain_id: 56,
            nonce: number,
            gas_limit: GAS,
            max_fee_per_gas: MAX_FEE,
            max_priority_fee_per_gas: TIP,
            to: TxKind::Call([0x42; 20].into()),
            value: U256::from(number) + U256::from(1),
            ..TxEip1559::default()
        };
        let signature = self.alloy.sign_hash_sync(&unsigned.signature_hash())?;
        let raw = TxEnvelope::from(unsigned.into_signed(signature)).encoded_2718();
        raw.last().copied().context("a transaction has bytes")
    }
}

fn digest(number: u64) -> [u8; 32] {
    let mut digest = [7; 32];
    digest[..8].copy_from_slice(&number.to_be_bytes());
    digest
}
