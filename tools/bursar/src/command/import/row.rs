//! One row of the old tables, as a database exports it.
//!
//! Owns reading it. Columns stay the text they were written as, so that no number passes through floating point; what is missing
//! or makes no sense is reported with its column, its line and the withdrawal. Never guesses and never rounds.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use chrono::{DateTime, Utc};
use proto::intent::v1 as pb;
use serde_json::value::RawValue;
use types::{Amount, RawAmount};

/// A row and what becomes of it.
#[derive(Debug)]
pub(super) struct Row {
    pub line: usize,
    pub id: String,
    pub decision: Decision,
}

#[derive(Debug)]
pub(super) enum Decision {
    /// None of ours, and why.
    LeftOut(&'static str),
    Sent(Box<Payment>),
}

/// What another system said about its payment.
#[derive(Debug, Default)]
pub(super) struct Payment {
    pub user_id: String,
    pub chain: String,
    pub asset: String,
    /// In the asset's unit.
    pub amount: Option<String>,
    /// In its smallest unit; one of the two is there.
    pub raw: Option<RawAmount>,
    pub to_address: String,
    pub from_address: String,
    pub tx_hash: String,
    pub created_at: DateTime<Utc>,
}

impl Row {
    /// `senders` are the wallets, by chain, of rows that name none.
    pub(super) fn read(line: usize, text: &str, senders: &BTreeMap<String, String>) -> Result<Row> {
        let columns: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text)
            .map_err(|error| anyhow::anyhow!("line {line} is no JSON object: {error}"))?;
        let columns = Columns(columns);
        let id = columns.needed(&["id"]).with_context(|| format!("line {line}"))?;
        let decision = Decision::read(&columns, senders).with_context(|| place(line, &id))?;
        Ok(Row { line, id, decision })
    }

    pub(super) fn place(&self) -> String {
        place(self.line, &self.id)
    }
}

fn place(line: usize, id: &str) -> String {
    format!("line {line} (withdrawal {id})")
}

impl Decision {
    /// A row that is left out needs no more than its status: nothing else of it is looked at.
    fn read(columns: &Columns, senders: &BTreeMap<String, String>) -> Result<Decision> {
        let status = columns.needed(&["status"])?;
        if ["completed", "failed"].iter().any(|finished| status.eq_ignore_ascii_case(finished)) {
            return Ok(Decision::LeftOut("finished"));
        }
        let Some(tx_hash) = columns.text(&["tx_hash"])? else {
            return Ok(Decision::LeftOut("no hash: nothing was sent"));
        };
        let chain = columns.needed(&["chain", "chain_id"])?;
        let from_address = match columns.text(&["from_address"])?.or_else(|| senders.get(&chain).cloned()) {
            Some(address) => address,
            None => bail!(
                "from_address is missing: name the wallet that paid, there or with --from {chain}=ADDRESS"
            ),
        };
        let amount = columns.text(&["amount"])?;
        let amount = amount.as_deref().map(Amount::without_padding).transpose()?.map(str::to_owned);
        let raw = columns.text(&["amount_raw"])?;
        let raw = raw.map(|raw| raw.parse().context("amount_raw")).transpose()?;
        if amount.is_none() && raw.is_none() {
            bail!("amount is missing, and amount_raw too");
        }
        let created_at = columns.needed(&["created_at"])?;
        let created_at = moment(&created_at)
            .with_context(|| format!("created_at {created_at}: expected a time like 2026-01-31T12:00:00Z"))?;
        Ok(Decision::Sent(Box::new(Payment {
            user_id: columns.needed(&["user_id"])?,
            asset: columns.needed(&["asset", "asset_id"])?,
            chain,
            amount,
            raw,
            to_address: columns.needed(&["to_address"])?,
            from_address,
            tx_hash,
            created_at,
        })))
    }
}

