//! One unary call, 64 in flight: what a plain tonic server answers, and what a real service answers through the whole stack
//! with its key, roles, limits, metrics and trace.
//!
//! The plain server is this very program as a process of its own, so that both sides of every row are processes.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use proto::confirmation::v1 as pb;
use proto::confirmation::v1::confirmation_service_client::ConfirmationServiceClient;
use proto::confirmation::v1::confirmation_service_server::{ConfirmationService, ConfirmationServiceServer};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::Mode;
use crate::stack::Stack;
use crate::table::{Goal, Row, Unit, median};

const IN_FLIGHT: usize = 64;
const CONNECTIONS: usize = 2;

pub(crate) async fn rows(stack: &Stack, mode: Mode) -> Result<Vec<Row>> {
    let span = Duration::from_millis(mode.pick(500, 4_000));
    let plain = Plain::start().await?;
    let key: MetadataValue<Ascii> = format!("Bearer {}", stack.key("operator")?).parse()?;
    let (theirs, ours) = (channels(&plain.url).await?, channels(stack.url("confirmation")?).await?);
    let (mut health, mut bare, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=mode.rounds() {
        let own_key = key.clone();
        let rates = [
            rate(&theirs, span, |channel| check(HealthClient::new(channel))).await?,
            rate(&theirs, span, |channel| ask(ConfirmationServiceClient::new(channel), None)).await?,
            rate(&ours, span, move |channel| {
                ask(ConfirmationServiceClient::new(channel), Some(own_key.clone()))
            })
            .await?,
        ];
        // The first fills caches.
        if round > 0 {
            health.push(rates[0]);
            bare.push(rates[1]);
            read.push(rates[2]);
        }
    }
    plain.stop().await?;
    let row = |what, raw: &[f64], goal| {
        Row::new(what, Unit::PerSecond).ours(median(&read)).raw(median(raw)).goal(Goal::OfRaw(goal))
    };
    Ok(vec![
        row("unary read with key and trace, against a bare health check", &health, 0.5),
        row("unary read with key and trace, against the same read bare", &bare, 0.8),
    ])
}

async fn channels(url: &str) -> Result<Vec<Channel>> {
    let endpoint = Endpoint::from_shared(url.to_owned())?.tcp_nodelay(true);
    Ok(try_join_all((0..CONNECTIONS).map(|_| endpoint.connect())).await?)
}

async fn check(mut client: HealthClient<Channel>) -> Result<()> {
    client.check(HealthCheckRequest::default()).await?;
    Ok(())
}

async fn ask(
    mut client: ConfirmationServiceClient<Channel>,
    key: Option<MetadataValue<Ascii>>,
) -> Result<()> {
    let mut request = Request::new(pb::GetAttestationKeyRequest {});
    if let Some(key) = key {
        request.metadata_mut().insert("authorization", key);
    }
    let answer = client.get_attestation_key(request).await?.into_inner();
    ensure!(answer.public_key.len() == 32, "the answer holds no key");
    Ok(())
}

/// Calls a second, this many at a time, until the time is over.
async fn rate<F, Fut>(channels: &[Channel], span: Duration, call: F) -> Result<f64>
where
    F: Fn(Channel) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<()>> + Send,
{
    let began = Instant::now();
    let callers = (0..IN_FLIGHT).zip(channels.iter().cycle()).map(|(_, channel)| {
        let (channel, call) = (channel.clone(), call.clone());
        tokio::spawn(async move {
            let mut done = 0_u32;
            while began.elapsed() < span {
                call(channel.clone()).await?;
                done += 1;
            }
            anyhow::Ok(done)
        })
    });
    let done = try_join_all(callers).await?.into_iter().sum::<Result<u32>>()?;
    Ok(f64::from(done) / began.elapsed().as_secs_f64())
}

/// The plain server's process; it ends with its standard input.
struct Plain {
    process: Child,
    url: String,
}

impl Plain {
    async fn start() -> Result<Plain> {
        let own = std::env::current_exe().context("cannot tell where this program lies")?;
        let mut command = Command::new(own);
        command.arg("--serve-plain").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().context("cannot start the plain server")?;
        let said = process.stdout.take().context("the plain server has no output")?;
        let url = BufReader::new(said).lines().next_line().await?.context("the plain server said nothing")?;
        Ok(Plain { process, url })
    }

    async fn stop(mut self) -> Result<()> {
        drop(self.process.stdin.take());
        self.process.wait().await?;
        Ok(())
    }
}

/// Serves health and one read with nothing around them, says where, and ends when its input does.
pub(crate) async fn serve_plain() -> Result<()> {
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    say(&format!("http://{}", listener.local_addr()?))?;
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<ConfirmationServiceServer<Bare>>().await;
    // Whatever the input says, its end is the end.
    let input = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    let ended = async {
        let _ = input.await;
    };
    let incoming = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
    tonic::transport::Server::builder()
        .add_service(health)
        .add_service(ConfirmationServiceServer::new(Bare))
        .serve_with_incoming_shutdown(incoming, ended)
        .await?;
    Ok(())
}

fn say(text: &str) -> Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

#[derive(Debug)]
struct Bare;

macro_rules! bare {
    ($($name:ident: $request:ident -> $response:ident),* $(,)?) => {
        #[tonic::async_trait]
        impl ConfirmationService for Bare {
            async fn get_attestation_key(
                &self,
                _: Request<pb::GetAttestationKeyRequest>,
            ) -> Result<Response<pb::GetAttestationKeyResponse>, Status> {
                Ok(Response::new(pb::GetAttestationKeyResponse { public_key: vec![7; 32] }))
            }

            $(async fn $name(&self, _: Request<pb::$request>) -> Result<Response<pb::$response>, Status> {
                Err(Status::unimplemented("not measured"))
            })*
        }
    };
}

bare! {
    put_watch: PutWatchRequest -> PutWatchResponse,
    put_chain: PutChainRequest -> PutChainResponse,
    get_watch: GetWatchRequest -> GetWatchResponse,
    list_watches: ListWatchesRequest -> ListWatchesResponse,
    list_heads: ListHeadsRequest -> ListHeadsResponse,
    resume_chain: ResumeChainRequest -> ResumeChainResponse,
}
