//! CatalogueService.

use proto::execution::v1 as pb;
use proto::execution::v1::catalogue_service_server::CatalogueService;
use rpc::fields::{Fields, required};
use tonic::{Request, Response, Status};
use types::{AddressFormat, Amount, Decimals, RawAmount, format_amount};

use crate::catalogue::{Asset, Catalogue, Chain, Finality, NewAsset};

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
        request: Request<pb::PutChainRequest>,
    ) -> Result<Response<pb::PutChainResponse>, Status> {
        let chain = parse_chain(required("chain", request.into_inner().chain)?)?;
        let chain = self.catalogue.put_chain(chain).await?;
        Ok(Response::new(pb::PutChainResponse { chain: Some(show_chain(&chain)) }))
    }

    async fn list_chains(
        &self,
        _: Request<pb::ListChainsRequest>,
    ) -> Result<Response<pb::ListChainsResponse>, Status> {
        let chains = self.catalogue.chains().await?;
        Ok(Response::new(pb::ListChainsResponse { chains: chains.iter().map(show_chain).collect() }))
    }

    async fn put_asset(
        &self,
        request: Request<pb::PutAssetRequest>,
    ) -> Result<Response<pb::PutAssetResponse>, Status> {
        let asset = parse_asset(&required("asset", request.into_inner().asset)?)?;
        let asset = self.catalogue.put_asset(asset).await?;
        Ok(Response::new(pb::PutAssetResponse { asset: Some(show_asset(&asset)) }))
    }

    async fn list_assets(
        &self,
        request: Request<pb::ListAssetsRequest>,
    ) -> Result<Response<pb::ListAssetsResponse>, Status> {
        let mut fields = Fields::new();
        let chain = fields.parse_optional("chain", &request.into_inner().chain);
        fields.done()?;
        let assets = self.catalogue.assets(chain.as_ref()).await?;
        Ok(Response::new(pb::ListAssetsResponse { assets: assets.iter().map(show_asset).collect() }))
    }
}

fn parse_chain(chain: pb::Chain) -> Result<Chain, Status> {
    let mut fields = Fields::new();
    let name = fields.parse("chain.name", &chain.name);
    let kind = read_kind(chain.kind());
    fields.check("chain.kind", kind.is_some(), "must be named");
    if chain.network_id == 0 || i64::try_from(chain.network_id).is_err() {
        fields.wrong("chain.network_id", "must be between 1 and 2^63 - 1");
    }
    if chain.nodes.is_empty() {
        fields.wrong("chain.nodes", "must name at least one node");
    }
    for (index, node) in chain.nodes.iter().enumerate() {
        if let Err(problem) = check_node(node) {
            fields.wrong(format!("chain.nodes[{index}]"), problem);
        }
        // Its answer would count twice where two nodes must agree.
        if chain.nodes[..index].contains(node) {
            fields.wrong(format!("chain.nodes[{index}]"), "is named twice");
        }
    }
    let finality = match chain.finality() {
        pb::FinalityRule::Depth if chain.depth == 0 || chain.depth > 1_000_000 => {
            fields.wrong("chain.depth", "must be between 1 and 1000000");
            None
        }
        pb::FinalityRule::Depth => Some(Finality::Depth(chain.depth)),
        pb::FinalityRule::Chain => Some(Finality::Chain),
        pb::FinalityRule::Unspecified => {
            fields.wrong("chain.finality", "must be named");
            None
        }
    };
    let max_gas_price = positive(&mut fields, "chain.max_gas_price", &chain.max_gas_price);
    let max_fee = positive(&mut fields, "chain.max_fee", &chain.max_fee);
    if chain.bump_after_seconds == 0 || chain.bump_after_seconds > 86_400 {
        fields.wrong("chain.bump_after_seconds", "must be between 1 and 86400");
    }
    let native_asset = fields.parse("chain.native_asset", &chain.native_asset);
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
    fields.finish(parsed)
}

/// What the names of the contract's kinds begin with; the rest is the family's own name.
const KIND: &str = "CHAIN_KIND_";

fn read_kind(kind: pb::ChainKind) -> Option<AddressFormat> {
    kind.as_str_name().strip_prefix(KIND)?.to_ascii_lowercase().parse().ok()
}

fn show_kind(kind: AddressFormat) -> pb::ChainKind {
    let name = format!("{KIND}{}", kind.as_str().to_ascii_uppercase());
    pb::ChainKind::from_str_name(&name).unwrap_or_default()
}

/// Checks the syntax alone; the health check finds out whether a node answers there.
fn check_node(node: &str) -> Result<(), &'static str> {
    let uri: tonic::transport::Uri = node.parse().map_err(|_| "is not a URL")?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(()),
        _ => Err("must begin with http:// or https:// and name a host"),
    }
}

fn positive(fields: &mut Fields, field: &str, text: &str) -> Option<RawAmount> {
    let amount: RawAmount = fields.parse(field, text)?;
    if amount.is_zero() {
        fields.wrong(field, "must be above zero");
        return None;
    }
    Some(amount)
}

fn parse_asset(asset: &pb::Asset) -> Result<NewAsset, Status> {
    let mut fields = Fields::new();
    let symbol = fields.parse("asset.symbol", &asset.symbol);
    let chain = fields.parse("asset.chain", &asset.chain);
    let decimals = u8::try_from(asset.decimals).map_err(|_| "must be 0 to 77".to_owned());
    let decimals = decimals.and_then(|decimals| Decimals::new(decimals).map_err(|error| error.to_string()));
    let decimals = decimals.map_err(|problem| fields.wrong("asset.decimals", problem)).ok();
    let min_withdrawal = match (asset.min_withdrawal.as_str(), decimals) {
        ("", _) => Some(RawAmount::ZERO),
        (text, Some(decimals)) => {
            Amount::parse(text, decimals).map_err(|error| fields.wrong("asset.min_withdrawal", error)).ok()
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
    fields.finish(parsed)
}

fn show_chain(chain: &Chain) -> pb::Chain {
    let (finality, depth) = match chain.finality {
        Finality::Depth(depth) => (pb::FinalityRule::Depth, depth),
        Finality::Chain => (pb::FinalityRule::Chain, 0),
    };
    pb::Chain {
        name: chain.name.to_string(),
        kind: show_kind(chain.kind).into(),
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

fn show_asset(asset: &Asset) -> pb::Asset {
    pb::Asset {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_the_contract_is_a_family_of_chains_and_back() {
        for kind in [pb::ChainKind::Evm, pb::ChainKind::Tron] {
            assert_eq!(read_kind(kind).map(show_kind), Some(kind));
        }
        assert_eq!(read_kind(pb::ChainKind::Unspecified), None);
    }
}
