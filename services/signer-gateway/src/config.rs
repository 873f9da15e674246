//! The signer's own settings: how it is unsealed, and what it may sign. Everything here is out of a caller's reach.
//! Owns reading and checking them; all mistakes are reported at once.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::VerifyingKey;
use service::config::{Reader, Secret};
use types::{Address, AddressFormat, AssetSymbol, ChainName, RawAmount};

use crate::builder::{NAMING_FORMAT, family};
use crate::policy::{Approver, AssetPolicy, ChainPolicy, DutyRule, Policy, Tier, WindowLimit};
use crate::seal::SealBackend;

/// Longest window a limit may look back: 31 days.
const MAX_WINDOW_S: u64 = 31 * 24 * 60 * 60;
/// Longest an approval may live: 31 days.
const MAX_VALIDITY_S: u64 = MAX_WINDOW_S;
const WEEK_S: u64 = 7 * 24 * 60 * 60;
/// Methods by which a token's holder parts with it, or lets somebody else take it. On a token that is listed as an asset these
/// are payments, which approvals and limits are for; no duty may call them.
const PAYING_METHODS: [&str; 12] = [
    "transfer(address,uint256)",
    "approve(address,uint256)",
    "transferFrom(address,address,uint256)",
    "increaseAllowance(address,uint256)",
    "increaseApproval(address,uint256)",
    "transferAndCall(address,uint256)",
    "transferAndCall(address,uint256,bytes)",
    "approveAndCall(address,uint256)",
    "approveAndCall(address,uint256,bytes)",
    "send(address,uint256,bytes)",
    "authorizeOperator(address)",
    "burn(uint256)",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Opens the seal at start; without it the gateway starts sealed.
    pub unseal_key: Option<Secret>,
    pub seal: SealBackend,
    /// How long the ledger waits for its database before a batch counts as lost.
    pub ledger_timeout: Duration,
    pub policy: Arc<Policy>,
}

impl Config {
    pub fn read(reader: &Reader) -> Option<Self> {
        let seal = reader.section("seal");
        let unseal_key = seal.secret_opt("unseal_key");
        let backend = SealBackend::read(&seal);
        let timeout_ms = reader.section("ledger").within("timeout_ms", 10_000u64, 100..=60_000);
        let policy = policy(reader);
        Some(Self {
            unseal_key,
            seal: backend?,
            ledger_timeout: Duration::from_millis(timeout_ms),
            policy: Arc::new(policy?),
        })
    }
}

fn policy(reader: &Reader) -> Option<Policy> {
    let section = reader.section("policy");
    let validity_s = section.within("max_approval_validity_s", WEEK_S, 1..=MAX_VALIDITY_S);
    let confirmation_keys = section.values::<PublicKey>("confirmation_keys");
    let approvers = section.list("approvers", approver);
    let count = approvers.len();
    let approvers: HashMap<String, Approver> = approvers.into_iter().collect();
    if approvers.len() != count {
        section.wrong("approvers", "two approvers have the same name");
    }
    let keys: HashSet<[u8; 32]> = approvers.values().map(|approver| approver.key.to_bytes()).collect();
    if keys.len() != approvers.len() {
        section.wrong("approvers", "two approvers have the same key");
    }
    let operation_groups = section
        .has("operation_groups")
        .then(|| Arc::new(addresses(&section, "operation_groups", NAMING_FORMAT).into_iter().collect()));
    let chains: HashMap<ChainName, ChainPolicy> = reader.map("chains", chain).into_values().collect();
    check_apart(reader, &chains);
    Some(Policy {
        chains,
        operation_groups,
        approvers,
        confirmation_keys: confirmation_keys.into_iter().map(|key| key.0).collect(),
        max_approval_validity: Duration::from_secs(validity_s),
    })
}

/// One network under two names would have every limit twice. Where nothing in the signed bytes names the network, they are valid
/// on every network of the family, and all of them would use the same keys.
fn check_apart(reader: &Reader, chains: &HashMap<ChainName, ChainPolicy>) {
    let mut names: Vec<&ChainName> = chains.keys().collect();
    names.sort_unstable();
    let mut seen: HashMap<(AddressFormat, Option<u64>), &ChainName> = HashMap::new();
    for name in names {
        let chain = &chains[name];
        let network_id = chain.settings.network_id;
        let Some(other) = seen.insert((chain.format, network_id), name) else { continue };
        let problem = match network_id {
            Some(id) => format!("{other} and {name} both have chain_id {id}"),
            None => format!(
                "{other} and {name}: what is signed for one of them can be sent on the other, because nothing in it names \
                 the network; use a signer for each"
            ),
        };
        reader.wrong("chains", problem);
    }
}

