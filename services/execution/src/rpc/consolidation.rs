//! ConsolidationService: part of the contract, not served yet. Each call says so.

use proto::execution::v1 as wire;
use proto::execution::v1::consolidation_service_server::ConsolidationService;
use tonic::{Request, Response, Status};

#[derive(Debug)]
pub(super) struct ConsolidationRpc;

/// What a caller of a method that this version does not serve is told.
pub(super) fn not_served(what: &str) -> Status {
    Status::unimplemented(format!("{what} are not served by this version of execution"))
}

#[tonic::async_trait]
impl ConsolidationService for ConsolidationRpc {
    async fn put_rule(
        &self,
        _: Request<wire::PutRuleRequest>,
    ) -> Result<Response<wire::PutRuleResponse>, Status> {
        Err(not_served("consolidation rules"))
    }

    async fn delete_rule(
        &self,
        _: Request<wire::DeleteRuleRequest>,
    ) -> Result<Response<wire::DeleteRuleResponse>, Status> {
        Err(not_served("consolidation rules"))
    }

    async fn list_rules(
        &self,
        _: Request<wire::ListRulesRequest>,
    ) -> Result<Response<wire::ListRulesResponse>, Status> {
        Err(not_served("consolidation rules"))
    }

    async fn preview_rules(
        &self,
        _: Request<wire::PreviewRulesRequest>,
    ) -> Result<Response<wire::PreviewRulesResponse>, Status> {
        Err(not_served("consolidation rules"))
    }
}
