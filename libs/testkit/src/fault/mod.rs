//! A proxy in front of a real server that breaks the line on purpose.
//!
//! Two kinds: [`FaultProxy::tcp`] knows connections and bytes (any protocol); [`FaultProxy::http`] also knows requests,
//! and breaks single ones by JSON-RPC method or path. Rules change at run time.
//!
//! Invariants: with no rule set the proxy is not noticed; once `refuse`, `hang` or `cut` has returned, it is in force;
//! an answer that is invented is invented only for a request that a rule names.

mod http;
mod rule;
mod tcp;

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};

use rule::Rules;
pub use rule::{Fault, Gate, Rule};

/// How the line as a whole behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Pass,
    /// Nobody listens: connecting is refused.
    Refuse,
    /// Connections are taken, and nothing moves on any of them.
    Hang,
    /// What the client says arrives; the first reply closes the connection instead of arriving.
    ReplyLost,
}

#[derive(Debug)]
struct LineChange {
    line: Line,
    cut: bool,
    done: oneshot::Sender<()>,
}

/// Stops when dropped, with all its connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    rules: Arc<Rules>,
    changes: mpsc::Sender<LineChange>,
    line: watch::Receiver<Line>,
}

impl FaultProxy {
    /// In front of `target` (`127.0.0.1:port`), for any protocol.
    pub async fn tcp(target: impl Into<String>) -> FaultProxy {
        FaultProxy::start(Kind::Tcp { target: target.into() }).await
    }

    /// In front of an HTTP/1.1 server at `target` (`127.0.0.1:port`), with rules for single requests.
    pub async fn http(target: impl Into<String>) -> FaultProxy {
        FaultProxy::start(Kind::Http(http::Upstream::new(target.into()))).await
    }

    /// `127.0.0.1:port`, to be used instead of the server's own address.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets everything through again, drops all rules and releases what was held. Counts stay.
    pub async fn pass(&self) {
        self.rules.clear();
        self.change(Line::Pass, false).await;
    }

    /// Connecting is refused and present connections are closed: the server is down.
    pub async fn refuse(&self) {
        self.change(Line::Refuse, true).await;
    }

    /// Nothing moves any more, on old and new connections: the network is gone.
    pub async fn hang(&self) {
        self.change(Line::Hang, false).await;
    }

    /// Requests arrive, and the connection dies instead of bringing the reply.
    pub async fn lose_replies(&self) {
        self.change(Line::ReplyLost, false).await;
    }

    /// Closes every present connection; new ones are as before.
    pub async fn cut(&self) {
        let line = *self.line.borrow();
        self.change(line, true).await;
    }

    /// Adds a rule (HTTP only). The first rule that matches a call and is not used up decides.
    pub fn rule(&self, rule: Rule) {
        self.rules.add(rule);
    }

    /// Puts these in the place of all rules, in one step: no call passes in between. What was held is released.
    pub fn replace_rules(&self, rules: impl IntoIterator<Item = Rule>) {
        self.rules.replace(rules.into_iter().collect());
    }

    /// How many calls of this JSON-RPC method or path have arrived, whatever became of them.
    pub fn calls(&self, what: &str) -> u64 {
        self.rules.calls(what)
    }

    /// The parameters (or the body, for a path) of the calls of `what`, oldest first.
    pub fn seen(&self, what: &str) -> Vec<Value> {
        self.rules.seen(what)
    }

    async fn change(&self, line: Line, cut: bool) {
        let (done, waiting) = oneshot::channel();
        // The loop ends only with the proxy or its runtime; then there is nothing left to break.
        if self.changes.send(LineChange { line, cut, done }).await.is_ok() {
            waiting.await.ok();
        }
    }

    async fn start(kind: Kind) -> FaultProxy {
        // A port of our own choosing and not an ephemeral one: `refuse` gives it up for a while and wants it back.
        let listener = loop {
            let port = devstack::free_port().unwrap_or_else(|error| panic!("cannot place a proxy: {error}"));
            if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)).await {
                break listener;
            }
        };
        let address =
            listener.local_addr().unwrap_or_else(|error| panic!("a listener without an address: {error}"));
        let rules = Arc::new(Rules::default());
        let (changes, inbox) = mpsc::channel(16);
        let (line_out, line) = watch::channel(Line::Pass);
        let server = Server { address, kind: Arc::new(kind), rules: Arc::clone(&rules), line: line_out };
        tokio::spawn(server.run(listener, inbox));
        FaultProxy { address, rules, changes, line }
    }
}

#[derive(Debug)]
enum Kind {
    Tcp { target: String },
    Http(http::Upstream),
}

struct Server {
    address: SocketAddr,
    kind: Arc<Kind>,
    rules: Arc<Rules>,
    line: watch::Sender<Line>,
}

impl Server {
    /// Ends when the proxy is dropped (`inbox` closes), and takes its connections along.
    async fn run(self, listener: TcpListener, mut inbox: mpsc::Receiver<LineChange>) {
        let mut listener = Some(listener);
        let mut connections = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                change = inbox.recv() => {
                    let Some(change) = change else { return };
                    if change.cut {
                        connections.shutdown().await;
                    }
                    match change.line {
                        Line::Refuse => listener = None,
                        Line::Pass | Line::Hang | Line::ReplyLost => {
                            if listener.is_none() {
                                listener = Some(self.listen_again().await);
                            }
                        }
                    }
                    self.line.send_replace(change.line);
                    // The asker may have gone away meanwhile.
                    change.done.send(()).ok();
                }
                accepted = accept(listener.as_ref()) => {
                    if let Ok(client) = accepted {
                        connections.spawn(self.serve(client));
                    }
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }

    fn serve(&self, client: TcpStream) -> impl Future<Output = ()> + Send + 'static {
        let kind = Arc::clone(&self.kind);
        let rules = Arc::clone(&self.rules);
        let line = self.line.subscribe();
        async move {
            match &*kind {
                Kind::Tcp { target } => tcp::serve(client, target, line).await,
                Kind::Http(upstream) => http::serve(client, upstream, &rules, line).await,
            }
        }
    }

    async fn listen_again(&self) -> TcpListener {
        loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => return listener,
                // The port may be taken for a moment; tests have limits of their own.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> std::io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(client, _)| client),
        None => std::future::pending().await,
    }
}
