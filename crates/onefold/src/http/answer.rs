//! Routing of HTTP requests to their answers.

use std::net::IpAddr;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};

use super::figures::{Figures, Known, Snapshot};
use super::page;
use crate::report::health::{Health, Level};
use crate::report::prometheus;

/// Content security policy: only the page's own script and styles, from this server.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// An HTTP answer to a reader, with its whole body.
pub type Answer = Response<Full<Bytes>>;

/// Content of the site, and the hosts that it answers for.
pub struct Site {
    /// Source of figures.
    pub figures: Figures,
    /// Name of the pool, which is the label of metrics.
    pub pool: String,
    /// True if requests may name any host. Otherwise a foreign name means a browser that was led here by another site.
    pub any_host: bool,
}

impl Site {
    /// Answers a request by its path; refuses other methods than GET and HEAD, and foreign hosts.
    pub async fn answer<B>(&self, request: &Request<B>) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD: nothing can be changed here\n");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        if !self.any_host && !is_local(request.headers().get(HOST)) {
            let reason = "this server answers to 'localhost' and to addresses, not to other names. For a name, start it with \
                          --allow-remote\n";
            return text(StatusCode::FORBIDDEN, reason);
        }
        match request.uri().path() {
            "/" => self.page(&looked_for(request.uri().query())).await,
            "/page.css" => answer(StatusCode::OK, "text/css; charset=utf-8", page::STYLES),
            "/page.js" => answer(StatusCode::OK, "text/javascript; charset=utf-8", page::SCRIPT),
            "/status.json" => self.figures("application/json", json).await,
            "/metrics" => {
                let made = |snapshot: &Snapshot| metrics(snapshot, &self.pool);
                self.figures("text/plain; version=0.0.4; charset=utf-8", made).await
            }
            "/healthz" => self.health().await,
            _ => text(StatusCode::NOT_FOUND, "there are /, /healthz, /metrics and /status.json\n"),
        }
    }

    async fn figures(&self, kind: &'static str, made: impl Fn(&Snapshot) -> Bytes) -> Answer {
        match self.figures.fresh().await {
            Ok(snapshot) => answer(StatusCode::OK, kind, made(&snapshot)),
            Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
        }
    }

    async fn page(&self, find: &str) -> Answer {
        let (status, body) = match self.figures.fresh().await {
            Ok(snapshot) => {
                let made = || Bytes::from(page::page(&snapshot, &self.pool, find));
                let page = if find.is_empty() { snapshot.made.page.get_or_init(made).clone() } else { made() };
                (StatusCode::OK, page)
            }
            Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, Bytes::from(page::without_figures(&reason, &self.pool))),
        };
        answer(status, HTML, body)
    }

    async fn health(&self) -> Answer {
        let (status, sentence) = well(&self.figures.fresh().await);
        text(status, format!("{sentence}\n"))
    }
}

/// Returns the health as an HTTP status, for programs that read only the status, with its sentence.
fn well(known: &Known) -> (StatusCode, String) {
    match known {
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason.clone()),
        Ok(snapshot) => match Health::of(&snapshot.report) {
            Health { level: Level::Bad, sentence } => (StatusCode::SERVICE_UNAVAILABLE, sentence),
            Health { level: Level::Good | Level::Warning, sentence } => (StatusCode::OK, sentence),
        },
    }
}

/// Decodes the search of `/?find=`, as a form writes it; empty if there is none, or if it is too long or malformed.
fn looked_for(query: Option<&str>) -> String {
    let value = query.and_then(|query| query.split('&').find_map(|part| part.strip_prefix("find=")));
    let Some(value) = value else { return String::new() };
    let mut bytes = Vec::new();
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return String::new(),
            },
            byte => byte,
        });
    }
    if bytes.len() > 4 * page::FIND_MOST { String::new() } else { String::from_utf8_lossy(&bytes).trim().into() }
}

fn json(snapshot: &Snapshot) -> Bytes {
    let made = || {
        let mut text = serde_json::to_vec(&snapshot.report).unwrap_or_default();
        text.push(b'\n');
        Bytes::from(text)
    };
    snapshot.made.json.get_or_init(made).clone()
}

fn metrics(snapshot: &Snapshot, pool: &str) -> Bytes {
    snapshot.made.metrics.get_or_init(|| Bytes::from(prometheus::text(&snapshot.report, pool))).clone()
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    answer(status, TEXT, body)
}

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    answer.headers_mut().extend(headers.map(|(name, value)| (name, HeaderValue::from_static(value))));
    answer
}

/// Returns true if a request's host is an address or `localhost`, which no other site can have invented. HTTP/1.0 names none.
fn is_local(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_for_is_read_as_a_form_writes_it() {
        let read = |query| looked_for(Some(query));
        assert_eq!(looked_for(None), "");
        assert_eq!(
            (read("find=vm1"), read("a=b&find=vm+1&c"), read("find=%C3%A9%22")),
            ("vm1".into(), "vm 1".into(), "é\"".into())
        );
        assert_eq!((read("find="), read("find=%"), read("find=%zz"), read("finder=a")), Default::default());
        assert_eq!(read("find=%ff"), "\u{fffd}");
        assert_eq!(read(&format!("find={}", "a".repeat(10_000))), "");
    }

    #[test]
    fn only_hosts_that_no_other_site_can_be_are_local() {
        let local = |host: &'static str| is_local(Some(&HeaderValue::from_static(host)));
        assert!(is_local(None));
        assert!(local("localhost") && local("LOCALHOST:9180") && local("127.0.0.1:9180") && local("[::1]:9180"));
        assert!(local("192.0.2.7") && local("[2001:db8::1]"));
        assert!(
            !local("") && !local("example.org:9180") && !local("127.0.0.1.example.org") && !local("[::1"[..1].trim())
        );
    }
}
