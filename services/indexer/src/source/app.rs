//! Adds sources and addresses.

use std::time::Duration;

use alloy_primitives::Address;

use super::domain::address;
use super::{Source, SourceError, SourceRepo, SourceSpec};
use crate::node::Nodes;
use crate::range::RangeRepo;
use crate::store::Store;

/// Addresses per call.
const MAX_ADDRESSES: usize = 50_000;
/// How long a node may take to answer when a source is added.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(crate) struct SourceApp {
    store: Store,
    repo: SourceRepo,
    ranges: RangeRepo,
}

impl SourceApp {
    pub(crate) fn new(store: Store) -> Self {
        let (repo, ranges) = (SourceRepo::new(store.clone()), RangeRepo::new(store.clone()));
        Self { repo, ranges, store }
    }

    pub(crate) async fn list(&self) -> Result<Vec<Source>, SourceError> {
        Ok(self.store.retry("list sources", || self.repo.all()).await?)
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Source, SourceError> {
        let found = self.store.retry("get source", || self.repo.get(name)).await?;
        found.ok_or_else(|| SourceError::Unknown(name.to_owned()))
    }

    /// Adds a source or changes its settings, after checking with its nodes that it can be read.
    pub(crate) async fn add(&self, spec: SourceSpec) -> Result<Source, SourceError> {
        let mistakes = spec.mistakes();
        let source = match Source::new(0, spec.clone()) {
            Some(source) if mistakes.is_empty() => source,
            _ => return Err(SourceError::Invalid(mistakes)),
        };
        self.fits(&source).await?;
        let nodes = Nodes::new(spec.chain_id, &spec.nodes, CHECK_TIMEOUT)?;
        nodes.check(source.contract).await?;
        self.put(source).await
    }

    async fn put(&self, mut source: Source) -> Result<Source, SourceError> {
        if !self.repo.insert(&mut source).await? {
            let known =
                self.fits(&source).await?.ok_or_else(|| SourceError::Unknown(source.name().to_owned()))?;
            self.repo.update(&source.spec).await?;
            source.number = known.number;
        }
        self.ranges.seed(&source).await?;
        self.get(source.name()).await
    }

    /// The stored source of that name, if there is one. Refuses a source that contradicts it or another one.
    async fn fits(&self, source: &Source) -> Result<Option<Source>, SourceError> {
        let all = self.list().await?;
        if let Some(other) = all.iter().find(|other| other.clashes(source)) {
            return Err(SourceError::Clash { other: other.name().to_owned() });
        }
        let known = all.into_iter().find(|known| known.name() == source.name());
        if let Some(field) = known.as_ref().and_then(|known| known.fixed_difference(source)) {
            return Err(SourceError::Fixed { name: source.name().to_owned(), field });
        }
        Ok(known)
    }

    /// Adds addresses; returns how many were new, how many there are, and the first block from which they count.
    pub(crate) async fn add_addresses(
        &self,
        name: &str,
        texts: &[String],
    ) -> Result<(u64, u64, u64), SourceError> {
        let source = self.get(name).await?;
        if !source.keeps_own_only() {
            return Err(SourceError::TakesNoAddresses(name.to_owned()));
        }
        if texts.is_empty() || texts.len() > MAX_ADDRESSES {
            let problem = format!("1 to {MAX_ADDRESSES} in one call, not {}", texts.len());
            return Err(SourceError::Invalid(vec![("addresses", problem)]));
        }
        let parsed = texts.iter().enumerate().map(|(index, text)| {
            let problem = |problem| ("addresses", format!("number {index}: {problem}"));
            address(text).map_err(|error| SourceError::Invalid(vec![problem(error)]))
        });
        let addresses = parsed.collect::<Result<Vec<Address>, SourceError>>()?;
        let call = self.ranges.begin_adding(name).await?;
        let added = self.repo.put_addresses(&source, call, &addresses).await?;
        let from_block = self.ranges.end_adding(name, call).await?.ok_or(SourceError::TooSlow)?;
        Ok((added, self.repo.count_addresses(&source).await?, from_block))
    }
}
