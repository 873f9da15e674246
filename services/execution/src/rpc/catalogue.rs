//! CatalogueService.

use proto::execution::v1 as wire;
use proto::execution::v1::catalogue_service_server::CatalogueService;
use tonic::{Request, Response, Status};
use types::{Amount, Decimals, RawAmount, format_amount};

use super::parse::{Mistakes, required};
use crate::catalogue::{Asset, Catalogue, Chain, ChainKind, Finality, NewAsset};

#[derive(Debug)]
pub(super) struct CatalogueRpc {
    catalogue: Catalogue,
}

impl CatalogueRpc {
    pub(super) fn new(catalogue: Catalogue) -> Self {
        Self { catalogue }
    }
}

#[tonic::async_trait]
impl CatalogueService for CatalogueRpc {
    async fn put_chain(
        &self,
        request: Request<wire::PutChainRequest>,
    ) -> Result<Response<wire::PutChainResponse>, Status> {
        let chain = parse_chain(required("chain", request.into_inner().chain)?)?;
        let chain = self.catalogue.put_chain(chain).await?;
        Ok(Response::new(wire::PutChainResponse { chain: Some(show_chain(&chain)) }))
    }

    async fn list_chains(
        &self,
        _: Request<wire::ListChainsRequest>,
    ) -> Result<Response<wire::ListChainsResponse>, Status> {
        let chains = self.catalogue.chains().await?;
        Ok(Response::new(wire::ListChainsResponse { chains: chains.iter().map(show_chain).collect() }))
    }

    async fn put_asset(
        &self,
        request: Request<wire::PutAssetRequest>,
    ) -> Result<Response<wire::PutAssetResponse>, Status> {
        let asset = parse_asset(&required("asset", request.into_inner().asset)?)?;
        let asset = self.catalogue.put_asset(asset).await?;
        Ok(Response::new(wire::PutAssetResponse { asset: Some(show_asset(&asset)) }))
    }

    async fn list_assets(
        &self,
        request: Request<wire::ListAssetsRequest>,
    ) -> Result<Response<wire::ListAssetsResponse>, Status> {
        let mut mistakes = Mistakes::default();
        let chain = mistakes.parse_opt("chain", &request.into_inner().chain);
        mistakes.none()?;
        let assets = self.catalogue.assets(chain.as_ref()).await?;
        Ok(Response::new(wire::ListAssetsResponse { assets: assets.iter().map(show_asset).collect() }))
    }
}

fn parse_chain(chain: wire::Chain) -> Result<Chain, Status> {
    let mut mistakes = Mistakes::default();
    let name = mistakes.parse("chain.name", &chain.name);
    let kind = match chain.kind() {
        wire::ChainKind::Evm => Some(ChainKind::Evm),
        wire::ChainKind::Tron => Some(ChainKind::Tron),
        wire::ChainKind::Unspecified => {
            mistakes.note("chain.kind", "must be named");
            None
        }
    };
    if chain.network_id == 0 || i64::try_from(chain.network_id).is_err() {
        mistakes.note("chain.network_id", "must be between 1 and 2^63 - 1");
    }
    if chain.nodes.is_empty() {
        mistakes.note("chain.nodes", "must name at least one node");
    }
    for (index, node) in chain.nodes.iter().enumerate() {
        if let Err(problem) = check_node(node) {
            mistakes.note(&format!("chain.nodes[{index}]"), problem);
        }
        // Its word would count twice where two nodes must agree.
        if chain.nodes[..index].contains(node) {
            mistakes.note(&format!("chain.nodes[{index}]"), "is named twice");
        }
    }
    let finality = match chain.finality() {
        wire::FinalityRule::Depth if chain.depth == 0 || chain.depth > 1_000_000 => {
            mistakes.note("chain.depth", "must be between 1 and 1000000");
            None
        }
        wire::FinalityRule::Depth => Some(Finality::Depth(chain.depth)),
        wire::FinalityRule::Chain => Some(Finality::Chain),
        wire::FinalityRule::Unspecified => {
            mistakes.note("chain.finality", "must be named");
            None
        }
    };
    let max_gas_price = positive(&mut mistakes, "chain.max_gas_price", &chain.max_gas_price);
    let max_fee = positive(&mut mistakes, "chain.max_fee", &chain.max_fee);
    if chain.bump_after_seconds == 0 || chain.bump_after_seconds > 86_400 {
        mistakes.note("chain.bump_after_seconds", "must be between 1 and 86400");
    }
    let native_asset = mistakes.parse("chain.native_asset", &chain.native_asset);
    let parsed = (|| {
        Some(Chain {
            name: name?,
            kind: kind?,
            network_id: chain.network_id,
            nodes: chain.nodes,
            finality: finality?,
            dynamic_fees: chain.dynamic_fees,
            max_gas_price: max_gas_price?,
            max_fee: max_fee?,
            bump_after_seconds: chain.bump_after_seconds,
            enabled: chain.enabled,
            native_asset: native_asset?,
            revision: 0,
        })
    })();
    mistakes.done(parsed)
}