impl Payment {
    pub(super) fn request(&self, id: &str) -> pb::ImportWithdrawalRequest {
        pb::ImportWithdrawalRequest {
            id: id.to_owned(),
            user_id: self.user_id.clone(),
            chain: self.chain.clone(),
            asset: self.asset.clone(),
            amount: self.amount.clone().unwrap_or_default(),
            destination: self.to_address.clone(),
            from_address: self.from_address.clone(),
            tx_hash: self.tx_hash.clone(),
            created_at: Some(proto::time::timestamp(self.created_at)),
        }
    }
}

/// RFC 3339, or what PostgreSQL prints: a space between date and time, and no minutes in the offset.
fn moment(text: &str) -> chrono::ParseResult<DateTime<Utc>> {
    let printed = |_| DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%#z").map(Into::into);
    text.parse().or_else(printed)
}

/// A row's columns by name, each as it was written.
struct Columns(BTreeMap<String, Box<RawValue>>);

impl Columns {
    fn needed(&self, names: &[&str]) -> Result<String> {
        self.text(names)?.with_context(|| format!("{} is missing", names.join(" or ")))
    }

    /// The first of these columns that holds anything: text, or a number in the very digits it was written with.
    fn text(&self, names: &[&str]) -> Result<Option<String>> {
        for name in names {
            let Some(raw) = self.0.get(*name).map(|raw| raw.get()) else { continue };
            let text = match raw.as_bytes().first() {
                Some(b'"') => serde_json::from_str(raw).with_context(|| (*name).to_owned())?,
                Some(b'-' | b'0'..=b'9') => raw.to_owned(),
                _ if raw == "null" => continue,
                _ => bail!("{name} is neither text nor a number"),
            };
            if !text.is_empty() {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn row(change: impl FnOnce(&mut Value)) -> String {
        let mut row = json!({
            "id": "9a1b2c3d-0000-4000-8000-123456789abc",
            "user_id": "01890a5d-ac96-774b-bcce-b302099a8057",
            "chain": "bsc",
            "asset": "USDT",
            "amount": "100.000000000000000000",
            "to_address": "0x01",
            "from_address": "0x02",
            "tx_hash": "0x03",
            "status": "queued",
            "created_at": "2026-01-31T12:00:00Z",
        });
        change(&mut row);
        row.to_string()
    }

    fn read(text: &str) -> Result<Row> {
        Row::read(7, text, &BTreeMap::new())
    }

    fn sent(text: &str) -> Payment {
        match read(text).unwrap().decision {
            Decision::Sent(payment) => *payment,
            Decision::LeftOut(why) => panic!("left out: {why}"),
        }
    }

    fn refusal(text: &str) -> String {
        crate::output::explain(&read(text).unwrap_err())
    }

    #[test]
    fn a_row_of_the_old_table_is_taken_as_it_was_exported() {
        let payment = sent(
            r#"{"id":"9a1b2c3d-0000-4000-8000-123456789abc","user_id":"u","amount":9007199254740993.000000000000000001,
                "amount_raw":"9007199254740993000000000000000001","to_address":"0x01","asset_id":"USDT","chain_id":"bsc",
                "status":"queued","queued_at":null,"final_tx_hash":null,"tx_hash":"0x03","from_address":"0x02",
                "created_at":"2026-01-31T12:00:00.123456+00:00","updated_at":"2026-01-31T12:00:00+00:00","memo":{"a":[1]}}"#,
        );
        assert_eq!((payment.chain.as_str(), payment.asset.as_str()), ("bsc", "USDT"));
        assert_eq!(payment.amount.as_deref(), Some("9007199254740993.000000000000000001"), "not a double");
        assert_eq!(payment.raw, Some("9007199254740993000000000000000001".parse().unwrap()));
        assert_eq!(payment.created_at.timestamp_subsec_micros(), 123_456);
        let named = sent(&row(|row| row["chain_id"] = "5f0c3f0e-8f1c-4e5e-9a57-0d9a4d1f2b11".into()));
        assert_eq!(named.chain, "bsc", "a name beside the old id");
        let spaced = sent(&row(|row| row["created_at"] = "2026-01-31 12:00:00+00".into()));
        assert_eq!(spaced.created_at, sent(&row(|_| {})).created_at, "as psql prints it");
    }

    #[test]
    fn padding_is_dropped_and_what_is_no_amount_is_refused() {
        assert_eq!(sent(&row(|_| {})).amount.as_deref(), Some("100"));
        assert_eq!(sent(&row(|row| row["amount"] = json!(100))).amount.as_deref(), Some("100"));
        assert_eq!(sent(&row(|row| row["amount"] = "0.10".into())).amount.as_deref(), Some("0.1"));
        for (amount, why) in [
            (json!("1e2"), "amount has 'e'"),
            (json!(-5), "amount has a sign"),
            (json!([1]), "amount is neither text nor a number"),
            (json!(null), "amount is missing"),
            (json!(""), "amount is missing"),
        ] {
            let text = refusal(&row(|row| row["amount"] = amount));
            assert!(text.starts_with("line 7 (withdrawal 9a1b2c3d-") && text.contains(why), "{text}");
        }
        let raw = refusal(&row(|row| row["amount_raw"] = "1.5".into()));
        assert!(raw.contains("amount_raw: ") && raw.contains("'.'"), "{raw}");
    }

    #[test]
    fn a_missing_column_is_named_with_its_row() {
        for column in ["user_id", "to_address", "from_address", "status", "created_at"] {
            let text = refusal(&row(|row| _ = row.as_object_mut().unwrap().remove(column)));
            assert!(text.contains("line 7 (withdrawal 9a1b2c3d-"), "{text}");
            assert!(text.contains(&format!("{column} is missing")), "{text}");
        }
        assert!(refusal(&row(|row| row["chain"] = json!(null))).contains("chain or chain_id is missing"));
        assert!(refusal(&row(|row| row["asset"] = json!(null))).contains("asset or asset_id is missing"));
        assert_eq!(refusal("{}"), "line 7: id is missing");
        assert!(refusal("[1]").starts_with("line 7 is no JSON object"));
        assert!(refusal(&row(|row| row["created_at"] = "yesterday".into())).contains("created_at yesterday"));
    }

    #[test]
    fn a_row_without_a_sender_takes_the_one_given_for_its_chain() {
        let text = row(|row| _ = row.as_object_mut().unwrap().remove("from_address"));
        let given = |chain: &str| BTreeMap::from([(chain.to_owned(), "0x09".to_owned())]);
        let Decision::Sent(payment) = Row::read(1, &text, &given("bsc")).unwrap().decision else { panic!() };
        assert_eq!(payment.from_address, "0x09");
        assert!(Row::read(1, &text, &given("tron")).is_err());
        let Decision::Sent(payment) = Row::read(1, &row(|_| {}), &given("bsc")).unwrap().decision else {
            panic!()
        };
        assert_eq!(payment.from_address, "0x02", "what a row says itself counts");
    }

    #[test]
    fn finished_rows_and_rows_without_a_hash_are_left_out_whatever_else_they_lack() {
        for (text, why) in [
            (r#"{"id":"a","status":"completed"}"#, "finished"),
            (r#"{"id":"a","status":"FAILED","tx_hash":"0x03"}"#, "finished"),
            (r#"{"id":"a","status":"queued"}"#, "no hash: nothing was sent"),
            (r#"{"id":"a","status":"approved","tx_hash":""}"#, "no hash: nothing was sent"),
            (r#"{"id":"a","status":"pending","tx_hash":null,"amount":[]}"#, "no hash: nothing was sent"),
        ] {
            assert!(
                matches!(read(text).unwrap().decision, Decision::LeftOut(found) if found == why),
                "{text}"
            );
        }
    }
}
