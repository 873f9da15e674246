//! Choosing loopback ports.
//!
//! Ports are taken from below the kernel's ephemeral range: a port above 32768 may be lent to an outgoing connection
//! between our look and the server's bind. Whatever race remains is met by starting again on another port.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

use rand::Rng;

use crate::error::Error;

const RANGE: std::ops::Range<u16> = 15_000..32_000;
const TRIES: usize = 200;

/// Ports this process has handed out already: two parts that start at the same time must not be given the same one.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

pub fn free() -> Result<u16, Error> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rng = rand::rng();
    for _ in 0..TRIES {
        let port = rng.random_range(RANGE);
        if !given.contains(&port) && is_free(port) {
            given.insert(port);
            return Ok(port);
        }
    }
    Err(Error::NoFreePort)
}

/// `wanted` if nothing listens there and this process has not given it away, otherwise any free port.
pub fn claim(wanted: Option<u16>) -> Result<u16, Error> {
    if let Some(port) = wanted {
        let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
        if is_free(port) && given.insert(port) {
            return Ok(port);
        }
    }
    free()
}

pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// How often a part is started again on another port when its own choice was taken meanwhile.
pub(crate) const PORT_TRIES: usize = 5;

/// The port for one try: the one asked for (an error when taken), or a fresh one.
pub(crate) fn for_try(part: &str, asked: Option<u16>) -> Result<u16, Error> {
    match asked {
        Some(port) if is_free(port) => Ok(port),
        Some(port) => Err(Error::PortInUse { part: part.to_owned(), port }),
        None => free(),
    }
}

/// What a failed try means: a lost port that we chose is worth another try, one that was asked for is named.
pub(crate) fn after_failure(
    part: &str,
    asked: Option<u16>,
    tries_left: usize,
    error: Error,
) -> Option<Error> {
    match asked {
        _ if !error.is_lost_port() => Some(error),
        Some(port) => Some(Error::PortInUse { part: part.to_owned(), port }),
        None if tries_left == 0 => Some(error),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_never_chosen() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = listener.local_addr().unwrap().port();
        assert!(!is_free(taken));
        assert_ne!(claim(Some(taken)).unwrap(), taken);
        assert!(matches!(for_try("x", Some(taken)), Err(Error::PortInUse { port, .. }) if port == taken));
    }

    #[test]
    fn one_process_is_never_given_the_same_port_twice() {
        let ports: BTreeSet<u16> = (0..50).map(|_| free().unwrap()).collect();
        assert_eq!(ports.len(), 50);
    }
}
