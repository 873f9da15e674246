//! `bursar import`: takes over withdrawals that another system has broadcast and not finished.
//!
//! Owns reading rows of the old tables as databases export them (`row.rs`). Every row is read before the first is sent,
//! so that a file with a mistake changes nothing; sending a file twice changes nothing either.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use proto::execution::v1 as pb;
use types::{Amount, Decimals, format_amount};

use crate::client::Connection;
use crate::output::{self, Output};
use row::{Decision, Payment, Row};

mod row;

const FORMAT: &str = r#"One JSON object per line, with the columns of the old table, in any order:

  id            the withdrawal's id, a UUID; it keeps it
  user_id       the customer's id, a UUID
  chain         name of the chain, e.g. bsc; or chain_id, if that holds the name
  asset         symbol of the asset, e.g. USDT; or asset_id, if that holds the symbol
  amount        in the asset's unit, as a number or as text; zeros at its end are dropped, nothing is rounded
  amount_raw    in the asset's smallest unit, in place of amount or beside it; they must agree
  to_address    destination
  from_address  wallet that paid, one of the operation wallets; or --from
  tx_hash       hash that was broadcast
  status        completed and failed are finished
  created_at    e.g. 2026-01-31T12:00:00Z

Other columns are ignored. Rows that are finished, and rows without a hash, are named and left out: they need no
other columns than id and status. A withdrawal without a hash was not sent; ask for it with `bursar withdraw create`.

  {"id":"0b0e7c58-34c5-4a4c-9d0a-3f1f6c1f6a01","user_id":"9a1b2c3d-0000-4000-8000-123456789abc","chain":"bsc",
   "asset":"USDT","amount":"100.000000000000000000","to_address":"0x..","from_address":"0x..","tx_hash":"0x..",
   "status":"queued","created_at":"2026-01-31T12:00:00Z"}      (on one line)

From PostgreSQL: psql -At -c "SELECT row_to_json(w) FROM withdrawal_requests w" > rows.jsonl
Where chain_id and asset_id are keys of other tables, select their names beside them as chain and asset."#;

#[derive(Debug, Args)]
#[command(after_help = FORMAT)]
pub struct Import {
    /// File of JSON lines; `-` for standard input
    file: PathBuf,
    /// Wallet that paid the rows of a chain which name none; may be given for several chains
    #[arg(long, value_name = "CHAIN=ADDRESS", value_parser = sender)]
    from: Vec<(String, String)>,
}

fn sender(text: &str) -> Result<(String, String), String> {
    let (chain, address) = text.split_once('=').ok_or("expected CHAIN=ADDRESS")?;
    Ok((chain.to_owned(), address.to_owned()))
}

impl Import {
    pub async fn run(self, connection: &Connection, out: Output) -> Result<()> {
        let mut rows = self.read()?;
        settle(connection, &mut rows).await?;
        let mut client = connection.intent("operator")?;
        let total = rows.len();
        let (mut taken, mut refused) = (0, 0);
        for Row { line, id, decision } in rows {
            let (result, detail) = match decision {
                Decision::LeftOut(why) => ("left out", why.to_owned()),
                Decision::Sent(payment) => match client.import_withdrawal(payment.request(&id)).await {
                    Ok(_) => {
                        taken += 1;
                        ("watching", payment.tx_hash)
                    }
                    Err(status) => {
                        refused += 1;
                        ("refused", status.message().to_owned())
                    }
                },
            };
            if out.json {
                let answer = serde_json::json!({"line": line, "id": id, "result": result, "detail": detail});
                output::print(&answer.to_string())?;
            } else {
                output::print(&format!("{result:<9} {id}  {detail}"))?;
            }
        }
        if refused > 0 {
            bail!("{refused} of {total} rows refused, {taken} taken; running it again is harmless");
        }
        Ok(())
    }

    fn read(&self) -> Result<Vec<Row>> {
        let reader: Box<dyn BufRead> = if self.file.as_os_str() == "-" {
            Box::new(std::io::stdin().lock())
        } else {
            let file = std::fs::File::open(&self.file)
                .with_context(|| format!("cannot read {}", self.file.display()))?;
            Box::new(std::io::BufReader::new(file))
        };
        let senders: BTreeMap<_, _> = self.from.iter().cloned().collect();
        let mut rows = Vec::new();
        for (index, line) in reader.lines().enumerate() {
            let line = line.with_context(|| format!("cannot read {}", self.file.display()))?;
            if !line.trim().is_empty() {
                rows.push(Row::read(index + 1, &line, &senders)?);
            }
        }
        Ok(rows)
    }
}

/// Raw amounts become amounts, and where a row has both they must say the same. The catalogue is asked only if there are any.
async fn settle(connection: &Connection, rows: &mut [Row]) -> Result<()> {
    if !rows.iter().any(|row| matches!(&row.decision, Decision::Sent(payment) if payment.raw.is_some())) {
        return Ok(());
    }
    let mut client = connection.catalogue("operator")?;
    let assets = client.list_assets(pb::ListAssetsRequest::default()).await?.into_inner().assets;
    for row in rows {
        let place = row.place();
        if let Decision::Sent(payment) = &mut row.decision {
            agree(payment, &assets).context(place)?;
        }
    }
    Ok(())
}

fn agree(payment: &mut Payment, assets: &[pb::Asset]) -> Result<()> {
    let Some(raw) = payment.raw else { return Ok(()) };
    let (chain, symbol) = (&payment.chain, &payment.asset);
    let known = assets.iter().find(|asset| asset.chain == *chain && asset.symbol == *symbol);
    let known = known.with_context(|| format!("amount_raw: there is no asset {symbol} on chain {chain}"))?;
    let decimals = Decimals::try_from(known.decimals)?;
    match &payment.amount {
        None => payment.amount = Some(format_amount(raw, decimals)),
        Some(amount) => ensure!(
            Amount::parse(amount, decimals)? == raw,
            "amount {amount} and amount_raw {raw} differ: {symbol} has {decimals} decimals on {chain}"
        ),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payment(amount: Option<&str>, raw: &str) -> Payment {
        Payment {
            chain: "tron".to_owned(),
            asset: "USDT".to_owned(),
            amount: amount.map(str::to_owned),
            raw: Some(raw.parse().unwrap()),
            ..Payment::default()
        }
    }

    #[test]
    fn a_raw_amount_stands_in_for_an_amount_and_must_agree_with_one() {
        let asset = |chain: &str, decimals| pb::Asset {
            symbol: "USDT".to_owned(),
            chain: chain.to_owned(),
            decimals,
            ..Default::default()
        };
        let assets = [asset("bsc", 18), asset("tron", 6)];
        let mut alone = payment(None, "12500000");
        agree(&mut alone, &assets).unwrap();
        assert_eq!(alone.amount.as_deref(), Some("12.5"));
        agree(&mut payment(Some("12.5"), "12500000"), &assets).unwrap();
        let refusal = |amount: Option<&str>, assets: &[pb::Asset]| {
            output::explain(&agree(&mut payment(amount, "12500000"), assets).unwrap_err())
        };
        assert!(refusal(Some("12.6"), &assets).contains("differ"));
        assert!(refusal(Some("12.5000001"), &assets).contains("7 digits after the decimal point"));
        assert!(refusal(None, &assets[..1]).contains("no asset USDT on chain tron"));
    }
}
