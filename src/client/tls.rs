//! One TLS configuration for HTTP and cable: the ring provider and the machine's own roots.
//!
//! The provider is named here rather than taken from the process, so a client works in any
//! program, also in one that installed none.

use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore};

use super::error::Error;

/// The configuration with the machine's roots; read once per process.
///
/// # Errors
/// [`Error::Setup`] when the machine has no readable root certificate.
pub(super) fn native() -> Result<ClientConfig, Error> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = Arc::clone(ROOTS.get_or_init(|| {
        let mut store = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        store.add_parsable_certificates(found.certs);
        Arc::new(store)
    }));
    if roots.is_empty() {
        return Err(Error::Setup(
            "no root certificate found on this machine: set SSL_CERT_FILE to a PEM bundle"
                .to_owned(),
        ));
    }
    with_roots(roots)
}

/// A configuration that trusts nobody: for plain `http` bases, which never use it.
pub(super) fn none() -> Result<ClientConfig, Error> {
    with_roots(Arc::new(RootCertStore::empty()))
}

fn with_roots(roots: Arc<RootCertStore>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Setup(format!("TLS cannot be set up: {e}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