fn approver(section: &Reader) -> Option<(String, Approver)> {
    let name = section.req::<String>("name");
    let person = section.opt::<String>("person");
    let key = section.req::<PublicKey>("public_key");
    let name = name?;
    if name.is_empty() {
        section.wrong("name", "must not be empty");
    }
    Some((name.clone(), Approver { person: person.unwrap_or(name), key: key?.0 }))
}

fn chain(name: &str, section: &Reader) -> Option<(ChainName, ChainPolicy)> {
    let name = taken(section, "", ChainName::from_str(name));
    let format = section.req::<AddressFormat>("address_format");
    let native = section.req::<AssetSymbol>("native");
    let max_fee = section.req::<RawAmount>("max_fee");
    let max_top_up = section.opt::<RawAmount>("max_top_up");
    let fee_window = window(section, "fee_window");
    let top_up_window = window(section, "top_up_window");
    let max_bumps = section.within("max_bumps", 16u32, 0..=1000);
    let format = format?;
    let settings = family(format).read_settings(section);
    let cold_storage = addresses(section, "cold_storage", format);
    let assets = section.map("assets", |symbol, section| asset(symbol, section, format));
    let duties = section.list("duties", |section| duty(section, format));
    let assets: HashMap<AssetSymbol, AssetPolicy> = assets.into_values().collect();
    check_duties(section, &duties, &assets);
    let native = native?;
    for (symbol, asset) in &assets {
        if (*symbol == native) != asset.contract.is_none() {
            section.wrong("assets", format!("{symbol}: a token has a contract, {native} has none"));
        }
    }
    let policy = ChainPolicy {
        format,
        settings,
        native,
        max_fee: max_fee?,
        fee_window,
        max_top_up,
        top_up_window,
        max_bumps,
        assets,
        cold_storage: cold_storage.into_iter().collect(),
        duties,
    };
    Some((name?, policy))
}

/// Compares selectors and not names, because another name may hash to the same four bytes.
fn check_duties(section: &Reader, duties: &[DutyRule], assets: &HashMap<AssetSymbol, AssetPolicy>) {
    for duty in duties {
        let token = assets.iter().find(|(_, asset)| asset.contract == Some(duty.contract));
        let Some((symbol, _)) = token else { continue };
        for method in PAYING_METHODS {
            if duty.selectors.contains(&selector(method)) {
                section.wrong(
                    "duties",
                    format!("`{method}` of {symbol} gives tokens away: that is a payment, not a duty"),
                );
            }
        }
    }
}

fn selector(method: &str) -> [u8; 4] {
    let hash = alloy_primitives::keccak256(method.as_bytes());
    [hash[0], hash[1], hash[2], hash[3]]
}

fn asset(symbol: &str, section: &Reader, format: AddressFormat) -> Option<(AssetSymbol, AssetPolicy)> {
    let symbol = taken(section, "", AssetSymbol::from_str(symbol));
    let contract = section.opt::<String>("contract");
    let contract = contract.and_then(|text| taken(section, "contract", Address::parse(format, &text)));
    let max_transaction = section.req::<RawAmount>("max_transaction");
    let window = window(section, "window");
    let tiers = section.list("tiers", |tier| {
        let up_to = tier.opt::<RawAmount>("up_to");
        let approvals = tier.within("approvals", 1u32, 1..=32);
        Some(Tier { up_to, approvals })
    });
    check_tiers(section, &tiers);
    let policy = AssetPolicy { contract, max_transaction: max_transaction?, window, tiers };
    Some((symbol?, policy))
}

fn check_tiers(section: &Reader, tiers: &[Tier]) {
    let bounded = tiers.iter().rev().skip(1);
    if tiers.last().is_none_or(|last| last.up_to.is_some())
        || bounded.clone().any(|tier| tier.up_to.is_none())
    {
        section.wrong("tiers", "the last tier, and only the last, has no up_to");
    }
    let bounds: Vec<RawAmount> = tiers.iter().filter_map(|tier| tier.up_to).collect();
    let rising = bounds.is_sorted_by(|a, b| a < b);
    if !rising || !tiers.is_sorted_by(|a, b| a.approvals <= b.approvals) {
        section.wrong("tiers", "amounts must rise, and approvals must not fall");
    }
}

