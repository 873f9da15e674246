//! What is done to which call, and the record of the calls that arrived.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

/// Calls kept for [`super::FaultProxy::seen`]; a test that needs more looks at the server itself.
const SEEN_LIMIT: usize = 10_000;

type Callback = Arc<dyn Fn() + Send + Sync>;

/// What happens to a call that a rule names.
#[derive(Debug, Clone)]
pub enum Upset {
    /// Goes through; useful with a callback, or to exempt some calls from a later rule.
    Pass,
    /// The connection is closed; the server never hears of it.
    Refuse,
    /// Never answered; the server never hears of it.
    Hang,
    /// The server does it; the connection is closed instead of bringing the reply.
    ReplyLost,
    /// Waits before it reaches the server, until released.
    Held(Hold),
    /// The server does it; the reply waits until released.
    ReplyHeld(Hold),
    /// Answered by the proxy with this HTTP status and body.
    Answer { status: u16, body: String },
    /// Answered by the proxy with a JSON-RPC result.
    RpcResult(Value),
    /// Answered by the proxy with a JSON-RPC error.
    RpcError { code: i64, message: String },
}

/// Which calls, and what happens to them. Matches every call of its name unless narrowed.
#[derive(Clone)]
pub struct Rule {
    what: String,
    upset: Upset,
    from: u64,
    left: Option<u64>,
    matched: u64,
    before: Option<Callback>,
    after: Option<Callback>,
}

impl Rule {
    /// `what` is a JSON-RPC method, a path (with its leading slash), or `*` for every call.
    pub fn on(what: &str, upset: Upset) -> Rule {
        let what = what.to_owned();
        Rule { what, upset, from: 1, left: None, matched: 0, before: None, after: None }
    }

    /// Only from the `n`-th matching call on, counted from 1 since the rule was set.
    pub fn from_call(mut self, n: u64) -> Rule {
        self.from = n;
        self
    }

    /// Only so many times.
    pub fn times(mut self, count: u64) -> Rule {
        self.left = Some(count);
        self
    }

    /// Runs when the call has arrived and the server has not heard of it: the place to kill a caller before its effect.
    pub fn before(mut self, callback: impl Fn() + Send + Sync + 'static) -> Rule {
        self.before = Some(Arc::new(callback));
        self
    }

    /// Runs when the server has done it and the caller does not know: the place to kill a caller after its effect.
    pub fn after(mut self, callback: impl Fn() + Send + Sync + 'static) -> Rule {
        self.after = Some(Arc::new(callback));
        self
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("what", &self.what).field("upset", &self.upset).finish_non_exhaustive()
    }
}

/// Keeps calls waiting until it is released; what arrives afterwards passes at once.
#[derive(Debug, Clone)]
pub struct Hold {
    released: Arc<watch::Sender<bool>>,
    waiting: Arc<watch::Sender<u64>>,
}

impl Default for Hold {
    fn default() -> Self {
        Hold::new()
    }
}

impl Hold {
    pub fn new() -> Hold {
        Hold { released: Arc::new(watch::Sender::new(false)), waiting: Arc::new(watch::Sender::new(0)) }
    }

    pub fn release(&self) {
        self.released.send_replace(true);
    }

    /// Waits until `count` calls have been caught.
    pub async fn caught(&self, count: u64) {
        // Cannot fail: we hold a sender.
        self.waiting.subscribe().wait_for(|caught| *caught >= count).await.ok();
    }

    pub(super) async fn wait(&self) {
        self.waiting.send_modify(|caught| *caught += 1);
        self.released.subscribe().wait_for(|released| *released).await.ok();
    }
}

/// What a rule has decided for one call.
#[derive(Clone)]
pub(super) struct Decision {
    pub(super) upset: Upset,
    pub(super) before: Option<Callback>,
    pub(super) after: Option<Callback>,
}

impl Decision {
    pub(super) const PASS: Decision = Decision { upset: Upset::Pass, before: None, after: None };
}

/// The rules in force and the calls that arrived.
#[derive(Debug, Default)]
pub(super) struct Book {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    rules: Vec<Rule>,
    counts: HashMap<String, u64>,
    seen: Vec<(String, Value)>,
}

impl Book {
    pub(super) fn add(&self, rule: Rule) {
        self.pages().rules.push(rule);
    }

    pub(super) fn clear(&self) {
        self.replace(Vec::new());
    }

    pub(super) fn replace(&self, rules: Vec<Rule>) {
        for rule in std::mem::replace(&mut self.pages().rules, rules) {
            match rule.upset {
                Upset::Held(hold) | Upset::ReplyHeld(hold) => hold.release(),
                Upset::Pass
                | Upset::Refuse
                | Upset::Hang
                | Upset::ReplyLost
                | Upset::Answer { .. }
                | Upset::RpcResult(_)
                | Upset::RpcError { .. } => {}
            }
        }
    }

    pub(super) fn calls(&self, what: &str) -> u64 {
        self.pages().counts.get(what).copied().unwrap_or(0)
    }

    pub(super) fn seen(&self, what: &str) -> Vec<Value> {
        let pages = self.pages();
        pages.seen.iter().filter(|(name, _)| name == what).map(|(_, params)| params.clone()).collect()
    }

    /// Records a call and finds the rule for it.
    pub(super) fn decide(&self, name: &str, params: &Value) -> Decision {
        let mut pages = self.pages();
        *pages.counts.entry(name.to_owned()).or_default() += 1;
        if pages.seen.len() < SEEN_LIMIT {
            pages.seen.push((name.to_owned(), params.clone()));
        }
        for rule in &mut pages.rules {
            if rule.what != "*" && rule.what != name {
                continue;
            }
            rule.matched += 1;
            if rule.matched < rule.from || rule.left == Some(0) {
                continue;
            }
            rule.left = rule.left.map(|left| left - 1);
            return Decision {
                upset: rule.upset.clone(),
                before: rule.before.clone(),
                after: rule.after.clone(),
            };
        }
        Decision::PASS
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(book: &Book, name: &str) -> bool {
        matches!(book.decide(name, &Value::Null).upset, Upset::Refuse)
    }

    #[test]
    fn a_rule_matches_its_name_from_its_call_for_its_times() {
        let book = Book::default();
        book.add(Rule::on("send", Upset::Refuse).from_call(2).times(2));
        let answers: Vec<bool> = (0..5).map(|_| refused(&book, "send")).collect();
        assert_eq!(answers, [false, true, true, false, false]);
        assert!(!refused(&book, "read"));
        assert_eq!((book.calls("send"), book.calls("read"), book.calls("other")), (5, 1, 0));
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let book = Book::default();
        book.add(Rule::on("send", Upset::Pass).times(1));
        book.add(Rule::on("*", Upset::Refuse));
        assert!(!refused(&book, "send"));
        assert!(refused(&book, "send"));
        assert!(refused(&book, "anything"));
    }
}
