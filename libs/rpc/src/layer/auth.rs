//! Who calls, and may they?
//!
//! The method's contract names the roles; a caller needs one of them. Everything else is refused: no credentials, unknown
//! credentials, the wrong role, and a method whose contract names no role at all.

use std::sync::Arc;

use tonic::{Code, Status};

use super::{Layer, Next, Req, Res, refuse, target::Target};
use crate::{
    auth::{Auth, PeerCertificate},
    error::{self, reason},
    role::{Caller, Role},
};

#[derive(Debug)]
pub(crate) struct Authorize {
    pub(crate) auth: Auth,
    /// Full names of the services on this server.
    pub(crate) services: Arc<[&'static str]>,
}

impl Layer for Authorize {
    async fn handle<N: Next>(&self, target: Target, mut request: Req, next: &N) -> Res {
        // Plain HTTP routes name their roles where they are added (`Server::http_for`), since no contract does.
        let plain = !target.grpc && !self.serves(request.uri().path());
        if target.exempt || plain {
            return next.run(target, request).await;
        }
        match self.admit(target, &request) {
            Ok(caller) => {
                tracing::Span::current().record("caller", caller.name.as_str());
                request.extensions_mut().insert(caller);
                next.run(target, request).await
            }
            Err(status) => refuse(target, status),
        }
    }
}

impl Authorize {
    fn admit(&self, target: Target, request: &Req) -> Result<Arc<Caller>, Status> {
        let path = request.uri().path();
        let Some(method) = target.method.filter(|method| self.services.contains(&method.service.as_str()))
        else {
            return Err(self.unknown(path));
        };
        let peer = request.extensions().get::<PeerCertificate>();
        let caller = self.auth.identify(request.headers(), peer)?;
        if method.roles.is_empty() {
            return Err(error::permission_denied(
                reason::NO_ROLES_DECLARED,
                format!("{path} names no roles, so nobody may call it"),
            ));
        }
        require(&caller, &method.roles, path)?;
        Ok(caller)
    }

    /// Whether a gRPC service of this server is behind the path, described or not.
    fn serves(&self, path: &str) -> bool {
        let service = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        self.services.contains(&service)
    }

    fn unknown(&self, path: &str) -> Status {
        if self.serves(path) {
            // Served but not described: fail closed rather than let an undeclared method through.
            return error::permission_denied(
                reason::NO_ROLES_DECLARED,
                format!("{path} is in no contract, so nobody may call it"),
            );
        }
        Status::unimplemented(format!("{path} is not served here"))
    }
}

/// Refuses a caller that has none of the roles, and says which would do.
pub(crate) fn require(caller: &Caller, roles: &[Role], what: &str) -> Result<(), Status> {
    if roles.iter().any(|role| caller.has(role)) {
        return Ok(());
    }
    let names = roles.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Err(error::refusal(
        Code::PermissionDenied,
        reason::ROLE_REQUIRED,
        format!("{what} needs one of the roles {names}; caller {} has none of them", caller.name),
        &[("caller", &caller.name), ("roles", &names)],
    ))
}

/// Guards plain HTTP routes.
#[derive(Debug, Clone)]
pub(crate) struct HttpAuthorize {
    pub(crate) auth: Auth,
    pub(crate) roles: Arc<[Role]>,
}

impl HttpAuthorize {
    /// The caller, or the refusal to answer with.
    pub(crate) fn admit<B>(&self, request: &http::Request<B>) -> Result<Arc<Caller>, Box<Res>> {
        let target = Target { grpc: false, method: None, exempt: false };
        let peer = request.extensions().get::<PeerCertificate>();
        self.auth
            .identify(request.headers(), peer)
            .and_then(|caller| require(&caller, &self.roles, request.uri().path()).map(|()| caller))
            .map_err(|status| Box::new(refuse(target, status)))
    }
}