fn window(section: &Reader, key: &str) -> Option<WindowLimit> {
    let window = section.section_opt(key)?;
    let seconds = window.within("window_s", 86_400u64, 60..=MAX_WINDOW_S);
    let amount = window.req::<RawAmount>("amount");
    Some(WindowLimit { window: Duration::from_secs(seconds), amount: amount? })
}

fn duty(section: &Reader, format: AddressFormat) -> Option<DutyRule> {
    let contract = section.req::<String>("contract");
    let methods = section.values::<String>("methods");
    if methods.is_empty() {
        section.wrong("methods", "must list at least one method, e.g. `claim(uint256)`");
    }
    let mut selectors = HashSet::new();
    for method in &methods {
        if !method.ends_with(')') || method.contains(' ') || !method.contains('(') {
            section.wrong("methods", format!("`{method}` is not a method such as `claim(uint256)`"));
        }
        selectors.insert(selector(method));
    }
    let contract = taken(section, "contract", Address::parse(format, &contract?))?;
    Some(DutyRule { contract, selectors })
}

fn addresses(section: &Reader, key: &str, format: AddressFormat) -> Vec<Address> {
    let texts = section.values::<String>(key);
    texts.iter().filter_map(|text| taken(section, key, Address::parse(format, text))).collect()
}

/// The value, or a mistake reported at the key.
fn taken<T, E: Display>(section: &Reader, key: &str, read: Result<T, E>) -> Option<T> {
    read.map_err(|error| section.wrong(key, error.to_string())).ok()
}

#[derive(Debug, Clone, Copy)]
struct PublicKey(VerifyingKey);

