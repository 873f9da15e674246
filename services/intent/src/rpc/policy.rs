//! `PolicyService`.

use proto::intent::v1 as pb;
use proto::intent::v1::policy_service_server::PolicyService;
use rpc::caller;
use rpc::fields::{self, Fields};
use tonic::{Request, Response, Status};

use super::convert;
use crate::limit::{self, Limits, Scope};
use crate::policy::{self, Policies};

#[derive(Debug, Clone)]
pub struct PolicyRpc {
    policies: Policies,
    limits: Limits,
}

impl PolicyRpc {
    pub fn new(policies: Policies, limits: Limits) -> Self {
        Self { policies, limits }
    }
}

#[tonic::async_trait]
impl PolicyService for PolicyRpc {
    async fn put_approval_policy(
        &self,
        request: Request<pb::PutApprovalPolicyRequest>,
    ) -> Result<Response<pb::PutApprovalPolicyResponse>, Status> {
        let by = caller(&request)?.name.clone();
        let draft = policy_draft(request.into_inner().policy)?;
        let policy = self.policies.put(draft, &by).await?;
        Ok(Response::new(pb::PutApprovalPolicyResponse { policy: Some(convert::policy(&policy)) }))
    }

    async fn list_approval_policies(
        &self,
        _: Request<pb::ListApprovalPoliciesRequest>,
    ) -> Result<Response<pb::ListApprovalPoliciesResponse>, Status> {
        let policies = self.policies.list().await?;
        let policies = policies.iter().map(convert::policy).collect();
        Ok(Response::new(pb::ListApprovalPoliciesResponse { policies }))
    }

    async fn put_limit(
        &self,
        request: Request<pb::PutLimitRequest>,
    ) -> Result<Response<pb::PutLimitResponse>, Status> {
        let by = caller(&request)?.name.clone();
        let draft = limit_draft(request.into_inner().limit)?;
        let limit = self.limits.put(draft, &by).await?;
        Ok(Response::new(pb::PutLimitResponse { limit: Some(convert::limit(&limit)) }))
    }

    async fn delete_limit(
        &self,
        request: Request<pb::DeleteLimitRequest>,
    ) -> Result<Response<pb::DeleteLimitResponse>, Status> {
        let by = caller(&request)?.name.clone();
        let id = fields::parse("id", &request.get_ref().id)?;
        self.limits.delete(id, &by).await?;
        Ok(Response::new(pb::DeleteLimitResponse {}))
    }

    async fn list_limits(
        &self,
        _: Request<pb::ListLimitsRequest>,
    ) -> Result<Response<pb::ListLimitsResponse>, Status> {
        let limits = self.limits.list().await?;
        Ok(Response::new(pb::ListLimitsResponse { limits: limits.iter().map(convert::limit).collect() }))
    }
}

fn policy_draft(policy: Option<pb::ApprovalPolicy>) -> Result<policy::PolicyDraft, Status> {
    let policy = fields::required("policy", policy)?;
    let mut fields = Fields::new();
    let chain = fields.parse("policy.chain", &policy.chain);
    let asset = fields.parse("policy.asset", &policy.asset);
    let tiers = policy.tiers.into_iter().map(|tier| (tier.from_amount, tier.required_approvals)).collect();
    let draft = chain.zip(asset).map(|(chain, asset)| policy::PolicyDraft {
        chain,
        asset,
        tiers,
        approvers: policy.approvers,
    });
    fields.finish(draft)
}

fn limit_draft(limit: Option<pb::Limit>) -> Result<limit::LimitDraft, Status> {
    let limit = fields::required("limit", limit)?;
    let mut fields = Fields::new();
    let scope = match limit.scope() {
        pb::LimitScope::User => Some(Scope::User),
        pb::LimitScope::Asset => Some(Scope::Asset),
        pb::LimitScope::Unspecified => None,
    };
    let scope = fields.take("limit.scope", scope.ok_or("must be user or asset"));
    let chain = fields.parse("limit.chain", &limit.chain);
    let asset = fields.parse("limit.asset", &limit.asset);
    let window = limit.window.filter(|window| window.nanos == 0).map(|window| window.seconds);
    let window = fields.take("limit.window", window.ok_or("must be a whole number of seconds"));
    let build = || {
        Some(limit::LimitDraft {
            scope: scope?,
            chain: chain?,
            asset: asset?,
            window_seconds: window?,
            max: limit.max_amount,
        })
    };
    let draft = build();
    fields.finish(draft)
}
