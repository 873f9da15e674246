//! Accepting connections and keeping them until they end.
//!
//! Owns the sockets. Three tokens steer it: `stop` closes the listener, `draining` asks connections to finish, `abort` drops
//! them. Invariant: every connection is a tracked task, so "all gone" can be waited for.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{body::Body, transport::server::TcpConnectInfo};

use crate::{
    auth::PeerCertificate,
    layer::{Next, target::Stack},
    tls,
};

/// A peer that connects and says nothing must not hold a connection.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Finds peers that vanished without closing, within a minute.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_ANSWER: Duration = Duration::from_secs(20);
/// Per connection; the server-wide limits refuse long before, with a proper answer.
const STREAMS_PER_CONNECTION: u32 = 4096;
/// After a failed accept (usually: out of file descriptors) a pause, or the loop would burn a core.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Listening {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
    pub(super) connections: usize,
    pub(super) stop: CancellationToken,
    pub(super) draining: CancellationToken,
    pub(super) abort: CancellationToken,
}

#[derive(Clone)]
struct Peer {
    addresses: TcpConnectInfo,
    certificate: Option<PeerCertificate>,
}

/// Starts accepting; the tracker is empty again once the listener and all connections are gone.
pub(super) fn spawn<N: Next>(listening: Listening, stack: Stack<N>) -> TaskTracker {
    let tracker = TaskTracker::new();
    tracker.spawn(accept(listening, Arc::new(stack), tracker.clone()));
    tracker.close();
    tracker
}

async fn accept<N: Next>(listening: Listening, stack: Arc<Stack<N>>, tracker: TaskTracker) {
    let Listening { listener, tls, connections, stop, draining, abort } = listening;
    let acceptor = tls.map(TlsAcceptor::from);
    let slots = Arc::new(Semaphore::new(connections));
    loop {
        // A slot before the accept: at the limit new peers wait in the kernel's backlog instead of costing memory here.
        let slot = tokio::select! {
            () = stop.cancelled() => return,
            slot = Arc::clone(&slots).acquire_owned() => slot,
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, remote)) => {
                let (acceptor, stack) = (acceptor.clone(), Arc::clone(&stack));
                let (draining, abort) = (draining.clone(), abort.clone());
                tracker.spawn(async move {
                    let _slot = slot;
                    tokio::select! {
                        () = abort.cancelled() => {}
                        () = open(socket, remote, acceptor, stack, draining) => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn open<N: Next>(
    socket: TcpStream,
    remote: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    stack: Arc<Stack<N>>,
    draining: CancellationToken,
) {
    // Small messages must not wait for one another.
    let _ = socket.set_nodelay(true);
    let addresses = TcpConnectInfo { local_addr: socket.local_addr().ok(), remote_addr: Some(remote) };
    let Some(acceptor) = acceptor else {
        let mut first_byte = [0];
        let spoke = tokio::select! {
            () = draining.cancelled() => return,
            spoke = tokio::time::timeout(HANDSHAKE_LIMIT, socket.peek(&mut first_byte)) => spoke,
        };
        return match spoke {
            Ok(_) => serve(socket, Peer { addresses, certificate: None }, stack, draining).await,
            Err(_) => tracing::debug!(%remote, "connected and said nothing"),
        };
    };
    let handshake = tokio::select! {
        () = draining.cancelled() => return,
        handshake = tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(socket)) => handshake,
    };
    match handshake {
        Ok(Ok(stream)) => {
            let certificate = tls::peer(stream.get_ref().1.peer_certificates());
            serve(stream, Peer { addresses, certificate }, stack, draining).await;
        }
        Ok(Err(error)) => tracing::debug!(%remote, %error, "TLS handshake failed"),
        Err(_) => tracing::debug!(%remote, "TLS handshake took too long"),
    }
}

async fn serve<IO, N>(io: IO, peer: Peer, stack: Arc<Stack<N>>, draining: CancellationToken)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    N: Next,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWER)
        .max_concurrent_streams(STREAMS_PER_CONNECTION);
    // With a timer HTTP/1 gives up on a peer that never finishes its headers.
    builder.http1().timer(TokioTimer::new());
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer.addresses.clone());
        if let Some(certificate) = &peer.certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        let stack = Arc::clone(&stack);
        // Boxed: the connection moves what it is given several times, and the layers' future is not small.
        Box::pin(async move { Ok::<_, Infallible>(stack.answer(request).await) })
    });
    let connection = builder.serve_connection(TokioIo::new(io), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = draining.cancelled() => {
            // HTTP/2 sends GOAWAY and HTTP/1 `connection: close`; what is in flight is finished.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = %error, "connection ended");
    }
}
