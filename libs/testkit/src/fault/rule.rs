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
pub enum Fault {
    /// Goes through; useful with a callback, or to exempt some calls from a later rule.
    Pass,
    /// The connection is closed; the server never hears of it.
    Refuse,
    /// Never answered; the server never hears of it.
    Hang,
    /// The server does it; the connection is closed instead of bringing the reply.
    ReplyLost,
    /// Waits before it reaches the server, until released.
    Held(Gate),
    /// The server does it; the reply waits until released.
    ReplyHeld(Gate),
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
    fault: Fault,
    from: u64,
    left: Option<u64>,
    /// With this, calls with the same parameters count once, and are all treated alike.
    different: Option<Vec<Value>>,
    matched: u64,
    before: Option<Callback>,
    after: Option<Callback>,
}

impl Rule {
    /// `what` is a JSON-RPC method, a path (with its leading slash), or `*` for every call.
    pub fn on(what: &str, fault: Fault) -> Rule {
        let what = what.to_owned();
        Rule { what, fault, from: 1, left: None, different: None, matched: 0, before: None, after: None }
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

    /// Only for so many calls that differ in their parameters, however often each of them is repeated.
    pub fn for_different(mut self, count: u64) -> Rule {
        self.different = Some(Vec::new());
        self.times(count)
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
        f.debug_struct("Rule").field("what", &self.what).field("fault", &self.fault).finish_non_exhaustive()
    }
}

/// Keeps calls waiting until it is released; what arrives afterwards passes at once.
#[derive(Debug, Clone)]
pub struct Gate {
    released: Arc<watch::Sender<bool>>,
    waiting: Arc<watch::Sender<u64>>,
}

impl Default for Gate {
    fn default() -> Self {
        Gate::new()
    }
}

impl Gate {
    pub fn new() -> Gate {
        Gate { released: Arc::new(watch::Sender::new(false)), waiting: Arc::new(watch::Sender::new(0)) }
    }

    pub fn release(&self) {
        self.released.send_replace(true);
    }

    /// Waits until `count` calls have been caught.
    pub async fn caught(&self, count: u64) {
        // Cannot fail, because this struct holds a sender.
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
    pub(super) fault: Fault,
    pub(super) before: Option<Callback>,
    pub(super) after: Option<Callback>,
}

impl Decision {
    pub(super) const PASS: Decision = Decision { fault: Fault::Pass, before: None, after: None };
}

/// The rules in force and the calls that arrived.
#[derive(Debug, Default)]
pub(super) struct Rules {
    state: Mutex<RulesState>,
}

#[derive(Debug, Default)]
struct RulesState {
    rules: Vec<Rule>,
    counts: HashMap<String, u64>,
    seen: Vec<(String, Value)>,
}

impl Rules {
    pub(super) fn add(&self, rule: Rule) {
        self.state().rules.push(rule);
    }

    pub(super) fn clear(&self) {
        self.replace(Vec::new());
    }

    pub(super) fn replace(&self, rules: Vec<Rule>) {
        for rule in std::mem::replace(&mut self.state().rules, rules) {
            match rule.fault {
                Fault::Held(gate) | Fault::ReplyHeld(gate) => gate.release(),
                Fault::Pass
                | Fault::Refuse
                | Fault::Hang
                | Fault::ReplyLost
                | Fault::Answer { .. }
                | Fault::RpcResult(_)
                | Fault::RpcError { .. } => {}
            }
        }
    }

    pub(super) fn calls(&self, what: &str) -> u64 {
        self.state().counts.get(what).copied().unwrap_or(0)
    }

    pub(super) fn seen(&self, what: &str) -> Vec<Value> {
        let state = self.state();
        state.seen.iter().filter(|(name, _)| name == what).map(|(_, params)| params.clone()).collect()
    }

    /// Records a call and finds the rule for it.
    pub(super) fn decide(&self, name: &str, params: &Value) -> Decision {
        let mut state = self.state();
        *state.counts.entry(name.to_owned()).or_default() += 1;
        if state.seen.len() < SEEN_LIMIT {
            state.seen.push((name.to_owned(), params.clone()));
        }
        for rule in &mut state.rules {
            if rule.what != "*" && rule.what != name {
                continue;
            }
            rule.matched += 1;
            let repeated = rule.different.as_ref().is_some_and(|met| met.contains(params));
            if rule.matched < rule.from || (rule.left == Some(0) && !repeated) {
                continue;
            }
            if !repeated {
                rule.left = rule.left.map(|left| left - 1);
                rule.different.iter_mut().for_each(|met| met.push(params.clone()));
            }
            return Decision {
                fault: rule.fault.clone(),
                before: rule.before.clone(),
                after: rule.after.clone(),
            };
        }
        Decision::PASS
    }

    fn state(&self) -> MutexGuard<'_, RulesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(rules: &Rules, name: &str) -> bool {
        matches!(rules.decide(name, &Value::Null).fault, Fault::Refuse)
    }

    #[test]
    fn a_rule_matches_its_name_from_its_call_for_its_times() {
        let rules = Rules::default();
        rules.add(Rule::on("send", Fault::Refuse).from_call(2).times(2));
        let answers: Vec<bool> = (0..5).map(|_| refused(&rules, "send")).collect();
        assert_eq!(answers, [false, true, true, false, false]);
        assert!(!refused(&rules, "read"));
        assert_eq!((rules.calls("send"), rules.calls("read"), rules.calls("other")), (5, 1, 0));
    }

    #[test]
    fn repeated_calls_count_once_where_different_ones_are_counted() {
        let rules = Rules::default();
        rules.add(Rule::on("send", Fault::Refuse).for_different(2));
        let refused = |params: &str| {
            matches!(rules.decide("send", &Value::String(params.to_owned())).fault, Fault::Refuse)
        };
        assert_eq!(["a", "a", "b", "c", "a", "c"].map(refused), [true, true, true, false, true, false]);
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = Rules::default();
        rules.add(Rule::on("send", Fault::Pass).times(1));
        rules.add(Rule::on("*", Fault::Refuse));
        assert!(!refused(&rules, "send"));
        assert!(refused(&rules, "send"));
        assert!(refused(&rules, "anything"));
    }
}
