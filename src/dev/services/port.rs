//! A free port on the loopback address.
//!
//! Taken below the range from which systems serve outgoing connections (Linux from 32768, macOS
//! from 49152). Inside it, a service that a fault test has stopped could find its port taken when
//! it comes back, and a client that redials could connect to itself.

use std::net::TcpListener;

use super::{StartError, secret};

const FIRST: u16 = 15_000;
const COUNT: u16 = 15_000;

/// A port that was free a moment ago: `preferred` when it is, else any. The caller must cope with
/// losing it to somebody else.
pub(super) fn free(preferred: Option<u16>) -> Result<u16, StartError> {
    if let Some(port) = preferred.filter(|port| is_free(*port)) {
        return Ok(port);
    }
    let start = u16::from_str_radix(&secret::mint()?[..4], 16).expect("four hexadecimal digits");
    let ports = (0..COUNT).map(|step| FIRST + (start % COUNT + step) % COUNT);
    // Every port of the range is taken: let the system choose, and report its reason if it cannot.
    match ports.into_iter().find(|port| is_free(*port)) {
        Some(port) => Ok(port),
        None => TcpListener::bind(("127.0.0.1", 0))
            .and_then(|listener| listener.local_addr())
            .map(|address| address.port())
            .map_err(StartError::io(
                "find a free port on",
                std::path::Path::new("127.0.0.1"),
            )),
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_not_given_again() {
        let holder = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let taken = holder.local_addr().unwrap().port();
        assert_ne!(free(Some(taken)).unwrap(), taken);
    }
}
