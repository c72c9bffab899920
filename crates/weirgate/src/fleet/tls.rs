//! Certificates and keys from PEM files.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};

use crate::config::controller::Serve;

/// What encrypts.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The certificates in `path`, the holder's own first.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.with_context(|| format!("{}: certificates in PEM cannot be read", path.display()))?;
    ensure!(!certificates.is_empty(), "{}: there is no certificate in it", path.display());
    Ok(certificates)
}

/// The private key in `path`, and its PEM.
fn key(path: &Path) -> Result<(PrivateKeyDer<'static>, Vec<u8>)> {
    let pem = std::fs::read(path).with_context(|| path.display().to_string())?;
    let key = PrivateKeyDer::from_pem_slice(&pem)
        .with_context(|| format!("{}: a private key in PEM cannot be read", path.display()))?;
    Ok((key, pem))
}

/// The certificates in `certificate` and the PEM of the key in `private`, which belong together: while they are renewed, they may not.
pub(super) fn pair(certificate: &Path, private: &Path) -> Result<(Vec<CertificateDer<'static>>, Vec<u8>)> {
    let chain = certificates(certificate)?;
    let (key, pem) = key(private)?;
    let signing = provider().key_provider.load_private_key(key)?;
    match CertifiedKey::new(chain.clone(), signing).keys_match() {
        // Some keys do not say what their public half is.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok((chain, pem)),
        Err(error) => {
            Err(error).with_context(|| format!("{} and {} do not fit", certificate.display(), private.display()))
        }
    }
}

/// How a server says who it is, and what it asks of clients.
pub(super) fn server(serve: &Serve) -> Result<ServerConfig> {
    let (certificate, private) = &serve.certificate;
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match &serve.clients_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(ca)? {
                roots.add(root).with_context(|| format!("{}: no authority's certificate", ca.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
            builder.with_client_cert_verifier(verifier.with_context(|| ca.display().to_string())?)
        }
    };
    let mut config = builder
        .with_single_cert(certificates(certificate)?, key(private)?.0)
        .with_context(|| format!("{} and {} do not fit", certificate.display(), private.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
