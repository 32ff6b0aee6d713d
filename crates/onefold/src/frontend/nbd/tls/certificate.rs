//! Properties of certificates and keys that the TLS library does not report in words for people: the end of validity, and encryption of a key.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, Error};
use tracing::warn;

use crate::clock;
use crate::io::input;
use crate::report::status::show_date;

/// Bytes of the largest file of certificates or keys that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Texts that mark an encrypted key: PKCS #8 (RFC 5958), and the older form of OpenSSL (RFC 1421).
const ENCRYPTED: [&str; 2] = ["BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"];
/// Tags of DER (X.690): a sequence, the version of a certificate, a time with two digits of the year, and one with four.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const DAY: i64 = 86_400;

/// Reads the certificates of a file.
pub fn read_chain(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let bytes = read(path)?;
    let certificates = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| unreadable(path, "certificate", &error))?;
    ensure!(!certificates.is_empty(), "{} has no certificate in PEM form", path.display());
    Ok(certificates)
}

/// Reads the key of a file, which must not be encrypted: a server cannot ask for a pass phrase.
pub fn read_key(path: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    let bytes = read(path)?;
    let text = String::from_utf8_lossy(&bytes);
    if ENCRYPTED.iter().any(|mark| text.contains(mark)) {
        let path = path.display();
        bail!(
            "{path} is encrypted with a pass phrase, and a server has nobody to ask: 'openssl pkey -in {path} -out plain.pem' decrypts it; let only \
             the server's user read the result"
        );
    }
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| unreadable(path, "private key", &error))
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let file = input::open(path).with_context(|| {
        format!("{shown} cannot be read; --tls-certificates names the folder of server-cert.pem and server-key.pem")
    })?;
    let metadata = file.metadata().with_context(|| format!("{shown} cannot be read"))?;
    ensure!(metadata.is_file(), "{shown} is no regular file: --tls-certificates names a folder of PEM files");
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).with_context(|| format!("{shown} cannot be read"))?;
    Ok(bytes)
}

fn unreadable(path: &Path, what: &str, error: &pem::Error) -> anyhow::Error {
    let path = path.display();
    match error {
        pem::Error::NoItemsFound => anyhow::anyhow!("{path} has no {what} in PEM form"),
        error => anyhow::anyhow!("{path} has no {what} that can be read: {error}"),
    }
}

/// Warns of the server's own certificates that have expired, or are not valid yet: clients that check them refuse the server.
pub fn warn_of_validity(path: &Path, chain: &[CertificateDer<'_>]) {
    let now = clock::since_1970().as_secs() as i64;
    for problem in chain.iter().filter_map(|certificate| problem(certificate, now)) {
        warn!("{}: {problem}", path.display());
    }
}

/// Explains why a certificate is not valid at a time in seconds since 1970, with the remedy; `None` if it is, or if its validity cannot be read.
fn problem(certificate: &[u8], now: i64) -> Option<String> {
    let (begin, end) = validity(certificate)?;
    let date = |seconds: i64| show_date(u64::try_from(seconds).unwrap_or(0));
    if now > end {
        Some(format!(
            "the certificate has expired on {}: clients that check it refuse this server. Renew it, and restart the server",
            date(end)
        ))
    } else if now < begin {
        Some(format!(
            "the certificate is valid only from {} on, and the clock of this host says {}: clients refuse this server until then, or the clock is wrong",
            date(begin),
            date(now)
        ))
    } else {
        None
    }
}

/// Splits DER into the tag of its first element, that element's content, and the remaining bytes.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Reads the first and the last moment at which a certificate is valid (RFC 5280, 4.1), in seconds since 1970.
fn validity(certificate: &[u8]) -> Option<(i64, i64)> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, mut fields, _) = element(certificate)? else { return None };
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    // The serial number, the algorithm of the signature, and the issuer.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (SEQUENCE, validity, _) = element(fields)? else { return None };
    let (tag, begin, rest) = element(validity)?;
    let begin = seconds(tag, begin)?;
    let (tag, end, _) = element(rest)?;
    Some((begin, seconds(tag, end)?))
}

/// Converts `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ` to seconds since 1970. Years of two digits are those from 1950 to 2049.
fn seconds(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    let number = |from: usize, count: usize| -> Option<i64> {
        std::str::from_utf8(digits.get(from..from + count)?).ok()?.parse().ok()
    };
    let (year, at) = match tag {
        UTC_TIME => number(0, 2).map(|year| if year < 50 { (2000 + year, 2) } else { (1900 + year, 2) })?,
        GENERALIZED_TIME => (number(0, 4)?, 4),
        _ => return None,
    };
    let part = |place: usize| number(at + 2 * place, 2);
    let date = Date::new(year as i16, part(0)? as i8, part(1)? as i8).ok()?;
    let days = date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second() / DAY;
    Some(days * DAY + part(2)? * 3600 + part(3)? * 60 + part(4)?)
}

/// Explains why a handshake failed, with the remedy if the library's words have none.
pub fn explain(error: &Error) -> String {
    let remedy = match error {
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "the client's certificate has expired: sign a new one for it, if the clock of this host is right"
        }
        Error::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => {
            "the client's certificate is not valid yet: is the clock of this host right?"
        }
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the client's certificate is not signed by an authority in ca-cert.pem: sign it with that"
        }
        Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "the client says that this server's certificate has expired: renew server-cert.pem, and restart the server"
        }
        Error::AlertReceived(AlertDescription::UnknownCA) => {
            "the client does not know the authority that signed this server's certificate: give it the authority's ca-cert.pem"
        }
        _ => return error.to_string(),
    };
    format!("{remedy} ({error})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds the part of a certificate that states its validity.
    fn certificate(begin: &[u8], end: &[u8]) -> Vec<u8> {
        let sequence = |content: Vec<u8>| [vec![SEQUENCE, 0x82, 0, content.len() as u8], content].concat();
        let time = |text: &[u8]| {
            [&[if text.len() > 13 { GENERALIZED_TIME } else { UTC_TIME }, text.len() as u8], text].concat()
        };
        let validity = sequence([time(begin), time(end)].concat());
        let before = [&[VERSION, 3, 2, 1, 2][..], &[2, 1, 7], &[SEQUENCE, 0], &[SEQUENCE, 0]].concat();
        sequence(sequence([before, validity].concat()))
    }

    #[test]
    fn the_time_of_a_certificate_is_read_and_judged() {
        let valid = certificate(b"700101000001Z", b"20500301120000Z");
        assert_eq!(validity(&valid), Some((1, 2_529_748_800)));
        assert_eq!(problem(&valid, 2_529_748_800), None);
        assert!(problem(&valid, 2_529_748_801).unwrap().contains("expired on 2050-03-01 12:00 UTC"));
        assert!(problem(&valid, 0).unwrap().contains("valid only from"));
        assert_eq!(validity(&certificate(b"701301000001Z", b"20500301120000Z")), None);
    }

    #[test]
    fn an_expired_certificate_is_named_with_the_remedy() {
        let told = explain(&Error::InvalidCertificate(CertificateError::Expired));
        assert!(told.contains("has expired: sign a new one"), "{told}");
        let told = explain(&Error::AlertReceived(AlertDescription::CertificateExpired));
        assert!(told.contains("renew server-cert.pem"), "{told}");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, at in 0usize..60, with: u8) {
            let _ = validity(&bytes);
            let mut changed = certificate(b"700101000001Z", b"20500301120000Z");
            let at = at % changed.len();
            changed[at] = with;
            let _ = validity(&changed).map(|_| problem(&changed, 5));
        }
    }
}
