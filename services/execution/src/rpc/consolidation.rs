//! ConsolidationService: part of the contract and not served yet.

use proto::execution::v1 as pb;
use proto::execution::v1::consolidation_service_server::ConsolidationService;
use tonic::{Request, Response, Status};

#[derive(Debug)]
pub(super) struct ConsolidationRpc;

/// The status of a method that this version does not serve.
pub(super) fn not_served(what: &str) -> Status {
    Status::unimplemented(format!("{what} are not served by this version of execution"))
}

#[tonic::async_trait]
impl ConsolidationService for ConsolidationRpc {
    async fn put_rule(
        &self,
        _: Request<pb::PutRuleRequest>,
    ) -> Result<Response<pb::PutRuleResponse>, Status> {
        Err(not_served("consolidation rules"))
    }

    async fn delete_rule(
        &self,
        _: Request<pb::DeleteRuleRequest>,
    ) -> Result<Response<pb::DeleteRuleResponse>, Status> {
        Err(not_served("consolidation rules"))
    }

    async fn list_rules(
        &self,
        _: Request<pb::ListRulesRequest>,
    ) -> Result<Response<pb::ListRulesResponse>, Status> {
        Err(not_served("consolidation rules"))
    }

    async fn preview_rules(
        &self,
        _: Request<pb::PreviewRulesRequest>,
    ) -> Result<Response<pb::PreviewRulesResponse>, Status> {
        Err(not_served("consolidation rules"))
    }
}
