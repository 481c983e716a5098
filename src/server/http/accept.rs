//! What a scraper wants to read: OpenMetrics, or the text that came before it.

use hyper::header::{HeaderMap, ACCEPT};

/// Whether it asks for `text/plain` and would rather have that than OpenMetrics. Who names neither (`curl`) gets OpenMetrics.
pub(super) fn wants_plain(headers: &HeaderMap) -> bool {
    let (mut open, mut plain) = (0.0_f32, 0.0_f32);
    let values = headers.get_all(ACCEPT).into_iter();
    for range in values
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
    {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let quality = parts.filter_map(|part| part.strip_prefix("q=")).next_back();
        let quality = quality.map_or(1.0, |q| q.parse().unwrap_or(0.0));
        if kind.eq_ignore_ascii_case("application/openmetrics-text") {
            open = open.max(quality);
        } else if kind.eq_ignore_ascii_case("text/plain") {
            plain = plain.max(quality);
        }
    }
    plain > open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrapers_get_what_they_prefer() {
        let cases = [
            (None, false),
            (Some("*/*"), false),
            (Some("text/html,application/xml;q=0.9,*/*;q=0.8"), false),
            // Prometheus 2, 3, 3 that prefers the old text, and one that wants protobuf first.
            (Some("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"), false),
            (Some("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"), false),
            (Some("text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.4"), true),
            (Some("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"), false),
            // vmagent, Telegraf.
            (Some("text/plain;version=0.0.4;q=1,*/*;q=0.1"), true),
            (Some("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3"), true),
            (Some("TEXT/PLAIN; q=x, application/openmetrics-text; q=0"), false),
        ];
        for (accept, plain) in cases {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(ACCEPT, accept.parse().expect("it is a header"));
            }
            assert_eq!(wants_plain(&headers), plain, "{accept:?}");
        }
        let mut two = HeaderMap::new();
        two.append(ACCEPT, "text/plain;q=0.1".parse().expect("a header"));
        assert!(wants_plain(&two));
        two.append(
            ACCEPT,
            "application/openmetrics-text;q=0.2"
                .parse()
                .expect("a header"),
        );
        assert!(!wants_plain(&two));
    }
}