impl FromStr for PublicKey {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| "a public key is 64 hex digits")?;
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| "no point of the curve")?;
        // Such a key would accept signatures nobody made.
        if key.is_weak() {
            return Err("a weak key");
        }
        Ok(Self(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::ChainSettings;

    const TOKEN: &str = "0x5FbDB2315678afecb367f032d93F642f64180aa3";

    const GOOD: &str = r#"
        [seal]
        unseal_key = "correct horse battery staple"
        [policy]
        confirmation_keys = ["d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"]
        [[policy.approvers]]
        name = "alice"
        public_key = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
        [chains.bsc]
        address_format = "evm"
        chain_id = 56
        native = "BNB"
        max_fee = "10000000000000000"
        fee_window = { window_s = 3600, amount = "1000000000000000000" }
        max_top_up = "5000000000000000"
        cold_storage = ["0x70997970C51812dc3A010C7d01b50e0d17dc79C8"]
        [chains.bsc.assets.BNB]
        max_transaction = "1000"
        tiers = [{ up_to = "10", approvals = 1 }, { approvals = 2 }]
        [chains.bsc.assets.USDT]
        contract = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
        max_transaction = "1000"
        window = { window_s = 86400, amount = "5000" }
        tiers = [{ approvals = 2 }]
        [[chains.bsc.duties]]
        contract = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
        methods = ["claim(uint256)"]
        [chains.tron]
        address_format = "tron"
        native = "TRX"
        max_fee = "100000000"
    "#;

    fn read(text: &str) -> Result<Config, String> {
        let reader = Reader::parse("signer-gateway", None, text, []).map_err(|error| error.to_string())?;
        let value = Config::read(&reader);
        reader.finish(value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_good_configuration_is_read_whole_and_shows_no_secret() {
        let config = read(GOOD).expect("read");
        assert!(!format!("{config:?}").contains("battery"));
        let bsc = &config.policy.chains[&"bsc".parse::<ChainName>().expect("chain")];
        let bnb = &bsc.assets[&"BNB".parse::<AssetSymbol>().expect("asset")];
        let approvals: Vec<u32> =
            [10u64, 11].into_iter().map(|amount| bnb.approvals_for(amount.into())).collect();
        assert_eq!(approvals, [1, 2]);
        assert_eq!(bsc.duties[0].selectors, HashSet::from([[0x37, 0x96, 0x07, 0xf5]]));
        assert_eq!(config.policy.approvers["alice"].person, "alice");
        let tron = &config.policy.chains[&"tron".parse::<ChainName>().expect("chain")];
        assert_eq!(bsc.settings, ChainSettings { network_id: Some(56), ..ChainSettings::default() });
        let prices = ChainSettings { network_id: None, byte_price: 1_000, activation_price: 1_100_000 };
        assert_eq!(tron.settings, prices);
        assert_eq!(config.policy.operation_groups, None);
    }

    #[test]
    fn mistakes_are_reported_together() {
        let text = GOOD
            .replace("chain_id = 56", "")
            .replace(
                "{ approvals = 2 }]\n        [chains.bsc.assets.USDT]",
                "{ up_to = \"5\", approvals = 2 }]\n        [chains.bsc.assets.USDT]",
            )
            .replace("3d4017c3", "zz4017c3")
            .replace("max_top_up", "max_topup");
        let mistakes = read(&text).expect_err("refused");
        for expected in ["chain_id", "tiers", "public_key", "max_topup"] {
            assert!(mistakes.contains(expected), "{expected} in {mistakes}");
        }
    }

    #[test]
    fn a_weak_key_and_a_token_without_contract_are_refused() {
        let weak = "0100000000000000000000000000000000000000000000000000000000000000";
        let mistakes =
            read(&GOOD.replace("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", weak))
                .expect_err("refused");
        assert!(mistakes.contains("weak"), "{mistakes}");
        let contract = "contract = \"0x5FbDB2315678afecb367f032d93F642f64180aa3\"\n        max_transaction";
        let mistakes = read(&GOOD.replace(contract, "max_transaction")).expect_err("refused");
        assert!(mistakes.contains("USDT"), "{mistakes}");
    }

    #[test]
    fn no_duty_gives_a_listed_token_away() {
        assert_eq!(selector("transfer(address,uint256)"), [0xa9, 0x05, 0x9c, 0xbb]);
        for method in PAYING_METHODS {
            let mistakes = read(&GOOD.replace("claim(uint256)", method)).expect_err(method);
            assert!(mistakes.contains("chains.bsc.duties") && mistakes.contains(method), "{mistakes}");
        }
        // A contract that is no asset may have methods of any name.
        let elsewhere = GOOD.replace("claim(uint256)", "transfer(address,uint256)").replacen(
            &format!("[[chains.bsc.duties]]\n        contract = \"{TOKEN}\""),
            "[[chains.bsc.duties]]\n        contract = \"0x70997970C51812dc3A010C7d01b50e0d17dc79C8\"",
            1,
        );
        read(&elsewhere).expect("read");
    }

    #[test]
    fn one_network_has_one_name() {
        let twin =
            "[chains.bnb]\naddress_format = \"evm\"\nchain_id = 56\nnative = \"BNB\"\nmax_fee = \"1\"\n";
        let mistakes = read(&format!("{GOOD}\n{twin}")).expect_err("refused");
        assert!(mistakes.contains("bnb and bsc both have chain_id 56"), "{mistakes}");
        read(&format!("{GOOD}\n{}", twin.replace("56", "57"))).expect("another network");
        let tron = "[chains.nile]\naddress_format = \"tron\"\nnative = \"TRX\"\nmax_fee = \"1\"\n";
        let mistakes = read(&format!("{GOOD}\n{tron}")).expect_err("refused");
        assert!(mistakes.contains("nile and tron"), "{mistakes}");
    }

    #[test]
    fn groups_for_sweeps_are_listed_by_their_first_address() {
        let listing = |list: &str| GOOD.replace("[policy]", &format!("[policy]\noperation_groups = {list}"));
        let address = Address::parse(AddressFormat::Evm, TOKEN).expect("address");
        let other = Address::from_body(AddressFormat::Evm, [7; 20]);
        let policy = read(&listing(&format!("[\"{TOKEN}\"]"))).expect("read").policy;
        assert!(policy.admits_group(&address) && !policy.admits_group(&other));
        let none = read(&listing("[]")).expect("read").policy;
        assert!(!none.admits_group(&address), "an empty list admits none");
        assert!(read(GOOD).expect("read").policy.admits_group(&other), "no list admits all");
        let mistakes = read(&listing("[\"hot\"]")).expect_err("refused");
        assert!(mistakes.contains("policy.operation_groups"), "{mistakes}");
    }

    #[test]
    fn prices_of_tron_are_tron_s() {
        let priced = |chain: &str, line: &str| {
            read(&GOOD.replace(&format!("[chains.{chain}]"), &format!("[chains.{chain}]\n{line}")))
        };
        let config = priced("tron", "bandwidth_price_sun = 140\nactivation_sun = 7").expect("read");
        let tron = &config.policy.chains[&"tron".parse::<ChainName>().expect("chain")];
        let prices = ChainSettings { network_id: None, byte_price: 140, activation_price: 7 };
        assert_eq!(tron.settings, prices);
        let mistakes = priced("bsc", "bandwidth_price_sun = 140").expect_err("refused");
        assert!(mistakes.contains("bandwidth_price_sun"), "{mistakes}");
    }
}
