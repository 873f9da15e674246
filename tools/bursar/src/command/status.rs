//! `bursar status`: what runs, and how each part answers in its own protocol.

use anyhow::{Result, bail};
use clap::Args;
use devstack::Health;
use futures::future::join_all;
use serde_json::json;

use crate::client::Target;
use crate::output::{self, Output};
use crate::stack::{Layout, StackFile};

#[derive(Debug, Args)]
pub struct Status {}

impl Status {
    pub async fn run(self, target: Target, out: Output) -> Result<()> {
        let data = target.data.display();
        let Some(layout) = Layout::find(&target.data) else { bail!("no stack runs in {data}") };
        let Some(file) = StackFile::read(&layout.stack_file())? else {
            match layout.holder() {
                Some(holder) => {
                    bail!("the stack in {data} is starting or stopping (bursar, pid {})", holder.pid)
                }
                None => bail!("no stack runs in {data}"),
            }
        };
        let health = join_all(file.parts.iter().map(|(name, part)| part.health(name))).await;
        let parts: Vec<_> = file.parts.iter().zip(health).collect();
        if out.json {
            let status_of = |((name, part), health): &((&String, &crate::stack::Part), Health)| {
                let (word, why) = words(health);
                let status = json!({ "kind": part.kind, "url": part.url, "pid": part.pid, "health": word, "detail": why });
                ((*name).clone(), status)
            };
            let all: serde_json::Map<_, _> = parts.iter().map(status_of).collect();
            output::print(&serde_json::to_string_pretty(&json!({ "parts": all }))?)?;
        } else {
            let rows = parts.iter().map(|((name, part), health)| {
                let (word, why) = words(health);
                [(*name).clone(), word.to_owned(), part.pid.to_string(), address(&part.url), why]
            });
            output::table(["PART", "HEALTH", "PID", "ADDRESS", ""], rows)?;
        }
        let down = parts.iter().filter(|(_, health)| *health != Health::Serving).count();
        if down > 0 {
            bail!("{down} of {} parts are not well", parts.len());
        }
        Ok(())
    }
}

fn words(health: &Health) -> (&'static str, String) {
    match health {
        Health::Serving => ("serving", String::new()),
        Health::NotServing => ("not serving", "draining, or its database is away".to_owned()),
        Health::Unreachable(why) => ("down", why.clone()),
    }
}

/// Where it listens, without the password that a database's URL holds.
fn address(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    rest.split('/').next().unwrap_or(rest).to_owned()
}
