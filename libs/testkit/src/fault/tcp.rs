//! Bytes in both directions, subject to the state of the line.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::Line;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

pub(super) async fn serve(client: TcpStream, target: &str, mut line: watch::Receiver<Line>) {
    if moving(&mut line).await.is_none() {
        return;
    }
    let Ok(server) = TcpStream::connect(target).await else { return };
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    // Either side's end is the end of both: a half-open connection would look like a hang.
    tokio::select! {
        () = pump(client_read, server_write, Direction::ToServer, line.clone()) => {}
        () = pump(server_read, client_write, Direction::ToClient, line) => {}
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: Direction,
    mut line: watch::Receiver<Line>,
) {
    let mut buffer = vec![0_u8; 16 * 1024];
    loop {
        let read = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => read,
        };
        match moving(&mut line).await {
            None => return,
            Some(Line::ReplyLost) if way == Direction::ToClient => return,
            Some(_) => {}
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// Waits while the line hangs; the state in which it moves again, or nothing when the proxy is gone.
pub(super) async fn moving(line: &mut watch::Receiver<Line>) -> Option<Line> {
    line.wait_for(|line| *line != Line::Hang).await.ok().map(|line| *line)
}
