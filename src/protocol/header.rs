//! Request and response headers.
//!
//! The first eight bytes of a request (API key, version, correlation id) are the
//! same in every version there will ever be, so they are read even when the rest
//! cannot be: that is enough to answer, or to know why the connection is closed.
//!
//! What it is not: it does not refuse anything; [`RequestHeader::served`] says whether
//! the request can be decoded, and the connection decides.

use super::api::{ApiKey, UnservedApi};
use super::codec::{Context, DecodeError, EncodeError, Reader, Str, Wire, Writer};

/// What precedes a request's body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestHeader {
    /// The API; see [`ApiKey::from_code`].
    pub api_key: i16,
    /// The version of the request, and of the response that is expected.
    pub api_version: i16,
    /// To be repeated in the response.
    pub correlation_id: i32,
    /// What the client calls itself. None also if the API is unknown, as its header is then.
    pub client_id: Option<Str>,
}

impl RequestHeader {
    /// Reads the header and leaves the reader at the body.
    ///
    /// For an API that is not known only the first eight bytes are read. For a version
    /// that is not served the header is read as that version of the API would have it,
    /// as Kafka does; what cannot be read so is left out, not an error.
    pub fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let mut header = Self {
            api_key: r.read_i16().map_err(|e| e.in_field("the API key"))?,
            api_version: r.read_i16().map_err(|e| e.in_field("the API version"))?,
            correlation_id: r.read_i32().map_err(|e| e.in_field("the correlation id"))?,
            client_id: None,
        };
        match header.served() {
            Ok(key) => header.decode_rest(r, key)?,
            // The body is of no use, so what is left of the header need not be either.
            Err(UnservedApi::UnsupportedVersion { key, version }) => {
                let is_laid_out_as_ours = key.served_versions().contains(&version);
                match header.decode_rest(r, key) {
                    Err(e) if is_laid_out_as_ours => return Err(e),
                    _ => {}
                }
            }
            Err(UnservedApi::UnknownKey(_)) => {}
        }
        Ok(header)
    }

    fn decode_rest(&mut self, r: &mut Reader, key: ApiKey) -> Result<(), DecodeError> {
        // The client id is never compact, so that an old broker can read it (KIP-482).
        self.client_id =
            Option::<Str>::read(r, INFLEXIBLE).map_err(|e| e.in_field("the client id"))?;
        if key.request_header_is_flexible(self.api_version) {
            r.read_tags(|_, _| Ok(false))
                .map_err(|e| e.in_field("the header's tagged fields"))?;
        }
        Ok(())
    }

    /// The API, if its requests of this version can be decoded.
    pub fn served(&self) -> Result<ApiKey, UnservedApi> {
        let key = ApiKey::from_code(self.api_key).ok_or(UnservedApi::UnknownKey(self.api_key))?;
        if key.decoded_versions().contains(&self.api_version) {
            Ok(key)
        } else {
            Err(UnservedApi::UnsupportedVersion {
                key,
                version: self.api_version,
            })
        }
    }

    /// Writes the header as the API and version that it names have it.
    pub fn encode(&self, w: &mut Writer) -> Result<(), EncodeError> {
        w.put_i16(self.api_key);
        w.put_i16(self.api_version);
        w.put_i32(self.correlation_id);
        self.client_id
            .write(w, INFLEXIBLE)
            .map_err(|e| e.in_field("the client id"))?;
        let is_flexible = ApiKey::declared(self.api_key)
            .is_some_and(|key| key.request_header_is_flexible(self.api_version));
        if is_flexible {
            w.put_uvarint(0);
        }
        Ok(())
    }
}

/// What precedes a response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHeader {
    /// That of the request.
    pub correlation_id: i32,
}

impl ResponseHeader {
    /// Reads the header of a response to a request of `key` and `version`.
    pub fn decode(r: &mut Reader, key: ApiKey, version: i16) -> Result<Self, DecodeError> {
        let correlation_id = r.read_i32().map_err(|e| e.in_field("the correlation id"))?;
        if key.response_header_is_flexible(version) {
            r.read_tags(|_, _| Ok(false))
                .map_err(|e| e.in_field("the header's tagged fields"))?;
        }
        Ok(Self { correlation_id })
    }

    /// Writes the header of a response to a request of `key` and `version`.
    pub fn encode(&self, w: &mut Writer, key: ApiKey, version: i16) {
        w.put_i32(self.correlation_id);
        if key.response_header_is_flexible(version) {
            w.put_uvarint(0);
        }
    }
}

/// How the client id lies on the wire, in every header version.
const INFLEXIBLE: Context = Context {
    version: 1,
    flexible: false,
};

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn encoded(header: &RequestHeader) -> Bytes {
        let mut w = Writer::new();
        header.encode(&mut w).unwrap();
        w.finish().concat().into()
    }

    fn header(api_key: i16, api_version: i16) -> RequestHeader {
        RequestHeader {
            api_key,
            api_version,
            correlation_id: 7,
            client_id: Some("me".into()),
        }
    }

    #[test]
    fn every_served_version_survives_the_wire() {
        for &key in ApiKey::ALL {
            for version in key.served_versions() {
                let sent = header(key.code(), version);
                let mut r = Reader::new(encoded(&sent));
                assert_eq!(RequestHeader::decode(&mut r).unwrap(), sent);
                r.finish().unwrap();

                let mut w = Writer::new();
                let answer = ResponseHeader { correlation_id: 9 };
                answer.encode(&mut w, key, version);
                let mut r = Reader::new(w.finish().concat().into());
                assert_eq!(ResponseHeader::decode(&mut r, key, version), Ok(answer));
                r.finish().unwrap();
            }
        }
    }

    #[test]
    fn an_unknown_api_gives_what_is_needed_to_close() {
        let bytes = Bytes::from_static(&[0x7f, 0xff, 0, 3, 0, 0, 0, 5, 0xff]);
        let got = RequestHeader::decode(&mut Reader::new(bytes)).unwrap();
        assert_eq!(got.correlation_id, 5);
        assert_eq!(got.served(), Err(UnservedApi::UnknownKey(0x7fff)));
    }

    #[test]
    fn a_newer_api_versions_request_gives_what_is_needed_to_answer() {
        // With a client id that cannot be read as the header that we know.
        let bytes = Bytes::from_static(&[0, 18, 0, 99, 0, 0, 0, 5, 0x7f, 0xff, 1]);
        let got = RequestHeader::decode(&mut Reader::new(bytes)).unwrap();
        assert_eq!((got.correlation_id, got.client_id.clone()), (5, None));
        assert!(matches!(
            got.served(),
            Err(UnservedApi::UnsupportedVersion {
                key: ApiKey::ApiVersions,
                version: 99
            })
        ));
    }

    #[test]
    fn a_short_header_is_an_error_that_names_its_field() {
        let mut whole = encoded(&header(0, 9));
        while !whole.is_empty() {
            whole.truncate(whole.len() - 1);
            let error = RequestHeader::decode(&mut Reader::new(whole.clone())).unwrap_err();
            assert!(error.field.is_some(), "{error}");
        }
    }

    #[test]
    fn tagged_fields_of_the_header_are_passed_over() {
        let mut bytes = encoded(&header(3, 9)).to_vec();
        assert_eq!(bytes.pop(), Some(0));
        bytes.extend([2, 0, 1, 0xaa, 9, 0]); // two fields: tag 0 of one byte, tag 9 of none
        let mut r = Reader::new(bytes.into());
        assert_eq!(RequestHeader::decode(&mut r).unwrap(), header(3, 9));
        r.finish().unwrap();
    }
}