/// The syntax alone; whether somebody answers there is the health check's to find out.
fn check_node(node: &str) -> Result<(), &'static str> {
    let uri: tonic::transport::Uri = node.parse().map_err(|_| "is not a URL")?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(()),
        _ => Err("must begin with http:// or https:// and name a host"),
    }
}

fn positive(mistakes: &mut Mistakes, field: &str, text: &str) -> Option<RawAmount> {
    let amount: RawAmount = mistakes.parse(field, text)?;
    if amount.is_zero() {
        mistakes.note(field, "must be above zero");
        return None;
    }
    Some(amount)
}

fn parse_asset(asset: &wire::Asset) -> Result<NewAsset, Status> {
    let mut mistakes = Mistakes::default();
    let symbol = mistakes.parse("asset.symbol", &asset.symbol);
    let chain = mistakes.parse("asset.chain", &asset.chain);
    let decimals = u8::try_from(asset.decimals).map_err(|_| "must be 0 to 77".to_owned());
    let decimals = decimals.and_then(|decimals| Decimals::new(decimals).map_err(|error| error.to_string()));
    let decimals = decimals.map_err(|problem| mistakes.note("asset.decimals", problem)).ok();
    let min_withdrawal = match (asset.min_withdrawal.as_str(), decimals) {
        ("", _) => Some(RawAmount::ZERO),
        (text, Some(decimals)) => {
            Amount::parse(text, decimals).map_err(|error| mistakes.note("asset.min_withdrawal", error)).ok()
        }
        (_, None) => None,
    };
    let parsed = (|| {
        Some(NewAsset {
            chain: chain?,
            symbol: symbol?,
            is_native: asset.is_native,
            contract_address: asset.contract_address.clone(),
            decimals: decimals?,
            enabled: asset.enabled,
            min_withdrawal: min_withdrawal?,
        })
    })();
    mistakes.done(parsed)
}

fn show_chain(chain: &Chain) -> wire::Chain {
    let kind = match chain.kind {
        ChainKind::Evm => wire::ChainKind::Evm,
        ChainKind::Tron => wire::ChainKind::Tron,
    };
    let (finality, depth) = match chain.finality {
        Finality::Depth(depth) => (wire::FinalityRule::Depth, depth),
        Finality::Chain => (wire::FinalityRule::Chain, 0),
    };
    wire::Chain {
        name: chain.name.to_string(),
        kind: kind.into(),
        network_id: chain.network_id,
        nodes: chain.nodes.clone(),
        finality: finality.into(),
        depth,
        dynamic_fees: chain.dynamic_fees,
        max_gas_price: chain.max_gas_price.to_string(),
        max_fee: chain.max_fee.to_string(),
        bump_after_seconds: chain.bump_after_seconds,
        enabled: chain.enabled,
        native_asset: chain.native_asset.to_string(),
    }
}

fn show_asset(asset: &Asset) -> wire::Asset {
    wire::Asset {
        id: asset.id.to_string(),
        symbol: asset.symbol.to_string(),
        chain: asset.chain.to_string(),
        is_native: asset.is_native(),
        contract_address: asset.contract.map(|contract| contract.to_string()).unwrap_or_default(),
        decimals: u32::from(asset.decimals.get()),
        enabled: asset.enabled,
        min_withdrawal: format_amount(asset.min_withdrawal, asset.decimals),
    }
}
