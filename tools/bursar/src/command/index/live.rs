//! `bursar index follow` and `bursar index emit`: events as they come.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use proto::indexer::v1 as pb;
use serde_json::json;

use super::{parameters, progress};
use crate::client::{Connection, Indexer};
use crate::output::{self, Output};
use crate::reconnect::{self, Remaining};
use crate::seed::events;
use crate::stack::BSC;

/// Prints changes as lines of JSON, over restarts of the indexer.
pub(super) async fn follow(client: &mut Indexer, mut request: pb::WatchEventsRequest) -> Result<()> {
    if request.cursor.is_empty() && request.from_block == 0 {
        // "From now on" has to be the same block when the connection breaks before the first event.
        let complete = progress(client, request.source.clone()).await?;
        request.from_block = complete.first().map_or(0, |source| source.complete_to_block + 1);
    }
    reconnect::follow(async || {
        let mut stream = client.watch_events(request.clone()).await?.into_inner();
        while let Some(response) = stream.message().await? {
            output::json_line("bursar.indexer.v1.WatchEventsResponse", &response)?;
            request.cursor = response.cursor;
        }
        Ok(Remaining::More)
    })
    .await
}

/// Lets the development contract emit, and waits until the indexer serves the event.
pub(super) async fn emit(
    connection: &Connection,
    client: &mut Indexer,
    amount: u64,
    out: Output,
) -> Result<()> {
    let node = connection.part(BSC).context("no development chain here; start one with `bursar up`")?;
    let (hash, block) = events::emit(&node, amount).await?;
    let mined = Instant::now();
    if !out.json {
        output::print(&format!("block {block}: {hash}"))?;
    }
    loop {
        let request = pb::ListEventsRequest {
            source: events::FEES.to_owned(),
            from_block: block,
            to_block: block,
            ..Default::default()
        };
        let found = client.list_events(request).await?.into_inner().events;
        if let Some(event) = found.iter().find(|event| event.transaction_hash == hash) {
            let ms = mined.elapsed().as_millis();
            if out.json {
                let event = output::value("bursar.indexer.v1.Event", event)?;
                let answer =
                    json!({ "block": block, "tx_hash": hash, "served_after_ms": ms, "event": event });
                return output::print(&serde_json::to_string_pretty(&answer)?);
            }
            return output::print(&format!("served after {ms} ms: {} {}", event.name, parameters(event)?));
        }
        if mined.elapsed() > Duration::from_secs(30) {
            bail!("the indexer does not serve the event; see `bursar index progress`");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
