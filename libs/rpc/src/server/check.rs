//! One check of a dependency, and groups of checks whose members come and go.

use std::{fmt, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};

type Run = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// One dependency and how to check it.
#[derive(Clone)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) critical: bool,
    run: Run,
}

impl Check {
    pub(super) fn new<F, Fut, E>(name: String, critical: bool, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        let run: Run = Arc::new(move || {
            let future = check();
            async move { future.await.map_err(|error| error.to_string()) }.boxed()
        });
        Self { name, critical, run }
    }

    pub(super) async fn run(&self, limit: Duration) -> Result<(), String> {
        within(limit, || (self.run)()).await
    }
}

/// Lists the members.
pub(super) type Names = Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<String>, String>> + Send + Sync>;
/// Checks one member.
pub(super) type RunMember = Arc<dyn Fn(String) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Dependencies of one kind, by names that are read again before each run.
#[derive(Clone)]
pub(super) struct CheckGroup {
    pub(super) name: String,
    critical: bool,
    members: Names,
    run: RunMember,
}

impl CheckGroup {
    pub(super) fn new(name: String, critical: bool, members: Names, run: RunMember) -> Self {
        Self { name, critical, members, run }
    }

    /// The checks of all members there are now.
    pub(super) async fn read_members(&self, limit: Duration) -> Result<Vec<Check>, String> {
        let names = within(limit, || (self.members)()).await?;
        Ok(names.iter().map(|name| self.member(name)).collect())
    }

    fn member(&self, name: &str) -> Check {
        let (run, member) = (Arc::clone(&self.run), name.to_owned());
        Check {
            name: format!("{}/{name}", self.name),
            critical: self.critical,
            run: Arc::new(move || run(member.clone())),
        }
    }
}

async fn within<T>(
    limit: Duration,
    start: impl FnOnce() -> BoxFuture<'static, Result<T, String>>,
) -> Result<T, String> {
    // A panic must count as a failure: if the loop died, its last success would stay published for ever.
    let guarded = AssertUnwindSafe(async { start().await }).catch_unwind();
    match tokio::time::timeout(limit, guarded).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err("the check itself panicked".to_owned()),
        Err(_) => Err(format!("no answer within {} ms", limit.as_millis())),
    }
}
